//! Programs at the entries of kernel functions. The kernel makes a trampoline for each function that has one.

use std::fs;
use std::os::fd::OwnedFd;

use crate::load::btf;
use crate::load::cli::Common;
use crate::load::error::{Error, Result};
use crate::load::insn::Shape;
use crate::load::kallsyms;
use crate::load::log::{Log, Object};
use crate::load::pace::{Life, now};
use crate::load::places::{self, PLACES, Place};
use crate::load::program::{FEW, Program};
use crate::load::sys::{self, ProgramType};

const KIND: &str = "fentry";
const BTF: &str = "/sys/kernel/btf/vmlinux";
/// Set in the low half of a trampoline's key when it belongs to a kernel function.
const IN_KERNEL: u64 = 0x8000_0000;

/// Where the kernel's type information, which numbers its functions, has something to attach to.
struct Kernel {
    /// Functions and their numbers, at least one.
    targets: Vec<(Place, u32)>,
    id: u64,
}

/// A program at a function. The link goes before the program.
struct Attached {
    link: OwnedFd,
    program: Program,
    place: Place,
    trampoline: String,
    calls: u64,
}

/// Attaches and detaches, one function after the other. The trampoline of a detached program goes later than the
/// program: when no task can be in it any more.
pub(crate) fn run(common: &Common, log: &mut Log) -> Result<()> {
    let kernel = Kernel::read()?;
    if common.life == Life::Hot {
        return hot(common, &kernel, log);
    }
    for n in common.pace() {
        let attached = kernel.attach(n)?;
        common.life.pass();
        log.object(&attached.detach(None))?;
    }
    Ok(())
}

/// One program at each of a few functions, which are called all the time.
fn hot(common: &Common, kernel: &Kernel, log: &mut Log) -> Result<()> {
    let mut all = common.hot_numbers(3).map(|n| kernel.attach(n)).collect::<Result<Vec<_>>>()?;
    let file = places::file().map_err(|e| Error::failed("open the own program", e))?;
    let end = common.hot_end();
    while now() < end && !all.is_empty() {
        all.iter_mut().for_each(|attached| attached.calls += attached.place.visit(&file));
    }
    let known = kallsyms::find(&|name| name.starts_with("bpf_trampoline_"))?;
    for attached in all {
        let address = known.iter().find(|(name, _)| *name == attached.trampoline).and_then(|(_, address)| *address);
        log.object(&attached.detach(address))?;
    }
    Ok(())
}

impl Kernel {
    fn read() -> Result<Kernel> {
        let types = fs::read(BTF).map_err(|e| Error::unavailable_if(&[libc::ENOENT], format!("read {BTF}"), e))?;
        let id = sys::kernel_btf_id().map_err(|e| Error::failed("find the kernel's type information", e))?;
        // It leaves out functions that were compiled to something else than their prototype says.
        let with_number = |place: Place| Some((place, btf::function_id(&types, place.function)?));
        let targets: Vec<_> = PLACES.into_iter().filter_map(with_number).collect();
        if targets.is_empty() {
            return Err(Error::unavailable(format!("find a function in {BTF}"), "it has none of those we know"));
        }
        Ok(Kernel { targets, id: id.into() })
    }

    fn attach(&self, n: u64) -> Result<Attached> {
        let (place, target) = self.targets[(n % self.targets.len() as u64) as usize];
        let shape = Shape { prefix: "load_fentry", n, turns: FEW, verdict: 0 };
        let mut program = Program::load(ProgramType::Fentry(target), &shape)?;
        let link = sys::attach_fentry(program.fd()).map_err(|e| {
            let codes = [libc::EPERM, libc::EOPNOTSUPP, libc::EBUSY, 524];
            Error::unavailable_if(&codes, format!("attach to the entry of {}", place.function), e)
        })?;
        program.ask()?;
        let trampoline = format!("bpf_trampoline_{}", self.id << 32 | IN_KERNEL | u64::from(target));
        Ok(Attached { link, program, place, trampoline, calls: 0 })
    }
}

impl Attached {
    fn detach(self, address: Option<u64>) -> Object {
        drop(self.link);
        let object = self.program.close(KIND).with("function", self.place.function).with("calls", self.calls);
        let address = address.map(|address| format!("{address:#x}"));
        object.with("trampoline", serde_json::json!({ "name": self.trampoline, "address": address }))
    }
}
