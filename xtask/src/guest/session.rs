//! One guest from packing to the summary.

use super::kernel::Kernel;
use super::machine::Machine;
use super::pack::Pack;
use super::suite::Member;
use super::verdict::{self, Fault, Ran};
use super::{Options, Site, modules};
use anyhow::{Context, Result};
use guest::cpio;
use guest::plan::{self, Plan, Run};
use guest::wire::Message;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What the out disk can hold; the file is sparse.
const DISK_BYTES: u64 = 4 << 30;
/// Modules that a guest has loaded: the disk that files go out on.
const MODULES: [&str; 2] = ["virtio_pci", "virtio_blk"];
/// Programs of this machine that go before busybox's of the same name, where they are there. Tests use more of them
/// than busybox has, and its shell runs commands in its own process where others fork or exec.
const OWN: [&str; 4] = ["sh", "setarch", "setpriv", "xz"];

/// How many of its tests a guest's summary names.
const SLOWEST: usize = 12;

/// How a guest went.
pub(crate) struct Outcome {
    pub(crate) kernel: String,
    boot: Option<Duration>,
    wall: Duration,
    runs: Vec<Ran>,
    skipped: usize,
    /// What each test took.
    tests: Vec<(String, Duration)>,
    pub(crate) warnings: usize,
    pub(crate) faults: Vec<Fault>,
    pub(crate) log: PathBuf,
}

/// Runs tests in one guest; what went wrong there is no error, but part of what it gives.
pub(crate) fn tests(
    site: &Site,
    kernel: &Kernel,
    chosen: &[(Member, Vec<String>)],
    options: &Options,
) -> Result<Outcome> {
    carry_out(site, kernel, runs(site, chosen, options)?, options)
}

/// Runs programs in one guest, one after the other.
pub(crate) fn carry_out(site: &Site, kernel: &Kernel, runs: Vec<Run>, options: &Options) -> Result<Outcome> {
    let machine = prepare(site, kernel, runs.clone(), options)?;
    let out = site.folder.join(site.out).join(&kernel.name);
    let mut log = Live::new(&runs, &out, &kernel.name);
    log.say(&format!("== guest {}", kernel.name));
    let start = Instant::now();
    let end = machine.run(&mut |message| log.take(message))?;
    let wall = start.elapsed();
    if let Some(bytes) = log.finished {
        fetch(&machine.disk, bytes, &out).context("reading the files that the guest wrote")?;
    }
    let faults = verdict::judge(&log.runs, &end, options.limit(), log.finished.is_some());
    clean(&machine, options);
    let skipped = skipped(&out);
    let (runs, boot, tests) = (log.runs, log.boot, log.tests);
    Ok(Outcome {
        kernel: kernel.name.clone(),
        boot,
        wall,
        runs,
        skipped,
        tests,
        warnings: end.warnings,
        faults,
        log: machine.log,
    })
}

/// Starts a shell in a guest.
pub(crate) fn shell(site: &Site, kernel: &Kernel, options: &Options) -> Result<()> {
    let machine = prepare(site, kernel, Vec::new(), options)?;
    println!("== {}: `exit` ends the guest, Ctrl-A X kills it", kernel.name);
    machine.run_shell()?;
    let out = site.folder.join(site.out).join(&kernel.name);
    // A guest that was killed wrote nothing.
    match fetch(&machine.disk, DISK_BYTES, &out) {
        Ok(()) => println!("what was in /out: {}", out.display()),
        Err(error) => println!("no files came out of the guest: {error:#}"),
    }
    clean(&machine, options);
    Ok(())
}

/// Removes what a machine was started from and wrote to, unless it is to be kept.
fn clean(machine: &Machine, options: &Options) {
    match machine.initramfs.parent() {
        Some(work) if options.keep => println!("kept: {}", work.display()),
        Some(work) => drop(fs::remove_dir_all(work)),
        None => {}
    }
}

fn runs(site: &Site, chosen: &[(Member, Vec<String>)], options: &Options) -> Result<Vec<Run>> {
    let mut runs = Vec::new();
    for (member, filters) in chosen {
        let (_, path) = site.built.tests.iter().find(|(built, _)| built == member).context("a member was not built")?;
        let program = path.to_string_lossy().into_owned();
        if let Some(fault) = options.fault {
            runs.push(fault.run(&program));
            continue;
        }
        let mut words = vec![program, "--test-threads=1".into()];
        words.extend(filters.iter().cloned());
        let folder = member.manifest_folder().to_string_lossy().trim_end_matches('/').to_owned();
        runs.push(Run { name: member.name(), limit: options.test_limit(), folder, words });
    }
    Ok(runs)
}

