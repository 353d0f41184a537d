//! Replays the corpora of the fuzz targets, and keeps the seeds in them: with `AFTERIMAGE_BLESS` set, the seeds are
//! written anew.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};

use zstd::stream::raw::{InBuffer, Operation, OutBuffer};

use afterimage_perf_data::record::{
    Aux, BranchStack, Cgroup, Lost, Namespaces, Read, ReadValues, Record, Regs, Sample, StackUser, SwitchCpuWide,
    TextPoke, Throttle, UserRecord, kind,
};
use afterimage_perf_data::{
    AiHdr, EmitPayload, Endian, EventTally, Features, FileWriter, LabelPayload, Layout, PipeWriter, Private,
    RecordingTally, SampleType, Tally, ValuePayload, Words, fuzzing, journal, private,
};

type Target = fn(&[u8]);

const TARGETS: [(&str, Target); 6] = [
    ("record_decode", fuzzing::record_decode),
    ("container", fuzzing::container),
    ("features", fuzzing::features),
    ("private", fuzzing::private),
    ("journal", fuzzing::journal),
    ("values", fuzzing::values),
];

fn folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target)
}

#[test]
fn replay() {
    let mut bytes = 0;
    for (target, run) in TARGETS {
        let mut inputs = 0;
        for entry in fs::read_dir(folder(target)).unwrap() {
            let input = fs::read(entry.unwrap().path()).unwrap();
            bytes += input.len();
            inputs += 1;
            run(&input);
        }
        assert!(inputs >= 3, "{target} has {inputs} inputs");
    }
    assert!(bytes < 5 << 20, "the corpora have {bytes} bytes");
}

/// The seeds are what the encoders of today write.
#[test]
fn seeds() {
    for (target, seeds) in all_seeds() {
        for (name, bytes) in seeds {
            let path = folder(target).join(format!("seed-{name}"));
            if std::env::var_os("AFTERIMAGE_BLESS").is_some() {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(&path, &bytes).unwrap();
            }
            assert!(
                fs::read(&path).is_ok_and(|b| b == bytes),
                "{} is old: run with AFTERIMAGE_BLESS=1",
                path.display()
            );
        }
    }
}

fn all_seeds() -> BTreeMap<&'static str, Vec<(String, Vec<u8>)>> {
    BTreeMap::from([
        ("record_decode", record_seeds()),
        ("container", container_seeds()),
        ("features", feature_seeds()),
        ("private", entry_seeds(0)),
        ("journal", entry_seeds(3)),
        ("values", value_seeds()),
    ])
}

/// Records of three layouts: with few fields, with all, and with all in the other byte order.
fn record_seeds() -> Vec<(String, Vec<u8>)> {
    let own = SampleType::IDENTIFIER | SampleType::IP | SampleType::TID | SampleType::TIME | SampleType::CALLCHAIN;
    let most = SampleType::from_bits_retain(0x0fff_ffff & !(1 << 14) & 0x1ff_ffff);
    let seed = |fields: SampleType, flags: u8| {
        let mut seed = [0; fuzzing::LAYOUT_BYTES];
        seed[..4].copy_from_slice(&(fields.bits() as u32).to_le_bytes());
        seed[4] = 0x1f;
        seed[5] = flags;
        seed[6] = 0xff;
        seed[8] = 0x0f;
        seed
    };
    let layouts = [("own", seed(own, 1)), ("all", seed(most, 1)), ("big", seed(most, 3)), ("no-ids", seed(own, 0))];
    layouts.into_iter().map(|(name, seed)| (name.to_owned(), records(&seed))).collect()
}

