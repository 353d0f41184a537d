//! Processes whose CPU time is known function by function, by CLOCK_THREAD_CPUTIME_ID.

use std::env;
use std::hint::black_box;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::load::error::{Error, Result};
use crate::load::log::{Log, Object};
use crate::load::pace::{now, thread_cpu};

const KIND: &str = "busy";
const MS: u64 = 1_000_000;
/// Nanoseconds of work between two looks at the clock, at least: the looks shall be no part of the profile.
const LOOK: u64 = 200_000;

/// Uses `seconds` of CPU time in each of `processes` processes, the first of them this one. It stands on stacks by its name.
#[inline(never)]
pub(crate) fn run(seconds: f64, processes: u32, log: &mut Log) -> Result<()> {
    let failed = |e| Error::failed("start another process of the load", e);
    let start = |_| {
        let exe = env::current_exe().map_err(failed)?;
        let arguments = ["busy".to_owned(), format!("--seconds={seconds}")];
        Command::new(exe).args(arguments).stdout(Stdio::piped()).spawn().map_err(failed)
    };
    let children = (1..processes).map(start).collect::<Result<Vec<_>>>()?;
    let object = work((seconds * 1e9) as u64);
    log.object(&object)?;
    for child in children {
        let output = child.wait_with_output().map_err(failed)?;
        let text = String::from_utf8_lossy(&output.stdout);
        let first = text.lines().next().and_then(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let first = first.filter(|_| output.status.success());
        let line = first.ok_or_else(|| {
            Error::failed("read what another process of the load did", std::io::ErrorKind::InvalidData.into())
        })?;
        log.foreign(&line)?;
    }
    Ok(())
}

/// Sixty, thirty and ten milliseconds by turns.
fn work(budget: u64) -> Object {
    let mut object = Object::new(KIND, std::process::id().into(), now());
    let (mut sixty, mut thirty, mut ten) = (0, 0, 0);
    while sixty + thirty + ten < budget {
        sixty += busy_sixty();
        thirty += busy_thirty();
        ten += busy_level(20);
    }
    object.gone_ns = now();
    let split = json!({ "busy_sixty": sixty, "busy_thirty": thirty, "busy_ten": ten });
    object.with("pid", std::process::id()).with("cpu_ns", split)
}

// Each has a name of its own in the symbol table and, with frame pointers, a frame of its own on the stack.

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn busy_sixty() -> u64 {
    work_for(60 * MS)
}

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn busy_thirty() -> u64 {
    work_for(30 * MS)
}

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn busy_ten() -> u64 {
    work_for(10 * MS)
}

/// `depth` frames above [`busy_ten`].
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn busy_level(depth: u32) -> u64 {
    let took = if depth > 1 { busy_level(depth - 1) } else { busy_ten() };
    // Something to do after the call keeps this frame on the stack.
    black_box(took)
}

/// Works until the thread has used `ns` more of CPU time; gives the time really used. Expanded into its caller.
#[inline(always)]
fn work_for(ns: u64) -> u64 {
    let start = thread_cpu();
    let (mut value, mut took, mut steps) = (start, 0, 1000u32);
    while took < ns {
        for _ in 0..steps {
            // A chain of multiplications: no memory, no calls, and nothing that a compiler can shorten.
            value = value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        }
        black_box(value);
        let before = std::mem::replace(&mut took, thread_cpu() - start);
        if took - before < LOOK {
            steps = steps.saturating_mul(2);
        }
    }
    took
}
