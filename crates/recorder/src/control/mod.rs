//! Live control of a running recording: a Unix socket for each, one JSON object a line.
//!
//! The recorder serves it from its own loop: nothing here waits for a peer, and what a peer can make us hold is bounded. What
//! takes long, such as loading a program, is done elsewhere; its asker gets the answer when there is one, and is not heard
//! before. A
//! peer has to be root or of the recorder's user. Who changes something first holds the *lease* from then on: until its
//! connection ends, nobody else changes anything.

mod client;
mod lease;
mod message;
mod peer;
mod place;

use std::io;
use std::path::Path;

use rustix::event::{EventfdFlags, PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::SocketFlags;
use rustix::time::{ClockId, clock_gettime};

pub use client::{Client, ClientError, sessions};
pub use message::{
    Changed, EventStats, HELLO, Hello, Holder, Refusal, RefusalKind, Reply, Request, Stats, VERSION, Wanted,
};
pub use place::folder;

use lease::Lease;
use peer::{Credentials, Peer, TooLong};
use place::Listening;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Connections at a time. For one more, the one that has been silent longest and holds no lease goes.
const PEERS: usize = 16;

/// What a control socket is about.
pub(crate) trait Subject {
    /// How it goes; the lease is not its business.
    fn stats(&mut self) -> Stats;
    /// Carries out a request that changes something, given the descriptor that came with it. `None`: it has begun, and
    /// [`Subject::finished`] is to be asked when the bell rings. Only one is under way at a time.
    fn change(
        &mut self,
        request: Request,
        descriptor: Option<OwnedFd>,
        bell: &Bell,
    ) -> Option<Result<Changed, Refusal>>;
    /// What came of the change that has begun, if it has ended.
    fn finished(&mut self) -> Option<Result<Changed, Refusal>>;
    /// Whoever asked for the change that has begun is gone: nothing comes of it.
    fn abandon(&mut self);
}

/// Wakes the recorder's loop from another thread.
#[derive(Clone, Debug)]
pub(crate) struct Bell(Arc<OwnedFd>);

impl Bell {
    pub(crate) fn new() -> io::Result<Bell> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Bell(Arc::new(rustix::event::eventfd(0, flags)?)))
    }

    pub(crate) fn ring(&self) {
        // It fails when it has been rung 2^64 times and nobody came.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    fn silence(&self) {
        // Nothing to read is silence already.
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }
}

impl std::os::fd::AsFd for Bell {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The control socket of this process.
#[derive(Debug)]
pub(crate) struct Control {
    listening: Listening,
    peers: Vec<Peer>,
    next: u64,
    lease: Option<Lease>,
    /// Who asked for a change that is under way, and what tells of its end.
    waiting: Option<u64>,
    bell: Bell,
    /// A descriptor that is given up where there is no other one left, so that a peer can be told to go.
    spare: Option<OwnedFd>,
}

impl Control {
    /// Opens the socket of this process in [`folder`].
    pub(crate) fn open() -> io::Result<Control> {
        Control::open_in(&folder()?, std::process::id())
    }

    fn open_in(folder: &Path, session: u32) -> io::Result<Control> {
        let listening = Listening::begin(folder, session)?;
        let bell = Bell::new()?;
        Ok(Control { listening, peers: Vec::new(), next: 0, lease: None, waiting: None, bell, spare: spare() })
    }

    /// What to wait for before [`Control::serve`].
    pub(crate) fn poll_fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        let ours = [PollFd::new(&self.listening.fd, PollFlags::IN), PollFd::new(&self.bell, PollFlags::IN)];
        let waits = |peer: &Peer| self.waiting == Some(peer.number);
        ours.into_iter().chain(self.peers.iter().map(move |peer| peer.poll_fd(waits(peer))))
    }

    /// Hears and answers whoever has something to say, without waiting for anybody.
    pub(crate) fn serve(&mut self, subject: &mut dyn Subject) {
        self.accept();
        self.bell.silence();
        let mut peers = std::mem::take(&mut self.peers);
        for index in 0..peers.len() {
            peers[index].flush();
            if self.waiting == Some(peers[index].number) {
                self.hand_over(&mut peers[index], subject);
            }
            if self.waiting != Some(peers[index].number) {
                peers[index].receive();
            }
            // Who waits for an answer is heard again when it has got that.
            while self.waiting != Some(peers[index].number) {
                let Some(line) = peers[index].line() else { break };
                let holder = self.lease.as_ref().map(|lease| lease.number);
                let holder = holder.and_then(|number| peers.iter().find(|peer| peer.number == number));
                // Who waits for an answer may have said its last word, and holds the lease until it has got that.
                let left = |peer: &Peer| if self.waiting == Some(peer.number) { peer.closed() } else { peer.hung_up() };
                if holder.is_none_or(left) {
                    self.lease = None;
                }
                self.hear(&mut peers[index], line, subject);
            }
        }
        self.peers = peers;
        self.sweep(subject);
    }

