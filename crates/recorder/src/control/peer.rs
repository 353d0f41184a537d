//! One controller on the socket: bytes in, bytes out, never waiting for it.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags};

/// The longest line of a controller, bytes.
const LINE_MAX: usize = 64 << 10;
/// Bytes taken from a socket at a time.
const CHUNK: usize = 16 << 10;
/// A controller that has not read a reply for so long is let go.
const PATIENCE: Duration = if cfg!(test) { Duration::from_millis(300) } else { Duration::from_secs(5) };

/// Who is at the other end, as the kernel says (SO_PEERCRED).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Credentials {
    /// 0 where it is in another pid namespace.
    pub(crate) pid: u32,
    pub(crate) uid: u32,
}

impl Credentials {
    pub(crate) fn of(fd: BorrowedFd<'_>) -> std::io::Result<Credentials> {
        let mut found = libc::ucred { pid: 0, uid: libc::uid_t::MAX, gid: libc::gid_t::MAX };
        let mut length = size_of::<libc::ucred>() as libc::socklen_t;
        // SAFETY: the descriptor is open for the call; `found` and `length` live through it and are of the sizes that
        // SO_PEERCRED asks for.
        let result = unsafe {
            libc::getsockopt(
                fd.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut found).cast(),
                &raw mut length,
            )
        };
        if result != 0 {
            return Err(std::io::Error::last_os_error());
        }
        Ok(Credentials { pid: u32::try_from(found.pid).unwrap_or(0), uid: found.uid })
    }
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Peer {
    fd: OwnedFd,
    /// Tells connections apart.
    pub(crate) number: u64,
    pub(crate) who: Credentials,
    /// The first line came.
    pub(crate) greeted: bool,
    /// When it was last heard.
    pub(crate) heard: Instant,
    input: Vec<u8>,
    /// What is searched for the end of a line already.
    searched: usize,
    descriptor: Option<OwnedFd>,
    output: Vec<u8>,
    sent: usize,
    /// Since when nothing of the output could be sent.
    stuck: Option<Instant>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// Nothing more is read; what is to be said still is.
    Ending,
    Gone,
}

impl Peer {
    pub(crate) fn new(fd: OwnedFd, number: u64, who: Credentials) -> Peer {
        Peer {
            fd,
            number,
            who,
            greeted: false,
            heard: Instant::now(),
            input: Vec::new(),
            searched: 0,
            descriptor: None,
            output: Vec::new(),
            sent: 0,
            stuck: None,
            state: State::Open,
        }
    }

    /// What to wait for: while it has not read what we said, or `waits` for an answer, nothing more is taken from it.
    pub(crate) fn poll_fd(&self, waits: bool) -> PollFd<'_> {
        let flags = match (self.output.is_empty(), waits) {
            (false, _) => PollFlags::OUT,
            (true, false) => PollFlags::IN,
            // Its end is told in any case.
            (true, true) => PollFlags::empty(),
        };
        PollFd::new(&self.fd, flags)
    }

    pub(crate) fn is_gone(&self) -> bool {
        let patient = self.stuck.is_none_or(|since| since.elapsed() < PATIENCE);
        self.state == State::Gone || !patient || (self.state == State::Ending && self.output.is_empty())
    }

    /// Whether the other end has closed already, though not everything may have been read.
    pub(crate) fn hung_up(&self) -> bool {
        self.polls(PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR)
    }

    /// Whether nobody is there any more who could read an answer.
    pub(crate) fn closed(&self) -> bool {
        self.polls(PollFlags::HUP | PollFlags::ERR)
    }

    fn polls(&self, flags: PollFlags) -> bool {
        let mut fds = [PollFd::new(&self.fd, flags)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let polled = rustix::event::poll(&mut fds, Some(&now));
        polled.is_ok() && fds[0].revents().intersects(flags)
    }

    /// Lets go of it.
    pub(crate) fn gone(&mut self) {
        self.state = State::Gone;
    }

    /// Takes one chunk of what is there, and at most one descriptor.
    pub(crate) fn receive(&mut self) {
        if self.state != State::Open || !self.output.is_empty() {
            return;
        }
        let length = self.input.len();
        self.input.resize(length + CHUNK, 0);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let received = {
            let mut parts = [IoSliceMut::new(&mut self.input[length..])];
            rustix::net::recvmsg(&self.fd, &mut parts, &mut control, flags)
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                // What does not fit was closed by the kernel; of several, the last is for the next request.
                self.descriptor = descriptors.last().or(self.descriptor.take());
            }
        }
        let bytes = received.as_ref().map_or(0, |received| received.bytes);
        self.input.truncate(length + bytes);
        match received {
            Ok(_) if bytes == 0 => self.state = State::Ending,
            Ok(_) => self.heard = Instant::now(),
            Err(Errno::AGAIN | Errno::INTR) => (),
            Err(_) => self.state = State::Gone,
        }
    }

    /// The next whole line, without its end; none while something said before has not been taken yet.
    pub(crate) fn line(&mut self) -> Option<Result<Vec<u8>, TooLong>> {
        if !self.output.is_empty() || self.state == State::Gone {
            return None;
        }
        let Some(at) = self.input[self.searched..].iter().position(|&byte| byte == b'\n') else {
            self.searched = self.input.len();
            return (self.input.len() > LINE_MAX).then_some(Err(TooLong));
        };
        let end = self.searched + at;
        let mut line: Vec<u8> = self.input.drain(..=end).collect();
        line.pop();
        self.searched = 0;
        Some(if line.len() > LINE_MAX { Err(TooLong) } else { Ok(line) })
    }

    /// The descriptor that came with what was received so far.
    pub(crate) fn descriptor(&mut self) -> Option<OwnedFd> {
        self.descriptor.take()
    }

    /// Says one line, now or as soon as it is read.
    pub(crate) fn say(&mut self, line: &impl serde::Serialize) {
        if serde_json::to_writer(&mut self.output, line).is_err() {
            // None of what is said has keys that are no strings, for which alone this fails.
            self.state = State::Gone;
        }
        self.output.push(b'\n');
        self.flush();
    }

    /// Reads nothing more; what is said already still goes out.
    pub(crate) fn end(&mut self) {
        if self.state == State::Open {
            self.state = State::Ending;
        }
        self.input.clear();
        self.searched = 0;
    }

    /// Sends what waits, as far as there is room.
    pub(crate) fn flush(&mut self) {
        while self.sent < self.output.len() {
            let rest = &self.output[self.sent..];
            match rustix::net::send(&self.fd, rest, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(bytes) => {
                    self.sent += bytes;
                    self.stuck = None;
                }
                Err(Errno::INTR) => (),
                Err(Errno::AGAIN) => {
                    self.stuck.get_or_insert_with(Instant::now);
                    return;
                }
                Err(_) => {
                    self.state = State::Gone;
                    return;
                }
            }
        }
        self.output.clear();
        self.sent = 0;
        self.stuck = None;
    }
}

impl AsFd for Peer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A line has no end within [`LINE_MAX`] bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLong;
