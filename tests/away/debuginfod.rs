//! Files from a debuginfod server: a small one in this test, which answers rightly, wrongly, by halves, late or not at all.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};

use afterimage_testkit::{Need, has, workload};

use crate::common::{afterimage, file, folder, perf_record, stderr, stdout, word};

const NEEDS: [Need; 3] = [Need::Root, Need::Perf, Need::Cc];

/// What a path is answered with.
#[derive(Clone)]
enum Answer {
    Whole(Vec<u8>),
    /// In chunks, without a length.
    Chunked(Vec<u8>),
    /// The length of all of it, and half of it.
    Half(Vec<u8>),
    /// Nothing, while the connection stays.
    Never,
    /// The head and half of it, then nothing.
    Stuck(Vec<u8>),
    Status(u16),
    /// Another path.
    Moved(String),
    /// A length that no cache holds.
    Huge,
}

struct Server {
    url: String,
    answers: Arc<Mutex<HashMap<String, Answer>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn start() -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let answers: Arc<Mutex<HashMap<String, Answer>>> = Arc::default();
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let (known, heard) = (answers.clone(), asked.clone());
        // It goes with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (known, heard) = (known.clone(), heard.clone());
                std::thread::spawn(move || serve(stream, &known, &heard));
            }
        });
        Server { url, answers, asked }
    }

    fn answer(&self, path: &str, answer: Answer) {
        self.answers.lock().unwrap().insert(path.to_owned(), answer);
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

fn serve(stream: TcpStream, known: &Mutex<HashMap<String, Answer>>, heard: &Mutex<Vec<String>>) {
    let mut from = BufReader::new(stream.try_clone().unwrap());
    let mut first = String::new();
    from.read_line(&mut first).unwrap_or(0);
    let mut line = String::new();
    while from.read_line(&mut line).is_ok_and(|got| got > 2) {
        line.clear();
    }
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    let answer = known.lock().unwrap().get(&path).cloned();
    heard.lock().unwrap().push(path);
    // Who asked may have gone away.
    let _ = reply(stream, answer.unwrap_or(Answer::Status(404)));
}

fn reply(mut to: TcpStream, answer: Answer) -> std::io::Result<()> {
    let close = "Connection: close\r\n\r\n";
    match answer {
        Answer::Whole(bytes) => {
            write!(to, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n{close}", bytes.len())?;
            to.write_all(&bytes)
        }
        Answer::Chunked(bytes) => {
            write!(to, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n{close}")?;
            for part in bytes.chunks(10_000) {
                write!(to, "{:x}\r\n", part.len())?;
                to.write_all(part)?;
                to.write_all(b"\r\n")?;
            }
            to.write_all(b"0\r\n\r\n")
        }
        Answer::Half(bytes) => {
            write!(to, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n{close}", bytes.len())?;
            to.write_all(&bytes[..bytes.len() / 2])
        }
        Answer::Never => {
            std::thread::sleep(std::time::Duration::from_secs(60));
            Ok(())
        }
        Answer::Stuck(bytes) => {
            write!(to, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n{close}", bytes.len())?;
            to.write_all(&bytes[..bytes.len() / 2])?;
            std::thread::sleep(std::time::Duration::from_secs(60));
            Ok(())
        }
        Answer::Status(status) => write!(to, "HTTP/1.1 {status} No\r\nContent-Length: 0\r\n{close}"),
        Answer::Moved(path) => write!(to, "HTTP/1.1 302 Found\r\nLocation: {path}\r\nContent-Length: 0\r\n{close}"),
        Answer::Huge => write!(to, "HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n{close}"),
    }
}

/// A recording of a program that is not there any more, and a server.
struct Away {
    folder: tempfile::TempDir,
    recording: PathBuf,
    program: Vec<u8>,
    server: Server,
    executable: String,
    debuginfo: String,
}

impl Away {
    fn new() -> Away {
        let folder = folder();
        let (recording, path) = (file(&folder, "data"), file(&folder, "busy"));
        std::fs::copy(workload::build().busy, &path).unwrap();
        perf_record(&recording, &["-B", "--buildid-mmap", "-e", "cpu-clock:u", "-F", "999"], &[word(&path), "30"]);
        let program = std::fs::read(&path).unwrap();
        let id = afterimage_symbols::build_id::of_file(&std::fs::File::open(&path).unwrap()).unwrap();
        let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        std::fs::remove_file(&path).unwrap();
        let (executable, debuginfo) = (format!("/buildid/{id}/executable"), format!("/buildid/{id}/debuginfo"));
        Away { folder, recording, program, server: Server::start(), executable, debuginfo }
    }

    fn cache(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = afterimage();
        command.env("HOME", self.folder.path()).env("XDG_CACHE_HOME", self.cache()).env("NO_PROXY", "*");
        for proxy in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "DEBUGINFOD_URLS"] {
            command.env_remove(proxy);
        }
        command.args(["report", "--sort", "sym", "-i", word(&self.recording)]).args(words);
        command
    }

    /// Whether the report has the name, and what was said.
    fn report(&self, words: &[&str]) -> (bool, String) {
        let output = self.command(words).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        (stdout(&output).contains("busy_leaf"), stderr(&output))
    }

    fn asking(&self) -> (bool, String) {
        self.report(&[&format!("--debuginfod={}", self.server.url), "--debuginfod-timeout", "3"])
    }

    /// Files that are kept of what servers sent; nothing else is left behind.
    fn kept(&self) -> usize {
        let entries = std::fs::read_dir(self.cache().join("afterimage")).map_or(Vec::new(), |dir| {
            dir.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
        });
        assert!(!entries.iter().any(|name| name.starts_with('.')), "{entries:?}");
        entries.iter().filter(|name| name.starts_with("debuginfod-")).count()
    }

    fn empty_cache(&self) {
        let _ = std::fs::remove_dir_all(self.cache());
    }
}

#[test]
fn a_program_that_is_gone() {
    if !has("a_program_that_is_gone", &NEEDS) {
        return;
    }
    let away = Away::new();
    away.server.answer(&away.executable, Answer::Whole(away.program.clone()));
    // Nobody is asked unless the option says so, whatever the environment names.
    let mut command = away.command(&[]);
    let output = command.env("DEBUGINFOD_URLS", &away.server.url).output().unwrap();
    assert!(!stdout(&output).contains("busy_leaf"));
    assert_eq!(away.server.asked(), Vec::<String>::new());
    let (named, said) = away.asking();
    assert!(named && said.contains(": 1 files came from debuginfod, "), "{said}");
    assert_eq!(away.server.asked(), [away.executable.as_str()]);
    // What came is kept: names without the server, and code for annotate.
    assert_eq!(away.kept(), 1);
    assert!(away.asking().0);
    let url = format!("--debuginfod={}", away.server.url);
    let mut command = away.command(&[]);
    let mut annotate = afterimage();
    annotate.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    annotate.args(["annotate", "-s", "busy_leaf", &url, "-i", word(&away.recording)]);
    let output = annotate.output().unwrap();
    assert!(stdout(&output).contains("Disassembly of busy_leaf"), "{}", stderr(&output));
    assert_eq!(away.server.asked(), Vec::<String>::new());
    // As the environment says, with a redirect and chunks.
    away.empty_cache();
    away.server.answer(&away.executable, Answer::Moved("/there".to_owned()));
    away.server.answer("/there", Answer::Chunked(away.program.clone()));
    command = away.command(&["--debuginfod"]);
    let output = command.env("DEBUGINFOD_URLS", format!("http://127.0.0.1:1 {}/", away.server.url)).output().unwrap();
    assert!(stdout(&output).contains("busy_leaf"), "{}", stderr(&output));
    assert!(stderr(&output).contains("debuginfod: http://127.0.0.1:1: "), "{}", stderr(&output));
    assert_eq!(away.kept(), 1);
}

#[test]
fn debug_files_of_stripped_programs() {
    if !has("debug_files_of_stripped_programs", &NEEDS) {
        return;
    }
    let away = Away::new();
    let (whole, stripped, debug) =
        (file(&away.folder, "whole"), file(&away.folder, "stripped"), file(&away.folder, "debug"));
    std::fs::write(&whole, &away.program).unwrap();
    for (option, to) in [("--strip-all", &stripped), ("--only-keep-debug", &debug)] {
        assert!(Command::new("objcopy").arg(option).args([&whole, to]).status().unwrap().success());
    }
    away.server.answer(&away.executable, Answer::Whole(std::fs::read(&stripped).unwrap()));
    let (named, said) = away.asking();
    assert!(!named, "{said}");
    assert!(away.server.asked().contains(&away.debuginfo));
    away.empty_cache();
    away.server.answer(&away.debuginfo, Answer::Whole(std::fs::read(&debug).unwrap()));
    let (named, said) = away.asking();
    assert!(named && said.contains(": 2 files came from debuginfod, "), "{said}");
}

#[test]
fn answers_that_are_none() {
    if !has("answers_that_are_none", &NEEDS) {
        return;
    }
    let away = Away::new();
    let other = std::fs::read(workload::build().faults).unwrap();
    let program = || away.program.clone();
    for (answer, says) in [
        (Answer::Status(404), None),
        (Answer::Status(500), Some("it answers 500")),
        (Answer::Whole(other), Some("the answer is not of that build")),
        (Answer::Whole(b"<html>sign in</html>".to_vec()), Some("the answer is not of that build")),
        (Answer::Half(program()), Some("debuginfod: http://")),
        (Answer::Huge, Some("are more than the cache may take")),
        (Answer::Never, Some("the time for a file ran out")),
        (Answer::Stuck(program()), Some("debuginfod: http://")),
        (Answer::Moved(away.executable.clone()), Some("debuginfod: http://")),
    ] {
        away.server.answer(&away.executable, answer);
        let (named, said) = away.asking();
        println!("{said}");
        assert!(!named);
        assert_eq!(said.contains("debuginfod:"), says.is_some(), "{said}");
        assert!(says.is_none_or(|says| said.contains(says)), "{says:?}: {said}");
        assert_eq!(away.kept(), 0);
    }
    // Nobody there; no address; none named.
    let (named, said) = away.report(&["--debuginfod=http://127.0.0.1:1"]);
    assert!(!named && said.contains("debuginfod: http://127.0.0.1:1: "), "{said}");
    for (word, says) in [
        ("--debuginfod=ftp://x", "--debuginfod: ftp://x: not an address of HTTP"),
        ("--debuginfod", "--debuginfod: no server"),
    ] {
        let output = away.command(&[word]).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(says), "{}", stderr(&output));
    }
}

/// A disk that has no room for the file: names are missing, it is said, and nothing is left.
#[test]
fn a_full_disk() {
    if !has("a_full_disk", &NEEDS) {
        return;
    }
    let away = Away::new();
    let mut large = away.program.clone();
    large.resize(4 << 20, 0);
    away.server.answer(&away.executable, Answer::Whole(large));
    std::fs::create_dir(away.cache()).unwrap();
    let command = away.command(&[&format!("--debuginfod={}", away.server.url)]);
    // In a mount namespace of its own, so that nothing stays mounted.
    let script = "mount -t tmpfs -o size=1m tmpfs \"$XDG_CACHE_HOME\" || exit 99; \"$@\"; echo \"left: $(ls -A \"$XDG_CACHE_HOME/afterimage\")\"";
    let mut small = Command::new("unshare");
    small.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    small.args(["-m", "sh", "-c", script, "sh"]).arg(command.get_program()).args(command.get_args());
    let output = small.output().unwrap();
    let said = stderr(&output);
    assert!(said.contains("debuginfod: http://") && said.contains("No space left on device"), "{said}");
    let shown = stdout(&output);
    assert!(!shown.contains("busy_leaf") && shown.contains("Samples"), "{shown}");
    // Symbols of what the program was linked to may be there, which is small; nothing of the download is.
    let left = shown.lines().skip_while(|line| !line.starts_with("left:"));
    assert!(left.clone().count() > 0 && !left.into_iter().any(|line| line.contains("debuginfod")), "{shown}");
}
