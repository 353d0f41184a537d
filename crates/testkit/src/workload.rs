//! Programs whose behaviour is known: who used how much CPU, how many pages were touched, how often a variable was
//! written. Their C is in `tests/workload`; `cc` builds them on first use, beside the running binary, in a folder
//! named after their content.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use crate::built;

const SOURCES: &[(&str, &str)] = &[
    ("common.h", include_str!("../../../tests/workload/common.h")),
    ("library.c", include_str!("../../../tests/workload/library.c")),
    ("split.c", include_str!("../../../tests/workload/split.c")),
    ("faults.c", include_str!("../../../tests/workload/faults.c")),
    ("writes.c", include_str!("../../../tests/workload/writes.c")),
    ("busy.c", include_str!("../../../tests/workload/busy.c")),
    ("forest.c", include_str!("../../../tests/workload/forest.c")),
    ("requests.c", include_str!("../../../tests/workload/requests.c")),
    ("switches.c", include_str!("../../../tests/workload/switches.c")),
    ("waits.c", include_str!("../../../tests/workload/waits.c")),
];

/// Every function keeps a frame that a stack walk by frame pointers finds.
const FLAGS: &[&str] =
    &["-O2", "-g", "-Wall", "-Werror", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls", "-pthread"];

/// What is compiled: arguments of `cc` beside [`FLAGS`], in this order.
const BUILDS: &[&[&str]] = &[
    &["-shared", "-fPIC", "library.c", "-o", "libsplit.so"],
    &["split.c", "-o", "split", "-L.", "-lsplit", "-Wl,-rpath,$ORIGIN"],
    &["faults.c", "-o", "faults"],
    &["writes.c", "-o", "writes"],
    &["busy.c", "-o", "busy"],
    &["forest.c", "-o", "forest"],
    &["requests.c", "-o", "requests"],
    &["switches.c", "-o", "switches"],
    &["waits.c", "-o", "waits"],
];

/// Where the built programs are.
#[derive(Clone, Debug)]
pub struct Paths {
    /// `split SECONDS`: a known split of CPU time over functions, a library, a thread and a child. See [`Split`].
    pub split: PathBuf,
    /// The shared library that `split` calls into, next to it.
    pub library: PathBuf,
    /// `faults PAGES [wait]`: a known number of page faults in `touch_pages`.
    pub faults: PathBuf,
    /// `writes COUNT`: a known number of writes to one address, which it prints first.
    pub writes: PathBuf,
    /// `busy CHUNKS [DEPTH]`: a fixed amount of work, and how long it took.
    pub busy: PathBuf,
    /// `forest SECONDS PATHS`: many different deep stacks.
    pub forest: PathBuf,
    /// `requests COUNT`: slow and fast requests, named in an array whose address it prints first.
    pub requests: PathBuf,
    /// `switches RATE SECONDS`: two threads that switch so many times a second.
    pub switches: PathBuf,
    /// `waits ROUNDS MS`: threads that sleep, wait for a lock and for a pipe, and say for how long. `waits crowd THREADS MS`:
    /// many that sleep once at the same time; `waits shared THREADS MS`: some that wait for each other in the kernel.
    pub waits: PathBuf,
}

/// Builds the programs, or finds them built. Needs `cc` ([`crate::Need::Cc`]).
///
/// # Panics
/// When they can't be built.
pub fn build() -> Paths {
    match try_build() {
        Ok(dir) => Paths {
            split: dir.join("split"),
            library: dir.join("libsplit.so"),
            faults: dir.join("faults"),
            writes: dir.join("writes"),
            busy: dir.join("busy"),
            forest: dir.join("forest"),
            requests: dir.join("requests"),
            switches: dir.join("switches"),
            waits: dir.join("waits"),
        },
        Err(error) => panic!("the workload could not be built: {error}"),
    }
}

/// Whether the programs stand built beside the running binary, so that no compiler is needed.
pub(crate) fn is_built() -> bool {
    built::beside_this_binary().is_ok_and(|folder| folder_in(&folder).exists())
}

fn try_build() -> io::Result<PathBuf> {
    build_in(&built::beside_this_binary()?)
}

/// The folder of the programs in `parent`, named after what they are made of.
fn folder_in(parent: &Path) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    (SOURCES, FLAGS, BUILDS).hash(&mut hasher);
    parent.join(format!("workload-{:016x}", hasher.finish()))
}

/// Builds the programs in a folder below `parent`, or finds them there: the folder that tests whose binary is in
/// `parent` look into.
///
/// # Errors
/// When the compiler is missing or fails, or the folder can't be written.
pub fn build_in(parent: &Path) -> io::Result<PathBuf> {
    built::once(parent, &folder_in(parent), compile_in)
}

fn compile_in(dir: &Path) -> io::Result<()> {
    for (name, text) in SOURCES {
        fs::write(dir.join(name), text)?;
    }
    for arguments in BUILDS {
        let output = Command::new("cc").current_dir(dir).args(FLAGS).args(*arguments).output()?;
        if !output.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
        }
    }
    Ok(())
}

/// What a run of `split` said about itself.
#[derive(Clone, Debug)]
pub struct Split {
    cpu_ns: Vec<(String, u64)>,
}

impl Split {
    /// The two functions that share the main thread 70 to 30.
    pub const PAIR: [&str; 2] = ["spin_seventy", "spin_thirty"];
    /// The function below [`Split::DEPTH`] frames of `recursion_level`.
    pub const RECURSION: &str = "recursion_leaf";
    /// How often `recursion_level` stands on a stack above [`Split::RECURSION`].
    pub const DEPTH: usize = 25;
    /// The function in the shared library, called by the thread `split-thread`.
    pub const LIBRARY: &str = "library_spin";
    /// The function of the child process `split-child`.
    pub const CHILD: &str = "child_spin";

    /// Reads what `split` printed.
    pub fn parse(stdout: &[u8]) -> Option<Split> {
        let value: serde_json::Value = serde_json::from_slice(stdout).ok()?;
        let times = value.get("cpu_ns")?.as_object()?;
        let cpu_ns = times.iter().map(|(name, ns)| Some((name.clone(), ns.as_u64()?))).collect::<Option<_>>()?;
        Some(Split { cpu_ns })
    }

    /// The functions that used CPU time.
    pub fn functions(&self) -> impl Iterator<Item = &str> {
        self.cpu_ns.iter().map(|(name, _)| name.as_str())
    }

    /// CPU time of one function in nanoseconds; 0 for a name that `split` does not know.
    pub fn ns(&self, function: &str) -> u64 {
        self.cpu_ns.iter().find(|(name, _)| name == function).map_or(0, |(_, ns)| *ns)
    }

    /// CPU time of all functions in nanoseconds.
    pub fn total_ns(&self) -> u64 {
        self.cpu_ns.iter().map(|(_, ns)| ns).sum()
    }

    /// The share of one function in percent of all.
    pub fn percent(&self, function: &str) -> f64 {
        100.0 * self.ns(function) as f64 / self.total_ns() as f64
    }
}
