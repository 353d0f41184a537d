//! What our recordings hold beyond perf's: tally, private section, journal, payloads of handlers.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::collections::BTreeMap;
use std::io::Cursor;

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;

use afterimage_perf_data::private::RawEntry;
use afterimage_perf_data::record::Callchain;
use afterimage_perf_data::tally::{Audit, Flow, MapFlow, MapLost, ThrottleTally};
use afterimage_perf_data::{
    AiHdr, EmitPayload, Endian, ErrorKind, EventTally, HandlerDesc, HandlerTypes, LabelPayload, Private,
    RecordingTally, Tally, TrueCounts, ValuePayload, WayDesc, context, journal,
};

/// A tally in which everything adds up, from its parts.
fn consistent(n: [u32; 14], known: bool) -> Tally {
    let n = n.map(u64::from);
    let [filtered, dropped, passed, busy, ..] = n;
    let handled = filtered + dropped + passed;
    Tally {
        overflows: known.then_some(handled + busy),
        busy: known.then_some(busy),
        handled: Some(handled),
        filtered: Some(filtered),
        dropped: Some(dropped),
        passed: Some(passed),
        chained: n[4] + n[5],
        emitted: n[6] + n[7],
        counted: n[8] + n[9] + n[10] + n[11],
        ring: Flow::new(n[4], n[5]),
        handler_ring: Flow::new(n[6], n[7]),
        map: MapFlow {
            stored: n[8],
            lost: MapLost { full: n[9], collision: n[10], other: BTreeMap::from([("later".to_owned(), n[11])]) },
        },
        stack_failed: n[12],
        nonsample_lost: n[13],
        throttle: ThrottleTally { episodes: n[12], ns: n[13] },
    }
}

fn tallies() -> impl Strategy<Value = Tally> {
    (any::<[u32; 14]>(), any::<bool>()).prop_map(|(n, known)| consistent(n, known))
}

fn recording_tallies() -> impl Strategy<Value = RecordingTally> {
    let audit = option::of(any::<[u64; 3]>().prop_map(|[ns, control, handled]| Audit { ns, control, handled }));
    let event = (".*", vec((any::<u32>(), tallies()), 0..4), audit)
        .prop_map(|(name, per_cpu, audit)| EventTally { audit, ..EventTally::new(name, per_cpu) });
    (vec(event, 0..3), any::<bool>()).prop_map(|(events, complete)| RecordingTally { events, complete, off_cpu: None })
}

fn handlers() -> impl Strategy<Value = Vec<HandlerDesc>> {
    let object = (option::of(".*"), option::of(".*"), option::of("[0-9a-f]{16}"), btree_map(".*", ".*", 0..3));
    let number = (any::<u32>(), option::of(any::<u64>()));
    let one = (any::<u32>(), ".*", any::<bool>(), option::of(any::<u32>()), ".*", any::<u16>(), object, number)
        .prop_map(
            |(event, name, chain, output, mechanism, id, (program, object, tag, set), (generation, entries_id))| {
                HandlerDesc {
                    event: event as usize,
                    name,
                    chain,
                    output_event: output.map(|o| o as usize),
                    mechanism,
                    id,
                    gate: program.clone(),
                    program,
                    object,
                    tag,
                    set,
                    generation,
                    entries_id,
                }
            },
        );
    vec(one, 0..4)
}

fn privates() -> impl Strategy<Value = Private> {
    let counts = btree_map(0..1000_usize, vec(any::<u64>(), 0..50), 0..4);
    let other = vec((100_u32.., vec(any::<u8>(), 0..50)), 0..3);
    let types = btree_map(any::<u32>(), vec(any::<u8>(), 0..50), 0..4);
    let way = (".*", option::of(".*"), option::of(".*"));
    let ways = vec(way.prop_map(|(way, part, missing)| WayDesc { way, part, missing }), 0..3);
    let inputs = (option::of(recording_tallies()), handlers(), counts, vec(any::<u8>(), 0..50), types, ways, other);
    inputs.prop_map(|(tally, handlers, counts, kernel_symbols, types, ways, other)| Private {
        tally,
        kernel_symbols,
        handlers,
        true_counts: counts.into_iter().map(|(event, counts)| TrueCounts { event, counts }).collect(),
        handler_types: types.into_iter().map(|(handler, btf)| HandlerTypes { handler, btf }).collect(),
        ways,
        other: other.into_iter().map(|(kind, data)| RawEntry { kind, data }).collect(),
        ..Private::default()
    })
}

