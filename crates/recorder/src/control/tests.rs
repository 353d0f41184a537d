//! Real sockets, and a subject that writes down what it is asked to do.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{Timespec, poll};

use super::*;

#[derive(Default)]
struct Recording {
    changes: u32,
    /// What came with the changes.
    received: Vec<String>,
    /// A change that takes long: it ends when this is set.
    slow: Option<Arc<AtomicBool>>,
    under_way: bool,
    abandoned: u32,
}

impl Subject for Recording {
    fn stats(&mut self) -> Stats {
        Stats {
            session: 7,
            generation: self.changes,
            command: self.received.clone(),
            changes: self.abandoned.into(),
            ..Stats::default()
        }
    }

    fn change(
        &mut self,
        request: Request,
        descriptor: Option<OwnedFd>,
        bell: &Bell,
    ) -> Option<Result<Changed, Refusal>> {
        let Request::Swap { handler: Wanted::Builtin(name) } = request else {
            return Some(Err(Refusal::new(RefusalKind::Impossible, "not this")));
        };
        if let ("emit", Some(slow)) = (name.as_str(), &self.slow) {
            let (slow, bell) = (Arc::clone(slow), bell.clone());
            assert!(!std::mem::replace(&mut self.under_way, true), "two at a time");
            std::thread::spawn(move || {
                until("the end of what is slow", || slow.load(Ordering::Relaxed));
                bell.ring();
            });
            return None;
        }
        self.received.extend(descriptor.map(|fd| std::io::read_to_string(std::fs::File::from(fd)).unwrap()));
        self.changes += 1;
        Some(Ok(Changed { handler: name, generation: self.changes, ..Changed::default() }))
    }

    fn finished(&mut self) -> Option<Result<Changed, Refusal>> {
        self.slow.as_ref().filter(|slow| slow.load(Ordering::Relaxed))?;
        self.under_way = false;
        self.changes += 1;
        Some(Ok(Changed { handler: "emit".into(), generation: self.changes, ..Changed::default() }))
    }

    fn abandon(&mut self) {
        self.under_way = false;
        self.abandoned += 1;
    }
}

/// A socket that is served by a thread until it is dropped.
struct Served {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    _dir: tempfile::TempDir,
}

impl Served {
    fn new() -> Served {
        Served::with(None)
    }

