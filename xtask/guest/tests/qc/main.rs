//! The module kcore_qc, or a kernel that has its calls, holds freed text for those who asked, as long as it promises, and
//! no longer.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod kcore;
mod sys;
mod texts;

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use afterimage_testkit::{Need, has};
use kcore::{Kcore, Query};
use texts::{Program, found, until};

/// The module, loaded; one test at a time. It is removed at the end. Where the kernel has the calls itself, their bounds.
struct Module {
    _turn: MutexGuard<'static, ()>,
    loaded: bool,
    /// Files of the kernel's own bounds that were changed, and what stood in them.
    before: Vec<(PathBuf, String)>,
}

/// The bounds of a kernel that has the calls itself (kernel/patch).
const BOUNDS: &str = "/sys/module/text_hold/parameters";

fn kernel_has_the_calls() -> bool {
    Path::new(BOUNDS).is_dir()
}

impl Module {
    fn load(options: &str) -> Module {
        let module = Module::load_at_once(options);
        settle();
        module
    }

    fn load_at_once(options: &str) -> Module {
        static MACHINE: Mutex<()> = Mutex::new(());
        let turn = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut module = Module { _turn: turn, loaded: !kernel_has_the_calls(), before: Vec::new() };
        if module.loaded {
            sys::load_module(&file("kcore_qc"), options).unwrap();
        } else {
            options.split_whitespace().for_each(|option| module.bound(option));
        }
        module
    }

    fn bound(&mut self, option: &str) {
        let (name, value) = option.split_once('=').unwrap();
        let path = Path::new(BOUNDS).join(name);
        self.before.push((path.clone(), std::fs::read_to_string(&path).unwrap()));
        std::fs::write(path, value).unwrap();
    }

    fn unload(&mut self) {
        self.loaded = false;
        sys::remove_module("kcore_qc").unwrap();
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if self.loaded {
            sys::remove_module("kcore_qc").unwrap();
        }
        for (path, value) in &self.before {
            std::fs::write(path, value).unwrap();
        }
    }
}

/// Waits until programs of the test before are freed, which is some time after they were closed.
fn settle() {
    let kcore = Kcore::open();
    kcore.qc().unwrap();
    let all = || {
        kcore.qc().unwrap();
        let query = kcore.query().unwrap();
        query.items + query.freed
    };
    let (mut last, mut quiet) = (all(), 0);
    while quiet < 3 {
        std::thread::sleep(std::time::Duration::from_millis(150));
        let now = all();
        quiet = if now == last { quiet + 1 } else { 0 };
        last = now;
    }
}

fn file(module: &str) -> PathBuf {
    PathBuf::from(std::env::var_os("AFTERIMAGE_MODULES").unwrap()).join(format!("{module}.ko"))
}

fn can(test: &str) -> bool {
    has(test, &[Need::Guest, Need::Root, Need::Modules, Need::Kcore])
}

/// Closes a program and waits until its text is in the queue.
fn close_held(kcore: &Kcore, program: Program) {
    let before = kcore.query().unwrap().waiting;
    drop(program);
    until("the text is queued", || kcore.query().unwrap().waiting > before);
}

#[test]
fn text_of_a_program_stays_for_three_passes() {
    if !can("text_of_a_program_stays_for_three_passes") {
        return;
    }
    let _module = Module::load("");
    let kcore = Kcore::open();
    kcore.qc().unwrap();
    let program = Program::load(1);
    let (address, bytes) = (program.address, program.bytes.clone());
    assert_eq!(kcore.read(address, bytes.len()), bytes, "what stands in kcore is what the kernel says of the program");
    close_held(&kcore, program);
    for pass in 0..3 {
        assert_eq!(kcore.read(address, bytes.len()), bytes, "after {pass} passes");
        let others: Vec<Program> = (0..20).map(|n| Program::load(100 + n)).collect();
        assert!(others.iter().all(|other| !other.overlaps(address, bytes.len())), "its place is another's");
        others.into_iter().for_each(|other| close_held(&kcore, other));
        let freed = kcore.query().unwrap().freed;
        kcore.qc().unwrap();
        assert_eq!(kcore.query().unwrap().freed > freed, pass == 2);
    }
    assert_ne!(kcore.read(address, bytes.len()), bytes, "after the third pass it is gone");
    let query = kcore.query().unwrap();
    assert_eq!((query.version, query.guaranteed, query.broken, query.missed), (1, 1, 0, 0));
    assert!(query.waiting >= 40, "what was freed since waits: {query:?}");
}

