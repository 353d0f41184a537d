//! Two faults of the kernel that the loader keeps from recordings, shown by going round the loader: when a kernel mends
//! them, these tests say so, and the loader may refuse less.
//!
//! The kernel takes the call chain of a sample before the program runs, reserves the length of the record by it, and writes
//! the chain afterwards. Both helpers change the chain in between. Kernels that show a program no sample (6.1) reserve the
//! length only when the program has run, so that their records are as long as their contents. But the chain is taken before
//! the program there too, where the attached one calls bpf_get_stack as ours does, and is what the helpers leave of it.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};

use afterimage_handler::{Builtin, Handlers, Mechanism};
use afterimage_perf_data::{Attr, context};
use afterimage_testkit::{Need, has, objects};

use crate::support::*;

/// Loads one program of refused.bpf.o as libbpf does it, without any check of ours.
fn unchecked(name: &str) -> OwnedFd {
    let file = objects::build().join("refused.bpf.o");
    let mut open = libbpf_rs::ObjectBuilder::default().open_file(file).unwrap();
    for mut program in open.progs_mut() {
        let chosen = program.name() == name;
        program.set_autoload(chosen);
    }
    let loaded = open.load().unwrap();
    let program = loaded.progs_mut().find(|program| program.name() == name).unwrap();
    program.as_fd().try_clone_to_owned().unwrap()
}

/// Header, id, ip, pid and tid, time, id, CPU, period; then the number of words of the chain, and these.
const CHAIN: usize = 64;

/// A sample's record: its own size, and the size that its chain asks for.
fn sizes(record: &[u8]) -> (usize, usize) {
    let words = u64::from_ne_bytes(record[CHAIN..CHAIN + 8].try_into().unwrap()) as usize;
    (record.len(), CHAIN + 8 + 8 * words)
}

/// How deep a chain is, and its innermost words: the marker, where the sample was taken, and what called that.
type Inner = (u64, Vec<u8>);

/// The chains that many of the records have: of what was sampled over and over at one place.
fn common(records: &[Vec<u8>]) -> BTreeSet<Inner> {
    let mut times: BTreeMap<Inner, usize> = BTreeMap::new();
    for record in records {
        let (words, chain) = record[CHAIN..].split_at(8);
        let depth = u64::from_ne_bytes(words.try_into().unwrap());
        *times.entry((depth, chain[..chain.len().min(3 * 8)].to_vec())).or_default() += 1;
    }
    times.into_iter().filter(|(_, times)| *times >= 50).map(|(chain, _)| chain).collect()
}

/// Where a kernel is said to leave the chain as it was: it is that of a sample without a handler, not only as long.
fn assert_same_chains(with: &[Vec<u8>], without: &[Vec<u8>]) {
    let (with, without) = (common(with), common(without));
    assert!(!without.is_empty() && with == without, "{with:?}\n{without:?}");
}

/// Whether this kernel has these faults: whether it prepares the sample before the program runs.
fn faulty() -> bool {
    best() == Mechanism::Kfuncs
}

/// Samples page faults with a handler, or none, and gives the records.
fn sample_with(handler: Option<&str>) -> Vec<Vec<u8>> {
    let mut event = Event::open(&page_faults(), gettid(), -1, 512);
    let mut handlers: Handlers = load(Builtin::None, false, best());
    if let Some(name) = handler {
        let id = handlers.add(name, unchecked(name));
        handlers.swap(id).unwrap();
    }
    handlers.attach(0, event.fd.as_fd()).unwrap();
    let pages = Pages::new(200);
    touch(&mut event, &pages);
    event.raw_samples()
}

/// One place that all chains come from, whatever the compiler makes of what calls it.
#[inline(never)]
fn touch(event: &mut Event, pages: &Pages) {
    event.enable();
    pages.touch();
    pages.touch_by_kernel();
    event.disable();
}

/// The records without a handler and with one, taken from the same place.
fn without_and_with(handler: &str) -> [Vec<Vec<u8>>; 2] {
    [None, Some(handler)].map(sample_with)
}

#[test]
fn records_are_whole_without_such_a_handler() {
    let test = "records_are_whole_without_such_a_handler";
    let Some(_one) = alone(test).filter(|_| has(test, &[Need::Clang])) else { return };
    for handler in ["kernel_stack", "long_stack"] {
        let [without, with] = without_and_with(handler);
        for records in [&without, &with] {
            let sizes: Vec<_> = records.iter().map(|record| sizes(record)).collect();
            let whole = sizes.len() >= 200 && sizes.iter().all(|(own, of_chain)| own == of_chain);
            assert!(whole, "{handler}: {sizes:?}");
        }
        assert_same_chains(&with, &without);
    }
}

