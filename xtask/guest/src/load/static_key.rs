//! Static keys of the kernel switched from user space. Each switch patches every branch that asks for the key.
//!
//! - A software event of perf that is open holds its key in `perf_swevent_enabled[]` (kernel/events/core.c); the
//!   branches are where such events happen: page faults in the fault handler, context switches in the scheduler. The key
//!   changes when the first event of that kind opens and when the last one closes, in the call itself. Events that x86
//!   does not have, such as emulation faults, have no branch.
//! - `kernel.sched_schedstats` is the key `sched_schedstats` (kernel/sched/core.c), asked all over the scheduler.

use std::fs;
use std::io;

use afterimage_perf_data::Attr;
use clap::ValueEnum;

use crate::load::cli::Common;
use crate::load::error::{Error, Result};
use crate::load::event;
use crate::load::log::{Log, Object};
use crate::load::pace::{Life, now};

const KIND: &str = "static-key";
const SCHEDSTATS: &str = "/proc/sys/kernel/sched_schedstats";
const TYPE_SOFTWARE: u32 = 1;

/// Which key to switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Key {
    /// The event page-faults.
    PageFaults,
    /// The event context-switches.
    ContextSwitches,
    /// The event cpu-migrations.
    CpuMigrations,
    /// The statistics of the scheduler.
    Schedstats,
}

impl Key {
    /// The event's number in `enum perf_sw_ids`.
    fn event(self) -> Option<u64> {
        match self {
            Key::PageFaults => Some(2),
            Key::ContextSwitches => Some(3),
            Key::CpuMigrations => Some(4),
            Key::Schedstats => None,
        }
    }

    fn symbol(self) -> String {
        match self.event() {
            Some(event) => format!("perf_swevent_enabled[{event}]"),
            None => "sched_schedstats".to_owned(),
        }
    }
}

/// Switches the key on and off. Each object is one time that it was on.
pub(crate) fn run(common: &Common, key: Key, log: &mut Log) -> Result<()> {
    if common.life == Life::Hot {
        return Err(Error::failed("switch a static key", io::Error::other("there is no hot life for it")));
    }
    for n in common.pace() {
        let mut object = Object::new(KIND, n, now());
        match key.event() {
            Some(number) => while_open(number, common.life)?,
            None => with_statistics(common.life)?,
        }
        object.gone_ns = now();
        log.object(&object.with("key", key.symbol()))?;
    }
    Ok(())
}

fn while_open(number: u64, life: Life) -> Result<()> {
    let attr = Attr { kind: TYPE_SOFTWARE, config: number, ..Attr::default() };
    let event = event::open(&attr).map_err(|e| Error::failed("open a software event", e))?;
    life.pass();
    drop(event);
    Ok(())
}

fn with_statistics(life: Life) -> Result<()> {
    let set = |on: &str| {
        fs::write(SCHEDSTATS, on).map_err(|e| Error::unavailable_if(&[libc::ENOENT], format!("write {SCHEDSTATS}"), e))
    };
    set("1")?;
    life.pass();
    set("0")
}
