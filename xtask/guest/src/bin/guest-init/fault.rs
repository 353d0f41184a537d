//! Faults on purpose, each of which the host has to notice and to call by its name.

use crate::system;
use std::fs;
use std::process::ExitCode;

/// The module that locks up one CPU or all of them.
const MODULE: &str = "/guest/modules/lockup.ko";

/// Commits one fault. Where that works, this never comes back.
pub(crate) fn commit(name: &str) -> ExitCode {
    let done = match name {
        "panic" => fs::write("/proc/sysrq-trigger", "c"),
        "lockup" | "stall" | "stuck" => system::load_module_with(MODULE, &format!("how={name}")),
        _ => {
            eprintln!("no fault is called {name}");
            return ExitCode::from(2);
        }
    };
    eprintln!("the fault {name} did not happen: {done:?}");
    ExitCode::FAILURE
}
