//! Files by build ID from debuginfod servers, where the user asks for it: HTTP, a time limit for each file, and the cache of
//! symbols on disk, in which they are kept.
//!
//! A server is nobody to be trusted: what it sends goes to a file and no further than the cache's limit, and has to show the
//! build ID that was asked for before it is kept. A server that let a file's time run out is not asked again.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use afterimage_symbols::build_id;
use afterimage_symbols::cache::Cache;
use afterimage_symbols::{Fetch, Wanted};
use ureq::Agent;

use crate::exit::Problem;
use crate::say::Say;
use crate::terminal::grouped;

/// Where servers are named, with blanks between them, as debuginfod's own tools have it.
const SERVERS: &str = "DEBUGINFOD_URLS";
/// The longest that a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(10);
/// Problems that are told one by one.
const TOLD: usize = 3;

/// What servers gave and did not give.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report(Arc<Mutex<Told>>);

#[derive(Debug, Default)]
struct Told {
    files: u64,
    bytes: u64,
    not_there: u64,
    problems: Vec<String>,
}

/// The servers of one command.
pub(crate) struct Servers {
    agent: Agent,
    cache: Cache,
    /// With whether each is asked still.
    urls: RefCell<Vec<(String, bool)>>,
    /// Files that no server gave.
    missing: RefCell<HashSet<String>>,
    report: Report,
}

impl Servers {
    /// The servers that the option names, or the environment where it names none.
    ///
    /// # Errors
    /// When no server is named, one is no address of HTTP, or there is no cache to keep files in.
    pub(crate) fn new(named: &str, seconds: u64, report: Report) -> anyhow::Result<Servers> {
        let of_environment = std::env::var(SERVERS).unwrap_or_default();
        let named = if named.is_empty() { of_environment } else { named.to_owned() };
        let mut urls = Vec::new();
        // Words of elfutils about signatures of files, which are not looked at here.
        for url in named.split_whitespace().filter(|word| !word.starts_with("ima:")) {
            let speaks = url.starts_with("http://") || cfg!(feature = "tls") && url.starts_with("https://");
            if !speaks {
                let problem = Problem::usage(format!("--debuginfod: {url}: not an address of HTTP"));
                let hint = match url.starts_with("https://") {
                    true => "this build speaks no TLS: build it with the feature tls",
                    false => "for example http://localhost:8002",
                };
                return Err(problem.hint(hint).into());
            }
            urls.push((url.trim_end_matches('/').to_owned(), true));
        }
        if urls.is_empty() {
            let problem = Problem::usage("--debuginfod: no server");
            return Err(problem.hint(format!("--debuginfod=URL or {SERVERS} names one")).into());
        }
        let cache = Cache::open_default().ok_or_else(|| {
            let problem = Problem::failed("--debuginfod: there is no place for a cache");
            problem.hint("HOME or XDG_CACHE_HOME has to name a folder of yours")
        })?;
        let config = Agent::config_builder()
            .timeout_global(Some(Duration::from_secs(seconds)))
            .timeout_connect(Some(CONNECT.min(Duration::from_secs(seconds))))
            .user_agent(concat!("afterimage/", env!("CARGO_PKG_VERSION")))
            .http_status_as_error(false)
            .max_redirects(3)
            .build();
        Ok(Servers { agent: config.into(), cache, urls: RefCell::new(urls), missing: RefCell::default(), report })
    }

    /// One file from one server; `None` where that does not have it.
    fn get(&self, server: &str, build_id: &[u8], what: &str, name: &str) -> Result<Option<File>, Failure> {
        let id: String = build_id.iter().map(|byte| format!("{byte:02x}")).collect();
        let response = self.agent.get(format!("{server}/buildid/{id}/{what}")).call().map_err(Failure::of)?;
        match response.status().as_u16() {
            200 => {}
            404 => return Ok(None),
            status => return Err(Failure::other(format!("it answers {status}"))),
        }
        let limit = self.cache.limit();
        let told = response.body().content_length();
        if told.is_some_and(|bytes| bytes > limit) {
            let what = format!("{} bytes are more than the cache may take", grouped(told.unwrap_or(u64::MAX)));
            return Err(Failure::other(what));
        }
        let mut body = response.into_body().into_reader();
        let stored = self.cache.download(name, |file| {
            let bytes = copy(&mut body, file, limit)?;
            if told.is_some_and(|told| told != bytes) {
                return Err(io::Error::other("the answer ended before its time"));
            }
            match build_id::of_file(file) {
                Some(own) if own == build_id => Ok(bytes),
                _ => Err(io::Error::other("the answer is not of that build")),
            }
        });
        let (file, bytes) = stored.map_err(|error| Failure::of(ureq::Error::from(error)))?;
        self.report.with(|told| {
            told.files += 1;
            told.bytes += bytes;
        });
        Ok(Some(file))
    }
}

