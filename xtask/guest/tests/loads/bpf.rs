//! Programs: bpf, xdp, struct-ops, tail-call, and classic filters.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use afterimage_kernel_text::capture::by_id::{self, Program};
use afterimage_perf_data::{Endian, Layout, RawRecord, Record, decode};
use afterimage_perf_event::config::{Config, Rate};
use afterimage_perf_event::facts::Facts;
use afterimage_perf_event::open::{Opened, Options, Target, open};
use afterimage_perf_event::spec::parse;
use afterimage_perf_event::sys::{Kernel, Real};
use afterimage_testkit::{Need, guest, has};

use crate::support::{address, came_and_went, command, life, number, objects, text, watch};

const NEEDS: [Need; 2] = [Need::Root, Need::Bpf];

#[test]
fn every_function_of_a_program_comes_and_goes_under_its_name() {
    if !has("every_function_of_a_program_comes_and_goes_under_its_name", &NEEDS) {
        return;
    }
    for life in ["closed", "1ms"] {
        let seen = watch(&format!("bpf --count 50 --life {life}"));
        assert_eq!(seen.objects.len(), 50);
        let mut tags = BTreeSet::new();
        for object in &seen.objects {
            came_and_went(&seen, object);
            assert_eq!(object["functions"].as_array().unwrap().len(), 3);
            for function in object["functions"].as_array().unwrap() {
                let name = text(function, "name");
                assert!(tags.insert(name.split('_').nth(2).unwrap().to_owned()), "{name}: the tag of another");
            }
        }
    }
}

