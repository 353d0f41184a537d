//! `--where`: what is kept, what is filtered, and what is refused.

use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};

use afterimage_handler::Mechanism;
use afterimage_handler::gate::{Context, Gate, NoNames, Sample};
use afterimage_perf_data::{FileReader, SampleType};
use afterimage_testkit::{Need, has, workload};

use crate::common::{file, folder, run, stderr, text, word};
use crate::helper::{alone, beside, record, recorder, tally};

/// Two processes that keep busy until they are dropped.
struct Pair([Child; 2]);

impl Pair {
    fn start() -> Pair {
        let program = workload::build().busy;
        let one = || Command::new(&program).arg("100000000").stdout(Stdio::null()).spawn().unwrap();
        Pair([one(), one()])
    }

    fn pids(&self) -> [u32; 2] {
        [self.0[0].id(), self.0[1].id()]
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// What is in one column of `script`.
fn column(path: &std::path::Path, field: &str) -> BTreeSet<String> {
    let listing = text(&["script", "-i", word(path), "-F", field]);
    listing.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect()
}

#[test]
fn of_two_busy_processes_one_is_kept() {
    if !has("of_two_busy_processes_one_is_kept", &[Need::Root, Need::Bpf, Need::Cc]) {
        return;
    }
    let _turn = alone();
    let (folder, pair) = (folder(), Pair::start());
    let [kept, other] = pair.pids();
    let all = file(&folder, "all.data");
    record(&all, &["-a", "--duration", "0.4"]);
    let pids = column(&all, "pid");
    assert!(pids.contains(&kept.to_string()) && pids.contains(&other.to_string()), "{pids:?}");
    for (expression, more) in [
        (format!("pid == {kept}"), &[][..]),
        (format!("tid in ({kept}, 0xfffffff0..0xfffffff5) && pid != {other}"), &["--handler", "emit"]),
        (format!("comm == \"busy\" && !(pid == {other})"), &["--handler", "emit", "--chain"]),
        (format!("pid & 0xffffffff == {kept} && ppid == {}", std::process::id()), &["--handler", "count"]),
    ] {
        let path = file(&folder, "some.data");
        let words = [&["-a", "-g", "--duration", "0.4", "--where", &expression], more].concat();
        let output = record(&path, &words);
        assert!(stderr(&output).contains("filtered"), "{}", stderr(&output));
        assert_eq!(column(&path, "pid"), BTreeSet::from([kept.to_string()]), "{expression}");
        let sum = tally(&path).total();
        println!("{expression}: {}", sum.human());
        assert!(sum.filtered.unwrap() > 100 && sum.passed.unwrap() > 100, "{sum:?}");
    }
}

#[test]
fn a_gate_that_rejects_everything_leaves_nothing() {
    if !has("a_gate_that_rejects_everything_leaves_nothing", &[Need::Root, Need::Bpf]) {
        return;
    }
    let _turn = beside();
    let folder = folder();
    for (expression, note) in [("false", "holds for no sample"), ("nspid == 0xfffffff0", "")] {
        let path = file(&folder, "none.data");
        let output = record(&path, &["-a", "--duration", "0.3", "--where", expression]);
        assert!(stderr(&output).contains(note), "{}", stderr(&output));
        let sum = tally(&path).total();
        assert!(sum.handled.unwrap() > 0, "{sum:?}");
        assert_eq!((sum.filtered, sum.passed, sum.ring.delivered), (sum.handled, Some(0), 0));
        assert!(stderr(&output).contains("0 kept"), "{}", stderr(&output));
        assert_eq!(text(&["script", "-i", word(&path)]), "");
    }
    let output = record(&file(&folder, "all.data"), &["-a", "--duration", "0.2", "--where", "user || kernel"]);
    assert!(stderr(&output).contains("holds for every sample: there is no gate"), "{}", stderr(&output));
    assert_eq!(tally(&file(&folder, "all.data")).total().filtered, Some(0));
}

/// Half of the samples with each handler, with large rings and with small ones that overflow: every line of the tally holds.
#[test]
fn half_rejected_adds_up_with_every_handler() {
    if !has("half_rejected_adds_up_with_every_handler", &[Need::Root, Need::Bpf, Need::Cc]) {
        return;
    }
    let _turn = alone();
    let (folder, pair) = (folder(), Pair::start());
    let targets = pair.pids().map(|pid| pid.to_string()).join(",");
    let handlers: [&[&str]; 5] = [
        &[],
        &["--handler", "emit"],
        &["--handler", "emit", "--chain"],
        &["--handler", "count"],
        &["--handler", "count", "--chain"],
    ];
    let anywhere =
        Context { mechanism: Mechanism::Kfuncs, sample_type: SampleType::empty(), first_pid_namespace: true };
    let lot = Gate::compile("1/2", &NoNames, &anywhere).unwrap();
    for handler in handlers {
        for pages in ["1", "128"] {
            let path = file(&folder, "half.data");
            let fixed = ["-p", &targets, "-g", "-F", "9999", "--duration", "0.3", "-m", pages, "--where", "1/2"];
            let output = record(&path, &[&fixed[..], handler].concat());
            assert!(!stderr(&output).contains("does not add up"), "{}", stderr(&output));
            let whole = tally(&path);
            let sum = whole.total();
            println!("{handler:?} -m {pages}: {}", sum.human());
            assert!(sum.handled.unwrap() > 50 && sum.filtered.unwrap() > 0, "{sum:?}");
            // A lot depends on the number of the sample on its CPU alone, which the stub counts from 1.
            for (cpu, there) in &whole.events[0].per_cpu {
                let numbers = 1..=there.handled.unwrap();
                let out = numbers.filter(|&seq| !lot.passes(&Sample { seq, ..Sample::default() })).count() as u64;
                assert_eq!(there.filtered, Some(out), "CPU {cpu}: {there:?}");
                assert_eq!(Some(out + there.passed.unwrap()), there.handled, "CPU {cpu}: {there:?}");
            }
            let bytes = std::fs::read(&path).unwrap();
            let reader = FileReader::open(&bytes).unwrap();
            let described = &reader.private().unwrap().handlers[0];
            assert_eq!(described.gate.as_deref(), Some("1/2"));
        }
    }
    let shown = text(&["report", "-i", word(&file(&folder, "half.data")), "-g", "none"]);
    assert!(shown.lines().any(|line| line == "# Where: 1/2"), "{shown}");
}

#[test]
fn addresses_of_page_faults_are_looked_at() {
    if !has("addresses_of_page_faults_are_looked_at", &[Need::Root, Need::Bpf, Need::Cc]) {
        return;
    }
    let _turn = beside();
    let folder = folder();
    let path = file(&folder, "faults.data");
    let words = ["-e", "page-faults", "-c", "1", "--where", "addr & 0xfff == 0 && addr > 0"];
    let output =
        record(&path, &[&words[..], &["--", "sh", "-c", "cat /proc/self/maps /proc/self/status >&2"]].concat());
    let sum = tally(&path).total();
    println!("{}", stderr(&output).lines().last().unwrap());
    assert!(sum.filtered.unwrap() > 0 && sum.passed.unwrap() > 0, "{sum:?}");
    let addresses = column(&path, "addr");
    assert!(!addresses.is_empty() && addresses.iter().all(|address| address.ends_with("000")), "{addresses:?}");
}

#[test]
fn code_of_a_file_is_told_from_other_code() {
    if !has("code_of_a_file_is_told_from_other_code", &[Need::Root, Need::Bpf, Need::Cc]) {
        return;
    }
    let _turn = beside();
    let (folder, pair) = (folder(), Pair::start());
    let [pid, _] = pair.pids();
    let program = workload::build().busy;
    let name = program.file_name().unwrap().to_str().unwrap();
    let target = pid.to_string();
    for (expression, within) in
        [(format!("ip in dso(\"{name}\")"), true), (format!("user && ip not in dso(\"{}\")", word(&program)), false)]
    {
        let path = file(&folder, "dso.data");
        record(&path, &["-p", &target, "--duration", "0.4", "--where", &expression]);
        let listing = text(&["script", "-i", word(&path), "-F", "ip,sym,dso"]);
        assert!(listing.lines().all(|line| line.contains(name) == within), "{expression}: {listing}");
        assert!(tally(&path).total().passed.unwrap() > 10 || !within);
    }
    let path = file(&folder, "symbol.data");
    record(&path, &["-a", "--duration", "0.4", "--where", "kernel"]);
    let listing = text(&["script", "-i", word(&path), "-F", "ip,sym"]);
    let symbols: Vec<&str> = listing.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
    let often = |name: &&str| symbols.iter().filter(|symbol| *symbol == name).count();
    let plain =
        |name: &&&str| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') && !name.starts_with("bpf_prog");
    let top = symbols.iter().filter(plain).max_by_key(|name| often(name)).expect("a kernel symbol");
    let expression = format!("ip in symbol(\"{top}\")");
    let path = file(&folder, "one.data");
    record(&path, &["-a", "--duration", "0.6", "--where", &expression]);
    let seen = column(&path, "ip,sym");
    println!("{expression}: {}", tally(&path).total().human());
    assert!(seen.iter().all(|line| line.split_whitespace().nth(1) == Some(top)), "{expression}: {seen:?}");
}

/// What is wrong is said before anything is opened, with the place and what to do.
#[test]
fn what_makes_no_gate_is_refused() {
    let refused = |words: &[&str]| {
        let folder = folder();
        let path = file(&folder, "a.data");
        let output = recorder(&path, words).output().unwrap();
        assert!(!path.exists(), "{words:?}");
        (output.status.code().unwrap(), stderr(&output))
    };
    let (code, said) = refused(&["-a", "--where", "conm == \"sh\""]);
    assert_eq!(
        (code, said.as_str()),
        (2, "afterimage: --where: there is no field `conm`\n  conm == \"sh\"\n  ^^^^\n  hint: did you mean comm?\n")
    );
    assert_eq!(run(&["record", "--where"]).status.code(), Some(2));
    if !has("what_makes_no_gate_is_refused", &[Need::Root, Need::Bpf, Need::Tracefs]) {
        return;
    }
    let _turn = beside();
    let (code, said) = refused(&["-a", "--where", "ip in dso(\"libc.so.6\")", "--duration", "1"]);
    assert_eq!(code, 2);
    assert!(said.contains("  ip in dso(\"libc.so.6\")\n        ^^^^^^^^^^^^^^^^\n"), "{said}");
    let (code, said) = refused(&["-a", "--where", "ip in symbol(\"no_such_thing\")", "--duration", "1"]);
    assert_eq!(code, 2);
    assert!(said.contains("symbol no_such_thing: the kernel has no such function"), "{said}");
    let (code, said) = refused(&["-a", "-e", "sched:sched_switch", "--where", "pid == 1", "--duration", "1"]);
    assert_eq!(code, 2);
    assert!(said.contains("--where: tracepoint events") && said.contains("--filter"), "{said}");
}
