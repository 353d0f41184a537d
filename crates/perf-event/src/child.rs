//! A command that exists, with its pid, before it runs: events are opened on it first, then it is let go.
//!
//! The child is forked and waits for a byte on a pipe before its exec; an event with enable_on_exec then sees the
//! command from its first instruction. `Command::spawn` returns only after the exec, so a thread of ours waits in it.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::thread::JoinHandle;

use rustix::pipe::{PipeFlags, pipe_with};

/// A command stopped before its exec. Dropping it ends the child without having run anything.
#[derive(Debug)]
pub struct Child {
    pid: u32,
    program: OsString,
    go: Option<OwnedFd>,
    spawn: Option<JoinHandle<io::Result<std::process::Child>>>,
    running: Option<std::process::Child>,
}

/// Why a command did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No command was given.
    #[error("no command given")]
    Empty,
    /// There is no such program: exit code 127.
    #[error("{}: command not found", Path::new(program).display())]
    NotFound {
        /// As the user wrote it.
        program: OsString,
    },
    /// It is there and cannot be executed: exit code 126.
    #[error("{}: {cause}", Path::new(program).display())]
    NotExecutable {
        /// As the user wrote it.
        program: OsString,
        /// What exec said.
        cause: io::Error,
    },
    /// No process could be made: our own failure.
    #[error("cannot start {}: {cause}", Path::new(program).display())]
    Failed {
        /// As the user wrote it.
        program: OsString,
        /// What fork or pipe said.
        cause: io::Error,
    },
}

impl StartError {
    /// The exit code that shells use for it.
    pub fn code(&self) -> i32 {
        match self {
            StartError::NotFound { .. } => 127,
            StartError::NotExecutable { .. } => 126,
            StartError::Empty => 2,
            StartError::Failed { .. } => 1,
        }
    }
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With this exit code, 0 to 255.
    Code(u8),
    /// By this signal.
    Signal(i32),
}

impl Ended {
    fn from_status(status: ExitStatus) -> Ended {
        match (status.code(), status.signal()) {
            (Some(code), _) => Ended::Code((code & 0xff) as u8),
            (None, signal) => Ended::Signal(signal.unwrap_or(0)),
        }
    }

    /// What a shell would call it: the code, or 128 and the signal.
    pub fn shell_code(self) -> i32 {
        match self {
            Ended::Code(code) => i32::from(code),
            Ended::Signal(signal) => 128 + signal,
        }
    }
}

/// Forks a child for `argv` that waits before its exec.
///
/// # Errors
/// When `argv` is empty or no process can be made. A program that is not there shows only at [`Child::start`].
pub fn spawn_stopped<S: Into<OsString> + Clone>(argv: &[S]) -> Result<Child, StartError> {
    spawn_stopped_to(argv, Stdio::inherit())
}

/// As [`spawn_stopped`], with the child's standard output going to `stdout`.
///
/// # Errors
/// As for [`spawn_stopped`].
pub fn spawn_stopped_to<S: Into<OsString> + Clone>(argv: &[S], stdout: Stdio) -> Result<Child, StartError> {
    let mut words = argv.iter().map(|word| word.clone().into());
    let program: OsString = words.next().ok_or(StartError::Empty)?;
    let mut command = Command::new(&program);
    command.args(words).stdout(stdout);
    let failed = |cause: io::Error| StartError::Failed { program: program.clone(), cause };
    let pipes = || pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from);
    let (go_read, go_write) = pipes().map_err(failed)?;
    let (pid_read, pid_write) = pipes().map_err(failed)?;
    let go_write_raw = go_write.as_raw_fd();
    // The closure owns what it uses and closes nothing of the parent; the child's copies go at exec.
    let wait = move || await_go(&go_read, go_write_raw, &pid_write);
    // SAFETY: between fork and exec the closure makes only getpid, write, close and read system calls, without
    // allocating and without locks, so it is safe in the child of a process with threads.
    unsafe { command.pre_exec(wait) };
    let spawn = std::thread::Builder::new().name("spawn".into()).spawn(move || command.spawn()).map_err(failed)?;
    let mut child = Child { pid: 0, program: program.clone(), go: Some(go_write), spawn: Some(spawn), running: None };
    match read_pid(&pid_read) {
        Ok(pid) => {
            child.pid = pid;
            Ok(child)
        }
        Err(cause) => {
            drop(child.go.take());
            let told = child.spawn.take().and_then(|thread| thread.join().ok()).and_then(Result::err);
            Err(failed(told.unwrap_or(cause)))
        }
    }
}

