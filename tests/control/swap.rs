//! Handlers one after the other in one recording.

use std::collections::BTreeMap;

use afterimage_perf_data::record::kind;
use afterimage_perf_data::{FileReader, HandlerDesc, journal};
use afterimage_testkit::{Need, has, workload};
use serde_json::Value;

use crate::common::{folder, run, stderr, stdout, text, word};
use crate::helper::{alone, beside, event, number, report, tally};
use crate::session::{NEEDS, Session};

fn handlers(path: &std::path::Path) -> Vec<HandlerDesc> {
    let bytes = std::fs::read(path).unwrap();
    FileReader::open(&bytes).unwrap().private().unwrap().handlers.clone()
}

/// Every built-in one after the other: whatever each took is in the recording once, and all of it adds up.
#[test]
fn each_sample_is_in_the_output_of_the_handler_of_its_moment() {
    if !has("each_sample_is_in_the_output_of_the_handler_of_its_moment", &NEEDS) {
        return;
    }
    let _turn = alone();
    let folder = folder();
    let session = Session::start(&folder, &["-a", "-g", "-e", "cpu-clock", "-F", "2000", "--handler", "emit"]);
    session.grows("emitted", 300);
    let said = session.done(&["swap", "SESSION", "count"]);
    assert_eq!(said, format!("session {}: handler count, generation 2\n", session.pid));
    session.grows("counted", 300);
    session.done(&["clear", "SESSION"]);
    session.grows("chained", 300);
    let swapped: Value = serde_json::from_str(&session.done(&["swap", "SESSION", "count", "--json"])).unwrap();
    assert_eq!(swapped["schema"], "afterimage/handler-swap/1");
    assert_eq!((&swapped["handler"], &swapped["generation"]), (&"count".into(), &4.into()));
    session.grows("counted", 100);
    session.done(&["swap", "SESSION", "emit"]);
    let stats = session.stats();
    println!("{}", session.done(&["stats", "SESSION"]));
    assert_eq!(stats["schema"], "afterimage/handler-stats/1");
    assert_eq!((&stats["handler"], &stats["changes"]), (&"emit".into(), &4.into()));
    let (path, said) = session.end();
    println!("{said}");
    assert!(!said.contains("does not add up"), "{said}");

    let sum = tally(&path).total();
    let outputs = [sum.chained, sum.emitted, sum.counted];
    println!("{outputs:?} {}", sum.human());
    assert!(outputs.iter().all(|n| *n >= 300), "{outputs:?}");
    assert_eq!(sum.handled, Some(outputs.iter().sum()));
    let (report, _) = report(&path, &[]);
    let shown = event(&report, "cpu-clock");
    let arrived = sum.ring.delivered + sum.handler_ring.delivered + sum.map.stored;
    assert_eq!(number(&shown["samples"]), arrived, "all of them stand for samples of the event");
    assert_eq!(report["events"].as_array().unwrap().len(), 1);
    let names: Vec<(String, u16, u32)> =
        handlers(&path).into_iter().map(|desc| (desc.name, desc.id, desc.generation)).collect();
    assert_eq!(names, [("emit".into(), 1, 1), ("count".into(), 2, 2), ("none".into(), 0, 3)]);
    // Stock readers see the entries as samples of the event, each with the sum of its periods.
    let listed = run(&["script", "-F", "period,event", "-i", word(&path)]);
    assert!(listed.status.success());
    let period: u64 = stdout(&listed).lines().filter_map(|l| l.split_whitespace().next()?.parse::<u64>().ok()).sum();
    assert!(period > 0);
}

/// A recording that was killed in the middle tells as much as its last pass knew, of every handler.
#[test]
fn a_killed_recording_knows_its_handlers() {
    if !has("a_killed_recording_knows_its_handlers", &NEEDS) {
        return;
    }
    let _turn = beside();
    let folder = folder();
    let session = Session::start(&folder, &["-a", "-e", "cpu-clock", "-F", "997"]);
    session.grows("chained", 300);
    session.done(&["swap", "SESSION", "count"]);
    session.grows("counted", 300);
    let path = session.kill(600);
    let bytes = std::fs::read(&path).unwrap();
    let mut reader = FileReader::open(&bytes).unwrap();
    reader.use_journal(&std::fs::read(journal::path_of(&path)).unwrap()).unwrap();
    let private = reader.private().unwrap();
    let names: Vec<&str> = private.handlers.iter().map(|desc| desc.name.as_str()).collect();
    assert_eq!(names, ["none", "count"]);
    let id = private.entries_id(0).unwrap();
    let of = |entry: bool| {
        let samples = reader.records().map_while(Result::ok).filter(|raw| raw.header.kind == kind::SAMPLE);
        samples.filter(|raw| (reader.id_of(raw) == Some(id)) == entry).count()
    };
    let sum = private.tally.as_ref().unwrap().total();
    println!("{}, {} entries", sum.human(), of(true));
    assert_eq!(sum.ring.delivered, of(false) as u64);
    assert!(sum.map.stored >= 300 && of(true) > 0);
    assert_eq!(private.tally.as_ref().unwrap().check(), Ok(()));
    let (report, _) = report(&path, &[]);
    let shown = number(&event(&report, "cpu-clock")["samples"]);
    assert_eq!(shown, sum.ring.delivered + sum.map.stored);
}

