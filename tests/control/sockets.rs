//! Sockets come and go with their recordings; what is said on them is bounded.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use afterimage_testkit::has;
use rustix::process::Signal;
use serde_json::Value;

use crate::common::{afterimage, folder, run, stdout};
use crate::helper::{beside, signal, tally};
use crate::session::{NEEDS, Session};

fn listed() -> Vec<Value> {
    let output = run(&["handler", "list", "--json"]);
    assert_eq!(output.status.code(), Some(0));
    let listed: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(listed["schema"], "afterimage/handler-list/1");
    listed["sessions"].as_array().unwrap().clone()
}

#[test]
fn sockets_go_with_their_recordings() {
    if !has("sockets_go_with_their_recordings", &NEEDS) {
        return;
    }
    let _turn = beside();
    let folder = folder();
    let session = Session::start(&folder, &["-a", "-e", "cpu-clock", "-F", "499"]);
    let (socket, pid) = (session.socket(), session.pid.parse::<u32>().unwrap());
    let known = listed().into_iter().find(|known| known["session"] == pid).unwrap();
    assert_eq!((&known["handler"], &known["programs"]), (&"none".into(), &true.into()));
    assert!(known["command"].as_array().unwrap().contains(&"cpu-clock".into()));
    tally(&session.end().0);
    assert!(!socket.exists());
    // Killed, it leaves its socket, which the next look removes.
    let session = Session::start(&folder, &["-a", "-e", "cpu-clock", "-F", "499"]);
    let (socket, pid) = (session.socket(), session.pid.parse::<u32>().unwrap());
    session.kill(1);
    assert!(!listed().iter().any(|known| known["session"] == pid));
    assert!(!socket.exists());
}

/// A watch shows a line each second, and ends with the session.
#[test]
fn a_watch_ends_with_its_session() {
    if !has("a_watch_ends_with_its_session", &NEEDS) {
        return;
    }
    let _turn = beside();
    let folder = folder();
    let session = Session::start(&folder, &["-a", "-e", "cpu-clock", "-F", "499", "--handler", "emit"]);
    let watch = |words: &[&str]| {
        let mut command = afterimage();
        command.args(["handler", "stats", &session.pid, "--watch"]).args(words);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let (mut lines, table, mut stopped) = (watch(&["--json"]), watch(&[]), watch(&["--json"]));
    let mut out = BufReader::new(lines.stdout.take().unwrap());
    let mut last = 0;
    for _ in 0..3 {
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let stats: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(stats["schema"], "afterimage/handler-stats/1");
        let now = stats["now_ns"].as_u64().unwrap();
        assert!(now > last);
        last = now;
    }
    signal(&stopped, Signal::INT);
    assert_eq!(stopped.wait().unwrap().code(), Some(0));
    tally(&session.end().0);
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert_eq!(lines.wait().unwrap().code(), Some(0));
    let output = table.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    println!("{}", stdout(&output));
    assert!(stdout(&output).matches("# Handler: emit, generation 1").count() >= 2);
}

/// A peer that says too much, reads nothing or opens too many connections does not hold the recording up.
#[test]
fn a_bad_peer_does_no_harm() {
    if !has("a_bad_peer_does_no_harm", &NEEDS) {
        return;
    }
    let _turn = beside();
    let folder = folder();
    let session = Session::start(&folder, &["-a", "-e", "cpu-clock", "-F", "1999"]);
    let connect = || UnixStream::connect(session.socket()).unwrap();
    let crowd: Vec<UnixStream> = (0..60).map(|_| connect()).collect();
    let mut endless = connect();
    let _ = endless.write_all(&[b'x'; 200_000]);
    let mut mute = connect();
    mute.write_all(b"{\"version\":1}\n").unwrap();
    mute.set_nonblocking(true).unwrap();
    let ask = b"{\"command\":\"stats\"}\n".repeat(1000);
    while mute.write(&ask).is_ok() {}
    session.grows("chained", 2000);
    session.done(&["swap", "SESSION", "count"]);
    session.grows("counted", 1000);
    // What was said to it before is still there to be read. It is gone by now, or goes with its own end.
    let _ = mute.shutdown(std::net::Shutdown::Write);
    mute.set_nonblocking(false).unwrap();
    let mut said = Vec::new();
    let _ = mute.read_to_end(&mut said);
    assert!(said.starts_with(b"{\"version\":1}\n"));
    drop(crowd);
    let (path, said) = session.end();
    println!("{said}");
    let sum = tally(&path).total();
    assert_eq!((sum.ring.lost, sum.map.lost.total()), (0, 0), "{}", sum.human());
}
