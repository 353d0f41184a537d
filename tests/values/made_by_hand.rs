//! Recordings made by hand, so that what a view prints of them is known to the letter.

use std::path::Path;

use afterimage_perf_data::tally::Flow;
use afterimage_perf_data::{
    AiHdr, Attr, EventDesc, EventTally, HandlerDesc, HandlerTypes, LabelPayload, Private, RecordingTally, SampleType,
    Tally, ValuePayload, journal,
};

use crate::common::{file, folder, run, stderr, text, word};
use crate::made::{CODE, Made, event};
use crate::types::{Builder, CONST, SIGNED};

/// The event that takes what the handler writes.
fn output(id: u64) -> EventDesc {
    let clock = event("cpu-clock", id, false);
    let sample_type = clock.attr.sample_type.difference(SampleType::PERIOD).union(SampleType::RAW);
    let attr = Attr { config: 10, period_or_freq: 1, sample_type, ..clock.attr };
    EventDesc { attr, name: "cpu-clock/mine".into(), ..clock }
}

/// Types: `struct hit` and one of its values, then char[8], a short int, and an enum.
struct Handler {
    btf: Vec<u8>,
    hit: u32,
    value: Vec<u8>,
    text: u32,
    short: u32,
    tier: u32,
}

fn handler() -> Handler {
    let mut b = Builder::new(false);
    let (chr, int) = (b.int("char", 1, SIGNED), b.int("int", 4, SIGNED));
    let (text, short) = (b.array(chr, 8), b.int("short", 2, SIGNED));
    let tier = b.enumeration("tier", 4, false, &[("TIN", 1), ("GOLD", 2)]);
    let pointer = b.pointer(0);
    let constant = b.alias(CONST, "", int);
    let inner = b.structure("where", 16, &[("line", constant, 0, 0), ("file", pointer, 64, 0)]);
    let members =
        [("pid", int, 0, 0), ("tier", tier, 32, 0), ("path", text, 64, 0), ("at", inner, 128, 0), ("n", int, 256, 4)];
    let hit = b.structure("hit", 40, &members);
    let mut value = [12_i32.to_le_bytes(), 2_u32.to_le_bytes()].concat();
    value.extend(b"/x\x1b[2J\0\0");
    value.extend([7_i64.to_le_bytes(), 0xfff0_u64.to_le_bytes()].concat());
    value.extend([0xf9, 0, 0, 0, 0, 0, 0, 0]);
    Handler { btf: b.finish(), hit, value, text, short, tier }
}

struct Hits {
    made: Made,
    handler: Handler,
    seq: u64,
    tally: Tally,
}

impl Hits {
    fn at(path: &Path) -> Hits {
        let made = Made::at(path, vec![event("cpu-clock", 11, false), output(12)]);
        let mut hits = Hits { made, handler: handler(), seq: 0, tally: Tally::default() };
        hits.made.comm(42, b"worker");
        hits
    }

    /// A sample that reached the handler, chained or not, and the header of what is written of it.
    fn sample(&mut self, chained: bool) -> AiHdr {
        let ip = CODE + 8;
        match chained {
            true => self.made.sample(0, 42, 1000, &[ip]),
            false => self.made.pass(),
        }
        self.seq += 1;
        let t = &mut self.tally;
        t.handled = Some(t.handled.unwrap_or(0) + 1);
        t.chained += u64::from(chained);
        t.ring.delivered += u64::from(chained);
        AiHdr { version: 1, handler: 16, cpu: 1, time: self.made.now(), ip, seq: self.seq, ..AiHdr::default() }
    }

    fn write(&mut self, payload: &[u8]) {
        self.made.raw(1, 42, payload);
        self.tally.emitted += 1;
        self.tally.handler_ring.delivered += 1;
    }

    fn value(&mut self, hdr: AiHdr, type_id: u32, bytes: &[u8]) {
        let mut payload = Vec::new();
        ValuePayload { hdr: AiHdr { kind: AiHdr::VALUE, ..hdr }, type_id, bytes }.encode(&mut payload);
        self.write(&payload);
    }

    fn hit(&mut self, hdr: AiHdr) {
        let (hit, value) = (self.handler.hit, self.handler.value.clone());
        self.value(hdr, hit, &value);
    }

    fn label(&mut self, hdr: AiHdr, key: &str, type_id: u32, bytes: &[u8]) {
        let mut payload = Vec::new();
        LabelPayload { hdr: AiHdr { kind: AiHdr::LABEL, ..hdr }, type_id, key: key.as_bytes(), bytes }
            .encode(&mut payload);
        self.write(&payload);
    }

