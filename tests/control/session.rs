//! A recording that runs, and the commands that speak to it.

use std::path::{Path, PathBuf};
use std::process::{Child, Output};

use afterimage_testkit::Need;
use rustix::process::Signal;
use serde_json::Value;

use crate::common::{file, run, stderr, stdout};
use crate::helper::{signal, start, until, until_covered};

pub(crate) const NEEDS: [Need; 2] = [Need::Root, Need::Bpf];

/// A recording of root's; ended when it is dropped, if not before.
pub(crate) struct Session {
    child: Option<Child>,
    pub(crate) path: PathBuf,
    pub(crate) pid: String,
}

impl Session {
    /// Starts a recording with some words and waits until it can be spoken to.
    pub(crate) fn start(folder: &tempfile::TempDir, words: &[&str]) -> Session {
        let path = file(folder, "a.data");
        let child = start(&path, words);
        let session = Session { pid: child.id().to_string(), child: Some(child), path };
        until("the control socket", || session.socket().exists());
        // It is served from the start of the first pass on.
        session.stats();
        session
    }

    pub(crate) fn socket(&self) -> PathBuf {
        Path::new("/run/afterimage").join(format!("{}.sock", self.pid))
    }

    /// `handler WORDS`, with the session where the words say SESSION.
    pub(crate) fn handler(&self, words: &[&str]) -> Output {
        let mut all = vec!["handler"];
        all.extend(words.iter().map(|word| if *word == "SESSION" { self.pid.as_str() } else { word }));
        run(&all)
    }

    /// The same, which has to end with 0; gives stdout.
    pub(crate) fn done(&self, words: &[&str]) -> String {
        let output = self.handler(words);
        assert_eq!(output.status.code(), Some(0), "{words:?}: {}", stderr(&output));
        stdout(&output)
    }

    /// The same, refused with this exit code; gives what was said.
    pub(crate) fn refused(&self, words: &[&str], code: i32) -> String {
        let output = self.handler(words);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty(), "{words:?}: {}", stdout(&output));
        stderr(&output)
    }

    /// `handler stats --json`.
    pub(crate) fn stats(&self) -> Value {
        serde_json::from_str(&self.done(&["stats", "SESSION", "--json"])).unwrap()
    }

    /// Waits until a number of the first event's tally has grown by this much.
    pub(crate) fn grows(&self, key: &str, by: u64) {
        let now = || self.stats()["events"][0]["tally"][key].as_u64().unwrap();
        let before = now();
        until(key, || now() >= before + by);
    }

    /// Ends it as ctrl-C does and gives what it said.
    pub(crate) fn end(self) -> (PathBuf, String) {
        let (path, output) = self.end_with_command();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        (path, stderr(&output))
    }

    /// The same where it also ends a command, by SIGTERM, and passes that on.
    pub(crate) fn end_with_command(mut self) -> (PathBuf, Output) {
        let child = self.child.take().unwrap();
        signal(&child, Signal::INT);
        (self.path.clone(), child.wait_with_output().unwrap())
    }

    /// Kills it once its file holds so many samples, and gives where the recording is.
    pub(crate) fn kill(mut self, samples: u64) -> PathBuf {
        until_covered(&self.path, samples);
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        self.path.clone()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