fn records(seed: &[u8; fuzzing::LAYOUT_BYTES]) -> Vec<u8> {
    let layout = fuzzing::layout_of(seed);
    let mut out = seed.to_vec();
    for record in common::sideband() {
        record.encode(&layout, &mut out).unwrap();
    }
    let words: Vec<u8> = (0..12_u64).flat_map(|w| layout.endian.put_u64(w)).collect();
    let words = Words::new(&words, layout.endian);
    let few = Words::new(&words.bytes()[..32], layout.endian);
    let reads: Vec<u8> = [2_u64, 10, 9, 1, 2, 3, 4, 5, 6].iter().flat_map(|w| layout.endian.put_u64(*w)).collect();
    let values = ReadValues::new(layout.read_format, Words::new(&reads, layout.endian)).unwrap();
    let mut payload = Vec::new();
    EmitPayload { hdr: emit_header(), pid: 1, tid: 2, period: 3, callchain: few.into() }.encode(&mut payload);
    let (mut value, mut label) = (Vec::new(), Vec::new());
    ValuePayload { hdr: AiHdr { kind: 2, ..emit_header() }, type_id: 1, bytes: b"abcd" }.encode(&mut value);
    LabelPayload { hdr: AiHdr { kind: 3, ..emit_header() }, type_id: 2, key: b"key", bytes: b"abcd" }
        .encode(&mut label);
    let id = common::id(9);
    let sample = Sample {
        read: Some(values),
        callchain: Some(words.into()),
        raw: Some(&payload),
        branch_stack: Some(BranchStack { hw_index: Some(1), entries: words, counters: Some(few) }),
        regs_user: Some(Regs { abi: 2, values: few }),
        regs_intr: Some(Regs { abi: 2, values: few }),
        stack_user: Some(StackUser { bytes: words.bytes(), dyn_size: 40 }),
        aux: Some(words.bytes()),
        ..common::sample(1, &[])
    };
    let rest = [
        Record::Sample(sample),
        Record::Sample(Sample { raw: Some(&value), ..sample }),
        Record::Sample(Sample { raw: Some(&label), ..sample }),
        Record::Lost(Lost { event_id: 1, lost: 2, misc: 0, id }),
        Record::Throttle(Throttle { time: 1, event_id: 2, stream_id: 3, misc: 0, id }),
        Record::Read(Read { pid: 1, tid: 2, values, misc: 0, id }),
        Record::Aux(Aux { offset: 1, size: 2, flags: 4, misc: 0, id }),
        Record::SwitchCpuWide(SwitchCpuWide { other_pid: 1, other_tid: 2, misc: 1 << 13, id }),
        Record::Namespaces(Namespaces { pid: 1, tid: 2, links: few, misc: 0, id }),
        Record::Cgroup(Cgroup { cgroup: 7, path: b"/system.slice", misc: 0, id }),
        Record::TextPoke(TextPoke { addr: 1, old: b"\x0f\x1f\0\0\0", new: b"\xe9\x10\x20\0\0", misc: 1, id }),
        Record::FinishedRound,
    ];
    for record in rest {
        record.encode(&layout, &mut out).unwrap();
    }
    out
}

fn emit_header() -> AiHdr {
    AiHdr { version: 1, kind: 1, cpu: 1, time: 5, ip: 6, seq: 7, ..Default::default() }
}

fn tally() -> RecordingTally {
    let cpu = Tally { handled: Some(3), filtered: Some(1), dropped: Some(0), passed: Some(2), ..Tally::default() };
    let events = vec![EventTally::new("cpu-clock", vec![(0, cpu.clone()), (1, cpu)])];
    RecordingTally { events, complete: true, off_cpu: None }
}

fn private_seed() -> Private {
    Private { tally: Some(tally()), ..common::private() }
}

fn container_seeds() -> Vec<(String, Vec<u8>)> {
    let mut writer = FileWriter::create(Cursor::new(Vec::new()), &common::events()).unwrap();
    common::fill_with(&mut writer, 6);
    let file = writer.finish(&common::features(), Some(&private_seed())).unwrap().into_inner();
    let mut unfinished = file.clone();
    unfinished[72..104].fill(0);

    let mut pipe = PipeWriter::create(Vec::new(), &common::events(), &common::features()).unwrap();
    let layout = Layout::new(&common::events()[0].attr, Endian::Little);
    let mut records = Vec::new();
    common::sideband().iter().for_each(|r| r.encode(&layout, &mut records).unwrap());
    Record::Sample(common::sample(0, &common::chain())).encode(&layout, &mut records).unwrap();
    pipe.write(&records).unwrap();
    pipe.finished_round().unwrap();
    let pipe = pipe.finish(&common::features()).unwrap();

    let mut journal = journal::Writer::create(Cursor::new(Vec::new())).unwrap();
    journal.handlers(&common::private().handlers).unwrap();
    journal.true_counts(0, &[1, 2, 3]).unwrap();
    journal.tally(&tally()).unwrap();
    journal.true_counts(0, &[4; 1000]).unwrap();
    common::private().handler_types.iter().for_each(|types| journal.handler_types(types).unwrap());
    let texts = common::texts();
    journal.texts(&texts).unwrap();
    journal.texts(&texts[..1]).unwrap();
    journal.images(private_seed().images.iter().map(|(id, bytes)| (id, bytes.as_slice()))).unwrap();
    common::features().bpf_progs.iter().for_each(|program| journal.program(program).unwrap());
    common::features().bpf_btfs.iter().for_each(|types| journal.program_types(types).unwrap());
    let all = [
        ("file", file),
        ("unfinished", unfinished),
        ("pipe", pipe),
        ("compressed", compressed(&records)),
        ("journal", journal.into_inner().into_inner()),
    ];
    all.into_iter().map(|(name, bytes)| (name.to_owned(), bytes)).collect()
}