    fn private(&self) -> Private {
        let handled = self.tally.handled.unwrap_or(0);
        let tally = Tally { filtered: Some(0), dropped: Some(0), passed: Some(handled), ..self.tally.clone() };
        assert_eq!(tally.check(), Ok(()));
        let events = vec![EventTally::new("cpu-clock", vec![(1, tally)])];
        Private {
            tally: Some(RecordingTally { events, complete: true, off_cpu: None }),
            handlers: vec![HandlerDesc {
                name: "mine".into(),
                chain: true,
                output_event: Some(1),
                id: 16,
                program: Some("mine".into()),
                object: Some("mine.bpf.o".into()),
                ..HandlerDesc::default()
            }],
            handler_types: vec![HandlerTypes { handler: 16, btf: self.handler.btf.clone() }],
            ..Private::default()
        }
    }

    fn finish(self) {
        let private = self.private();
        self.made.finish(Some(&private));
    }
}

/// Four samples: labelled and chained, plain, dropped with a value, dropped with a label alone.
fn four(path: &Path) -> Hits {
    let mut hits = Hits::at(path);
    let (text, short, tier) = (hits.handler.text, hits.handler.short, hits.handler.tier);
    let one = hits.sample(true);
    hits.label(one, "tier", tier, &2_u32.to_le_bytes());
    hits.label(one, "who", text, b"a b\0\0\0\0\0");
    hits.sample(true);
    let three = hits.sample(false);
    hits.hit(three);
    hits.label(three, "tier", tier, &1_u32.to_le_bytes());
    let four = hits.sample(false);
    hits.label(four, "depth", short, &(-3_i16).to_le_bytes());
    hits
}

const HIT: &str = r#"{pid=12, tier=GOLD, path="/x\x1b[2J", at={line=7, file=0xfff0}, n=-7}"#;

#[test]
fn script_names_fields_and_puts_labels_beside_their_samples() {
    let folder = folder();
    let path = file(&folder, "data");
    four(&path).finish();
    let expected = format!(
        r#"          worker    42 [001]     1.002000:       1000      cpu-clock: tier=GOLD who="a b"            400008 [unknown] ([unknown])
          worker    42 [001]     1.003002:       1000      cpu-clock:            400008 [unknown] ([unknown])
          worker    42 [001]     1.004002:       1000 cpu-clock/mine: tier=TIN            400008 [unknown] ([unknown])
       BPF value: struct hit {HIT}
          worker    42 [001]     1.005004:       1000 cpu-clock/mine: depth=-3            400008 [unknown] ([unknown])
"#
    );
    assert_eq!(text(&["script", "-i", word(&path)]), expected);
    let fields = text(&["script", "-i", word(&path), "-F", "event,label"]);
    assert_eq!(
        fields,
        "     cpu-clock: tier=GOLD who=\"a b\" \n     cpu-clock: \ncpu-clock/mine: tier=TIN \ncpu-clock/mine: depth=-3 \n"
    );
    let values = text(&["script", "-i", word(&path), "-F", "event,value"]);
    assert!(values.contains(&format!("\n       BPF value: struct hit {HIT}\n")) && !values.contains("TIN"), "{values}");
}