/// A program's main function goes by the tag of the whole program, a subprogram by its own.
#[test]
fn programs_by_id_have_the_kernel_s_symbols() {
    if !has("programs_by_id_have_the_kernel_s_symbols", &NEEDS) {
        return;
    }
    let mut load =
        command("bpf --life hot --count 1 --first 90210 --seconds 600").stdout(Stdio::null()).spawn().unwrap();
    let ours = loop {
        assert!(load.try_wait().unwrap().is_none(), "the load has ended");
        let is_ours = |program: &Program| program.functions.iter().any(|f| f.name.contains("_load_bpf_90210_"));
        if let Some(program) = by_id::programs().into_iter().find(is_ours) {
            break program;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let kallsyms = std::fs::read_to_string("/proc/kallsyms").unwrap();
    load.kill().unwrap();
    load.wait().unwrap();
    assert_eq!(ours.functions.len(), 3);
    for function in &ours.functions {
        let line = format!("{:016x} t {}\t[bpf]", function.address, function.name);
        assert!(kallsyms.lines().any(|symbol| symbol == line), "{line}");
    }
}

#[test]
fn without_info_the_names_are_the_ends_of_the_symbols() {
    if !has("without_info_the_names_are_the_ends_of_the_symbols", &NEEDS) {
        return;
    }
    let seen = watch("bpf --count 20 --no-info --first 700");
    assert_eq!(seen.objects.len(), 20);
    for object in &seen.objects {
        assert!(object["id"].is_null() && object["address"].is_null());
        let end = format!("_{}", text(object, "name"));
        let all = seen.symbols.iter().filter(|s| s.name.ends_with(&end) && life(object).contains(&s.time));
        assert_eq!(all.map(|s| s.goes).collect::<Vec<_>>(), [false, true], "{end}");
    }
}

#[test]
fn a_rate_is_kept() {
    if !has("a_rate_is_kept", &NEEDS) {
        return;
    }
    let seen = watch("bpf --count 5 --rate 50 --life 100us");
    let born: Vec<u64> = seen.objects.iter().map(|object| number(object, "born_ns")).collect();
    // The first is due at once, the last 80 ms later; how late each is depends on the machine.
    assert!(born[4] - born[0] > 60_000_000, "{born:?}");
}

#[test]
fn samples_land_in_hot_programs() {
    if !has("samples_land_in_hot_programs", &NEEDS) {
        return;
    }
    let mut sampling = sampled_cpus();
    sampling.enable().unwrap();
    let output = command("bpf --life hot --count 2 --seconds 1").output().unwrap();
    sampling.disable().unwrap();
    let ips = ips(&mut sampling);
    for object in &objects(&output.stdout) {
        assert!(number(object, "run_ns") > 0);
        let hits = |at: usize| {
            let function = &object["functions"][at];
            let range = address(function)..address(function) + number(function, "length");
            ips.iter().filter(|(time, ip)| life(object).contains(time) && range.contains(ip)).count()
        };
        let (left, right) = (hits(1), hits(2));
        assert!(right > 0 && left > right, "{left} and {right} samples in left and right of {object}");
    }
}

fn sampled_cpus() -> Opened {
    let kernel: Arc<dyn Kernel> = Arc::new(Real);
    let facts = Facts::system();
    let mut specs = parse("cpu-clock", &facts).unwrap();
    let config = Config { rate: Some(Rate::Freq(1000)), ..Config::default() };
    specs.iter_mut().for_each(|spec| config.apply(spec));
    let cpus = facts.online_cpus().unwrap();
    open(&kernel, &facts, specs, &Target::Cpus(cpus), Options { pages: 512 }).unwrap_or_else(|e| panic!("{e}"))
}

/// Times and places of all samples.
fn ips(opened: &mut Opened) -> Vec<(u64, u64)> {
    let layout = Layout::new(&opened.specs[0].attr, Endian::Little);
    let mut ips = Vec::new();
    for ring in &mut opened.rings {
        let head = ring.head();
        ring.drain(head, &mut |bytes| {
            let raw = RawRecord::parse(bytes, 0, Endian::Little).unwrap();
            if let Record::Sample(sample) = decode(&raw, &layout).unwrap() {
                ips.push((sample.time.unwrap(), sample.ip.unwrap()));
            }
        })
        .unwrap();
    }
    ips
}

#[test]
fn xdp_programs_come_and_go() {
    if !has("xdp_programs_come_and_go", &NEEDS) {
        return;
    }
    let seen = watch("xdp --count 5 --life 100us");
    assert_eq!(seen.objects.len(), 5);
    for object in &seen.objects {
        came_and_went(&seen, object);
        let attached = number(object, "attached_ns")..number(object, "detached_ns");
        assert!(life(object).contains(&attached.start) && life(object).contains(&attached.end), "{object}");
        assert!(!attached.is_empty());
    }
    let hot = watch("xdp --life hot --count 1 --seconds 0.1");
    came_and_went(&hot, &hot.objects[0]);
    assert!(number(&hot.objects[0], "run_ns") > 0);
}

#[test]
fn structures_of_functions_come_and_go() {
    if !has("structures_of_functions_come_and_go", &NEEDS) {
        return;
    }
    let mut seen = watch("struct-ops --count 2 --life 100us");
    let objects = std::mem::take(&mut seen.objects);
    assert_eq!(objects.len(), 6);
    for program in &objects {
        // The last to let go of a program may be the map, which goes later.
        let name = text(program, "name");
        seen.until("the end of a program", |seen| seen.symbols.iter().any(|s| s.goes && s.name == name));
        assert_eq!(seen.one(program, name, false).addr, address(program));
    }
    let names: Vec<_> = objects.iter().map(|object| text(&object["trampoline"], "name")).collect();
    assert_eq!(names[..3], names[3..], "one of each member for each structure");
}

#[test]
fn jumps_of_a_running_program_are_patched() {
    if !has("jumps_of_a_running_program_are_patched", &NEEDS) {
        return;
    }
    let mut seen = watch("tail-call --count 9 --life 1ms");
    let objects = std::mem::take(&mut seen.objects);
    let of = |role: &'static str| objects.iter().filter(move |object| object["role"] == role);
    assert_eq!((of("caller").count(), of("target").count(), of("patch").count()), (1, 2, 9));
    for program in of("caller").chain(of("target")) {
        // The last to let go of a program may be the map, which goes later.
        let name = text(program, "name");
        seen.until("the end of a program", |seen| seen.symbols.iter().any(|s| s.goes && s.name == name));
        assert_eq!(seen.one(program, name, false).addr, address(program));
    }
    let caller = of("caller").next().unwrap();
    let text_of_caller = address(caller)..address(caller) + number(&caller["functions"][0], "length");
    for patch in of("patch") {
        // The development machine's kernel reports no change of text at all.
        let pokes = seen.pokes_in(patch, text_of_caller.clone());
        assert!(pokes >= 1 || guest().is_none(), "no change of the caller's text in {patch}");
        assert!(of("target").any(|target| target["name"] == patch["target"]));
    }
}

#[test]
fn classic_filters_are_announced_by_nothing() {
    if !has("classic_filters_are_announced_by_nothing", &[Need::Root]) {
        return;
    }
    let seen = watch("cbpf --count 20 --life 100us");
    assert_eq!(seen.objects.len(), 20);
    assert!(seen.objects.iter().all(|object| object["name"].is_null()));
    let told: Vec<_> = seen.symbols.iter().filter(|symbol| symbol.pid == seen.pid).collect();
    assert!(told.is_empty(), "{told:?}");
    let hot = watch("cbpf --life hot --seconds 0.1");
    assert!(number(&hot.objects[0], "packets") > 0);
}
