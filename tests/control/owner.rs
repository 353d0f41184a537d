//! One owner: who holds the lease, who is told, and who may not even ask.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use afterimage_testkit::{Need, has};
use rustix::process::Signal;

use crate::common::{afterimage, folder, stderr, stdout};
use crate::helper::{beside, signal, tally, until};
use crate::session::{NEEDS, Session};

/// Starts a change that keeps the lease, and waits until it is done; gives the controller.
fn holder(session: &Session, name: &str) -> Child {
    let mut command = afterimage();
    command.args(["handler", "swap", &session.pid, name, "--hold", "600"]).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains(&format!("handler {name}")), "{line}");
    child
}

#[test]
fn a_second_controller_is_told_who_holds_it() {
    if !has("a_second_controller_is_told_who_holds_it", &NEEDS) {
        return;
    }
    let _turn = beside();
    let folder = folder();
    let session = Session::start(&folder, &["-a", "-e", "cpu-clock", "-F", "499"]);
    let mut first = holder(&session, "count");
    for words in [&["swap", "SESSION", "none"][..], &["clear", "SESSION"]] {
        let said = session.refused(words, 1);
        println!("{said}");
        let busy = format!("afterimage: busy: held by pid {} since 20", first.id());
        assert!(said.starts_with(&busy) && said.trim_end().ends_with("UTC"), "{said}");
    }
    // Whoever only looks is let in, and sees who it is.
    let stats = session.stats();
    assert_eq!((&stats["holder"]["pid"], &stats["handler"]), (&first.id().into(), &"count".into()));
    assert!(session.done(&["stats", "SESSION"]).contains(&format!("held by pid {}", first.id())));
    // A controller that is killed half-way frees it.
    first.kill().unwrap();
    first.wait().unwrap();
    until("the end of the lease", || session.stats()["holder"].is_null());
    session.done(&["swap", "SESSION", "none"]);
    // One that is stopped by ctrl-C, too.
    let mut second = holder(&session, "count");
    signal(&second, Signal::INT);
    assert_eq!(second.wait().unwrap().code(), Some(0));
    until("the end of the lease", || session.stats()["holder"].is_null());
    session.done(&["clear", "SESSION"]);
    // And one whose session ends learns of that.
    let third = holder(&session, "count");
    tally(&session.end().0);
    assert_eq!(third.wait_with_output().unwrap().status.code(), Some(0));
}

/// Of two that come at the same time one wins, and the other is told.
#[test]
fn of_two_racing_swaps_one_wins() {
    if !has("of_two_racing_swaps_one_wins", &NEEDS) {
        return;
    }
    let _turn = beside();
    let folder = folder();
    let session = Session::start(&folder, &["-a", "-e", "cpu-clock", "-F", "499", "--handler", "emit"]);
    for round in 0..5 {
        let race = |name: &str| {
            let mut command = afterimage();
            command.args(["handler", "swap", &session.pid, name, "--hold", "600"]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let mut both = [race("count"), race("none")];
        let mut loser = None;
        until("the loser", || {
            loser = both.iter_mut().position(|one| one.try_wait().unwrap().is_some());
            loser.is_some()
        });
        let [first, second] = both;
        let (loser, winner) = if loser == Some(0) { (first, second) } else { (second, first) };
        let won = if winner.id() < loser.id() { "count" } else { "none" };
        let (winner_id, loser_id) = (winner.id(), loser.id());
        let output = loser.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains(&format!("busy: held by pid {winner_id} since")), "{}", stderr(&output));
        // The loser is told at once, the winner when its handler is loaded.
        until("the winner's change", || session.stats()["changes"].as_u64() >= Some(round + 1));
        let handler = session.stats()["handler"].clone();
        println!("{winner_id} won against {loser_id}: {handler}");
        // Process ids grow, but for a turn of their whole range.
        assert!(handler == won || winner_id.abs_diff(loser_id) > 1000, "{handler}");
        signal(&winner, Signal::INT);
        winner.wait_with_output().unwrap();
        until("the end of the lease", || session.stats()["holder"].is_null());
    }
    assert_eq!(session.stats()["changes"], 5);
    tally(&session.end().0);
}

/// A user without any privileges who records, with a folder for sockets of its own.
struct Nobody {
    _folder: tempfile::TempDir,
    command: PathBuf,
    runtime: PathBuf,
    own: PathBuf,
}

impl Nobody {
    const UID: &'static str = "65534";

    fn new() -> Nobody {
        let folder = folder();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let command = folder.path().join("afterimage");
        fs::copy(afterimage().get_program(), &command).unwrap();
        let [runtime, own] = ["runtime", "own"].map(|name| {
            let path = folder.path().join(name);
            fs::create_dir(&path).unwrap();
            std::os::unix::fs::chown(&path, Some(65534), Some(65534)).unwrap();
            path
        });
        Nobody { _folder: folder, command, runtime, own }
    }

    /// `afterimage WORDS` as some user.
    fn run_as(&self, uid: &str, words: &[&str]) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", uid, "--regid", uid, "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"]);
        command.arg(&self.command).args(words).current_dir(&self.own).env("NO_COLOR", "1");
        command.env("XDG_RUNTIME_DIR", &self.runtime).stdin(Stdio::null());
        command
    }

    fn output_as(&self, uid: &str, words: &[&str]) -> Output {
        self.run_as(uid, words).output().unwrap()
    }

    /// Records a command that sleeps.
    fn record(&self) -> Child {
        let words = ["record", "-F", "100", "-o", "a.data", "--", "sleep", "600"];
        let child = self.run_as(Nobody::UID, &words).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        until("the control socket", || self.socket(&child).exists());
        child
    }

    fn socket(&self, child: &Child) -> PathBuf {
        self.runtime.join("afterimage").join(format!("{}.sock", child.id()))
    }
}

