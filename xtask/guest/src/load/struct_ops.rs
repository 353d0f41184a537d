//! Structures of functions that the kernel calls: a way to control the congestion of TCP, which no connection uses. Each of
//! its functions is a program behind a trampoline of its own.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::{fs, io};

use serde_json::json;

use crate::load::btf::{self, Struct};
use crate::load::cli::Common;
use crate::load::error::{Error, Result};
use crate::load::insn::Shape;
use crate::load::log::Log;
use crate::load::pace::now;
use crate::load::program::{FEW, Program};
use crate::load::sys::{self, ProgramType};

const KIND: &str = "struct-ops";
const BTF: &str = "/sys/kernel/btf/vmlinux";
const OPS: &str = "tcp_congestion_ops";
/// What the map holds: reference count, state, and the structure.
const VALUE: &str = "bpf_struct_ops_tcp_congestion_ops";
/// The members that the kernel asks for.
const MEMBERS: [&str; 3] = ["ssthresh", "cong_avoid", "undo_cwnd"];

/// Where things are in the kernel's structures.
struct Layout {
    ops: u32,
    value: Struct,
    /// Number and place of each member, the place in the value.
    members: [(u32, usize); MEMBERS.len()],
    /// Where the name goes.
    name: usize,
}

/// Registers structures, lets each live, and takes them away.
pub(crate) fn run(common: &Common, log: &mut Log) -> Result<()> {
    let types = fs::read(BTF).map_err(|e| Error::unavailable_if(&[libc::ENOENT], format!("read {BTF}"), e))?;
    let layout = Layout::find(&types)
        .ok_or_else(|| Error::unavailable(format!("find {OPS} in {BTF}"), "the kernel was built without it"))?;
    common.pace().try_for_each(|n| one(&layout, n, common, log))
}

impl Layout {
    fn find(types: &[u8]) -> Option<Layout> {
        let (ops, value) = (Struct::find(types, OPS)?, Struct::find(types, VALUE)?);
        let (_, data) = value.member("data")?;
        let place = |name: &str| ops.member(name).map(|(number, at)| (number, (data + at) as usize));
        let mut members = [(0, 0); MEMBERS.len()];
        for (member, name) in members.iter_mut().zip(MEMBERS) {
            *member = place(name)?;
        }
        let (_, name) = place("name")?;
        Some(Layout { ops: ops.id, value, members, name })
    }

    fn map(&self) -> io::Result<OwnedFd> {
        let types = sys::load_btf(&btf::functions(std::iter::once("load_ops")))?;
        sys::struct_ops(self.value.id, self.value.size, types.as_fd())
    }

    /// The value of a map: the descriptors of programs where functions go.
    fn value(&self, name: &str, programs: &[Program]) -> Option<Vec<u8>> {
        let mut value = vec![0u8; self.value.size as usize];
        for ((_, at), program) in self.members.iter().zip(programs) {
            let fd = program.fd().as_raw_fd() as u64;
            value.get_mut(*at..at + 8)?.copy_from_slice(&fd.to_ne_bytes());
        }
        value.get_mut(self.name..self.name + name.len())?.copy_from_slice(name.as_bytes());
        Some(value)
    }
}

fn one(layout: &Layout, n: u64, common: &Common, log: &mut Log) -> Result<()> {
    let name = format!("load_ops_{}", n % 1_000_000);
    let mut programs = Vec::new();
    for ((member, _), which) in layout.members.into_iter().zip(0..) {
        let shape = Shape { prefix: "load_ops", n: n * MEMBERS.len() as u64 + which, turns: FEW, verdict: 0 };
        programs.push(Program::load(ProgramType::StructOps { ops: layout.ops, member }, &shape)?);
    }
    programs.iter_mut().try_for_each(Program::ask)?;
    let value = layout
        .value(&name, &programs)
        .ok_or_else(|| Error::failed(format!("fill {OPS}"), io::ErrorKind::InvalidData.into()))?;
    let map = layout
        .map()
        .map_err(|e| Error::unavailable_if(&[libc::EPERM, libc::EOPNOTSUPP, 524], format!("make a map of {OPS}"), e))?;
    let registering = now();
    sys::register(map.as_fd(), &value).map_err(|e| Error::failed(format!("register {name}"), e))?;
    common.life.pass();
    sys::unregister(map.as_fd()).map_err(|e| Error::failed(format!("take away {name}"), e))?;
    // The trampolines go with the map, when nobody can be in them any more.
    drop(map);
    let gone = now();
    for (program, member) in programs.into_iter().zip(MEMBERS) {
        let trampoline = json!({ "name": format!("bpf__{OPS}_{member}"), "born_ns": registering, "gone_ns": gone });
        log.object(&program.close(KIND).with("ops", name.as_str()).with("trampoline", trampoline))?;
    }
    Ok(())
}
