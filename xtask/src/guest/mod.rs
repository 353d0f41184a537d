//! Tests inside of guests: stock kernels under qemu's emulation, with what the kernel here may lack.
//!
//! Nothing is installed: kernels come unpacked from Debian's archive, and what runs in them is built here, linked
//! statically, and packed with a first process of our own into the archive that a kernel starts with.

pub(crate) mod apt;
mod build;
mod child;
pub(crate) mod cost;
mod kernel;
mod log;
mod machine;
mod modules;
mod pack;
mod planted;
mod session;
mod stress;
mod suite;
mod verdict;

use crate::target_dir;
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// A series of Debian's kernels, or a file with a kernel; more than one if repeated [default: 6.1 and 6.12]
    #[arg(long = "kernel", value_name = "6.1|6.12|PATH")]
    kernels: Vec<String>,
    /// Only the tests that say most in little time
    #[arg(long, conflicts_with = "tests")]
    short: bool,
    /// Start a shell in place of the tests
    #[arg(long)]
    shell: bool,
    /// Keep what was packed and the disk that files came back on
    #[arg(long)]
    keep: bool,
    /// Seconds after which a guest is killed; 5400, or 1800 with --short
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
    /// Seconds after which a test executable is killed
    #[arg(long, value_name = "SECONDS", default_value_t = 1800)]
    test_timeout: u64,
    /// Break something on purpose, to see how it is reported
    #[arg(long, value_name = "NAME")]
    fault: Option<planted::Planted>,
    #[command(flatten)]
    stress: stress::Options,
    /// A thread of this machine for each CPU of a guest: more happens at once, and some kernels fail in it
    #[arg(long)]
    multi: bool,
    /// Executables or packages (`handler`), their tests (`handler::count`), or tests of all
    #[arg(value_name = "TEST")]
    tests: Vec<String>,
}

/// What all guests of one call share.
struct Site {
    /// Everything is below this folder.
    folder: PathBuf,
    built: build::Built,
    /// Busybox, unpacked.
    busybox: PathBuf,
    /// Folders with the workload programs, and with the handlers to load, built.
    programs: Vec<PathBuf>,
    /// The name of the folder for what comes out of guests.
    out: &'static str,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    if options.stress.stress {
        return stress::run(options);
    }
    let folder = target_dir().join("guest");
    let kernels = options.kernels();
    let chosen = match options.fault {
        Some(_) => vec![(suite::PLANTED, Vec::new())],
        None if options.short => suite::short(),
        None => suite::chosen(&options.tests),
    };
    ensure!(!chosen.is_empty(), "no test executable is called {}", options.tests.join(" or "));
    let members: Vec<_> = chosen.iter().map(|(member, _)| *member).collect();
    // The command takes longer to build than all else, and its own tests and a shell want it alone.
    let command = options.shell || members.iter().any(|member| member.package == "afterimage");
    let packages = if command { &["guest", "afterimage"][..] } else { &["guest"] };
    let built = build::build(&members, packages, &folder)?;
    let site = Site { busybox: busybox(&folder)?, programs: programs(&built)?, out: "out", folder, built };
    let find = |wanted: &String| kernel::find(wanted, &site.folder.join("kernels"));
    let kernels = kernels.iter().map(find).collect::<Result<Vec<_>>>()?;
    if options.shell {
        return kernels.iter().try_for_each(|kernel| session::shell(&site, kernel, options));
    }
    let outcomes = all(&site, &kernels, &chosen, options)?;
    println!();
    outcomes.iter().for_each(|outcome| println!("{}", outcome.summary()));
    let broken: Vec<&str> = outcomes.iter().filter(|o| !o.faults.is_empty()).map(|o| o.kernel.as_str()).collect();
    if !broken.is_empty() {
        bail!("something is wrong in the guest with {}", broken.join(" and in that with "));
    }
    Ok(())
}

/// The guests side by side: each keeps one CPU of this machine busy.
fn all(
    site: &Site,
    kernels: &[kernel::Kernel],
    chosen: &[(suite::Member, Vec<String>)],
    options: &Options,
) -> Result<Vec<session::Outcome>> {
    std::thread::scope(|scope| {
        let start = |kernel| scope.spawn(move || session::tests(site, kernel, chosen, options));
        let guests: Vec<_> = kernels.iter().map(start).collect();
        let end = |guest: std::thread::ScopedJoinHandle<'_, _>| {
            guest.join().unwrap_or_else(|_| bail!("the thread of a guest panicked"))
        };
        guests.into_iter().map(end).collect()
    })
}

impl Options {
    fn kernels(&self) -> Vec<String> {
        if self.kernels.is_empty() { vec!["6.1".into(), "6.12".into()] } else { self.kernels.clone() }
    }

    fn limit(&self) -> Duration {
        Duration::from_secs(self.timeout.unwrap_or(if self.short { 1800 } else { 5400 }))
    }

    fn test_limit(&self) -> Duration {
        Duration::from_secs(self.test_timeout)
    }
}

/// Debian's static busybox, unpacked in the cache.
fn busybox(folder: &Path) -> Result<PathBuf> {
    let place = folder.join("kernels/busybox");
    if !place.exists() {
        let package = ["busybox-static".to_owned()];
        apt::unpack(&package, &place).or_else(|_| apt::update().and_then(|()| apt::unpack(&package, &place)))?;
    }
    Ok(place.join("bin/busybox"))
}

/// The workload programs and the handlers, where tests in a guest look for them.
fn programs(built: &build::Built) -> Result<Vec<PathBuf>> {
    let (_, test) = built.tests.first().context("no test executable")?;
    let beside = test.parent().context("a test executable without a folder")?;
    let workloads = afterimage_testkit::workload::build_in(beside).context("building the workload programs")?;
    Ok(vec![workloads, afterimage_testkit::objects::build_in(beside).context("building the handlers")?])
}
