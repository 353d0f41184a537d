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
//! `binary test: reason`, so that `./test` can count skips apart from passes. Where nothing is missing, `binary test` is
//! appended to the file that `AFTERIMAGE_RAN` names: a test that ran nowhere, neither here nor in a guest, can be told.
//! With `AFTERIMAGE_REQUIRE=all` a missing need fails the test, unless it [may be missing](Need::may_be_missing) or a
//! guest [gives it](Need::is_given_by_guests).
//!
//! [`workload`] builds the programs whose behaviour is known beforehand.

mod built;
pub mod objects;
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
    /// A C++ compiler, with its library.
    Cxx,
    /// The Rust compiler.
    Rustc,
    /// The Go compiler.
    Go,
    /// The `xz` command.
    Xz,
    /// `clang`, which compiles BPF programs.
    Clang,
    /// `bpftool`, which prints BPF programs.
    Bpftool,
    /// `objdump`, of binutils.
    Objdump,
    /// The `objdump` of binutils for 64-bit ARM.
    ObjdumpArm,
    /// The debugger `gdb`.
    Gdb,
    /// Headers and library of Intel's trace decoder, libipt.
    Libipt,
    /// `setpriv` to drop privileges.
    Setpriv,
    /// A kernel with cgroups of version 2, which root can mount.
    Cgroup2,
    /// A mounted or mountable tracefs.
    Tracefs,
    /// Foreign recordings in the folder that `AFTERIMAGE_CORPUS` names.
    Corpus,
    /// A hardware performance monitoring unit.
    Pmu,
    /// `/proc/kcore`, readable.
    Kcore,
    /// Kprobes.
    Kprobes,
    /// Loadable kernel modules.
    Modules,
    /// A guest of `cargo xtask guest`, whichever kernel it runs.
    Guest,
    /// A machine that is not emulated.
    NoGuest,
    /// A guest with a kernel 6.1.
    Guest61,
    /// A guest with a kernel 6.12.
    Guest612,
    /// Files that guests left behind, in the folder that `AFTERIMAGE_FROM_GUESTS` names.
    FromGuests,
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
            Need::Cc => {
                if workload::is_built() {
                    None
                } else {
                    no_command("cc")
                }
            }
            Need::Cxx => no_command("c++"),
            Need::Rustc => no_command("rustc"),
            Need::Go => no_command("go"),
            Need::Xz => no_command("xz"),
            Need::Clang => {
                if objects::is_built() {
                    None
                } else {
                    no_command("clang")
                }
            }
            Need::Bpftool => no_command("bpftool"),
            Need::Objdump => no_command("objdump"),
            Need::ObjdumpArm => no_command("aarch64-linux-gnu-objdump"),
            Need::Gdb => no_command("gdb"),
            Need::Libipt => {
                let header = ["/usr/include", "/usr/local/include"].map(|dir| Path::new(dir).join("intel-pt.h"));
                (!header.iter().any(|header| header.exists())).then(|| "needs libipt's headers (libipt-dev)".into())
            }
            Need::Setpriv => no_command("setpriv"),
            Need::Cgroup2 => {
                let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
                let there = is_root() && known.lines().any(|line| line.ends_with("\tcgroup2"));
                (!there).then(|| "needs root and cgroups of version 2".into())
            }
            Need::Tracefs => tracefs().is_none().then(|| "needs a tracefs".into()),
            Need::Corpus => corpus().is_none().then(|| "needs AFTERIMAGE_CORPUS".into()),
            Need::Pmu => {
                (!Path::new("/sys/bus/event_source/devices/cpu").exists()).then(|| "needs hardware counters".into())
            }
            Need::Kcore => {
                (!(is_root() && Path::new("/proc/kcore").exists())).then(|| "needs root and /proc/kcore".into())
            }
            Need::Kprobes => {
                (!Path::new("/sys/bus/event_source/devices/kprobe").exists()).then(|| "needs kprobes".into())
            }
            Need::Modules => (!Path::new("/proc/modules").exists()).then(|| "needs loadable modules".into()),
            Need::Guest => guest().is_none().then(|| "needs a guest".into()),
            Need::NoGuest => guest().is_some().then(|| "needs a machine that is not emulated".into()),
            Need::Guest61 => (guest().as_deref() != Some("6.1")).then(|| "needs the guest with kernel 6.1".into()),
            Need::FromGuests => {
                let left = std::env::var_os("AFTERIMAGE_FROM_GUESTS");
                left.is_none_or(|dir| !Path::new(&dir).is_dir()).then(|| "needs files from guests".into())
            }
            Need::Guest612 => (guest().as_deref() != Some("6.12")).then(|| "needs the guest with kernel 6.12".into()),
        }
    }

    /// Whether a test may run nowhere for want of this: it is no fault of the machine that it is not there, or it is a compiler
    /// that a few tests use and nothing else.
    pub fn may_be_missing(self) -> bool {
        matches!(self, Need::Corpus | Need::Pmu | Need::Cxx | Need::Go)
    }

    /// Whether a guest has this where the machine has not.
    pub fn is_given_by_guests(self) -> bool {
        use Need as N;
        matches!(self, N::Kcore | N::Kprobes | N::Modules | N::Guest | N::Guest61 | N::Guest612 | N::FromGuests)
    }
}

/// In a guest, major and minor version of its kernel: `6.1`.
pub fn guest() -> Option<String> {
    std::env::var("AFTERIMAGE_GUEST").ok().filter(|kernel| !kernel.is_empty())
}

/// So many turns of a load; a tenth of them in a guest, whose emulated CPUs are many times slower.
pub fn turns(natively: u32) -> u32 {
    if guest().is_some() { natively / 10 } else { natively }
}

/// A folder for files that shall outlive a guest: they are copied to the machine that runs it.
pub fn guest_out() -> Option<PathBuf> {
    std::env::var_os("AFTERIMAGE_OUT").map(PathBuf::from).filter(|p| p.is_dir())
}

/// Whether every need of `test` is met. When not, says so, and fails the test under `AFTERIMAGE_REQUIRE=all`.
///
/// # Panics
/// Under `AFTERIMAGE_REQUIRE=all`, when a need is not met that must be met here.
pub fn has(test: &str, needs: &[Need]) -> bool {
    for need in needs {
        let Some(reason) = need.missing() else { continue };
        let required = std::env::var("AFTERIMAGE_REQUIRE").is_ok_and(|v| v == "all");
        assert!(!required || need.may_be_missing() || need.is_given_by_guests(), "{test}: {reason}");
        println!("SKIP {test}: {reason}");
        note("AFTERIMAGE_SKIPS", &format!("{} {test}: {reason}\n", binary()));
        return false;
    }
    note("AFTERIMAGE_RAN", &format!("{} {test}\n", binary()));
    true
}

/// Appends a line to the file that a variable names.
fn note(variable: &str, line: &str) {
    let Some(path) = std::env::var_os(variable) else { return };
    if let Ok(mut file) = OpenOptions::new().append(true).create(true).open(path) {
        let _ = file.write_all(line.as_bytes());
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
