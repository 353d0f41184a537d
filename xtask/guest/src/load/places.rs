//! Kernel functions to hook: small system calls that nobody needs, and how to call them.

use rustix::process::{getegid, geteuid, getgid, getppid, getuid};

/// One function and what calls it once.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    /// The kernel's symbol.
    pub(crate) function: &'static str,
    call: fn(),
}

/// Where we hook.
pub(crate) const PLACES: [Place; 5] = [
    Place { function: "__x64_sys_getppid", call: || _ = getppid() },
    Place { function: "__x64_sys_getuid", call: || _ = getuid() },
    Place { function: "__x64_sys_geteuid", call: || _ = geteuid() },
    Place { function: "__x64_sys_getgid", call: || _ = getgid() },
    Place { function: "__x64_sys_getegid", call: || _ = getegid() },
];

impl Place {
    /// The place of object `n`.
    pub(crate) fn of(n: u64) -> Place {
        PLACES[(n % PLACES.len() as u64) as usize]
    }

    /// Calls the function a thousand times. Returns how often.
    pub(crate) fn visit(&self) -> u64 {
        const TIMES: u64 = 1000;
        (0..TIMES).for_each(|_| (self.call)());
        TIMES
    }
}