/// Packs everything, and gives the machine to start.
fn prepare(site: &Site, kernel: &Kernel, runs: Vec<Run>, options: &Options) -> Result<Machine> {
    let work = site.folder.join("run").join(format!("{}-{}", kernel.name, std::process::id()));
    let out = site.folder.join(site.out).join(&kernel.name);
    let _ = fs::remove_dir_all(&out);
    fs::create_dir_all(&work)?;
    fs::create_dir_all(&out)?;
    let initramfs = work.join("initramfs.cpio");
    let mut pack = Pack::create(&initramfs)?;
    pack.file_as(site.built.program("guest-init")?, "init")?;
    let own: Vec<&str> = OWN.into_iter().filter(|name| on_path(name).is_some()).collect();
    pack.busybox(&site.busybox, &own)?;
    for name in own {
        let path = on_path(name).context(name)?;
        pack.file_as(&path, &format!("bin/{name}"))?;
        pack.libraries(&path)?;
    }
    for program in site.built.programs.iter().filter(|path| !path.ends_with("guest-init")) {
        pack.same(program)?;
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        pack.link(&format!("bin/{name}"), &program.to_string_lossy())?;
    }
    for (_, test) in &site.built.tests {
        pack.same(test)?;
    }
    site.programs.iter().try_for_each(|folder| pack.same_folder(folder))?;
    let mut plan = Plan { environment: environment(), runs, shell: options.shell, ..Plan::default() };
    for (name, bytes) in kernel.closure(&MODULES)? {
        let path = format!("/lib/modules/{name}.ko");
        pack.bytes(&path, &bytes)?;
        plan.modules.push(path);
    }
    for module in modules::build(kernel, &site.folder.join("modules"))? {
        let name = module.file_name().unwrap_or_default().to_string_lossy().into_owned();
        pack.file_as(&module, &format!("guest/modules/{name}"))?;
    }
    pack.text(plan::PATH, &plan.encode()?)?;
    pack.finish()?;
    let disk = work.join("out.raw");
    File::create(&disk)?.set_len(DISK_BYTES)?;
    let image = kernel.image.clone();
    let log = out.join("kernel.log");
    Ok(Machine { image, initramfs, disk, log, limit: options.limit(), multi: options.multi })
}