/// The byte that lets a child exec; any other makes it end.
const GO: u8 = 1;

/// In the child: tells the pid, then waits until told to go. The end of the pipe means that nobody will.
fn await_go(go: &OwnedFd, go_write: RawFd, pid: &OwnedFd) -> io::Result<()> {
    let own = rustix::process::getpid().as_raw_nonzero().get().to_ne_bytes();
    rustix::io::write(pid, &own)?;
    // SAFETY: this is the child's copy of the parent's end, which nothing else in the child uses; with it open the read
    // below would never see the parent go away.
    unsafe { rustix::io::close(go_write) };
    let mut byte = [0u8];
    loop {
        match rustix::io::read(go, &mut byte) {
            Ok(1) if byte == [GO] => return Ok(()),
            Ok(_) => return Err(io::Error::from_raw_os_error(libc::ECANCELED)),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// The pid that the child writes in one piece; the end of the pipe when there was no fork.
fn read_pid(pipe: &OwnedFd) -> io::Result<u32> {
    let mut bytes = [0u8; 4];
    loop {
        match rustix::io::read(pipe.as_fd(), &mut bytes) {
            Ok(4) => return Ok(i32::from_ne_bytes(bytes).unsigned_abs()),
            Ok(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

impl Child {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Lets the child exec and returns when it has.
    ///
    /// # Errors
    /// When the exec fails; the child is gone then.
    pub fn start(&mut self) -> Result<(), StartError> {
        let Some(spawn) = self.spawn.take() else { return Ok(()) };
        // A child that was killed in the meantime has closed its end; the thread then says how it ended.
        let told = self.go.take().map_or(Ok(1), |go| rustix::io::write(&go, &[GO]));
        let failed = |cause| StartError::Failed { program: self.program.clone(), cause };
        match spawn.join() {
            Ok(Ok(child)) => {
                self.running = Some(child);
                Ok(())
            }
            Ok(Err(cause)) => Err(self.classify(cause)),
            Err(_) => Err(failed(told.err().map_or_else(|| io::ErrorKind::Other.into(), io::Error::from))),
        }
    }

    fn classify(&self, cause: io::Error) -> StartError {
        let program = self.program.clone();
        match cause.raw_os_error() {
            Some(libc::ENOENT | libc::ENOTDIR) => StartError::NotFound { program },
            Some(libc::EACCES | libc::ENOEXEC | libc::EISDIR | libc::EPERM | libc::ELOOP | libc::ETXTBSY) => {
                StartError::NotExecutable { program, cause }
            }
            _ => StartError::Failed { program, cause },
        }
    }

    /// How it ended, if it has; reaps it.
    ///
    /// # Errors
    /// What waitpid(2) says.
    pub fn try_wait(&mut self) -> io::Result<Option<Ended>> {
        let Some(child) = &mut self.running else { return Ok(None) };
        Ok(child.try_wait()?.map(Ended::from_status))
    }

    /// Waits for its end and reaps it; starts it first where that has not been done.
    ///
    /// # Errors
    /// What waitpid(2) says, or that it could not be started.
    pub fn wait(&mut self) -> io::Result<Ended> {
        self.start().map_err(io::Error::other)?;
        let child = self.running.as_mut().ok_or(io::ErrorKind::NotFound)?;
        Ok(Ended::from_status(child.wait()?))
    }

    /// Sends it a signal. Nothing happens when it has been reaped.
    ///
    /// # Errors
    /// What kill(2) says.
    pub fn signal(&mut self, signal: rustix::process::Signal) -> io::Result<()> {
        if self.running.is_some() && self.try_wait()?.is_some() {
            return Ok(());
        }
        let pid = i32::try_from(self.pid).ok().and_then(rustix::process::Pid::from_raw);
        pid.map_or(Ok(()), |pid| Ok(rustix::process::kill_process(pid, signal)?))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // A byte ends a child that still waits, also where another child holds a copy of our end; std reaps it.
        if let Some(go) = self.go.take() {
            let _ = rustix::io::write(&go, &[!GO]);
        }
        if let Some(thread) = self.spawn.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
