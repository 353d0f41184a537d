//! Programs that end with this process, however it ends: an interrupt at the terminal reaches all, a signal to this process alone
//! reaches nobody else.

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// A command that is killed when the thread that starts it is gone, and with it this process.
pub(super) fn bound(program: impl AsRef<OsStr>) -> Command {
    let us = std::process::id();
    let mut command = Command::new(program);
    // SAFETY: prctl, getppid and raise may be called between fork and exec (they are system calls, and take no locks); nothing
    // of this process's memory is touched but `us`, which is a number of the closure's own. What allocates would break it.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return Err(io::Error::last_os_error());
            }
            // Where we ended before that was said, nothing more would come.
            if u32::try_from(libc::getppid()) != Ok(us) {
                libc::raise(libc::SIGKILL);
            }
            Ok(())
        });
    }
    command
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn it_ends_with_the_thread_that_started_it() {
        let start = |mut command: Command| std::thread::spawn(move || command.arg("20").spawn().unwrap());
        let mut bound_to_it = start(bound("sleep")).join().unwrap();
        assert_eq!(bound_to_it.wait().unwrap().signal(), Some(libc::SIGKILL));
        // Others go on.
        let mut other = start(Command::new("sleep")).join().unwrap();
        assert_eq!(other.try_wait().unwrap(), None);
        other.kill().unwrap();
        other.wait().unwrap();
    }

    #[test]
    fn it_runs_as_long_as_we_do() {
        assert_eq!(bound("sh").args(["-c", "exit 7"]).status().unwrap().code(), Some(7));
    }
}