#[test]
fn text_of_a_module_stays_for_three_passes() {
    if !can("text_of_a_module_stays_for_three_passes") {
        return;
    }
    let _module = Module::load("");
    let kcore = Kcore::open();
    kcore.qc().unwrap();
    sys::load_module(&file("afterimage_load"), "").unwrap();
    let section = std::fs::read_to_string("/sys/module/afterimage_load/sections/.text").unwrap();
    let address = u64::from_str_radix(section.trim().trim_start_matches("0x"), 16).unwrap();
    let bytes = kcore.read(address, 64);
    assert!(bytes.iter().any(|byte| *byte != 0));
    sys::remove_module("afterimage_load").unwrap();
    for pass in 0..3 {
        assert_eq!(kcore.read(address, 64), bytes, "after {pass} passes");
        kcore.qc().unwrap();
    }
    assert_ne!(kcore.read(address, 64), bytes);
}

#[test]
fn text_of_a_trampoline_stays_for_three_passes() {
    if !can("text_of_a_trampoline_stays_for_three_passes") {
        return;
    }
    let _module = Module::load("");
    let kcore = Kcore::open();
    kcore.qc().unwrap();
    let load = env!("CARGO_BIN_EXE_load");
    let mut load = Command::new(load);
    load.args(["fentry", "--count", "1", "--life", "2s"]).stdout(Stdio::null());
    let mut load = load.spawn().unwrap();
    // It is filled after it has its name.
    let (address, bytes) = found("a trampoline with code", || {
        let address = *trampolines().first()?;
        let bytes = kcore.read(address, 64);
        bytes.iter().any(|byte| !matches!(byte, 0 | 0xcc)).then_some((address, bytes))
    });
    assert!(load.wait().unwrap().success());
    until("it is gone", || !trampolines().contains(&address));
    assert!(kcore.query().unwrap().waiting > 0);
    for pass in 0..3 {
        assert_eq!(kcore.read(address, 64), bytes, "after {pass} passes");
        kcore.qc().unwrap();
    }
    // The name goes just before the text: the first pass may have ended in between.
    until("its text is gone", || kcore.qc().is_ok() && kcore.read(address, 64) != bytes);
    assert_eq!(kcore.query().unwrap().broken, 0);
}

/// Where trampolines are. The kernel names them `bpf_trampoline_NUMBER`.
fn trampolines() -> Vec<u64> {
    let symbols = std::fs::read_to_string("/proc/kallsyms").unwrap();
    let lines = symbols.lines().filter(|line| line.contains(" bpf_trampoline_") && line.ends_with("[bpf]"));
    lines.map(|line| u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap()).collect()
}

#[test]
fn closing_frees_what_waits() {
    if !can("closing_frees_what_waits") {
        return;
    }
    let _module = Module::load("");
    let (kcore, watcher) = (Kcore::open(), Kcore::open());
    kcore.qc().unwrap();
    let programs: Vec<Program> = (0..10).map(Program::load).collect();
    let places: Vec<_> = programs.iter().map(|program| (program.address, program.bytes.clone())).collect();
    programs.into_iter().for_each(|program| close_held(&kcore, program));
    let shared = kcore.duplicate();
    drop(kcore);
    assert!(watcher.query().unwrap().items >= 10, "a copy of the descriptor keeps it open");
    drop(shared);
    let query = watcher.query().unwrap();
    assert_eq!((query.items, query.bytes, query.guaranteed), (0, 0, 0));
    for (address, bytes) in places {
        assert_ne!(watcher.read(address, bytes.len()), bytes);
    }
}

#[test]
fn who_never_asked_holds_nothing() {
    if !can("who_never_asked_holds_nothing") {
        return;
    }
    let _module = Module::load("");
    let kcore = Kcore::open();
    let before = kcore.query().unwrap().freed;
    let program = Program::load(1);
    let (address, bytes) = (program.address, program.bytes.clone());
    assert_eq!(kcore.read(address, bytes.len()), bytes);
    drop(program);
    until("the text is gone", || kcore.read(address, bytes.len()) != bytes);
    let query = kcore.query().unwrap();
    assert_eq!(Query { freed: 0, ..query }, Query { version: 1, ..Query::default() });
    assert_eq!(query.freed, before, "it never waited");
}

