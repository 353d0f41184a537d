//! Running one program of the plan, with its output passed on and its time limited.

use guest::plan::{Plan, Run};
use guest::wire::{CONTENT_MAX, How};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long a look for output takes when none comes.
const LOOK: Duration = Duration::from_millis(20);

/// Runs one step. Everything it printed goes through `output`; whatever it left running is killed.
pub(crate) fn run(step: &Run, environment: &[(String, String)], output: &mut dyn FnMut(&[u8])) -> How {
    let Some((program, arguments)) = step.words.split_first() else { return How::NotStarted("no program".into()) };
    if !Path::new(program).exists() {
        return How::Missing(program.clone());
    }
    let started = start(step, program, arguments, environment);
    let how = match started {
        Ok((mut child, pipe)) => watch(&mut child, pipe, step.limit, output),
        Err(error) => How::NotStarted(error.to_string()),
    };
    kill_everything();
    how
}

fn start(
    step: &Run,
    program: &str,
    arguments: &[String],
    environment: &[(String, String)],
) -> io::Result<(Child, File)> {
    fs::create_dir_all(&step.folder)?;
    let (reader, writer) = pipe()?;
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(environment.iter().map(|(name, value)| (name, value)));
    command.env("CARGO_MANIFEST_DIR", &step.folder).current_dir(&step.folder);
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    // A session of its own: with us in the same one, a stopped process of a test would get it a SIGHUP whenever an
    // orphan of its group ends.
    // SAFETY: setsid may be called between fork and exec, and touches no memory of this process.
    unsafe {
        command.pre_exec(|| {
            libc::setsid();
            Ok(())
        });
    }
    Ok((command.spawn()?, reader))
}

/// Both ends of a pipe, the reader first. A process that is started gets neither but by `Stdio`.
fn pipe() -> io::Result<(File, File)> {
    let mut ends = [-1; 2];
    // SAFETY: pipe2 fills in two descriptors, for which there is room.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: both are open, and nobody else knows them yet.
    Ok(unsafe { (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1])) })
}

fn watch(child: &mut Child, mut pipe: File, limit: Duration, output: &mut dyn FnMut(&[u8])) -> How {
    let end = Instant::now() + limit;
    loop {
        let quiet = !pass_on(&mut pipe, LOOK, output);
        match child.try_wait() {
            // Its last words may still be in the pipe, which programs that it left behind may hold open.
            Ok(Some(status)) => {
                while pass_on(&mut pipe, Duration::ZERO, output) {}
                return ended(status);
            }
            Ok(None) => {}
            Err(error) => return How::NotStarted(format!("lost: {error}")),
        }
        if quiet && Instant::now() >= end {
            let _ = child.kill();
            let _ = child.wait();
            return How::TimedOut;
        }
    }
}

fn ended(status: ExitStatus) -> How {
    match (status.code(), status.signal()) {
        (Some(code), _) => How::Exit(code as u8),
        (None, signal) => How::Signal(signal.unwrap_or(0) as u8),
    }
}

/// Passes on what is in the pipe, after waiting for something to be; whether there was something.
fn pass_on(pipe: &mut File, wait: Duration, output: &mut dyn FnMut(&[u8])) -> bool {
    let mut poll = libc::pollfd { fd: pipe.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one pollfd of a pipe that is open, alive for the whole call.
    let ready = unsafe { libc::poll(&raw mut poll, 1, wait.as_millis() as libc::c_int) };
    if ready <= 0 {
        return false;
    }
    let mut bytes = vec![0; CONTENT_MAX / 4];
    match pipe.read(&mut bytes) {
        // All writers are gone: poll comes back at once from now on.
        Ok(0) => {
            std::thread::sleep(wait);
            false
        }
        Ok(read) => {
            output(&bytes[..read]);
            true
        }
        Err(error) => error.kind() == ErrorKind::Interrupted,
    }
}

/// Kills every process but this one, and buries them, so that the next step starts on a quiet machine.
fn kill_everything() {
    // SAFETY: no memory is involved. -1 is every process but the first one, which this is.
    unsafe {
        libc::kill(-1, libc::SIGKILL);
        // What can't be killed must not hold up the rest.
        let end = Instant::now() + Duration::from_secs(5);
        loop {
            let gone = libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG);
            if gone < 0 || Instant::now() >= end {
                return;
            }
            if gone == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

/// A shell on the console, until it ends.
pub(crate) fn shell(plan: &Plan) -> io::Result<()> {
    let console = OpenOptions::new().read(true).write(true).open("/dev/ttyS0")?;
    let mut command = Command::new("/bin/sh");
    command.env_clear().envs(plan.environment.iter().map(|(name, value)| (name, value))).env("TERM", "vt100");
    command.arg("-l").current_dir("/").stdin(console.try_clone()?).stdout(console.try_clone()?).stderr(console);
    // SAFETY: setsid and ioctl may be called between fork and exec, and touch no memory of this process.
    unsafe {
        command.pre_exec(|| {
            libc::setsid();
            libc::ioctl(0, libc::TIOCSCTTY, 0);
            Ok(())
        });
    }
    println!("for tests see {}; the end of this shell ends the machine", guest::plan::PATH);
    let mut child = command.spawn()?;
    child.wait()?;
    kill_everything();
    Ok(())
}