/// The folder keeps others out; were it open, the recorder asks who is there.
#[test]
fn an_unprivileged_user_at_the_socket_is_refused() {
    if !has("an_unprivileged_user_at_the_socket_is_refused", &[Need::Root, Need::Setpriv]) {
        return;
    }
    let _turn = beside();
    let nobody = Nobody::new();
    let child = nobody.record();
    let pid = child.id().to_string();
    let mode = |path: &PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let (socket, folder) = (nobody.socket(&child), nobody.runtime.join("afterimage"));
    assert_eq!((mode(&folder), mode(&socket)), (0o700, 0o600));
    // Its own user needs not say which one, for it sees no other.
    let output = nobody.output_as(Nobody::UID, &["handler", "stats"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("no programs run on these samples"), "{}", stdout(&output));
    let output = nobody.output_as(Nobody::UID, &["handler", "swap", "count"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("runs no programs on samples"), "{}", stderr(&output));
    let listed = stdout(&nobody.output_as(Nobody::UID, &["handler", "list"]));
    let first: String = listed.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
    assert_eq!(first, pid, "the first digits of the list: {listed}");

    let other = nobody.output_as("65533", &["handler", "stats", &pid]);
    println!("{}", stderr(&other));
    assert_eq!(other.status.code(), Some(1));
    assert!(stderr(&other).contains("not permitted"), "{}", stderr(&other));
    fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&socket, Permissions::from_mode(0o666)).unwrap();
    for words in [&["handler", "stats", &pid][..], &["handler", "clear", &pid]] {
        let other = nobody.output_as("65533", words);
        println!("{}", stderr(&other));
        assert_eq!(other.status.code(), Some(1));
        assert!(stderr(&other).contains("uid 65533 may not control"), "{}", stderr(&other));
    }
    // Root may.
    let root = afterimage().args(["handler", "list", "--json"]).output().unwrap();
    assert_eq!(root.status.code(), Some(0));
    signal(&child, Signal::INT);
    child.wait_with_output().unwrap();
    assert!(!socket.exists());
}

/// Without a place for the socket the recording is made all the same.
#[test]
fn a_recording_without_a_socket_is_a_recording() {
    if !has("a_recording_without_a_socket_is_a_recording", &[Need::Root, Need::Setpriv]) {
        return;
    }
    let _turn = beside();
    let nobody = Nobody::new();
    let words = ["record", "-o", "a.data", "--", "true"];
    for (runtime, cause) in [(None, "XDG_RUNTIME_DIR is not set"), (Some("/nonexistent"), "No such file")] {
        let mut command = nobody.run_as(Nobody::UID, &words);
        match runtime {
            Some(runtime) => command.env("XDG_RUNTIME_DIR", runtime),
            None => command.env_remove("XDG_RUNTIME_DIR"),
        };
        let output = command.output().unwrap();
        println!("{}", stderr(&output));
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let told = stderr(&output).lines().any(|line| line.contains("cannot be controlled") && line.contains(cause));
        assert!(told, "{}", stderr(&output));
        assert!(nobody.own.join("a.data").exists());
    }
    let output = nobody.run_as(Nobody::UID, &["handler", "list"]).env_remove("XDG_RUNTIME_DIR").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let output = nobody.output_as(Nobody::UID, &["handler", "clear"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("no recording of yours runs"), "{}", stderr(&output));
}