/// Writes a section's contents as a recorder does: counts in pieces, the tally several times.
fn write_journal(p: &Private) -> Vec<u8> {
    let mut w = journal::Writer::create(Cursor::new(Vec::new())).unwrap();
    w.handlers(&p.handlers).unwrap();
    for t in &p.true_counts {
        let (a, b) = t.counts.split_at(t.counts.len() / 2);
        w.true_counts(t.event, a).unwrap();
        w.tally(&RecordingTally::default()).unwrap();
        w.true_counts(t.event, b).unwrap();
    }
    // A handler that is loaded again has the last word.
    for types in p.handler_types.iter().rev() {
        w.handler_types(&HandlerTypes { btf: vec![1], ..types.clone() }).unwrap();
        w.handler_types(types).unwrap();
    }
    if !p.ways.is_empty() {
        w.ways(&[WayDesc::default()]).unwrap();
        w.ways(&p.ways).unwrap();
    }
    w.tally(p.tally.as_ref().unwrap()).unwrap();
    if !p.kernel_symbols.is_empty() {
        w.append(afterimage_perf_data::private::entry::KERNEL_SYMBOLS, p.kernel_symbols.clone()).unwrap();
    }
    p.other.iter().for_each(|e| w.append(e.kind, e.data.clone()).unwrap());
    let bytes = w.bytes_written();
    let out = w.into_inner().into_inner();
    assert_eq!(out.len() as u64, bytes);
    out
}

