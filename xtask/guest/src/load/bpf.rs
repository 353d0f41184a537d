//! BPF programs of three functions that come and go, or run all the time.

use std::time::Duration;

use crate::load::cli::Common;
use crate::load::error::Result;
use crate::load::insn::Shape;
use crate::load::log::Log;
use crate::load::pace::{Life, now};
use crate::load::program::{FEW, MANY, Program};
use crate::load::sys::ProgramType;

const KIND: &str = "bpf";
/// Runs of a hot program in one turn, about 10 ms.
const TURN: u32 = 500;

/// Loads programs, lets each live, closes them. Before the first, libbpf loads one or two nameless programs of its own to
/// find out what the kernel can do; they are no objects of this load.
pub(crate) fn run(common: &Common, no_info: bool, log: &mut Log) -> Result<()> {
    if common.life == Life::Hot {
        let make = |n| Program::load(ProgramType::Socket, &shape(n, MANY));
        return hot(KIND, common, &make, TURN, log);
    }
    for n in common.pace() {
        let mut program = Program::load(ProgramType::Socket, &shape(n, FEW))?;
        if !no_info {
            program.ask()?;
        }
        common.life.pass();
        log.object(&program.close(KIND))?;
    }
    Ok(())
}

fn shape(n: u64, turns: i32) -> Shape<'static> {
    Shape { prefix: "load_bpf", n, turns, verdict: 0 }
}

/// Keeps a few programs and runs them by turns of so many runs, in this thread. What each used is `run_ns`, of which
/// its function `left` has three quarters and `right` one.
pub(crate) fn hot(
    kind: &'static str,
    common: &Common,
    make: &dyn Fn(u64) -> Result<Program>,
    runs: u32,
    log: &mut Log,
) -> Result<()> {
    let mut programs = common.hot_numbers(4).map(|n| Ok((make(n)?, 0))).collect::<Result<Vec<_>>>()?;
    programs.iter_mut().try_for_each(|(program, _)| program.ask())?;
    let end = common.hot_end();
    while now() < end && !programs.is_empty() {
        for (program, used) in &mut programs {
            *used += program.run(runs)?;
            if let Some(rate) = common.rate.filter(|rate| *rate > 0) {
                std::thread::sleep(Duration::from_secs(1) / rate);
            }
        }
    }
    for (program, used) in programs {
        log.object(&program.close(kind).with("run_ns", used))?;
    }
    Ok(())
}
