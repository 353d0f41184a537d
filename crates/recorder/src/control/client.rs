//! The other end of a control socket: what a controller needs.

use std::io::{self, BufRead, BufReader, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

use super::message::{HELLO, Hello, Refusal, Reply, Request, VERSION};
use super::place;

/// How long an answer may take: a recorder that loads a large program, or writes to a slow disk, answers late.
const ANSWER: Duration = Duration::from_secs(60);
/// The longest line of a recorder, bytes.
const LINE_MAX: u64 = 16 << 20;

/// Why a session could not be spoken to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// There is no such session among those of this user.
    #[error("{0}: no such session")]
    NoSession(u32),
    /// The kernel says that this user may not.
    #[error("{0}: not permitted")]
    NotPermitted(PathBuf),
    /// The session has ended, perhaps just now.
    #[error("the session has ended")]
    Ended,
    /// It speaks another version, or no sense.
    #[error("the session does not speak as this version does: {0}")]
    Strange(String),
    /// It did not do it.
    #[error("{}", .0.text)]
    Refused(Refusal),
    /// Any other answer of the operating system.
    #[error("{0}")]
    System(#[from] io::Error),
}

/// The sessions of this user that run, by the recorder's process id, and their sockets. Sockets of sessions that are gone
/// are removed.
///
/// # Errors
/// When the folder of sockets cannot be read.
pub fn sessions() -> io::Result<Vec<(u32, PathBuf)>> {
    match place::folder() {
        Ok(folder) => place::clean_and_list(&folder),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// A connection to a session. With it the lease ends, if a request took it.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
}

impl Client {
    /// Connects to the session of this number.
    ///
    /// # Errors
    /// Where there is none, this user may not, or it speaks another version.
    pub fn connect(session: u32) -> Result<Client, ClientError> {
        let path = match place::folder() {
            Ok(folder) => folder.join(format!("{session}.sock")),
            Err(_) => return Err(ClientError::NoSession(session)),
        };
        let stream = UnixStream::connect(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => ClientError::NoSession(session),
            io::ErrorKind::PermissionDenied => ClientError::NotPermitted(path),
            _ => ClientError::System(error),
        })?;
        Client::begin(stream)
    }

    /// Speaks over a socket that is connected already.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn begin(stream: UnixStream) -> Result<Client, ClientError> {
        stream.set_read_timeout(Some(ANSWER))?;
        stream.set_write_timeout(Some(ANSWER))?;
        let mut client = Client { stream: BufReader::new(stream) };
        // Whoever does not want us says so and closes, perhaps before it has read this.
        match client.say(&HELLO, None) {
            Ok(()) | Err(ClientError::Ended) => (),
            Err(error) => return Err(error),
        }
        let hello: Hello = client.hear()?;
        if hello != HELLO {
            return Err(ClientError::Strange(format!("version {} instead of {VERSION}", hello.version)));
        }
        Ok(client)
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with what the session said; others when it cannot be spoken to any more.
    pub fn ask(&mut self, request: &Request, descriptor: Option<BorrowedFd<'_>>) -> Result<Reply, ClientError> {
        match self.say(request, descriptor) {
            Ok(()) | Err(ClientError::Ended) => (),
            Err(error) => return Err(error),
        }
        match self.hear()? {
            Reply::Refused(refusal) => Err(ClientError::Refused(refusal)),
            reply => Ok(reply),
        }
    }

    /// Waits for at most `time`; whether the session has ended by then.
    ///
    /// # Errors
    /// What poll(2) says.
    pub fn has_ended(&self, time: Duration) -> io::Result<bool> {
        let mut fds = [PollFd::new(self.stream.get_ref(), PollFlags::RDHUP)];
        let time = Timespec::try_from(time).unwrap_or_default();
        match poll(&mut fds, Some(&time)) {
            Ok(ready) => Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn say(&mut self, line: &impl serde::Serialize, descriptor: Option<BorrowedFd<'_>>) -> Result<(), ClientError> {
        let mut text = serde_json::to_vec(line).map_err(|error| ClientError::Strange(error.to_string()))?;
        text.push(b'\n');
        let sent = match descriptor {
            None => 0,
            Some(fd) => {
                let fds = [fd];
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
                let mut control = SendAncillaryBuffer::new(&mut space);
                control.push(SendAncillaryMessage::ScmRights(&fds));
                let flags = SendFlags::NOSIGNAL;
                rustix::net::sendmsg(self.stream.get_ref(), &[IoSlice::new(&text)], &mut control, flags)
                    .map_err(|error| ended(error.into()))?
            }
        };
        self.stream.get_ref().write_all(text.get(sent..).unwrap_or_default()).map_err(ended)
    }

    fn hear<T: serde::de::DeserializeOwned>(&mut self) -> Result<T, ClientError> {
        let mut line = Vec::new();
        self.stream.by_ref().take(LINE_MAX).read_until(b'\n', &mut line).map_err(ended)?;
        if line.last() != Some(&b'\n') {
            return Err(ClientError::Ended);
        }
        serde_json::from_slice(&line).map_err(|error| match serde_json::from_slice(&line) {
            Ok(Reply::Refused(refusal)) => ClientError::Refused(refusal),
            _ => ClientError::Strange(error.to_string()),
        })
    }
}

fn ended(error: io::Error) -> ClientError {
    match error.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof => ClientError::Ended,
        _ => ClientError::System(error),
    }
}
