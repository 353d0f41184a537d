//! Keys and values in the kernel: what is a key, what is made of the samples, what there is no room for.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use afterimage_handler::by::{Field, Key, Options, Value, bucket_range, has_address};
use afterimage_handler::{CountEntry, EventConfig, Handlers, Mechanism};
use afterimage_perf_data::{Attr, AttrFlags, SampleType, context};
use afterimage_testkit::{Need, has, turns};

use crate::support::*;

/// An entry, owned.
#[derive(Clone, Debug)]
struct Entry {
    cpu: u32,
    pid: u32,
    tid: u32,
    comm: String,
    cgroup: u64,
    ip: u64,
    count: u64,
    value: u64,
    bucket: u32,
    chain: Vec<u64>,
}

impl Entry {
    fn of(cpu: u32, entry: &CountEntry<'_>) -> Entry {
        let comm = entry.comm.split(|&byte| byte == 0).next().unwrap_or_default();
        Entry {
            cpu,
            pid: entry.pid,
            tid: entry.tid,
            comm: String::from_utf8_lossy(comm).into_owned(),
            cgroup: entry.cgroup,
            ip: entry.ip,
            count: entry.count,
            value: entry.period,
            bucket: entry.bucket,
            chain: entry.chain.to_vec(),
        }
    }
}

fn loaded(attr: &Attr, keys: &[Key], value: Value, entries: Option<u32>, mechanism: Mechanism) -> Handlers {
    let options = afterimage_handler::Options {
        events: vec![EventConfig::from_attr(attr).unwrap()],
        mechanism: Some(mechanism),
        ..afterimage_handler::Options::default()
    };
    let mut handlers = Handlers::load(&options).unwrap_or_else(|e| panic!("{e:#}"));
    let options = Options { keys: keys.to_vec(), value, entries, addressed: has_address(attr), label: None };
    handlers.load_by(&options).unwrap_or_else(|e| panic!("{keys:?} {value}: {e:#}"));
    handlers
}

fn drained(handlers: &mut Handlers) -> Vec<Entry> {
    let mut all = Vec::new();
    for cpu in cpus() {
        let before = all.len();
        let stats = handlers.drain_by(0, cpu, &mut |entry| all.push(Entry::of(cpu, entry)));
        assert!(!stats.busy);
        assert_eq!(stats.samples, all[before..].iter().map(|entry| entry.count).sum::<u64>());
    }
    all
}

/// The attr of an event with what the keys and the value need, as the recorder asks for it.
fn asking(mut attr: Attr, keys: &[Key], value: Value) -> Attr {
    if !keys.iter().any(|key| key.is_stack()) {
        attr.sample_type -= SampleType::CALLCHAIN;
    }
    let part = |key: Key| keys.contains(&key) || keys.contains(&Key::Stack);
    if !part(Key::Kstack) {
        attr.flags |= AttrFlags::EXCLUDE_CALLCHAIN_KERNEL;
    }
    if !part(Key::Ustack) {
        attr.flags |= AttrFlags::EXCLUDE_CALLCHAIN_USER;
    }
    if value.field() == Some(Field::Addr) {
        attr.sample_type |= SampleType::ADDR;
    }
    attr
}

