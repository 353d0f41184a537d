//! Waiting for something to do: a ring that fills, a command that ends, the time.

use std::collections::HashSet;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{io, iter};

use afterimage_perf_event::child::Child;
use afterimage_perf_event::open::Target;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::session::Session;
use crate::synth::procfs;

/// A pass is made at least this often, so that little is lost with a recorder that is killed.
const PASS: Duration = Duration::from_millis(250);

/// News of processes and kernel text lead to passes no closer than this: a machine that forks all the time would
/// otherwise be woken all the time.
const SPACING: Duration = Duration::from_millis(50);

/// Waits for the next pass.
pub(crate) struct Waiter {
    child: Option<OwnedFd>,
    /// Threads whose end is the end of the recording.
    targets: Vec<u32>,
    last: Instant,
    /// Rings whose tasks are gone: poll would return at once for ever.
    hung_up: HashSet<RawFd>,
}

impl Waiter {
    pub(crate) fn new(child: Option<&Child>, target: &Target) -> Waiter {
        let child = child.and_then(|c| Pid::from_raw(i32::try_from(c.pid()).ok()?));
        let child = child.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let targets = match target {
            Target::Tasks { tids, .. } => tids.clone(),
            Target::Cpus(_) | Target::Command { .. } => Vec::new(),
        };
        Waiter { child, targets, last: Instant::now(), hung_up: HashSet::new() }
    }

    /// Returns when a pass is due, the command has ended, `left` is over or `stop` is set; true when all targets are
    /// gone.
    pub(crate) fn wait(&mut self, session: &Session, left: Option<Duration>, stop: &AtomicBool) -> io::Result<bool> {
        let until = left.map(|left| Instant::now() + left);
        while !stop.load(Ordering::Relaxed) && until.is_none_or(|until| Instant::now() < until) {
            if self.once(session, until)? {
                break;
            }
        }
        self.last = Instant::now();
        Ok(!self.targets.is_empty() && !self.targets.iter().any(|&tid| procfs::is_alive(Path::new("/proc"), tid)))
    }

    /// One poll; true when it is time for a pass.
    fn once(&mut self, session: &Session, until: Option<Instant>) -> io::Result<bool> {
        let since = self.last.elapsed();
        let listen = since >= SPACING;
        let mut timeout = if listen { PASS.saturating_sub(since) } else { SPACING - since };
        if let Some(until) = until {
            timeout = timeout.min(until.saturating_duration_since(Instant::now()));
        }
        let mut fds: Vec<PollFd<'_>> = self.watched(session, listen).collect();
        let timeout = Timespec::try_from(timeout).unwrap_or_default();
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => (),
            Err(errno) => return Err(errno.into()),
        }
        let ready = fds.iter().any(|fd| fd.revents().intersects(PollFlags::IN));
        let hung_up: Vec<RawFd> = fds
            .iter()
            .filter(|fd| fd.revents().intersects(PollFlags::HUP | PollFlags::ERR))
            .map(|fd| std::os::fd::AsFd::as_fd(fd).as_raw_fd())
            .collect();
        let ended = !hung_up.is_empty();
        self.hung_up.extend(hung_up);
        Ok(ready || ended || self.last.elapsed() >= PASS)
    }

    fn watched<'a>(&'a self, session: &'a Session, sideband: bool) -> impl Iterator<Item = PollFd<'a>> {
        let rings = session.sampling.rings.iter().chain(session.outputs.iter().flat_map(|o| o.rings.iter()));
        let news = session.sideband.opened.rings.iter().take(if sideband { usize::MAX } else { 0 });
        let rings = rings.chain(news).map(|ring| ring.fd()).filter(|fd| !self.hung_up.contains(&fd.as_raw_fd()));
        let child = self.child.iter().map(std::os::fd::AsFd::as_fd);
        let all: iter::Chain<_, _> = child.chain(rings);
        all.map(|fd: BorrowedFd<'a>| PollFd::from_borrowed_fd(fd, PollFlags::IN))
    }
}