/// What a file has no place for is refused, and nothing has changed.
#[test]
fn what_the_recording_has_no_place_for_is_refused() {
    if !has("what_the_recording_has_no_place_for_is_refused", &NEEDS) {
        return;
    }
    let _turn = beside();
    let folder = folder();
    let session = Session::start(&folder, &["-a", "-e", "cpu-clock", "-F", "499"]);
    let said = session.refused(&["swap", "SESSION", "emit"], 1);
    println!("{said}");
    assert!(said.contains("this recording has no handler ring: start it with --handler emit"), "{said}");
    let said = session.refused(&["swap", "SESSION", "nun"], 2);
    assert!(said.contains("none, emit and count"), "{said}");
    assert!(session.refused(&["swap", "SESSION"], 2).contains("which handler?"));
    assert!(session.refused(&["swap", "SESSION", "count", "--hold", "1e9"], 2).contains("--hold"));
    assert!(session.refused(&["swap", "abc", "count"], 2).contains("not a session"));
    let stats = session.stats();
    assert_eq!((&stats["handler"], &stats["generation"], &stats["changes"]), (&"none".into(), &1.into(), &0.into()));
    tally(&session.end().0);
    let session = Session::start(&folder, &["-a", "-e", "cpu-clock", "-F", "499", "--handler", "emit", "--chain"]);
    let said = session.refused(&["swap", "SESSION", "count"], 1);
    assert!(said.contains("no event for counts beside samples"), "{said}");
    tally(&session.end().0);
    let output = run(&["handler", "stats", "999999999"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("no such session"), "{}", stderr(&output));
}

/// A gate is exchanged as a handler is: what it leaves out is counted, and what is wrong with one changes nothing.
#[test]
fn a_gate_comes_and_goes() {
    if !has("a_gate_comes_and_goes", &NEEDS) {
        return;
    }
    let _turn = beside();
    let folder = folder();
    let session = Session::start(&folder, &["-a", "-e", "cpu-clock", "-F", "999"]);
    session.grows("chained", 100);
    let said = session.done(&["where", "SESSION", "pid == 999999999"]);
    assert_eq!(said, format!("session {}: handler none, where pid == 999999999, generation 2\n", session.pid));
    session.grows("filtered", 300);
    // A handler that is put in force now stands behind the gate.
    session.done(&["swap", "SESSION", "count"]);
    session.grows("filtered", 300);
    for (words, code, says) in [
        (&["where", "SESSION", "pid =="][..], 2, "pid =="),
        (&["where", "SESSION", "ip in symbol(\"no_such_function\")"], 1, "no such function"),
        (&["where", "SESSION"], 2, "which samples?"),
        (&["where", "SESSION", "pid == 1", "--all"], 2, "--all"),
    ] {
        let said = session.refused(words, code);
        println!("{said}");
        assert!(said.contains(says), "{said}");
    }
    let stats = session.stats();
    assert_eq!((&stats["gate"], &stats["changes"]), (&"pid == 999999999".into(), &2.into()));
    session.done(&["where", "SESSION", "--all"]);
    // The same once more is no other gate.
    session.done(&["where", "SESSION", "--all"]);
    session.grows("counted", 300);
    let path = session.end().0;
    let sum = tally(&path).total();
    println!("{}", sum.human());
    assert!(sum.filtered.unwrap() >= 600 && sum.counted >= 300 && sum.chained >= 100);
    assert_eq!(sum.handled, Some(sum.filtered.unwrap() + sum.chained + sum.counted));
    let gate = Some("pid == 999999999".to_owned());
    let known: Vec<_> = handlers(&path).into_iter().map(|desc| (desc.name, desc.generation, desc.gate)).collect();
    let expected = [("none", 1, None), ("none", 2, gate.clone()), ("count", 3, gate), ("count", 4, None)];
    assert_eq!(known, expected.map(|(name, generation, gate)| (name.to_owned(), generation, gate)));
    assert!(text(&["report", "-i", word(&path)]).contains("# Where, one after the other: all; pid == 999999999"));
    // Each change is told with its time, in the recording and by the report.
    let (report, _) = report(&path, &[]);
    let gates = report["gates"].as_array().unwrap();
    let told: Vec<_> = gates.iter().map(|gate| (gate["generation"].as_u64(), gate["expression"].as_str())).collect();
    assert_eq!(told, [(Some(2), Some("pid == 999999999")), (Some(4), None)]);
    assert!(gates[0]["since_ns"].as_u64() < gates[1]["since_ns"].as_u64(), "{gates:?}");
}

/// Events of tasks run the program of their parents: what is put in force is so for all of them at once.
#[test]
fn children_follow() {
    if !has("children_follow", &[&NEEDS[..], &[Need::Cc]].concat()) {
        return;
    }
    let _turn = beside();
    let (folder, busy) = (folder(), workload::build().busy);
    let many = format!("for i in 1 2 3 4; do {} 1000000 & all=\"$all $!\"; done", word(&busy));
    let script = format!("trap 'kill $all' TERM; {many}; wait");
    let session =
        Session::start(&folder, &["-e", "cpu-clock", "-F", "997", "--handler", "count", "--", "sh", "-c", &script]);
    session.grows("counted", 200);
    session.done(&["swap", "SESSION", "none"]);
    session.grows("chained", 200);
    session.done(&["swap", "SESSION", "count"]);
    session.grows("counted", 200);
    let (path, _) = session.end_with_command();
    let sum = tally(&path).total();
    println!("{}", sum.human());
    assert_eq!(sum.handled, Some(sum.chained + sum.counted));
    assert!(sum.chained >= 200 && sum.counted >= 400);
    // Four tasks, in both outputs.
    let mut tasks: BTreeMap<String, u64> = BTreeMap::new();
    for line in text(&["script", "-F", "tid,event", "-i", word(&path)]).lines() {
        if let Some(tid) = line.split_whitespace().next() {
            *tasks.entry(tid.to_owned()).or_default() += 1;
        }
    }
    println!("{tasks:?}");
    assert!(tasks.len() >= 4);
}