/// Whatever the keys are, drained while it fills: each sample is in one entry, or lost with a cause.
#[test]
fn by_any_keys_every_sample_is_counted_once() {
    let Some(_one) = alone("by_any_keys_every_sample_is_counted_once") else { return };
    let sets: [&[Key]; 6] = [
        &[],
        &[Key::Comm, Key::Cpu],
        &[Key::Pid, Key::Tid, Key::Cgroup, Key::Ip],
        &[Key::Kstack, Key::Comm],
        &[Key::Ustack],
        &[Key::Stack, Key::Tid],
    ];
    for mechanism in mechanisms() {
        for keys in sets {
            let busy: Vec<Busy> = (0..2).map(|_| Busy::deep()).collect();
            let attr = asking(clock(dense()), keys, Value::Count);
            let events: Vec<Event> = busy.iter().map(|b| Event::open(&attr, b.tid, -1, 1)).collect();
            let mut handlers = loaded(&attr, keys, Value::Count, None, mechanism);
            events.iter().for_each(|event| handlers.attach(0, event.fd.as_fd()).unwrap());
            events.iter().for_each(Event::enable);
            let (begun, mut all) = (Instant::now(), Vec::new());
            // A machine that has much else to do needs longer.
            let least = Duration::from_millis(turns(500).into());
            let enough = |handlers: &Handlers| begun.elapsed() > least && total(handlers).handled > 200;
            while !enough(&handlers) && begun.elapsed() < Duration::from_secs(60) {
                all.extend(drained(&mut handlers));
                std::thread::sleep(Duration::from_millis(1));
            }
            events.iter().for_each(Event::disable);
            all.extend(drained(&mut handlers));
            let seen = total(&handlers);
            println!("{mechanism:?} {keys:?}: {} samples in {} entries", seen.handled, all.len());
            assert!(seen.handled > 200, "{keys:?}: {seen:?}");
            assert_eq!(seen.handled, seen.stored + seen.lost_full + seen.lost_collision);
            assert_eq!((seen.passed, seen.chained, seen.dropped), (seen.handled, 0, 0));
            assert_eq!(all.iter().map(|entry| entry.count).sum::<u64>(), seen.stored, "{keys:?}");
            all.iter().for_each(|entry| only_what_is_a_key(entry, keys));
        }
    }
}

fn only_what_is_a_key(entry: &Entry, keys: &[Key]) {
    let is = |key: Key| keys.contains(&key);
    let kernel = entry.chain.contains(&context::KERNEL);
    let user = entry.chain.contains(&context::USER);
    assert_eq!(!entry.comm.is_empty(), is(Key::Comm), "{entry:?}");
    assert_eq!(entry.tid != 0, is(Key::Tid), "{entry:?}");
    assert_eq!(entry.cgroup != 0, is(Key::Cgroup), "{entry:?}");
    assert_eq!(entry.ip != 0, is(Key::Ip), "{entry:?}");
    assert!(!kernel || is(Key::Kstack) || is(Key::Stack), "{entry:?}");
    assert_eq!(user, is(Key::Ustack) || is(Key::Stack), "{entry:?}");
    // User addresses are of one process.
    let of_process = user || (is(Key::Ip) && entry.ip >> 63 == 0);
    assert_eq!(entry.pid != 0, is(Key::Pid) || of_process, "{entry:?}");
}

/// Faults one by one, of a thread that changes its name.
#[test]
fn by_name_and_instruction_faults_are_exact() {
    let Some(_one) = alone("by_name_and_instruction_faults_are_exact") else { return };
    for mechanism in mechanisms() {
        let (keys, value) = ([Key::Comm, Key::Ip, Key::Tid], Value::Max(Field::Addr));
        let attr = asking(page_faults(), &keys, value);
        let event = Event::open(&attr, gettid(), -1, 1);
        let mut handlers = loaded(&attr, &keys, value, None, mechanism);
        handlers.attach(0, event.fd.as_fd()).unwrap();
        let pages = Pages::new(700);
        event.enable();
        pages.touch_each(|page| match page {
            0 => name_thread("by first"),
            300 => name_thread("by second"),
            _ => {}
        });
        event.disable();
        let entries = drained(&mut handlers);
        // The thread may move between CPUs: rows of one key are added up.
        let of = |name: &str, page: usize| {
            let same: Vec<&Entry> = entries.iter().filter(|entry| entry.comm == name).collect();
            let top = pages.page(page) as u64;
            let ip = same.iter().find(|entry| entry.value == top).expect("the last page's row").ip;
            same.iter().filter(|entry| entry.ip == ip).map(|entry| entry.count).sum::<u64>()
        };
        assert_eq!((of("by first", 299), of("by second", 699)), (300, 400), "{mechanism:?}");
        assert!(entries.iter().all(|entry| entry.tid == gettid() as u32));
    }
}

