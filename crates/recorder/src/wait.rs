//! Waiting for something to do: a ring that fills, a command that ends, the time.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use afterimage_perf_event::child::Child;
use afterimage_perf_event::open::Target;
use afterimage_perf_event::ring::Ring;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::control::Control;
use crate::session::Session;
use crate::synth::procfs;

/// A pass is made at least this often, so that little is lost with a recorder that is killed.
const PASS: Duration = Duration::from_secs(2);

/// The same where somebody looks on.
const PASS_WATCHED: Duration = Duration::from_secs(1);

/// The same while the kernel holds much freed text for us.
const PASS_PRESSING: Duration = Duration::from_millis(100);

/// News of processes and kernel text are heard no closer than this: a machine that forks all the time would otherwise
/// wake us all the time.
const SPACING: Duration = Duration::from_millis(50);

/// The same of JIT compilers that tell of their code: one that compiles all the time would wake us all the time. What is
/// told meanwhile is taken for told at the end of it.
const SPACING_JIT: Duration = Duration::from_millis(10);

/// Who may wake us beside the rings.
pub(crate) struct Listeners<'l> {
    /// Controllers.
    pub(crate) control: Option<&'l Control>,
    /// Maps of JIT compilers that grow.
    pub(crate) jit: Option<BorrowedFd<'l>>,
}

/// Waits for the next pass.
pub(crate) struct Waiter {
    child: Option<OwnedFd>,
    /// Threads whose end is the end of the recording.
    targets: Vec<u32>,
    /// The longest time between two passes.
    every: Duration,
    last_pass: Instant,
    last_news: Instant,
    last_jit: Instant,
    /// Rings whose tasks are gone: poll would return at once for ever.
    hung_up: HashSet<RawFd>,
}

impl Waiter {
    /// For a command and for all tasks of a target; `watched` when somebody looks on.
    pub(crate) fn new(child: Option<&Child>, target: &Target, watched: bool) -> Waiter {
        let child = child.and_then(|c| Pid::from_raw(i32::try_from(c.pid()).ok()?));
        let child = child.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let targets = match target {
            Target::Tasks { tids, .. } => tids.clone(),
            Target::Cpus(_) | Target::Command { .. } => Vec::new(),
        };
        let every = if watched { PASS_WATCHED } else { PASS };
        let now = Instant::now();
        Waiter { child, targets, every, last_pass: now, last_news: now, last_jit: now, hung_up: HashSet::new() }
    }

    /// Returns when there is something to do: what it is.
    pub(crate) fn wait(
        &mut self,
        session: &Session,
        listeners: &Listeners<'_>,
        left: Option<Duration>,
        stop: &AtomicBool,
    ) -> io::Result<Wake> {
        let until = left.map(|left| Instant::now() + left);
        let every = if session.texts.is_pressing() { self.every.min(PASS_PRESSING) } else { self.every };
        while !stop.load(Ordering::Relaxed) && until.is_none_or(|until| Instant::now() < until) {
            match self.once(session, listeners, until, every, stop)? {
                Found::Nothing if self.last_pass.elapsed() < every => (),
                Found::News if self.last_pass.elapsed() < every => {
                    self.last_news = Instant::now();
                    return Ok(Wake::News);
                }
                Found::Jit if self.last_pass.elapsed() < every => {
                    self.last_jit = Instant::now();
                    return Ok(Wake::Jit);
                }
                // A controller that never rests does not keep passes waiting.
                Found::Control if self.last_pass.elapsed() < every => return Ok(Wake::Control),
                _ => break,
            }
        }
        self.last_pass = Instant::now();
        let over =
            !self.targets.is_empty() && !self.targets.iter().any(|&tid| procfs::is_alive(Path::new("/proc"), tid));
        Ok(if over { Wake::Over } else { Wake::Pass })
    }