proptest! {
    #[test]
    fn private_sections(p in privates()) {
        let bytes = p.encode().unwrap();
        prop_assert_eq!(bytes.len() % 8, 0);
        prop_assert_eq!(Private::decode(&bytes, 0).unwrap(), p);
        for end in (0..bytes.len()).step_by(11) {
            let _ = Private::decode(&bytes[..end], 0);
        }
    }

    #[test]
    fn journals(mut p in privates(), cut in any::<prop::sample::Index>()) {
        p.tally = Some(p.tally.unwrap_or_default());
        let bytes = write_journal(&p);
        let read = journal::read(&bytes).unwrap();
        prop_assert!(read.damage.is_none());
        prop_assert_eq!(&read.private, &p);
        // Cut anywhere: the entries before the cut are all there, in order.
        let end = 16 + cut.index(bytes.len() - 16);
        let short = journal::read(&bytes[..end]).unwrap();
        prop_assert!(short.entries < read.entries);
        for counts in &short.private.true_counts {
            let whole = p.true_counts(counts.event).unwrap();
            prop_assert!(whole.starts_with(&counts.counts));
        }
    }

    /// One flipped bit anywhere behind the header ends the reading there and nowhere before.
    #[test]
    fn damaged_journals(p in privates(), at in any::<prop::sample::Index>(), flip in 0..8_u32) {
        let p = Private { tally: Some(RecordingTally::default()), ..p };
        let mut bytes = write_journal(&p);
        let whole = journal::read(&bytes).unwrap().entries;
        let at = 16 + at.index(bytes.len() - 16);
        bytes[at] ^= 1 << flip;
        let read = journal::read(&bytes).unwrap();
        // Padding carries nothing and has no checksum.
        prop_assert_eq!(read.damage.is_none(), read.entries == whole);
    }

    #[test]
    fn tally_json(t in recording_tallies()) {
        let text = serde_json::to_string(&t).unwrap();
        prop_assert_eq!(serde_json::from_str::<RecordingTally>(&text).unwrap(), t);
    }

    #[test]
    fn tallies_add_up(all in vec(tallies(), 1..5), i in 0..14_usize) {
        let sum = Tally::sum(&all);
        prop_assert_eq!(sum.check(), Ok(()));
        prop_assert_eq!(sum.overflows.is_some(), all.iter().all(|t| t.overflows.is_some()));
        prop_assert_eq!(sum.map.stored, all.iter().map(|t| t.map.stored).sum::<u64>());
        let event = EventTally::new("event", all.iter().cloned().map(|t| (0, t)).collect());
        prop_assert_eq!(event.check(), Ok(()));
        // One more in one place, and an equation fails: that of the place.
        let mut wrong = sum;
        let equation = match i {
            0 => { wrong.filtered = wrong.filtered.map(|n| n + 1); "handled =" }
            1 => { wrong.dropped = wrong.dropped.map(|n| n + 1); "handled =" }
            2 => { wrong.passed = wrong.passed.map(|n| n + 1); "handled =" }
            3 => { wrong.chained += 1; "chained =" }
            4 => { wrong.ring.lost += 1; "chained =" }
            5 => { wrong.ring.delivered += 1; "chained =" }
            6 => { wrong.emitted += 1; "emitted =" }
            7 => { wrong.handler_ring.lost += 1; "emitted =" }
            8 => { wrong.counted += 1; "counted =" }
            9 => { wrong.map.stored += 1; "counted =" }
            10 => { wrong.map.lost.full += 1; "counted =" }
            11 => { wrong.map.lost.collision += 1; "counted =" }
            12 => { *wrong.map.lost.other.entry("new".into()).or_default() += 1; "counted =" }
            _ => {
                wrong.overflows = Some(wrong.handled.unwrap());
                wrong.busy = Some(1);
                "overflows ="
            }
        };
        let told = wrong.check().unwrap_err();
        prop_assert!(told.starts_with(equation), "{told}");
        let _ = wrong.human();
    }

    #[test]
    fn emit_payloads(n in any::<[u64; 6]>(), words in vec(any::<u64>(), 0..200), junk in vec(any::<u8>(), 0..8)) {
        let chain: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let hdr = AiHdr {
            version: 1,
            size: (64 + chain.len()) as u16,
            kind: AiHdr::EMIT,
            handler: n[0] as u16,
            generation: n[1] as u32,
            cpu: n[2] as u32,
            time: n[3],
            ip: n[4],
            seq: n[5],
        };
        let callchain = Callchain::new(&chain, Endian::Little);
        let emit = EmitPayload { hdr, pid: n[1] as u32, tid: n[2] as u32, period: n[3], callchain };
        let mut bytes = Vec::new();
        emit.encode(&mut bytes);
        prop_assert_eq!(bytes.len(), hdr.size as usize);
        bytes.extend_from_slice(&junk);
        prop_assert_eq!(EmitPayload::decode(&bytes).unwrap(), emit);
        prop_assert_eq!(AiHdr::decode(&bytes).unwrap(), hdr);
        for end in 0..bytes.len() - junk.len() {
            prop_assert!(EmitPayload::decode(&bytes[..end]).is_err());
        }
    }

    #[test]
    fn values_and_labels(
        n in any::<[u64; 3]>(), type_id: u32, key in "[^\\x00]{0,8}", value in vec(any::<u8>(), 0..200),
        junk in vec(any::<u8>(), 0..8),
    ) {
        let hdr = |kind, fixed: usize| AiHdr {
            version: 1,
            size: (fixed + value.len()) as u16,
            kind,
            handler: n[0] as u16,
            generation: n[0] as u32,
            cpu: n[1] as u32,
            time: n[1],
            ip: n[2],
            seq: n[0],
        };
        let one = ValuePayload { hdr: hdr(AiHdr::VALUE, ValuePayload::FIXED), type_id, bytes: &value };
        let key = key.as_bytes();
        let label = LabelPayload { hdr: hdr(AiHdr::LABEL, LabelPayload::FIXED), type_id, key, bytes: &value };
        let (mut of_value, mut of_label) = (Vec::new(), Vec::new());
        one.encode(&mut of_value);
        label.encode(&mut of_label);
        prop_assert_eq!(of_value.len(), usize::from(one.hdr.size));
        prop_assert_eq!(of_label.len(), usize::from(label.hdr.size));
        of_value.extend_from_slice(&junk);
        of_label.extend_from_slice(&junk);
        prop_assert_eq!(ValuePayload::decode(&of_value).unwrap(), one);
        prop_assert_eq!(LabelPayload::decode(&of_label).unwrap(), label);
        prop_assert!(ValuePayload::decode(&of_label).is_err() && LabelPayload::decode(&of_value).is_err());
        for end in 0..usize::from(one.hdr.size) {
            prop_assert!(ValuePayload::decode(&of_value[..end]).is_err());
        }
        for end in 0..usize::from(label.hdr.size) {
            prop_assert!(LabelPayload::decode(&of_label[..end]).is_err());
        }
        // A value that reaches beyond its payload would take in the ring's padding.
        of_value[44..48].copy_from_slice(&(value.len() as u32 + 1).to_le_bytes());
        prop_assert_eq!(ValuePayload::decode(&of_value).unwrap_err().kind(), ErrorKind::BadSize);
    }
}