/// Pages at addresses of known size: the histogram of the fault addresses is theirs.
#[test]
fn by_histogram_of_a_known_distribution() {
    let Some(_one) = alone("by_histogram_of_a_known_distribution") else { return };
    // Nothing else of a process lies there.
    let areas: HashMap<u32, usize> = [(24, 40), (27, 3), (33, 150), (40, 1)].into();
    for mechanism in mechanisms() {
        let (keys, value) = ([Key::Pid], Value::Hist(Field::Addr));
        let attr = asking(page_faults(), &keys, value);
        let event = Event::open(&attr, gettid(), -1, 1);
        let mut handlers = loaded(&attr, &keys, value, None, mechanism);
        handlers.attach(0, event.fd.as_fd()).unwrap();
        let pages: Vec<Pages> = areas.iter().map(|(bit, pages)| Pages::at(1 << bit, *pages)).collect();
        event.enable();
        pages.iter().for_each(Pages::touch);
        event.disable();
        let mut buckets: HashMap<u32, u64> = HashMap::new();
        for entry in drained(&mut handlers) {
            assert_eq!(entry.pid, std::process::id());
            let (from, to) = bucket_range(entry.bucket);
            let mean = entry.value / entry.count;
            assert!(from <= mean && mean <= to, "{entry:?}");
            *buckets.entry(entry.bucket).or_default() += entry.count;
        }
        for (bit, pages) in &areas {
            assert_eq!(buckets.get(&(bit + 1)), Some(&(*pages as u64)), "{mechanism:?}: {buckets:?}");
        }
        assert_eq!(buckets.values().sum::<u64>(), total(&handlers).stored);
    }
}

/// The sum of the periods is what the event counted.
#[test]
fn by_sum_of_periods() {
    let Some(_one) = alone("by_sum_of_periods") else { return };
    for mechanism in mechanisms() {
        let (keys, value) = ([Key::Tid], Value::Sum(Field::Period));
        let mut attr = asking(clock(250_000), &keys, value);
        attr.read_format |= afterimage_perf_data::ReadFormat::ID;
        let busy = Busy::deep();
        let event = Event::open(&attr, busy.tid, -1, 1);
        let mut handlers = loaded(&attr, &keys, value, None, mechanism);
        handlers.attach(0, event.fd.as_fd()).unwrap();
        event.enable();
        let begun = Instant::now();
        while total(&handlers).handled < 100 && begun.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(10));
        }
        event.disable();
        let entries = drained(&mut handlers);
        assert!(!entries.is_empty());
        for entry in entries {
            assert_eq!((entry.tid, entry.value), (busy.tid as u32, entry.count * 250_000), "{mechanism:?}");
        }
    }
}

/// A table with fewer entries than there are keys says what it had no room for, and what is in it stays what it was.
#[test]
fn by_full_table_is_counted() {
    let Some(_one) = alone("by_full_table_is_counted") else { return };
    let keys = [Key::Comm];
    let attr = asking(page_faults(), &keys, Value::Count);
    let event = Event::open(&attr, gettid(), -1, 1);
    let mut handlers = loaded(&attr, &keys, Value::Count, Some(64), best());
    handlers.attach(0, event.fd.as_fd()).unwrap();
    let pages = Pages::new(1000);
    event.enable();
    pages.touch_each(|page| name_thread(&format!("by page {}", page / 2)));
    event.disable();
    let seen = total(&handlers);
    assert!(seen.lost_full >= 1000 - 2 * 64 * cpus().len() as u64, "{seen:?}");
    assert_eq!(seen.handled, seen.stored + seen.lost_full + seen.lost_collision);
    assert_eq!(handlers.by_fill(), 100);
    let entries = drained(&mut handlers);
    assert_eq!(handlers.by_fill(), 0);
    assert_eq!(seen.stored, entries.iter().map(|entry| entry.count).sum::<u64>());
    for entry in entries.iter().filter(|entry| entry.comm.starts_with("by page")) {
        assert!(entry.count <= 4, "two pages have this name, and the row holds {entry:?}");
    }
}