    fn with(slow: Option<Arc<AtomicBool>>) -> Served {
        let dir = tempfile::tempdir().unwrap();
        let mut control = Control::open_in(&dir.path().join("afterimage"), 7).unwrap();
        let path = dir.path().join("afterimage/7.sock");
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut recording = Recording { slow, ..Recording::default() };
            while !seen.load(Ordering::Relaxed) {
                let ready = {
                    let mut fds: Vec<PollFd<'_>> = control.poll_fds().collect();
                    let soon = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
                    poll(&mut fds, Some(&soon)).unwrap() > 0
                };
                if ready { control.serve(&mut recording) } else { control.sweep(&mut recording) }
            }
        });
        Served { path, stop, thread: Some(thread), _dir: dir }
    }

    fn stream(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.path).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    }

    fn client(&self) -> Client {
        Client::begin(self.stream()).unwrap()
    }

    /// Says some bytes and reads to the end: all lines but the first, after a look at that.
    fn says(&self, bytes: &[u8]) -> Vec<String> {
        let mut stream = self.stream();
        // It may be closed before all is written.
        let _ = stream.write_all(bytes);
        let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
        assert_eq!(lines.next().as_deref(), Some(r#"{"version":1}"#));
        lines.collect()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().unwrap().join();
        assert!(std::thread::panicking() || ended.is_ok());
    }
}

fn swap(client: &mut Client) -> Result<Changed, ClientError> {
    match client.ask(&Request::Swap { handler: Wanted::Builtin("count".into()) }, None)? {
        Reply::Changed(changed) => Ok(changed),
        other => panic!("{other:?}"),
    }
}

fn stats(client: &mut Client) -> Stats {
    match client.ask(&Request::Stats {}, None).unwrap() {
        Reply::Stats(stats) => *stats,
        other => panic!("{other:?}"),
    }
}

fn until(what: &str, mut so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < Duration::from_secs(60), "still waiting: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn the_lease_is_that_of_the_connection_that_changed_something_first() {
    let served = Served::new();
    let (mut one, mut two) = (served.client(), served.client());
    assert_eq!(stats(&mut one).holder, None);
    assert_eq!(swap(&mut one).unwrap().generation, 1);
    let ClientError::Refused(refusal) = swap(&mut two).unwrap_err() else { panic!("not refused") };
    assert_eq!(refusal.kind, RefusalKind::Busy);
    let holder = stats(&mut two).holder.unwrap();
    assert_eq!(holder.pid, std::process::id());
    assert_eq!(refusal.text, format!("busy: held by pid {} since {}", holder.pid, holder.since));
    // A change that fails is a change that was asked for.
    assert!(matches!(two.ask(&Request::Clear {}, None), Err(ClientError::Refused(r)) if r.kind == RefusalKind::Busy));
    assert_eq!(swap(&mut one).unwrap().generation, 2);
    drop(one);
    // Its end is heard before the next request is answered, or with it.
    assert_eq!(swap(&mut two).unwrap().generation, 3);
    assert!(matches!(two.ask(&Request::Clear {}, None), Err(ClientError::Refused(r)) if r.text == "not this"));
    drop(two);
    let mut three = served.client();
    until("the end of the lease", || stats(&mut three).holder.is_none());
}

#[test]
fn whoever_does_not_read_is_let_go_and_nobody_waits_for_it() {
    let served = Served::new();
    let mut mute = served.stream();
    mute.set_nonblocking(true).unwrap();
    mute.write_all(b"{\"version\":1}\n{\"command\":\"swap\",\"handler\":{\"builtin\":\"count\"}}\n").unwrap();
    let mut other = served.client();
    until("the mute one's change", || stats(&mut other).holder.is_some());
    // Requests until neither side takes any more.
    let ask = b"{\"command\":\"stats\"}\n".repeat(1000);
    while mute.write(&ask).is_ok() {}
    let before = Instant::now();
    assert_eq!(stats(&mut other).generation, 1);
    println!("answered within {:?} beside one that does not read", before.elapsed());
    until("the end of the mute one", || stats(&mut other).holder.is_none());
    assert_eq!(swap(&mut other).unwrap().generation, 2);
}

#[test]
fn what_is_no_request_ends_the_connection() {
    let served = Served::new();
    let hello = "{\"version\":1}\n";
    let long = format!("{hello}{}", "x".repeat(70_000));
    let cases: [(&[u8], &str); 6] = [
        (b"GET / HTTP/1.1\n", "the first line is"),
        (b"{\"version\":2}\n", "speaks version 1, not 2"),
        (b"{\"version\":1}\n{\"command\":\"stop\"}\n", "not a request that this recorder knows"),
        (b"{\"version\":1}\n\xff\xfe\n", "not a request"),
        (b"{\"version\":1}\n\n", "not a request"),
        (long.as_bytes(), "too long"),
    ];
    for (bytes, answer) in cases {
        let lines = served.says(bytes);
        println!("{lines:?}");
        assert!(lines.len() == 1 && lines[0].contains(answer) && lines[0].contains("bad_request"), "{lines:?}");
    }
    // Nothing of it has done any harm.
    assert_eq!(stats(&mut served.client()).generation, 0);
    // Whoever stops speaking still gets the answers to what it said.
    let mut stream = served.stream();
    stream.write_all(format!("{hello}{{\"command\":\"stats\"}}\n{{\"command\":\"stats\"}}\nhalf").as_bytes()).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(BufReader::new(stream).lines().map_while(Result::ok).count(), 3);
}

#[test]
fn there_is_no_end_of_connections_but_of_memory_for_them() {
    let served = Served::new();
    let mut holder = served.client();
    swap(&mut holder).unwrap();
    let crowd: Vec<UnixStream> = (0..100).map(|_| served.stream()).collect();
    let mut last = served.client();
    assert_eq!(stats(&mut last).generation, 1);
    // The holder was silent for longer than all of them, and stays.
    assert_eq!(swap(&mut holder).unwrap().generation, 2);
    let closed = crowd.into_iter().map(|stream| BufReader::new(stream).lines()).filter_map(|mut lines| {
        assert!(lines.next().unwrap().is_ok());
        // Either its end, or nothing for as long as it is kept.
        lines.next().is_none().then_some(())
    });
    assert!(closed.take(100 - PEERS).count() == 100 - PEERS);
}

#[test]
fn a_descriptor_comes_with_its_request() {
    let served = Served::new();
    let mut client = served.client();
    for text in ["one", "two"] {
        let (read, write) = rustix::pipe::pipe().unwrap();
        std::fs::File::from(write).write_all(text.as_bytes()).unwrap();
        let request = Request::Swap { handler: Wanted::Builtin("count".into()) };
        client.ask(&request, Some(read.as_fd())).unwrap();
    }
    assert_eq!(stats(&mut client).command, ["one", "two"]);
    swap(&mut client).unwrap();
    assert_eq!(stats(&mut client).command.len(), 2);
}

/// What takes long keeps nobody else waiting, has one owner, and ends with its asker.
#[test]
fn a_slow_change_is_answered_when_it_ends() {
    let slow = Arc::new(AtomicBool::new(false));
    let served = Served::with(Some(Arc::clone(&slow)));
    let asking = || {
        let mut stream = served.stream();
        // With a request behind it, which has to wait.
        let ask =
            "{\"version\":1}\n{\"command\":\"swap\",\"handler\":{\"builtin\":\"emit\"}}\n{\"command\":\"stats\"}\n";
        stream.write_all(ask.as_bytes()).unwrap();
        stream
    };
    let (first, mut other) = (asking(), served.client());
    until("the lease", || stats(&mut other).holder.is_some());
    assert!(matches!(swap(&mut other), Err(ClientError::Refused(r)) if r.kind == RefusalKind::Busy));
    assert_eq!((stats(&mut other).generation, stats(&mut other).changes), (0, 0));
    drop(first);
    until("the end of the first one's change", || stats(&mut other).changes == 1);
    assert_eq!(stats(&mut other).holder, None);
    let second = asking();
    until("the lease", || stats(&mut other).holder.is_some());
    slow.store(true, Ordering::Relaxed);
    let lines: Vec<String> = BufReader::new(second).lines().take(3).map(Result::unwrap).collect();
    println!("{lines:?}");
    assert!(lines[1].contains("\"changed\"") && lines[1].contains("\"generation\":1"), "{lines:?}");
    assert!(lines[2].contains("\"stats\"") && lines[2].contains("\"generation\":1"), "{lines:?}");
}

/// Who has said its last word and waits for the answer is there still: nobody else gets the lease meanwhile.
#[test]
fn a_lease_outlives_the_last_word_of_who_waits() {
    let slow = Arc::new(AtomicBool::new(false));
    let served = Served::with(Some(Arc::clone(&slow)));
    let (mut asking, mut other) = (served.stream(), served.client());
    asking.write_all(b"{\"version\":1}\n{\"command\":\"swap\",\"handler\":{\"builtin\":\"emit\"}}\n").unwrap();
    asking.shutdown(std::net::Shutdown::Write).unwrap();
    until("the lease", || stats(&mut other).holder.is_some());
    assert!(matches!(swap(&mut other), Err(ClientError::Refused(r)) if r.kind == RefusalKind::Busy));
    assert_eq!(stats(&mut other).changes, 0, "nothing was abandoned");
    slow.store(true, Ordering::Relaxed);
    let lines: Vec<String> = BufReader::new(asking).lines().map(Result::unwrap).collect();
    assert!(lines.len() == 2 && lines[1].contains("\"changed\""), "{lines:?}");
    until("the end of the lease", || stats(&mut other).holder.is_none());
    assert_eq!(swap(&mut other).unwrap().generation, 2);
}

#[test]
fn a_session_that_is_gone_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let control = Control::open_in(dir.path(), 7).unwrap();
    let stream = UnixStream::connect(dir.path().join("7.sock")).unwrap();
    drop(control);
    assert!(!Path::new(&dir.path().join("7.sock")).exists());
    assert!(matches!(Client::begin(stream), Err(ClientError::Ended | ClientError::System(_))));
}