/// The keys are a contract with everyone who reads our JSON.
#[test]
fn json_keys() {
    let t = Tally {
        overflows: None,
        busy: None,
        handled: Some(12),
        filtered: Some(2),
        dropped: Some(1),
        passed: Some(9),
        chained: 9,
        ring: Flow::new(8, 1),
        ..Tally::default()
    };
    assert_eq!(
        serde_json::to_string(&t).unwrap(),
        concat!(
            r#"{"overflows":null,"busy":null,"handled":12,"filtered":2,"dropped":1,"passed":9,"chained":9,"emitted":0,"#,
            r#""counted":0,"ring":{"delivered":8,"lost":1},"handler_ring":{"delivered":0,"lost":0},"#,
            r#""map":{"stored":0,"lost":{"full":0,"collision":0}},"stack_failed":0,"nonsample_lost":0,"#,
            r#""throttle":{"episodes":0,"ns":0}}"#
        )
    );
}

/// As is what a handler is described by; recordings from before have the first five keys only.
#[test]
fn handler_keys() {
    let old = r#"{"event":1,"name":"emit","chain":true,"output_event":3,"mechanism":"plain""#;
    let read: HandlerDesc = serde_json::from_str(&format!("{old}}}")).unwrap();
    let expected = HandlerDesc {
        event: 1,
        name: "emit".into(),
        chain: true,
        output_event: Some(3),
        mechanism: "plain".into(),
        ..HandlerDesc::default()
    };
    assert_eq!(read, expected);
    let whole = HandlerDesc {
        id: 16,
        program: Some("p".into()),
        object: Some("/o".into()),
        tag: Some("00".into()),
        set: [("n".to_owned(), "0x10".to_owned())].into(),
        generation: 3,
        entries_id: Some(7),
        ..expected
    };
    let more = r#","id":16,"program":"p","object":"/o","tag":"00","set":{"n":"0x10"},"generation":3,"entries_id":7}"#;
    assert_eq!(serde_json::to_string(&whole).unwrap(), format!("{old}{more}"));
}

#[test]
fn a_label_has_a_name_of_32_bytes_at_most() {
    let label = |key: &[u8]| {
        let mut bytes = Vec::new();
        let hdr = AiHdr { version: 1, kind: AiHdr::LABEL, ..AiHdr::default() };
        LabelPayload { hdr, type_id: 1, key, bytes: b"v" }.encode(&mut bytes);
        let label = LabelPayload::decode(&bytes).unwrap();
        assert_eq!(label.bytes, b"v");
        label.name().into_owned()
    };
    assert_eq!(label(&[b'k'; 32]), "k".repeat(32));
    assert_eq!(label(&[b'k'; 40]), "k".repeat(32));
    assert_eq!(label(b"a\0b"), "a");
    assert_eq!(label(b"\xff"), "\u{fffd}");
}

