//! What the programs handled is what an event without a program saw.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;

use afterimage_perf_event::config::{Config, Rate};
use afterimage_perf_event::facts::Facts;
use afterimage_perf_event::open::{self, Opened, Options, Target};
use afterimage_perf_event::spec::EventSpec;
use afterimage_perf_event::sys::{Kernel, Real};
use afterimage_testkit::{Need, has, workload};

use crate::common::{file, folder, word};
use crate::counted::waiting;
use crate::helper::{alone, record, tally};

const RATE: u64 = 997;

/// A clock event of the same rate on the same task, with rings that hold all of it.
fn control(tid: u32) -> Opened {
    let kernel: Arc<dyn Kernel> = Arc::new(Real);
    let facts = Facts::system();
    let mut spec = EventSpec::cpu_clock();
    Config { rate: Some(Rate::Freq(RATE)), ..Config::default() }.apply(&mut spec);
    let target = Target::Tasks { tids: vec![tid], cpus: facts.online_cpus().unwrap(), inherit: true };
    open::open(&kernel, &facts, vec![spec], &target, Options { pages: 64 }).unwrap()
}

/// Delivered and lost, by CPU.
fn seen(control: &mut Opened) -> BTreeMap<u32, u64> {
    control.disable().unwrap();
    let mut seen = BTreeMap::new();
    for event in &control.events {
        let lost = event.read().unwrap().lost.unwrap_or(0);
        *seen.entry(u32::try_from(event.cpu).unwrap()).or_insert(0) += lost;
    }
    for event in &control.events {
        let ring = &mut control.rings[event.ring];
        let until = ring.head();
        let mut samples = 0;
        ring.drain(until, &mut |record| samples += u64::from(record[..4] == 9_u32.to_ne_bytes())).unwrap();
        *seen.entry(u32::try_from(event.cpu).unwrap()).or_insert(0) += samples;
    }
    seen
}

/// What a handler handled and what the control event saw, by CPU.
fn both(folder: &tempfile::TempDir, handler: &str, turn: usize) -> Vec<(u64, u64)> {
    let path = file(folder, &format!("{handler}{turn}"));
    let fifo = file(folder, &format!("{handler}{turn}.fifo"));
    let mut program = Command::new("sh");
    program.args(["-c", &format!("echo ready; read _; exec {} 1", word(&workload::build().split))]);
    let (mut child, _stdout, _) = waiting(&mut program, &fifo);
    let mut control = control(child.id());
    control.enable().unwrap();
    let (rate, pid) = (RATE.to_string(), child.id().to_string());
    let command = format!("echo x > {}; exec sleep 60", word(&fifo));
    record(&path, &["-e", "cpu-clock", "-F", &rate, "--handler", handler, "-p", &pid, "--", "sh", "-c", &command]);
    child.wait().unwrap();
    let seen = seen(&mut control);
    let tally = tally(&path);
    let handled = tally.events[0].per_cpu.iter().map(|(cpu, tally)| (*cpu, tally.handled.unwrap()));
    let pairs: Vec<(u64, u64)> = handled.map(|(cpu, n)| (n, seen.get(&cpu).copied().unwrap_or(0))).collect();
    println!("{handler}: handled and seen by CPU {pairs:?}");
    let total: u64 = pairs.iter().map(|(n, _)| n).sum();
    assert!(total > 500, "{total} samples of 1 s");
    pairs
}

/// The task waits while both are opened and has ended before either is closed, so that both saw the same of it. A CPU
/// that the hypervisor takes away for longer than a period costs either timer a tick at random, so one quiet run of
/// several is enough.
#[test]
fn handled_is_what_a_control_event_sees() {
    // In an emulated machine the timers of two events drift apart within a second; the handlers' own tests compare
    // over shorter times there.
    if !has("handled_is_what_a_control_event_sees", &[Need::Root, Need::Bpf, Need::Cc, Need::NoGuest]) {
        return;
    }
    let _turn = alone();
    let folder = folder();
    for handler in ["none", "emit", "count"] {
        let same = |turn| both(&folder, handler, turn).iter().all(|(handled, seen)| handled.abs_diff(*seen) <= 2);
        assert!((0..5).any(same), "{handler}: no run in which both saw the same");
    }
}