    /// Polls. News alone may wait until the last ones are long enough ago, and so may JIT compilers; what else there is may not.
    fn once(
        &mut self,
        session: &Session,
        listeners: &Listeners<'_>,
        until: Option<Instant>,
        every: Duration,
        stop: &AtomicBool,
    ) -> io::Result<Found> {
        loop {
            let left = every.saturating_sub(self.last_pass.elapsed());
            let left = until.map_or(left, |until| left.min(until.saturating_duration_since(Instant::now())));
            let news = SPACING.saturating_sub(self.last_news.elapsed());
            let jit = SPACING_JIT.saturating_sub(self.last_jit.elapsed());
            let jit = if listeners.jit.is_some() { jit } else { Duration::ZERO };
            let spare = [news, jit].into_iter().filter(|spare| !spare.is_zero()).min();
            let now = spare.map_or(left, |spare| left.min(spare));
            match self.poll(session, listeners, (news.is_zero(), jit.is_zero()), now)? {
                Found::Nothing if now < left && !stop.load(Ordering::Relaxed) => {}
                found => return Ok(found),
            }
        }
    }

    fn poll(
        &mut self,
        session: &Session,
        listeners: &Listeners<'_>,
        (news, jit): (bool, bool),
        timeout: Duration,
    ) -> io::Result<Found> {
        let mut fds: Vec<PollFd<'_>> = self.watched(session).collect();
        let first_news = fds.len();
        if news {
            fds.extend(self.listening(&session.sideband.opened.rings));
        }
        let first_jit = fds.len();
        fds.extend(listeners.jit.filter(|_| jit).map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let first_control = fds.len();
        fds.extend(listeners.control.iter().flat_map(|control| control.poll_fds()));
        let timeout = Timespec::try_from(timeout).unwrap_or_default();
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => (),
            Err(errno) => return Err(errno.into()),
        }
        let ready = |fds: &[PollFd<'_>]| fds.iter().any(|fd| !fd.revents().is_empty());
        let (rings, control) = fds.split_at(first_control);
        let (rings, jit) = rings.split_at(first_jit);
        let found = match (ready(&rings[..first_news]), ready(control), ready(jit), ready(&rings[first_news..])) {
            (true, ..) => Found::Work,
            (_, true, ..) => Found::Control,
            (_, _, true, _) => Found::Jit,
            (.., true) => Found::News,
            _ => Found::Nothing,
        };
        let hung_up: Vec<RawFd> = rings
            .iter()
            .filter(|fd| fd.revents().intersects(PollFlags::HUP | PollFlags::ERR))
            .map(|fd| std::os::fd::AsFd::as_fd(fd).as_raw_fd())
            .collect();
        self.hung_up.extend(hung_up);
        Ok(found)
    }

    /// The command and the rings that fill.
    fn watched<'a>(&'a self, session: &'a Session) -> impl Iterator<Item = PollFd<'a>> {
        let child = self.child.iter().map(|fd| PollFd::new(fd, PollFlags::IN));
        let outputs = session.outputs.iter().flat_map(|output| self.listening(&output.rings));
        child.chain(self.listening(&session.sampling.rings)).chain(outputs)
    }

    fn listening<'a>(&'a self, rings: &'a [Ring]) -> impl Iterator<Item = PollFd<'a>> {
        let alive = rings.iter().map(Ring::fd).filter(|fd| !self.hung_up.contains(&fd.as_raw_fd()));
        alive.map(|fd: BorrowedFd<'a>| PollFd::from_borrowed_fd(fd, PollFlags::IN))
    }
}

/// What there is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    /// A pass over all rings.
    Pass,
    /// News of processes and kernel text, to be heard while what they speak of is still there; they are written with
    /// the next pass.
    News,
    /// A JIT compiler told of its code.
    Jit,
    /// A controller has something to say.
    Control,
    /// A last pass: all targets are gone.
    Over,
}

/// What a poll found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Nothing,
    /// Only news of processes and kernel text.
    News,
    /// A map of a JIT compiler that grew.
    Jit,
    /// A controller that speaks, connects or goes, whatever news there are: they come again.
    Control,
    /// A ring that fills, or an end.
    Work,
}