/// Where the unified hierarchy is mounted: a mount of somebody else's, or one of our own until this goes.
enum Hierarchy {
    Mounted(PathBuf),
    Ours(tempfile::TempDir),
}

impl Hierarchy {
    fn find() -> Hierarchy {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let line = mounts.lines().find(|line| line.contains(" - cgroup2 "));
        if let Some(mount) = line.and_then(|line| line.split(' ').nth(4)) {
            return Hierarchy::Mounted(mount.into());
        }
        let folder = tempfile::tempdir().unwrap();
        let to = std::ffi::CString::new(folder.path().as_os_str().as_encoded_bytes()).unwrap();
        // SAFETY: strings that live through the call; this kind of file system takes no data.
        let mounted = unsafe { libc::mount(c"none".as_ptr(), to.as_ptr(), c"cgroup2".as_ptr(), 0, std::ptr::null()) };
        assert_eq!(mounted, 0, "{}", std::io::Error::last_os_error());
        Hierarchy::Ours(folder)
    }

    fn path(&self) -> &Path {
        match self {
            Hierarchy::Mounted(path) => path,
            Hierarchy::Ours(folder) => folder.path(),
        }
    }
}

impl Drop for Hierarchy {
    fn drop(&mut self) {
        if let Hierarchy::Ours(folder) = self {
            let to = std::ffi::CString::new(folder.path().as_os_str().as_encoded_bytes()).unwrap();
            // SAFETY: a string that lives through the call.
            unsafe { libc::umount2(to.as_ptr(), libc::MNT_DETACH) };
        }
    }
}

/// The number of the cgroup is its folder's inode.
#[test]
fn by_cgroup_is_an_inode() {
    if !has("by_cgroup_is_an_inode", &[Need::Cgroup2]) {
        return;
    }
    let Some(_one) = alone("by_cgroup_is_an_inode") else { return };
    let hierarchy = Hierarchy::find();
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap();
    let own = own.lines().find_map(|line| line.strip_prefix("0::/")).expect("a cgroup of the unified hierarchy");
    let inode = std::fs::metadata(hierarchy.path().join(own)).unwrap().ino();
    let keys = [Key::Cgroup, Key::Cpu];
    let attr = asking(page_faults(), &keys, Value::Count);
    for mechanism in mechanisms() {
        let event = Event::open(&attr, gettid(), -1, 1);
        let mut handlers = loaded(&attr, &keys, Value::Count, None, mechanism);
        handlers.attach(0, event.fd.as_fd()).unwrap();
        let pages = Pages::new(100);
        event.enable();
        pages.touch();
        event.disable();
        let entries = drained(&mut handlers);
        assert!(entries.iter().map(|entry| entry.count).sum::<u64>() >= 100);
        assert!(entries.iter().all(|entry| entry.cgroup == inode && entry.cpu < 4096), "{inode}: {entries:?}");
    }
}

/// What a program with helpers alone cannot see is refused with a reason.
#[test]
fn by_fields_that_a_kernel_does_not_show_are_refused() {
    let Some(_one) = alone("by_fields_that_a_kernel_does_not_show_are_refused") else { return };
    for (value, says) in [(Value::Sum(Field::Weight), "weight"), (Value::Max(Field::Addr), "addresses")] {
        let attr = asking(clock(1_000_000), &[], value);
        let options = afterimage_handler::Options {
            events: vec![EventConfig::from_attr(&attr).unwrap()],
            mechanism: Some(Mechanism::Plain),
            ..afterimage_handler::Options::default()
        };
        let mut handlers = Handlers::load(&options).unwrap();
        let error = handlers.load_by(&Options { value, ..Options::default() }).unwrap_err();
        assert_eq!(error.kind(), afterimage_handler::ErrorKind::Unsupported);
        assert!(error.to_string().contains(says), "{error}");
    }
}
