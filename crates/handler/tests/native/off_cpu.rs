//! Time off CPU, by the programs alone.

use std::collections::BTreeMap;
use std::ops::Range;
use std::process::{Command, Stdio};

use afterimage_handler::off_cpu::{OffCpu, Options, Whose};
use afterimage_testkit::{Need, has, workload};

use crate::support::alone;

/// Thread, state, and stack.
type Key = (u32, u32, Vec<u64>);

/// Where a function of the kernel is.
fn function(name: &str) -> Range<u64> {
    let text = std::fs::read_to_string("/proc/kallsyms").unwrap();
    let mut symbols = text.lines().map(|line| {
        let mut words = line.split_ascii_whitespace();
        (u64::from_str_radix(words.next().unwrap(), 16).unwrap(), words.nth(1).unwrap())
    });
    let Some((start, _)) = symbols.by_ref().find(|(_, symbol)| *symbol == name) else { return 0..0 };
    start..symbols.next().unwrap().0
}

/// ns of CLOCK_MONOTONIC.
fn now() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live local, which the call fills.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) }, 0);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn run(words: &[&str]) {
    let status = Command::new(words[0]).args(&words[1..]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.unwrap();
}

/// What was added up of the processes that we started.
fn drained(off_cpu: &mut OffCpu) -> BTreeMap<Key, u64> {
    let mut all = BTreeMap::new();
    for cpu in 0..64 {
        off_cpu.drain(cpu, &mut |entry| {
            // The first frame is that of the program itself.
            let chain = entry.chain.iter().enumerate().filter(|(nth, _)| *nth != 1).map(|(_, word)| *word).collect();
            if entry.pid != std::process::id() {
                *all.entry((entry.tid, entry.bucket, chain)).or_default() += entry.count;
            }
        });
    }
    all
}

/// Two sets of programs see every switch, one of which walks every stack.
#[test]
fn stacks_that_are_not_walked_again_are_what_a_walk_gives() {
    let test = "stacks_that_are_not_walked_again_are_what_a_walk_gives";
    let Some(_turn) = alone(test) else { return };
    if !has(test, &[Need::Cc]) {
        return;
    }
    let load = |walk_all| {
        let options = Options {
            whose: Whose::Processes(vec![std::process::id()]),
            follow: true,
            syscall: function("do_syscall_64"),
            entries: Some(32_768),
            walk_all,
            ..Options::default()
        };
        OffCpu::load(&options).unwrap()
    };
    let mut both = [load(true), load(false)];
    assert!(!both[0].reuses());
    println!("stacks are walked anew only where they may differ: {}", both[1].reuses());
    let programs = workload::build();
    let (waits, switches) = (programs.waits.to_str().unwrap(), programs.switches.to_str().unwrap());
    both.iter().for_each(|one| one.start(now()));
    run(&[waits, "40", "3"]);
    run(&[waits, "shared", "4", "200"]);
    run(&[switches, "20000", "1"]);
    run(&[
        "sh",
        "-c",
        "find /usr/lib /etc -type f | sort | wc -l; for i in 1 2 3 4 5; do cat /etc/passwd | sort; done",
    ]);
    both.iter().for_each(OffCpu::stop);
    let [all, reused] = both.each_mut().map(drained);
    let waits: u64 = all.values().sum();
    println!("{waits} waits with {} stacks", all.len());
    assert!(waits > 10_000 && all.len() > 20);
    for one in &both {
        let counts = one.totals();
        assert_eq!((counts.lost_full.waits, counts.lost_collision.waits, counts.lost_threads), (0, 0, 0));
        let parts = [counts.stored, counts.below, counts.lost_full, counts.lost_collision];
        assert_eq!(counts.ended.waits, parts.iter().map(|part| part.waits).sum::<u64>());
        assert_eq!(counts.ended.ns, parts.iter().map(|part| part.ns).sum::<u64>());
    }
    let different = |a: &BTreeMap<Key, u64>, b: &BTreeMap<Key, u64>| {
        let left = a.iter().map(|(key, count)| count.saturating_sub(*b.get(key).unwrap_or(&0)));
        left.sum::<u64>()
    };
    let apart = [different(&all, &reused), different(&reused, &all)];
    println!("{apart:?} of them have another stack");
    assert_eq!(apart, [0, 0]);
}