#[test]
fn two_readers_do_not_harm_each_other() {
    if !can("two_readers_do_not_harm_each_other") {
        return;
    }
    let _module = Module::load("");
    let (quick, slow) = (Kcore::open(), Kcore::open());
    quick.qc().unwrap();
    slow.qc().unwrap();
    let program = Program::load(1);
    let (address, bytes) = (program.address, program.bytes.clone());
    close_held(&quick, program);
    for _ in 0..10 {
        quick.qc().unwrap();
        assert_eq!(slow.read(address, bytes.len()), bytes);
    }
    assert!(quick.query().unwrap().waiting < slow.query().unwrap().waiting);
    drop(quick);
    assert_eq!(slow.read(address, bytes.len()), bytes);
    for _ in 0..3 {
        assert_eq!(slow.read(address, bytes.len()), bytes);
        slow.qc().unwrap();
    }
    assert_ne!(slow.read(address, bytes.len()), bytes);
    assert_eq!(slow.query().unwrap().broken, 0);
}

#[test]
fn only_kcore_knows_the_calls_and_only_with_the_module() {
    if !can("only_kcore_knows_the_calls_and_only_with_the_module") {
        return;
    }
    let mut module = Module::load("");
    let kcore = Kcore::open();
    assert_eq!(kcore.query().unwrap().guaranteed, 0);
    for path in ["/proc/version", "/proc/meminfo", "/proc/kallsyms", "/proc/self/status"] {
        let other = File::open(path).unwrap();
        assert_eq!(sys::qc(&other).unwrap_err().raw_os_error(), Some(libc::ENOTTY), "{path}");
        assert_eq!(sys::query(&other).unwrap_err().raw_os_error(), Some(libc::ENOTTY), "{path}");
    }
    assert_eq!(sys::other_call(kcore.file()).unwrap_err().raw_os_error(), Some(libc::ENOTTY));
    if module.loaded {
        module.unload();
        assert_eq!(kcore.qc().unwrap_err().raw_os_error(), Some(libc::ENOTTY));
        assert_eq!(kcore.query().unwrap_err().raw_os_error(), Some(libc::ENOTTY));
    }
}

#[test]
fn more_readers_than_there_can_be_are_refused() {
    if !can("more_readers_than_there_can_be_are_refused") {
        return;
    }
    let _module = Module::load("");
    let mut readers: Vec<Kcore> = (0..16).map(|_| Kcore::open()).collect();
    readers.iter().for_each(|reader| reader.qc().unwrap());
    let one_more = Kcore::open();
    assert_eq!(one_more.qc().unwrap_err().kind(), ErrorKind::ResourceBusy);
    readers.pop();
    one_more.qc().unwrap();
}

#[test]
fn a_bound_frees_the_oldest_and_tells() {
    if !can("a_bound_frees_the_oldest_and_tells") {
        return;
    }
    let _module = Module::load("items=4");
    let kcore = Kcore::open();
    kcore.qc().unwrap();
    let settled = kcore.query().unwrap().freed;
    let programs: Vec<Program> = (0..10).map(Program::load).collect();
    let places: Vec<_> = programs.iter().map(|program| (program.address, program.bytes.clone())).collect();
    for program in programs {
        let before = kcore.query().unwrap();
        drop(program);
        let all = |query: &Query| query.freed + query.items + query.missed;
        until("the text is queued", || all(&kcore.query().unwrap()) > all(&before));
    }
    until("what is too much is freed", || kcore.query().unwrap().items == 4);
    let query = kcore.query().unwrap();
    // Text of an earlier test may have come late.
    assert!(query.broken >= 6 && query.broken == query.freed - settled + query.missed, "{query:?}");
    let is_there = |n: usize| kcore.read(places[n].0, places[n].1.len()) == places[n].1;
    assert_eq!((is_there(0), is_there(9)), (false, true), "the oldest goes first");
}

#[test]
fn the_module_goes_while_text_is_held_and_freed() {
    // There is nothing to unload where the kernel has the calls itself.
    if !can("the_module_goes_while_text_is_held_and_freed") || kernel_has_the_calls() {
        return;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let storm = {
        let stop = Arc::clone(&stop);
        std::thread::spawn(move || {
            let mut loaded = 0u32;
            while !stop.load(Ordering::Relaxed) {
                drop(Program::load(loaded as i32));
                loaded += 1;
            }
            loaded
        })
    };
    for round in 0..3 {
        let mut module = Module::load_at_once("");
        let kcore = Kcore::open();
        kcore.qc().unwrap();
        until("text is held", || kcore.query().unwrap().items >= 5);
        let program = Program::load(-1);
        let (address, bytes) = (program.address, program.bytes.clone());
        drop(program);
        module.unload();
        assert_eq!(kcore.qc().unwrap_err().raw_os_error(), Some(libc::ENOTTY), "round {round}");
        until("nothing is held", || kcore.read(address, bytes.len()) != bytes);
    }
    stop.store(true, Ordering::Relaxed);
    println!("{} programs came and went meanwhile", storm.join().unwrap());
}