/// bpf_get_stack of the user's half cuts the chain to its own buffer (`trace->nr` in `__bpf_get_stack`), and the record is
/// longer than its contents.
#[test]
fn a_short_user_stack_cuts_the_record() {
    let test = "a_short_user_stack_cuts_the_record";
    let Some(_one) = alone(test).filter(|_| has(test, &[Need::Clang])) else { return };
    let [without, with] = without_and_with("short_stack");
    let cut = with.iter().map(|record| sizes(record)).filter(|(own, of_chain)| own > of_chain).count();
    println!("{cut} of {} records are longer than their chains", with.len());
    assert_eq!(cut > 0, faulty(), "a kernel that leaves the chain as it was asks for no refusal of short buffers");
    if !faulty() {
        assert_same_chains(&with, &without);
    }
}

/// The same call cuts a chain to kernel.perf_event_max_stack words however large its buffer is, markers included. With room
/// for them (`sample_max_stack`), as the recorder leaves it, a chain stays whole.
#[test]
fn a_deep_stack_is_cut_in_any_case() {
    let test = "a_deep_stack_is_cut_in_any_case";
    let Some(_one) = alone(test).filter(|_| has(test, &[Need::Clang, Need::Cc])) else { return };
    // The last two: a built-in handler as it works where a kernel shows programs no sample.
    for (name, max_stack, cut) in
        [("long_stack", 0, true), ("long_stack", 119, false), ("emit", 0, true), ("emit", 119, false)]
    {
        let [without, with] = ["none", name].map(|name| sample_deep(name, max_stack));
        let sizes: Vec<_> = with.iter().map(|record| sizes(record)).collect();
        println!("{name}: {} records, the first {:?}", sizes.len(), sizes.first());
        assert!(!sizes.is_empty());
        let short = sizes.iter().any(|(own, of_chain)| own != of_chain);
        assert_eq!(short, cut && faulty(), "{name}, {max_stack}: {sizes:?}");
        let (with, without) = (usual_depth(&with), usual_depth(&without));
        println!("{with} addresses, {without} without a handler");
        // Where the record is whole, it is that of a chain which was cut. Linux 6.1 cuts none.
        let expected = if cut && faulty() { std::cmp::Ordering::Less } else { std::cmp::Ordering::Equal };
        assert_eq!(with.cmp(&without), expected, "{name}, {max_stack}: {with} and {without} addresses");
    }
}

/// The number of addresses that most of the chains have: how many markers stand between them depends on where a sample fell.
fn usual_depth(records: &[Vec<u8>]) -> usize {
    let mut times: BTreeMap<usize, usize> = BTreeMap::new();
    for record in records {
        let words = record[CHAIN + 8..].chunks_exact(8).take((sizes(record).1 - CHAIN) / 8 - 1);
        let addresses = words.filter(|word| !context::is_marker(u64::from_ne_bytes((*word).try_into().unwrap())));
        *times.entry(addresses.count()).or_default() += 1;
    }
    println!("addresses in how many chains: {times:?}");
    times.into_iter().max_by_key(|(_, times)| *times).map_or(0, |(addresses, _)| addresses)
}

/// Samples a process deep in a recursion with a handler.
fn sample_deep(name: &str, max_stack: u16) -> Vec<Vec<u8>> {
    let busy = afterimage_testkit::workload::build().busy;
    let mut child = std::process::Command::new(&busy).args(["100000", "300"]).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(100));
    let attr = Attr { sample_max_stack: max_stack, ..clock(1_000_000) };
    let mut event = Event::open(&attr, child.id() as i32, -1, 512);
    let mut handlers: Handlers = if name == "emit" {
        load(Builtin::Emit, true, Mechanism::Plain)
    } else {
        let mut handlers = load(Builtin::None, false, best());
        if name != "none" {
            let id = handlers.add(name, unchecked(name));
            handlers.swap(id).unwrap();
        }
        handlers
    };
    handlers.attach(0, event.fd.as_fd()).unwrap();
    event.enable();
    while event.read().0 < 20_000_000 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    event.disable();
    child.kill().unwrap();
    child.wait().unwrap();
    event.raw_samples()
}

/// bpf_get_task_stack fills the very buffer that holds the sample's chain, and the record's contents are not as long as it;
/// where the length is reserved afterwards, only another's.
#[test]
fn a_task_stack_overwrites_the_record() {
    let test = "a_task_stack_overwrites_the_record";
    let Some(_one) = alone(test).filter(|_| has(test, &[Need::Clang])) else { return };
    let [without, with] = without_and_with("task_stack");
    let wrong = with.iter().map(|record| sizes(record)).filter(|(own, of_chain)| own != of_chain).count();
    println!("{wrong} of {} records hold chains of another length", with.len());
    assert_eq!((wrong > 0, with.len() >= 200), (faulty(), true), "{wrong} of {}", with.len());
    // What the record holds is the stack that the helper filled in, in any case.
    let (with, without) = (common(&with), common(&without));
    println!("{with:?}\n{without:?}");
    assert!(!without.is_empty() && with.is_disjoint(&without), "a kernel that leaves the chain asks for no refusal");
}