impl Fetch for Servers {
    fn fetch(&self, build_id: &[u8], wanted: Wanted) -> Option<File> {
        let what = match wanted {
            Wanted::Executable => "executable",
            Wanted::DebugInfo => "debuginfo",
        };
        let name = Cache::download_name(build_id, what)?;
        if let Some(kept) = self.cache.downloaded(&name) {
            if build_id::of_file(&kept).is_some_and(|own| own == build_id) {
                return Some(kept);
            }
        }
        if self.missing.borrow().contains(&name) {
            return None;
        }
        for (server, asked) in self.urls.borrow_mut().iter_mut().filter(|(_, asked)| *asked) {
            match self.get(server, build_id, what, &name) {
                Ok(Some(file)) => return Some(file),
                Ok(None) => {}
                Err(failure) => {
                    *asked = !failure.lasts;
                    self.report.with(|told| told.problems.push(format!("{server}: {}", failure.why)));
                }
            }
        }
        self.report.with(|told| told.not_there += 1);
        self.missing.borrow_mut().insert(name);
        None
    }
}

/// Why a server gave nothing.
struct Failure {
    why: String,
    /// Whether the next file would fare no better.
    lasts: bool,
}

impl Failure {
    fn other(why: String) -> Failure {
        Failure { why, lasts: false }
    }

    fn of(error: ureq::Error) -> Failure {
        let full = |error: &io::Error| error.kind() == io::ErrorKind::StorageFull;
        match error {
            ureq::Error::Timeout(_) => Failure { why: "the time for a file ran out".to_owned(), lasts: true },
            ureq::Error::HostNotFound => Failure { why: "no such host".to_owned(), lasts: true },
            ureq::Error::ConnectionFailed => Failure { why: "no connection".to_owned(), lasts: true },
            ureq::Error::Io(error) if full(&error) => Failure { why: format!("the cache: {error}"), lasts: true },
            ureq::Error::Io(error) => {
                // Once a body is read, a time that ran out comes as an error of reading.
                let timed_out = error.kind() == io::ErrorKind::TimedOut;
                let why = if timed_out { "the time for a file ran out".to_owned() } else { error.to_string() };
                Failure { lasts: timed_out || error.kind() == io::ErrorKind::ConnectionRefused, why }
            }
            other => Failure::other(other.to_string()),
        }
    }
}

/// Copies an answer, and no more of it than may be kept.
fn copy(from: &mut impl Read, to: &mut impl Write, limit: u64) -> io::Result<u64> {
    let bytes = io::copy(&mut from.take(limit.saturating_add(1)), to)?;
    if bytes > limit { Err(io::Error::other("more bytes than the cache may take")) } else { Ok(bytes) }
}

impl Report {
    fn with(&self, change: impl FnOnce(&mut Told)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Says what came from servers, and what went wrong with them.
    pub(crate) fn say(&self, recording: &str, say: &Say) {
        self.with(|told| {
            if told.files > 0 {
                let (files, bytes) = (grouped(told.files), told.bytes as f64 / 1_048_576.0);
                say.note(format!("{recording}: {files} files came from debuginfod, {bytes:.1} MiB"));
            }
            for problem in told.problems.iter().take(TOLD) {
                say.warn(format!("debuginfod: {problem}"));
            }
            if told.problems.len() > TOLD {
                say.warn(format!("debuginfod: and {} more", grouped((told.problems.len() - TOLD) as u64)));
            }
            if told.not_there > 0 {
                say.detail(format!("debuginfod: {} files could not be had", grouped(told.not_there)));
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_have_to_be_named_and_to_speak_http() {
        let refused = |named: &str| Servers::new(named, 1, Report::default()).err().unwrap().to_string();
        assert_eq!(refused("ftp://x"), "--debuginfod: ftp://x: not an address of HTTP");
        assert_eq!(refused("http://a file:///etc"), "--debuginfod: file:///etc: not an address of HTTP");
    }

    #[test]
    fn no_more_is_copied_than_may_be_kept() {
        let mut out = Vec::new();
        assert_eq!(copy(&mut &b"0123456789"[..], &mut out, 10).unwrap(), 10);
        assert!(copy(&mut &b"0123456789"[..], &mut out, 9).is_err());
        assert!(copy(&mut io::repeat(0), &mut io::sink(), 1 << 20).is_err());
    }
}