#[test]
fn report_sorts_by_labels() {
    let folder = folder();
    let path = file(&folder, "data");
    four(&path).finish();
    let expected = "\
# Samples: 2  of event 'cpu-clock'
# Event count (approx.): 2000
# Tally: 4 samples: 4 passed
# Label: tier (enum tier): 1
# Label: who (char[8]): 1
#
# Overhead  label:tier  label:who  Command
# ........  ..........  .........  .......
#
    50.00%  (none)      (none)     worker
    50.00%  GOLD        a b        worker


# Samples: 2  of event 'cpu-clock/mine'
# Event count (approx.): 2000
# Values: struct hit: 1
# Label: depth (short): 1
# Label: tier (enum tier): 1
#
# Overhead  label:tier  label:who  Command
# ........  ..........  .........  .......
#
    50.00%  (none)      (none)     worker
    50.00%  TIN         (none)     worker

#
# Samples at addresses without a name:
#          4  nothing was mapped there
";
    assert_eq!(text(&["report", "-i", word(&path), "--sort", "label:tier,label:who,comm", "--stdio"]), expected);

    let json = text(&["report", "-i", word(&path), "--sort", "label:tier,label:depth", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let second = &json["events"][1];
    assert_eq!(second["name"], "cpu-clock/mine");
    assert_eq!(second["reason"], "part of the tally of cpu-clock");
    let values = serde_json::json!([{"type": "struct hit", "handler": "mine", "records": 1, "unreadable": 0}]);
    assert_eq!(second["values"], values);
    assert_eq!(second["labels"][0]["name"], "depth");
    let labels: Vec<_> = second["rows"].as_array().unwrap().iter().map(|row| row["labels"].clone()).collect();
    assert_eq!(
        labels,
        [serde_json::json!({"tier": null, "depth": -3}), serde_json::json!({"tier": "TIN", "depth": null})]
    );
    assert_eq!(second["rows"][0]["samples"], 1);

    let folded = text(&["export", "-i", word(&path), "--label", "tier", "--weight", "samples"]);
    assert_eq!(folded, "worker;tier=(none);[unknown] 1\nworker;tier=GOLD;[unknown] 1\n");

    let wrong = run(&["report", "-i", word(&path), "--sort", "label:"]);
    assert_eq!((wrong.status.code(), stderr(&wrong).contains("a label's name has 1 to 32 bytes")), (Some(2), true));
}

/// Labels before the share order the rows, numbers as numbers, in the table and out of it.
#[test]
fn labels_before_the_share_order_the_rows() {
    let folder = folder();
    let path = file(&folder, "data");
    let mut hits = Hits::at(&path);
    let short = hits.handler.short;
    for (depth, times) in [(Some(9_i16), 2), (Some(-3), 1), (None, 1), (Some(10), 3)] {
        for _ in 0..times {
            let hdr = hits.sample(true);
            if let Some(depth) = depth {
                hits.label(hdr, "depth", short, &depth.to_le_bytes());
            }
        }
    }
    hits.finish();
    let report = |options: &[&str]| text(&[&["report", "-q", "-i", word(&path), "--sort"], options].concat());
    let second = |line: &str| line.split_whitespace().nth(1).map(str::to_owned);
    let shown = |options: &[&str]| report(options).lines().filter_map(second).collect::<Vec<_>>();
    assert_eq!(shown(&["label:depth"]), ["10", "9", "(none)", "-3"]);
    assert_eq!(shown(&["label:depth,overhead"]), ["(none)", "-3", "9", "10"]);
    let json: serde_json::Value = serde_json::from_str(&report(&["label:depth,overhead", "--json"])).unwrap();
    let rows = json["events"][0]["rows"].as_array().unwrap();
    let listed: Vec<_> = rows.iter().map(|row| row["labels"]["depth"].as_i64()).collect();
    assert_eq!(listed, [None, Some(-3), Some(9), Some(10)]);
    let fields = ["-q", "-i", word(&path), "-F", "sample,label:depth"];
    let columns = text(&[&["report"], &fields[..]].concat());
    let columns: Vec<Vec<&str>> =
        columns.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).filter(|row| !row.is_empty()).collect();
    assert_eq!(columns, [["3", "10"], ["2", "9"], ["1", "(none)"], ["1", "-3"]]);
}

/// A handler that drops every sample and writes values: they are the event, one sample for all records of one.
#[test]
fn values_alone_are_the_event() {
    let folder = folder();
    let path = file(&folder, "data");
    let mut hits = Hits::at(&path);
    for nth in 0..3 {
        let hdr = hits.sample(false);
        (0..=nth).for_each(|_| hits.hit(hdr));
    }
    hits.finish();
    let report = text(&["report", "-i", word(&path), "--sort", "comm"]);
    assert!(
        report.starts_with(
            "\
# Samples: 3  of event 'cpu-clock'
# Event count (approx.): 3000
# Tally: 3 samples: 3 passed
# Values: struct hit: 6
#
# Overhead  Command
# ........  .......
#
   100.00%  worker
"
        ),
        "{report}"
    );
    assert!(!report.contains("cpu-clock/mine"));
    let script = text(&["script", "-i", word(&path), "-F", "event,value"]);
    let values = [1, 2, 3]
        .map(|times| format!("cpu-clock: {}\n", format!("\n       BPF value: struct hit {HIT}").repeat(times)));
    assert_eq!(script.replace("     cpu-clock", "cpu-clock"), values.concat());
}

/// What cannot be read stands as bytes, with the reason.
#[test]
fn what_has_no_type_is_shown_as_bytes() {
    let folder = folder();
    let path = file(&folder, "data");
    let mut hits = Hits::at(&path);
    let hdr = hits.sample(false);
    let (hit, short) = (hits.handler.hit, hits.handler.short);
    hits.value(hdr, hit, &[1, 2, 3]);
    hits.value(hdr, 9999, &[0xab]);
    hits.value(AiHdr { handler: 17, ..hdr }, hit, &[4]);
    hits.label(hdr, "depth", short, &[5]);
    // One that says that it is longer than it is.
    let mut payload = Vec::new();
    ValuePayload { hdr: AiHdr { kind: AiHdr::VALUE, ..hdr }, type_id: hit, bytes: &[6; 40] }.encode(&mut payload);
    hits.write(&payload[..52]);
    hits.finish();
    let script = text(&["script", "-i", word(&path), "-F", "event,label,value"]);
    let expected = "     cpu-clock: depth=0x05 (1 of the type's 2 bytes) 
       BPF value: struct hit 0x010203 (3 of the type's 40 bytes)
       BPF value: 0xab (the handler has no type 9999)
       BPF value: 0x04 (the recording has no types of the handler)
       BPF value: 0xSIZES06060606 (the record is damaged)
";
    let sizes = format!("{}{}", hex(hit), hex(40));
    assert_eq!(script, expected.replace("SIZES", &sizes));
    let json = text(&["report", "-i", word(&path), "--sort", "label:depth", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let event = &json["events"][0];
    let depth = serde_json::json!({"depth": {"bytes": "05", "reason": "1 of the type's 2 bytes"}});
    assert_eq!(event["rows"][0]["labels"], depth);
    assert!(event["values"].as_array().unwrap().iter().all(|values| values["unreadable"] == values["records"]));
}

fn hex(word: u32) -> String {
    word.to_le_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Two handlers one after the other: the same number of a type is another type, and values say whose they are.
#[test]
fn after_a_swap_each_value_is_read_by_its_own_types() {
    let folder = folder();
    let path = file(&folder, "data");
    let mut hits = Hits::at(&path);
    let mut b = Builder::new(false);
    let int = b.int("int", 4, SIGNED);
    b.structure("other", 4, &[("n", int, 0, 0)]);
    let first = hits.sample(false);
    hits.value(first, 2, &5_i32.to_le_bytes());
    let second = AiHdr { handler: 17, generation: 3, ..hits.sample(false) };
    hits.value(second, 2, &5_i32.to_le_bytes());
    hits.label(second, "depth", 1, &7_i32.to_le_bytes());
    let mut private = hits.private();
    private.handlers.push(HandlerDesc { name: "next".into(), id: 17, generation: 3, ..private.handlers[0].clone() });
    private.handler_types.push(HandlerTypes { handler: 17, btf: b.finish() });
    hits.made.finish(Some(&private));
    let script = text(&["script", "-i", word(&path), "-F", "event,label,value"]);
    let expected = "     cpu-clock: \n       BPF value: mine: int 5\n     cpu-clock: depth=7 \n       BPF value: next: struct other {n=5}\n";
    assert_eq!(script, expected);
    let json = text(&["report", "-i", word(&path), "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let values = serde_json::json!([
        {"type": "int", "handler": "mine", "records": 1, "unreadable": 0},
        {"type": "struct other", "handler": "next", "records": 1, "unreadable": 0}
    ]);
    assert_eq!(json["events"][0]["values"], values);
}

/// A recorder that was killed leaves types and tally in the journal.
#[test]
fn a_killed_recording_has_its_types_in_the_journal() {
    let folder = folder();
    let path = file(&folder, "data");
    let hits = four(&path);
    let mut writer = journal::Writer::create(std::fs::File::create(file(&folder, "data.journal")).unwrap()).unwrap();
    let private = hits.private();
    writer.handlers(&private.handlers).unwrap();
    private.handler_types.iter().for_each(|types| writer.handler_types(types).unwrap());
    writer.tally(private.tally.as_ref().unwrap()).unwrap();
    hits.made.killed();
    let script = text(&["script", "-i", word(&path)]);
    assert!(script.contains("tier=GOLD who=\"a b\"") && script.contains(HIT), "{script}");
    // Without the journal nobody knows what the records mean.
    std::fs::remove_file(file(&folder, "data.journal")).unwrap();
    let script = text(&["script", "-i", word(&path)]);
    assert!(!script.contains("GOLD") && script.matches("bpf-output:").count() == 5, "{script}");
}

/// The tally is one of the event alone, whatever the handler wrote.
#[test]
fn the_tally_says_what_was_lost() {
    let folder = folder();
    let path = file(&folder, "data");
    let mut hits = Hits::at(&path);
    let hdr = hits.sample(false);
    hits.hit(hdr);
    hits.hit(hdr);
    hits.tally.emitted += 3;
    hits.tally.handler_ring = Flow::new(2, 3);
    hits.finish();
    let report = text(&["report", "-i", word(&path), "--sort", "comm"]);
    let tally = "# Tally: 1 sample: 1 passed, 3 of 5 handler records lost (handler ring full)\n";
    assert!(report.contains("# Samples: 1  of event 'cpu-clock'\n") && report.contains(tally), "{report}");
}
