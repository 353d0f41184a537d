//! Running one command and seeing what it took.

use anyhow::{Context, Result, ensure};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What a finished command took, its children included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub(crate) wall: Duration,
    /// User and system time.
    pub(crate) cpu: Duration,
    /// Most memory that it held at once, in KiB.
    pub(crate) peak_kib: u64,
}

/// Runs a command with its output thrown away.
pub(crate) fn time(command: &mut Command) -> Result<Taken> {
    let start = Instant::now();
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let (status, cpu, peak_kib) = reap(child.with_context(|| format!("{command:?}"))?)?;
    ensure!(status == 0, "{command:?} ended with status {status}");
    Ok(Taken { wall: start.elapsed(), cpu, peak_kib })
}

/// Waits for a child: its exit code (128 and above for a signal), CPU time, and peak memory in KiB.
pub(crate) fn reap(child: Child) -> Result<(i32, Duration, u64)> {
    let pid = libc::pid_t::try_from(child.id())?;
    let mut status = 0;
    // SAFETY: rusage is plain integers, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live locals; `child` was not waited for, and is not used after this.
    let got = unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) };
    ensure!(got == pid, "wait4: {}", std::io::Error::last_os_error());
    let code = if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 128 + libc::WTERMSIG(status) };
    Ok((code, of(usage.ru_utime) + of(usage.ru_stime), u64::try_from(usage.ru_maxrss)?))
}

fn of(time: libc::timeval) -> Duration {
    Duration::from_secs(time.tv_sec.unsigned_abs()) + Duration::from_micros(time.tv_usec.unsigned_abs())
}

/// CPU time of all threads of a live process, in nanoseconds (the first field of `schedstat`).
pub(crate) fn cpu_ns_of(pid: u32) -> Result<u64> {
    let mut sum = 0;
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = std::fs::read_to_string(task?.path().join("schedstat"))?;
        sum += text.split_whitespace().next().unwrap_or("").parse::<u64>().context("schedstat")?;
    }
    Ok(sum)
}
