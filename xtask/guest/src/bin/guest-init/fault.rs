//! Faults on purpose, each of which the host has to notice and to call by its name.

use crate::system;
use std::fs;
use std::process::ExitCode;

/// The module that locks up a CPU and the like.
const MODULE: &str = "/guest/modules/lockup.ko";

/// Commits one fault. Where that works, this never comes back.
pub(crate) fn commit(name: &str) -> ExitCode {
    let done = match name {
        "panic" => fs::write("/proc/sysrq-trigger", "c"),
        // The guests' limit is made for machines that are slow, and would take minutes.
        "hung" => fs::write("/proc/sys/kernel/hung_task_timeout_secs", "10")
            .and_then(|()| system::load_module_with(MODULE, "how=hung")),
        "lockup" | "stall" | "stuck" | "oops" => system::load_module_with(MODULE, &format!("how={name}")),
        _ => {
            eprintln!("no fault is called {name}");
            return ExitCode::from(2);
        }
    };
    eprintln!("the fault {name} did not happen: {done:?}");
    ExitCode::FAILURE
}
