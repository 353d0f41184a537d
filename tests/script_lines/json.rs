//! `script --json`: a line a sample, with what the text says and what it has no room for.

use std::path::Path;

use afterimage_perf_data::attr::{BRANCH_COUNTERS, BRANCH_HW_INDEX};
use afterimage_perf_data::record::{BranchStack, ReadValues, Regs};
use afterimage_perf_data::{Attr, Callchain, Endian, ReadFormat, Sample, SampleType, Words, context};
use afterimage_testkit::{Need, corpus, has, workload};
use serde_json::{Value, json};

use crate::common::{file, folder, perf_record, text, word};
use crate::hand::{bytes, full, raw_event, write_with_ids};

fn objects(path: &Path, more: &[&str]) -> Vec<Value> {
    let text = text(&[&["script", "--json", "-i", word(path)], more].concat());
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

/// What the text says of a sample, from its object.
fn as_text(object: &Value) -> String {
    let time = object["time_ns"].as_u64().unwrap();
    let (comm, event) = (object["comm"].as_str().unwrap(), object["event"].as_str().unwrap());
    let ip = object["ip"].as_str().unwrap().trim_start_matches("0x");
    format!("{comm} {} {}.{:09}: {event}: {ip}", object["tid"], time / 1_000_000_000, time % 1_000_000_000)
}

/// Every line has its object, in the same order.
fn same_as_text(path: &Path) -> Vec<Value> {
    let objects = objects(path, &[]);
    let lines = text(&["script", "-G", "--ns", "-i", word(path), "-F", "comm,tid,time,event,ip"]);
    let lines: Vec<String> = lines.lines().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let ours: Vec<String> = objects.iter().map(as_text).collect();
    assert!(ours == lines, "{}: {:?}", path.display(), ours.iter().zip(&lines).find(|(a, b)| a != b));
    objects
}

#[test]
fn every_sample_is_an_object() {
    if !has("every_sample_is_an_object", &[Need::Root, Need::Perf, Need::Cc, Need::Tracefs]) {
        return;
    }
    let folder = folder();
    let path = file(&folder, "chains");
    perf_record(&path, &["-e", "cpu-clock:u", "-g"], &[word(&workload::build().busy), "150", "12"]);
    let objects = same_as_text(&path);
    assert!(objects.len() > 20);
    let in_leaf: Vec<&Value> = objects.iter().filter(|object| object["symbol"] == "busy_leaf").collect();
    assert!(2 * in_leaf.len() > objects.len(), "{} of {}", in_leaf.len(), objects.len());
    for object in in_leaf {
        let chain = object["callchain"].as_array().unwrap();
        let of = |name: &str| chain.iter().filter(|frame| frame["symbol"] == name).count();
        assert_eq!((of("busy_leaf"), of("busy_level"), of("main")), (1, 13, 1), "{object}");
        assert_eq!((object["mode"].as_str(), object["ip"] == chain[0]["ip"]), (Some("user"), true));
        assert!(object["dso"].as_str().unwrap().ends_with("/busy"));
    }
    let short = self::objects(&path, &["--max-stack", "3"]);
    assert!(short.iter().all(|object| object["callchain"].as_array().unwrap().len() <= 3));
    assert!(self::objects(&path, &["-G"]).iter().all(|object| object.get("callchain").is_none()));

    let path = file(&folder, "points");
    perf_record(&path, &["-a", "-e", "sched:sched_switch"], &["sh", "-c", "true; sleep 0.05; true"]);
    let said = text(&["script", "-i", word(&path), "-F", "trace"]);
    let objects = self::objects(&path, &[]);
    assert!(!objects.is_empty());
    for (object, line) in objects.iter().zip(said.lines()) {
        assert_eq!(object["trace"].as_str(), Some(line));
        let fields = &object["fields"];
        let next = format!("next_comm={} next_pid={}", fields["next_comm"].as_str().unwrap(), fields["next_pid"]);
        assert!(line.contains(&next), "{line}: {fields}");
        // A thread on its way out has no number of its own any more.
        let tid = object["tid"].as_i64().filter(|tid| *tid != -1);
        assert!(tid.is_none() || fields["prev_pid"].as_i64() == tid, "{object}");
    }
}

#[test]
fn foreign_recordings_are_objects() {
    if !has("foreign_recordings_are_objects", &[Need::Corpus]) {
        return;
    }
    let named = |name: &str| corpus().unwrap().join("perf_data_converter").join(name);
    let objects = same_as_text(&named("perf.data.weight_struct"));
    let first = &objects[0];
    assert_eq!((first["weight"].as_u64(), first["ins_lat"].as_u64()), (Some(225), Some(0)));
    assert_eq!(first["data_src"]["level"], "LFB/MAB or LFB/MAB hit");
    let objects = same_as_text(&named("perf.data.branch-4.14"));
    assert!(objects.iter().all(|object| object["branches"].as_array().is_some_and(|list| list.len() == 32)));
    same_as_text(&named("perf.data.callgraph_and_branch-3.4"));
    same_as_text(&named("perf.data.piped.hw_and_sw-3.4"));
}

#[test]
fn an_object_has_all_that_a_sample_has() {
    use SampleType as S;
    let folder = folder();
    let path = file(&folder, "made");
    let branches = bytes(&[0x40_1000, 0x40_2000, 2 | 7 << 4 | 4 << 20]);
    let (counters, registers, values) = (bytes(&[0x11]), bytes(&[u64::MAX, 12]), bytes(&[1, 70, 5, 1]));
    let chain = bytes(&[context::USER, 0x40_1000, 0x40_2000]);
    let regs = Regs { abi: 2, values: Words::new(&registers, Endian::Little) };
    let read_format = ReadFormat::GROUP | ReadFormat::ID | ReadFormat::TOTAL_TIME_ENABLED;
    // Everything that there is but for the last 39 bits.
    let all = SampleType::from_bits_retain((1 << 25) - 1).difference(S::WEIGHT);
    let attr = Attr {
        read_format,
        branch_sample_type: 8 | BRANCH_HW_INDEX | BRANCH_COUNTERS,
        sample_regs_user: 3,
        sample_regs_intr: 3,
        sample_stack_user: 64,
        ..raw_event(all)
    };
    let made = Sample {
        identifier: Some(1),
        id: Some(1),
        stream_id: Some(12),
        read: Some(ReadValues::new(read_format, Words::new(&values, Endian::Little)).unwrap()),
        callchain: Some(Callchain::new(&chain, Endian::Little)),
        branch_stack: Some(BranchStack {
            hw_index: Some(31),
            entries: Words::new(&branches, Endian::Little),
            counters: Some(Words::new(&counters, Endian::Little)),
        }),
        aux: Some(b"auxiliar"),
        ..full(0, regs)
    };
    write_with_ids(&path, "x86_64", attr, &[1], [made]);
    let objects = objects(&path, &[]);
    let place = |ip: &str| json!({"ip": ip, "symbol": null, "reason": "no-mapping", "dso": "[unknown]"});
    let (from, to) = (place("0x401000"), place("0x402000"));
    let registers = json!({"abi": 2, "AX": "0xffffffffffffffff", "BX": "0xc"});
    let mut expected = json!({
        "comm": ":8", "pid": 7, "tid": 8, "cpu": 3, "time_ns": 1_000_000_000, "event": "made", "period": 5, "count": 1,
        "mode": "user", "ip": "0x401000", "symbol": null, "reason": "no-mapping", "dso": "[unknown]",
        "callchain": [from, to]
    });
    let more = json!({
        "stack_end": "no-registers",
        "addr": "0xbeef", "id": 1, "stream_id": 12, "weight": 3, "ins_lat": 2, "retire_lat": 1,
        "data_src": {"value": "0x10268100142", "operation": "LOAD", "level": "L1 or L1 hit", "snoop": "None",
            "translation": "L1 or L2 hit", "locked": "No", "blocked": "N/A"},
        "transaction": "0x9", "phys_addr": "0xfeed", "cgroup": 4, "data_page_size": 4096, "code_page_size": 2_097_152,
        "read": {"values": [{"value": 5, "id": 1}], "enabled_ns": 70},
        "iregs": registers, "uregs": registers, "ustack_bytes": 40, "aux_bytes": 8, "branch_hw_index": 31,
        "branches": [{"from": from, "to": to, "predicted": true, "mispredicted": false, "in_transaction": false,
            "abort": false, "cycles": 7, "kind": "CALL", "counters": "0x11"}],
        "raw": "666f7572"
    });
    let Value::Object(more) = more else { unreachable!() };
    expected.as_object_mut().unwrap().extend(more);
    assert_eq!(objects, [expected]);
}
