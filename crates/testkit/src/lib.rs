//! What tests share: what a test needs, and how it says that it skips.
//!
//! A test that needs something of the machine begins with
//!
//! ```no_run
//! use afterimage_testkit::{Need, has};
//! fn a_test() {
//!     if !has("a_test", &[Need::Root]) {
//!         return;
//!     }
//! }
//! ```
//!
//! What is missing is printed and, when `AFTERIMAGE_SKIPS` names a file, appended there as one line
//! `binary test: reason`, so that `./test` can count skips apart from passes. With `AFTERIMAGE_REQUIRE=all` a missing need fails the test;
//! only [`Need::Corpus`] and [`Need::Pmu`] may still be skipped.
//!
//! [`workload`] builds the programs whose behaviour is known beforehand.

pub mod workload;

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Something that a test needs of the machine it runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Effective user 0.
    Root,
    /// `bpf(2)` loads a perf_event program (root, a kernel with BTF).
    Bpf,
    /// The stock `perf` command.
    Perf,
    /// A C compiler.
    Cc,
    /// The `xz` command.
    Xz,
    /// `setpriv` to drop privileges.
    Setpriv,
    /// A mounted or mountable tracefs.
    Tracefs,
    /// Foreign recordings in the folder that `AFTERIMAGE_CORPUS` names.
    Corpus,
    /// A hardware performance monitoring unit.
    Pmu,
}

impl Need {
    /// Why the need is not met here, or `None` when it is.
    pub fn missing(self) -> Option<String> {
        match self {
            Need::Root => (!is_root()).then(|| "needs root".into()),
            Need::Bpf => {
                let btf = Path::new("/sys/kernel/btf/vmlinux").exists();
                (!is_root() || !btf).then(|| "needs root and a kernel with BTF".into())
            }
            Need::Perf => no_command("perf"),
            Need::Cc => no_command("cc"),
            Need::Xz => no_command("xz"),
            Need::Setpriv => no_command("setpriv"),
            Need::Tracefs => tracefs().is_none().then(|| "needs a tracefs".into()),
            Need::Corpus => corpus().is_none().then(|| "needs AFTERIMAGE_CORPUS".into()),
            Need::Pmu => {
                (!Path::new("/sys/bus/event_source/devices/cpu").exists()).then(|| "needs hardware counters".into())
            }
        }
    }

    fn may_be_missing(self) -> bool {
        matches!(self, Need::Corpus | Need::Pmu)
    }
}

/// Whether every need of `test` is met. When not, says so, and fails the test under `AFTERIMAGE_REQUIRE=all`.
///
/// # Panics
/// Under `AFTERIMAGE_REQUIRE=all`, when a need other than the corpus or counters is not met.
pub fn has(test: &str, needs: &[Need]) -> bool {
    for need in needs {
        let Some(reason) = need.missing() else { continue };
        let required = std::env::var("AFTERIMAGE_REQUIRE").is_ok_and(|v| v == "all");
        assert!(!required || need.may_be_missing(), "{test}: {reason}");
        println!("SKIP {test}: {reason}");
        note_skip(test, &reason);
        return false;
    }
    true
}

fn note_skip(test: &str, reason: &str) {
    let Some(path) = std::env::var_os("AFTERIMAGE_SKIPS") else { return };
    let file = OpenOptions::new().append(true).create(true).open(path);
    if let Ok(mut file) = file {
        let _ = file.write_all(format!("{} {test}: {reason}\n", binary()).as_bytes());
    }
}

/// The name of the running test binary, without the hash that cargo adds: two crates may name a test alike.
fn binary() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    name.rsplit_once('-').map_or(name.clone(), |(stem, _)| stem.to_owned())
}

fn is_root() -> bool {
    // The owner of /proc/self is the effective user of this process.
    std::fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0)
}

fn no_command(name: &str) -> Option<String> {
    let found =
        std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(name).is_file()));
    (!found).then(|| format!("needs the command {name}"))
}

/// Where tracefs is, mounting it first when that is possible.
pub fn tracefs() -> Option<PathBuf> {
    let dir = Path::new("/sys/kernel/tracing");
    if !dir.join("events").exists() && is_root() {
        let _ = Command::new("mount").args(["-t", "tracefs", "nodev"]).arg(dir).output();
    }
    dir.join("events").exists().then(|| dir.to_path_buf())
}

/// The folder of foreign recordings, where there is one.
pub fn corpus() -> Option<PathBuf> {
    std::env::var_os("AFTERIMAGE_CORPUS").map(PathBuf::from).filter(|p| p.is_dir())
}