#[test]
fn for_people() {
    let mut t = Tally {
        handled: Some(12_034),
        filtered: Some(40),
        dropped: Some(0),
        passed: Some(11_994),
        chained: 11_994,
        ring: Flow::new(11_980, 14),
        ..Tally::default()
    };
    assert_eq!(t.check(), Ok(()));
    assert_eq!(t.human(), "12,034 samples: 11,980 kept, 40 filtered, 14 lost (ring full)");

    // With a second output it is not known which samples were in both.
    t.emitted = 11_994;
    t.handler_ring = Flow::new(11_990, 4);
    assert_eq!(
        t.human(),
        "12,034 samples: 11,994 passed, 40 filtered, 14 of 11,994 chained samples lost (ring full), \
         4 of 11,994 handler records lost (handler ring full)"
    );

    let counted = Tally {
        handled: Some(1_000_001),
        filtered: Some(0),
        dropped: Some(1),
        passed: Some(1_000_000),
        counted: 1_000_000,
        map: MapFlow { stored: 999_000, lost: MapLost { full: 900, collision: 100, other: BTreeMap::new() } },
        stack_failed: 7,
        ..Tally::default()
    };
    assert_eq!(
        counted.human(),
        "1,000,001 samples: 999,000 kept, 1 dropped by the handler, 900 lost (table full), 100 lost (table collision), \
         7 without a stack"
    );

    let plain = Tally {
        chained: 1,
        ring: Flow::new(1, 0),
        throttle: ThrottleTally { episodes: 2, ns: 3_000_000 },
        ..Tally::default()
    };
    assert_eq!(plain.human(), "1 sample: 1 kept; throttled 2 times (3 ms)");
    assert_eq!(Tally::default().human(), "0 samples: 0 kept");
}

#[test]
fn unknown_lines_are_not_checked() {
    let mut t = Tally { handled: Some(5), ..Tally::default() };
    assert_eq!(t.check(), Ok(()));
    t.filtered = Some(1);
    t.dropped = Some(1);
    t.passed = Some(1);
    assert_eq!(t.check(), Err("handled = filtered + dropped + passed: 5 is not 3".into()));
}

#[test]
fn long_entries_are_packed() {
    let counts = TrueCounts { event: 3, counts: (0..100_000).map(|i| 1 + i % 3).collect() };
    let p = Private { true_counts: vec![counts], ..Private::default() };
    let bytes = p.encode().unwrap();
    assert!(bytes.len() < 20_000, "{}", bytes.len());
    assert_eq!(Private::decode(&bytes, 0).unwrap(), p);
    let mut damaged = bytes.clone();
    damaged[bytes.len() / 2] ^= 0xff;
    assert!(Private::decode(&damaged, 0).is_err() || Private::decode(&damaged, 0).unwrap() != p);
}

#[test]
fn other_versions_and_other_bytes() {
    let good = Private::default().encode().unwrap();
    let mut later = good.clone();
    later[8] = 2;
    assert_eq!(
        Private::decode(&later, 7).unwrap_err().to_string(),
        "private section of version 2 at byte 7: not supported yet"
    );
    assert_eq!(Private::decode(b"something", 0).unwrap_err().kind(), ErrorKind::BadValue);
    assert_eq!(Private::decode(b"some", 0).unwrap_err().kind(), ErrorKind::Truncated);
    assert_eq!(journal::read(b"something else").unwrap_err().kind(), ErrorKind::BadValue);
    let mut hdr = Vec::new();
    AiHdr { version: 2, ..AiHdr::default() }.encode(&mut hdr);
    assert_eq!(AiHdr::decode(&hdr).unwrap_err().kind(), ErrorKind::Unsupported);
    AiHdr { version: 1, kind: AiHdr::LABEL, ..AiHdr::default() }.encode(&mut hdr);
    assert_eq!(EmitPayload::decode(&hdr[40..]).unwrap_err().kind(), ErrorKind::BadValue);
}

#[test]
fn markers() {
    for marker in [context::HV, context::KERNEL, context::USER, context::GUEST, context::GUEST_KERNEL, context::MAX] {
        assert!(context::is_marker(marker));
    }
    assert!(!context::is_marker(0xffff_ffff_8100_0000) && !context::is_marker(0));
}