/// A stream with its records in one COMPRESSED record and one COMPRESSED2 record.
fn compressed(records: &[u8]) -> Vec<u8> {
    let mut zstd = zstd::stream::raw::Encoder::new(3).unwrap();
    let mut pipe = PipeWriter::create(Vec::new(), &common::events(), &Features::default()).unwrap();
    let (first, second) = records.split_at(101);
    for (kind, chunk) in [(kind::COMPRESSED, first), (kind::COMPRESSED2, second)] {
        let mut room = [0; 4096];
        let mut out = OutBuffer::around(&mut room[..]);
        zstd.run(&mut InBuffer::around(chunk), &mut out).unwrap();
        zstd.flush(&mut out).unwrap();
        let mut body = Vec::new();
        if kind == kind::COMPRESSED2 {
            body.extend_from_slice(&(out.pos() as u64).to_le_bytes());
        }
        body.extend_from_slice(out.as_slice());
        let mut record = Vec::new();
        let user = Record::User(UserRecord { kind, misc: 0, body: &body });
        user.encode(&Layout::new(&common::events()[0].attr, Endian::Little), &mut record).unwrap();
        pipe.write(&record).unwrap();
    }
    pipe.finish(&Features::default()).unwrap()
}

/// Types and a value in both byte orders, and a value that is cut short.
fn value_seeds() -> Vec<(String, Vec<u8>)> {
    let seed = |big: bool, cut: usize| {
        let (btf, _, value) = common::types::sample(big);
        [&(btf.len() as u16).to_le_bytes()[..], &btf, &value[..value.len() - cut]].concat()
    };
    let all = [("little", seed(false, 0)), ("big", seed(true, 0)), ("cut", seed(false, 9))];
    all.into_iter().map(|(name, bytes)| (name.to_owned(), bytes)).collect()
}

/// Each section with the byte that picks it before it, in both byte orders.
fn feature_seeds() -> Vec<(String, Vec<u8>)> {
    let mut seeds = Vec::new();
    for (order, bit, endian) in [("little", 0, Endian::Little), ("big", 0x80, Endian::Big)] {
        let described = afterimage_perf_data::features::DescribedEvent {
            attr: common::events()[0].attr.clone(),
            name: "cpu-clock".into(),
            ids: vec![1, 2],
        };
        let features = Features { event_desc: vec![described], ..common::features() };
        for (feature, data) in features.encode(endian, Some(&private_seed())).unwrap() {
            let pick = if feature == private::FEATURE_BIT { 127 } else { feature as u8 };
            let mut bytes = vec![pick | bit];
            bytes.extend_from_slice(&data);
            seeds.push((format!("{feature}-{order}"), bytes));
        }
    }
    seeds
}

/// Entries of each kind, as the targets of the private section and of the journal take them; so many bytes are cut off.
fn entry_seeds(cut: u8) -> Vec<(String, Vec<u8>)> {
    let private = Private {
        programs: common::features().bpf_progs,
        program_types: common::features().bpf_btfs,
        ..private_seed()
    };
    // What the writer makes of it has its entries in plain form, but for long ones.
    let section = private.encode().unwrap();
    let (mut all, mut seeds) = (Vec::new(), Vec::new());
    let mut rest = &section[16..];
    while let Some((head, tail)) = rest.split_first_chunk::<16>() {
        let (kind, packed) = (head[0], head[4] != 0);
        let len = u64::from_le_bytes(head[8..].try_into().unwrap()) as usize;
        if !packed {
            let mut entry = vec![kind, len as u8, (len >> 8) as u8];
            entry.extend_from_slice(&tail[..len]);
            all.extend_from_slice(&entry);
            entry.push(cut);
            seeds.push((format!("kind-{kind}"), entry));
        }
        rest = &tail[len.next_multiple_of(8)..];
    }
    all.push(cut);
    seeds.push(("all".to_owned(), all));
    seeds
}