    /// Gives whoever waits its answer, if there is one.
    fn hand_over(&mut self, peer: &mut Peer, subject: &mut dyn Subject) {
        if peer.closed() {
            peer.gone();
        } else if let Some(result) = subject.finished() {
            self.waiting = None;
            peer.say(&reply(result));
        }
    }

    /// Lets go of peers that are gone, or have not read for long.
    pub(crate) fn sweep(&mut self, subject: &mut dyn Subject) {
        self.peers.retain(|peer| !peer.is_gone());
        if self.waiting.is_some_and(|waiting| self.peers.iter().all(|peer| peer.number != waiting)) {
            self.waiting = None;
            subject.abandon();
        }
        let holds = |lease: &Lease| self.peers.iter().any(|peer| peer.number == lease.number);
        if !self.lease.as_ref().is_some_and(holds) {
            self.lease = None;
        }
    }

    fn accept(&mut self) {
        // No more at a time than may wait: a peer that connects over and over does not keep us here.
        for _ in 0..PEERS {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let fd = match rustix::net::accept_with(&self.listening.fd, flags) {
                Ok(fd) => fd,
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(Errno::MFILE | Errno::NFILE) if self.spare.take().is_some() => {
                    // One that nobody takes would wake us for ever.
                    drop(rustix::net::accept_with(&self.listening.fd, flags));
                    self.spare = spare();
                    continue;
                }
                // Nobody is left.
                Err(_) => return,
            };
            let Ok(who) = Credentials::of(std::os::fd::AsFd::as_fd(&fd)) else { continue };
            self.next += 1;
            let mut peer = Peer::new(fd, self.next, who);
            peer.say(&HELLO);
            if who.uid != 0 && who.uid != rustix::process::geteuid().as_raw() {
                let text = format!("uid {} may not control a recording of another user", who.uid);
                peer.say(&Reply::Refused(Refusal::new(RefusalKind::NotPermitted, text)));
                continue;
            }
            self.make_room();
            self.peers.push(peer);
        }
    }

    fn make_room(&mut self) {
        if self.peers.len() < PEERS {
            return;
        }
        let holder = self.lease.as_ref().map(|lease| lease.number);
        let others = self.peers.iter().filter(|peer| Some(peer.number) != holder && Some(peer.number) != self.waiting);
        if let Some(number) = others.min_by_key(|peer| peer.heard).map(|peer| peer.number) {
            self.peers.retain(|peer| peer.number != number);
        }
    }

    fn hear(&mut self, peer: &mut Peer, line: Result<Vec<u8>, TooLong>, subject: &mut dyn Subject) {
        let bad = match line {
            Err(TooLong) => "a line is too long".to_owned(),
            Ok(line) if !peer.greeted => match serde_json::from_slice::<Hello>(&line) {
                Ok(HELLO) => {
                    peer.greeted = true;
                    return;
                }
                Ok(Hello { version }) => format!("this recorder speaks version {VERSION}, not {version}"),
                Err(_) => format!("the first line is {{\"version\": {VERSION}}}"),
            },
            Ok(line) => match serde_json::from_slice(&line) {
                Ok(request) => {
                    if let Some(reply) = self.answer(peer, request, subject) {
                        peer.say(&reply);
                    }
                    return;
                }
                Err(error) => format!("not a request that this recorder knows: {error}"),
            },
        };
        // Whoever does not speak as we do would not understand the next reply either.
        peer.say(&Reply::Refused(Refusal::new(RefusalKind::BadRequest, bad)));
        peer.end();
    }

    fn answer(&mut self, peer: &mut Peer, request: Request, subject: &mut dyn Subject) -> Option<Reply> {
        let descriptor = peer.descriptor();
        if !request.changes() {
            let mut stats = subject.stats();
            stats.holder = self.lease.as_ref().map(|lease| lease.holder.clone());
            return Some(Reply::Stats(Box::new(stats)));
        }
        match &self.lease {
            Some(lease) if lease.number != peer.number => return Some(Reply::Refused(lease.busy())),
            Some(_) => (),
            None => self.lease = Some(Lease::new(peer.number, peer.who, now_ns())),
        }
        if self.waiting.take().is_some() {
            // The lease of whoever asked has ended, or this one could not have got it.
            subject.abandon();
        }
        let answer = subject.change(request, descriptor, &self.bell);
        if answer.is_none() {
            self.waiting = Some(peer.number);
        }
        answer.map(reply)
    }
}

fn reply(result: Result<Changed, Refusal>) -> Reply {
    match result {
        Ok(changed) => Reply::Changed(changed),
        Err(refusal) => Reply::Refused(refusal),
    }
}

/// Now on the recording's clock.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0).saturating_mul(1_000_000_000);
    seconds.saturating_add(u64::try_from(now.tv_nsec).unwrap_or(0))
}

fn spare() -> Option<OwnedFd> {
    std::fs::File::open("/dev/null").ok().map(OwnedFd::from)
}

#[cfg(test)]
mod tests;
