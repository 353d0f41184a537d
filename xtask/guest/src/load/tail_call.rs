//! A running program whose direct jump the kernel patches: from one program to another, and away.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::load::cli::Common;
use crate::load::error::{Error, Result};
use crate::load::insn::Shape;
use crate::load::log::{Log, Object};
use crate::load::pace::now;
use crate::load::program::{FEW, Program};
use crate::load::sys::{self, ProgramType};

const KIND: &str = "tail-call";

/// Patches while another thread runs the program. Each object is one stay of a target behind the jump; the programs
/// follow as objects when all is over.
pub(crate) fn run(common: &Common, log: &mut Log) -> Result<()> {
    let map = sys::program_array().map_err(|e| Error::failed("make a map of programs", e))?;
    let caller = Program::load_caller(&shape(common.first), map.as_fd());
    let mut caller = caller?;
    let target = |n| Program::load(ProgramType::Socket, &shape(common.first.wrapping_add(n)));
    let mut targets = [target(1)?, target(2)?];
    caller.ask()?;
    targets.iter_mut().try_for_each(Program::ask)?;
    let over = AtomicBool::new(false);
    let ran = thread::scope(|scope| {
        let runner = scope.spawn(|| {
            let mut ran = 0;
            while !over.load(Ordering::Relaxed) {
                ran += caller.run(10_000)?;
            }
            Ok(ran)
        });
        let patched = patch(common, map.as_fd(), &targets, log);
        over.store(true, Ordering::Relaxed);
        let ran: Result<u64> =
            runner.join().unwrap_or_else(|_| Err(Error::failed("run", std::io::ErrorKind::Other.into())));
        patched.and(ran)
    })?;
    log.object(&caller.close(KIND).with("role", "caller").with("run_ns", ran))?;
    for target in targets {
        log.object(&target.close(KIND).with("role", "target"))?;
    }
    Ok(())
}

fn shape(n: u64) -> Shape<'static> {
    Shape { prefix: "load_tail", n, turns: FEW, verdict: 0 }
}

/// First target, nothing, second target, nothing, and the other way around without a nothing: jumps appear, go and
/// change in place.
fn patch(common: &Common, map: BorrowedFd<'_>, targets: &[Program; 2], log: &mut Log) -> Result<()> {
    let put = |program: Option<&Program>| {
        sys::set_program(map, program.map(Program::fd)).map_err(|e| Error::failed("patch the jump", e))
    };
    for n in common.pace() {
        let target = &targets[(n % 2) as usize];
        let mut object = Object::new(KIND, n, now());
        put(Some(target))?;
        common.life.pass();
        // Every third stay ends by the other target coming in its place.
        let change = n % 3 == 2;
        put(change.then(|| &targets[((n + 1) % 2) as usize]))?;
        object.gone_ns = now();
        log.object(&object.with("role", "patch").with("target", target.symbol()).with("to_other", change))?;
    }
    put(targets.first()).and_then(|()| put(None))
}