/// What every program in a guest finds in its environment, beside the kernel's version in `AFTERIMAGE_GUEST`.
fn environment() -> Vec<(String, String)> {
    let all = [
        ("AFTERIMAGE_SKIPS", "/out/skips"),
        ("AFTERIMAGE_RAN", "/out/ran"),
        ("AFTERIMAGE_OUT", "/out"),
        ("AFTERIMAGE_MODULES", "/guest/modules"),
        ("PATH", "/bin"),
        ("HOME", "/root"),
        ("TMPDIR", "/tmp"),
        ("RUST_BACKTRACE", "1"),
    ];
    let mut all = all.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    // Whoever wants longer runs wants them there too.
    all.extend(std::env::var("AFTERIMAGE_LONG").ok().map(|long| ("AFTERIMAGE_LONG".to_owned(), long)));
    all
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Takes the guest's messages: shows what tests print and keeps it, one file for each executable.
struct Live {
    /// What stands in front of each line, because guests run side by side: the kernel's series.
    series: String,
    runs: Vec<Ran>,
    logs: PathBuf,
    current: Option<(usize, Instant, Option<File>)>,
    line: Vec<u8>,
    /// When the last test of this executable ended, or the executable was started.
    since: Instant,
    /// What each test took, its executable in front.
    tests: Vec<(String, Duration)>,
    boot: Option<Duration>,
    finished: Option<u64>,
}

impl Live {
    fn new(runs: &[Run], out: &Path, kernel: &str) -> Live {
        let ran = |run: &Run| Ran {
            name: run.name.clone(),
            limit: run.limit,
            started: false,
            how: None,
            counts: verdict::Counts::default(),
            wall: Duration::ZERO,
        };
        let runs = runs.iter().map(ran).collect();
        let series = kernel.split('.').take(2).collect::<Vec<_>>().join(".");
        let (logs, since) = (out.join("logs"), Instant::now());
        Live {
            series,
            runs,
            logs,
            current: None,
            line: Vec::new(),
            since,
            tests: Vec::new(),
            boot: None,
            finished: None,
        }
    }

    fn say(&self, line: &str) {
        println!("{:5}| {line}", self.series);
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Up { uptime_ms, release } => {
                self.say(&format!("{release} is up after {:.1} s", uptime_ms as f64 / 1000.0));
                self.boot = Some(Duration::from_millis(uptime_ms));
            }
            Message::Started(index) => self.start(index as usize),
            Message::Output(bytes) => self.output(&bytes),
            Message::Ended(index, how) => {
                if !self.line.is_empty() {
                    self.end_line();
                }
                let Some(run) = self.runs.get_mut(index as usize) else { return };
                run.how = Some(how);
                run.wall = self.current.take().map_or(Duration::ZERO, |(_, start, _)| start.elapsed());
            }
            Message::Note(text) => self.say(&format!("note from the guest: {text}")),
            Message::Finished(bytes) => self.finished = Some(bytes),
        }
    }

    fn start(&mut self, index: usize) {
        let Some(run) = self.runs.get_mut(index) else { return };
        run.started = true;
        let name = run.name.clone();
        self.say(&format!("-- {name}"));
        let file = fs::create_dir_all(&self.logs).and_then(|()| File::create(self.logs.join(format!("{name}.log"))));
        self.since = Instant::now();
        self.current = Some((index, self.since, file.ok()));
        self.line.clear();
    }

    fn output(&mut self, bytes: &[u8]) {
        if let Some((_, _, Some(file))) = &mut self.current {
            let _ = file.write_all(bytes);
        }
        for byte in bytes {
            match byte {
                b'\n' => self.end_line(),
                byte => self.line.push(*byte),
            }
        }
    }

    fn end_line(&mut self) {
        let line = String::from_utf8_lossy(&std::mem::take(&mut self.line)).into_owned();
        self.say(&line);
        let Some(run) = self.current.as_ref().and_then(|(index, ..)| self.runs.get_mut(*index)) else { return };
        run.counts.add_line(&line);
        if let Some(test) = verdict::ended_test(&line) {
            let took = std::mem::replace(&mut self.since, Instant::now()).elapsed();
            self.tests.push((format!("{}::{test}", run.name), took));
        }
    }
}

/// Unpacks the archive on a guest's disk into `out`.
fn fetch(disk: &Path, bytes: u64, out: &Path) -> Result<()> {
    let archive = io::BufReader::with_capacity(1 << 20, File::open(disk)?.take(bytes));
    cpio::unpack(archive, |entry, content| {
        let path = out.join(&entry.path);
        if entry.folder {
            return fs::create_dir_all(path);
        }
        io::copy(content, &mut File::create(path)?).map(drop)
    })?;
    Ok(())
}

/// How many tests said that they skip.
fn skipped(out: &Path) -> usize {
    let text = fs::read_to_string(out.join("skips")).unwrap_or_default();
    text.lines().collect::<BTreeSet<_>>().len()
}

impl Outcome {
    /// What a person wants to know, in a few lines.
    pub(crate) fn summary(&self) -> String {
        let counts = verdict::total(&self.runs);
        let boot = self.boot.map_or("did not come up".into(), |boot| format!("up after {:.1} s", boot.as_secs_f64()));
        let passed = counts.passed.saturating_sub(self.skipped);
        let mut text = format!(
            "{}: {boot}, {:.0} s in all; {passed} passed, {} failed, {} skipped",
            self.kernel,
            self.wall.as_secs_f64(),
            counts.failed,
            self.skipped + counts.ignored
        );
        for run in &self.runs {
            text += &format!("\n    {:24} {:>6.1} s", run.name, run.wall.as_secs_f64());
        }
        let mut slowest: Vec<_> = self.tests.iter().collect();
        slowest.sort_by_key(|(_, took)| std::cmp::Reverse(*took));
        text += "\n    the slowest tests:";
        for (test, took) in slowest.into_iter().take(SLOWEST) {
            text += &format!("\n    {:>8.1} s  {test}", took.as_secs_f64());
        }
        if self.warnings > 0 {
            text += &format!("\n    note: {} kernel warnings: {}", self.warnings, self.log.display());
        }
        for fault in &self.faults {
            text += &format!("\n    {fault}");
        }
        if !self.faults.is_empty() {
            text += &format!("\n    the kernel's log: {}", self.log.display());
        }
        text
    }
}
