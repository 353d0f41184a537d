#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::path::Path;

use super::*;

fn alive(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn waits_before_its_exec_and_then_runs() {
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("ran");
    let mut child = spawn_stopped(&["touch".as_ref(), mark.as_os_str()]).unwrap();
    let own = std::fs::read_link("/proc/self/exe").unwrap();
    assert_eq!(std::fs::read_link(format!("/proc/{}/exe", child.pid())).unwrap(), own, "not exec'd yet");
    assert_eq!(child.try_wait().unwrap(), None);
    assert!(!mark.exists());
    child.start().unwrap();
    assert_eq!(child.wait().unwrap(), Ended::Code(0));
    assert!(mark.exists());
    assert!(!alive(child.pid()), "reaped");
    assert_eq!(child.try_wait().unwrap(), Some(Ended::Code(0)));
}

#[test]
fn the_status_is_passed_on() {
    let mut child = spawn_stopped(&["sh", "-c", "exit 42"]).unwrap();
    child.start().unwrap();
    let ended = child.wait().unwrap();
    assert_eq!((ended, ended.shell_code()), (Ended::Code(42), 42));
    let mut child = spawn_stopped(&["sh", "-c", "kill -TERM $$"]).unwrap();
    let ended = child.wait().unwrap();
    assert_eq!((ended, ended.shell_code()), (Ended::Signal(15), 143));
}

#[test]
fn a_program_that_is_not_there_is_127() {
    let mut child = spawn_stopped(&["/no/such/program"]).unwrap();
    let error = child.start().unwrap_err();
    assert!(matches!(error, StartError::NotFound { .. }), "{error}");
    assert_eq!((error.code(), error.to_string().as_str()), (127, "/no/such/program: command not found"));
    assert!(!alive(child.pid()));
    assert_eq!(spawn_stopped(&["no-such-program-on-path"]).unwrap().start().unwrap_err().code(), 127);
}

#[test]
fn a_program_that_cannot_be_executed_is_126() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("plain");
    std::fs::write(&file, "no program").unwrap();
    assert_eq!(spawn_stopped(&[&file]).unwrap().start().unwrap_err().code(), 126);
    assert_eq!(spawn_stopped(&[dir.path()]).unwrap().start().unwrap_err().code(), 126);
}

#[test]
fn nothing_to_run_is_told_at_once() {
    assert!(matches!(spawn_stopped::<OsString>(&[]), Err(StartError::Empty)));
}

#[test]
fn a_child_never_started_is_gone_with_its_owner() {
    let first = spawn_stopped(&["true"]).unwrap();
    let second = spawn_stopped(&["true"]).unwrap();
    let pids = [first.pid(), second.pid()];
    assert!(pids.into_iter().all(alive));
    // The second holds copies of the first's descriptors, which must not keep the first.
    drop(first);
    assert!(!alive(pids[0]) && alive(pids[1]));
    drop(second);
    assert!(!alive(pids[1]));
}

#[test]
fn a_child_killed_while_it_waits_says_so() {
    let mut child = spawn_stopped(&["true"]).unwrap();
    child.signal(rustix::process::Signal::KILL).unwrap();
    assert_eq!(child.wait().unwrap(), Ended::Signal(9));
    child.signal(rustix::process::Signal::KILL).unwrap();
}

#[test]
fn descriptors_of_ours_do_not_reach_the_command() {
    let out = tempfile::NamedTempFile::new().unwrap();
    let script = format!("ls /proc/self/fd | wc -l > {}", out.path().display());
    let mut child = spawn_stopped(&["sh", "-c", &script]).unwrap();
    child.start().unwrap();
    assert_eq!(child.wait().unwrap(), Ended::Code(0));
    let seen: u32 = std::fs::read_to_string(out.path()).unwrap().trim().parse().unwrap();
    let ours = std::process::Command::new("sh").args(["-c", "ls /proc/self/fd | wc -l"]).output().unwrap();
    assert_eq!(seen, String::from_utf8(ours.stdout).unwrap().trim().parse::<u32>().unwrap());
}
