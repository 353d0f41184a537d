//! XDP programs that are attached to an interface for a while.

use std::fs;

use crate::load::bpf;
use crate::load::cli::Common;
use crate::load::error::{Error, Result};
use crate::load::insn::Shape;
use crate::load::log::Log;
use crate::load::pace::{Life, now};
use crate::load::program::{FEW, MANY, Program};
use crate::load::sys::{self, ProgramType};

const KIND: &str = "xdp";
/// Runs of a hot program in one turn: the kernel changes its dispatcher before and after, which takes tens of
/// milliseconds.
const TURN: u32 = 5000;
/// XDP_PASS: packets go on as if nobody had looked.
const PASS: i32 = 2;

/// Loads, attaches, detaches. A hot program is run by the kernel's test run, which goes through the dispatcher of XDP.
pub(crate) fn run(common: &Common, interface: &str, log: &mut Log) -> Result<()> {
    if common.life == Life::Hot {
        let make = |n| Program::load(ProgramType::Xdp, &shape(n, MANY));
        return bpf::hot(KIND, common, &make, TURN, log);
    }
    let index = index_of(interface)?;
    for n in common.pace() {
        let mut program = Program::load(ProgramType::Xdp, &shape(n, FEW))?;
        let attaching = now();
        let link = sys::attach_xdp(program.fd(), index).map_err(|e| {
            Error::unavailable_if(&[libc::EOPNOTSUPP, libc::EINVAL], format!("attach XDP to {interface}"), e)
        })?;
        program.ask()?;
        common.life.pass();
        drop(link);
        let detached = now();
        let object = program.close(KIND).with("interface", interface);
        log.object(&object.with("attached_ns", attaching).with("detached_ns", detached))?;
    }
    Ok(())
}

fn shape(n: u64, turns: i32) -> Shape<'static> {
    Shape { prefix: "load_xdp", n, turns, verdict: PASS }
}

fn index_of(interface: &str) -> Result<u32> {
    let path = format!("/sys/class/net/{interface}/ifindex");
    let text = fs::read_to_string(&path).map_err(|e| Error::failed(format!("read {path}"), e))?;
    text.trim().parse().map_err(|_| Error::failed(format!("read {path}"), std::io::ErrorKind::InvalidData.into()))
}
