//! A small recording of our own making, with everything in it that the writers write.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

pub mod types;

use std::io::{Cursor, Seek, Write};

use afterimage_perf_data::features::{
    BpfBtf, BpfProgInfo, BuildIdEntry, ClockData, CpuTopology, GroupDesc, NumaNode, PmuMapping, array,
};
use afterimage_perf_data::record::{
    BpfEvent, Callchain, Comm, FileId, Ksymbol, Mmap, Mmap2, Record, Sample, SampleId, Task, cpumode, misc,
};
use afterimage_perf_data::texts::Loader;
use afterimage_perf_data::{
    Attr, AttrFlags, BuildId, Endian, EventDesc, Features, FileWriter, HandlerDesc, HandlerTypes, ImageId, ImageUse,
    JitPiece, Layout, NestedPid, Private, RecordingTally, SampleType, TextDesc, TrueCounts, context,
};

pub const SAMPLES: usize = 300;
pub const PID: u32 = 4242;

/// Two events as a recorder opens them: sampled cpu-clock and page-faults, on two CPUs.
pub fn events() -> Vec<EventDesc> {
    use SampleType as S;
    let attr = |config| Attr {
        kind: 1,
        config,
        period_or_freq: 1000,
        sample_type: S::IDENTIFIER | S::IP | S::TID | S::TIME | S::CPU | S::PERIOD | S::CALLCHAIN,
        flags: AttrFlags::SAMPLE_ID_ALL | AttrFlags::FREQ | AttrFlags::USE_CLOCKID | AttrFlags::DISABLED,
        clockid: 1,
        ..Attr::default()
    };
    vec![EventDesc::named_by_attr(attr(0), vec![11, 12]), EventDesc::named_by_attr(attr(2), vec![21, 22])]
}

pub fn id(time: u64) -> SampleId {
    SampleId {
        pid: Some(PID),
        tid: Some(PID),
        time: Some(time),
        cpu: Some(0),
        identifier: Some(11),
        ..SampleId::default()
    }
}

/// Everything before the samples.
pub fn sideband() -> Vec<Record<'static>> {
    let build_id = BuildId::new(&[7; 20]);
    vec![
        Record::Mmap(Mmap {
            pid: u32::MAX,
            tid: 0,
            addr: 0xffff_ffff_8100_0000,
            len: 0x100_0000,
            pgoff: 0xffff_ffff_8100_0000,
            filename: b"[kernel.kallsyms]_text",
            misc: cpumode::KERNEL,
            id: SampleId { pid: Some(0), tid: Some(0), identifier: Some(0), ..id(0) },
        }),
        Record::Comm(Comm { pid: PID, tid: PID, comm: b"burner", misc: 0, id: id(1) }),
        Record::Mmap2(Mmap2 {
            pid: PID,
            tid: PID,
            addr: 0x40_0000,
            len: 0x1000,
            pgoff: 0,
            file: FileId::BuildId(build_id),
            prot: 5,
            flags: 2,
            filename: b"/nonexistent/burner",
            misc: cpumode::USER | misc::MMAP_BUILD_ID,
            id: id(2),
        }),
        Record::Fork(Task { pid: PID, ppid: PID, tid: PID + 1, ptid: PID, time: 3, misc: 0, id: id(3) }),
        Record::Ksymbol(Ksymbol {
            addr: 0xffff_ffff_c000_0000,
            len: 128,
            kind: Ksymbol::BPF,
            flags: 0,
            name: b"bpf_prog_0123456789abcdef_probe",
            misc: 0,
            id: id(4),
        }),
        Record::BpfEvent(BpfEvent {
            kind: BpfEvent::LOAD,
            flags: 0,
            prog_id: 9,
            tag: [1, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef],
            misc: 0,
            id: id(5),
        }),
    ]
}

/// The chain of each sample as bytes of its recording.
pub fn chain() -> Vec<u8> {
    [context::KERNEL, 0xffff_ffff_8100_1000, context::USER, 0x40_0010, 0x40_0020]
        .iter()
        .flat_map(|v| v.to_le_bytes())
        .collect()
}

pub fn sample(i: usize, chain: &[u8]) -> Sample<'_> {
    Sample {
        misc: cpumode::KERNEL,
        identifier: Some([11, 12, 21, 22][i % 4]),
        ip: Some(0xffff_ffff_8100_1000),
        pid: Some(PID),
        tid: Some(PID),
        time: Some(1000 + i as u64),
        cpu: Some((i % 2) as u32),
        period: Some(1_000_000),
        callchain: Some(Callchain::new(chain, Endian::Little)),
        ..Sample::default()
    }
}

pub fn features() -> Features {
    Features {
        hostname: Some("host".into()),
        os_release: Some("6.1.0".into()),
        version: Some("0.1.0".into()),
        arch: Some("x86_64".into()),
        nr_cpus: Some((2, 2)),
        cpu_desc: Some("A processor".into()),
        cpuid: Some("GenuineIntel,6,1,1".into()),
        total_mem: Some(4 << 20),
        cmdline: vec!["/usr/bin/afterimage".into(), "record".into(), "-a".into()],
        cpu_topology: Some(CpuTopology {
            cores: vec!["0-1".into()],
            threads: vec!["0".into(), "1".into()],
            cpus: vec![(0, 0), (1, 0)],
            dies: Vec::new(),
            die_of_cpu: Vec::new(),
        }),
        numa: vec![NumaNode { node: 0, total_kib: 4 << 20, free_kib: 1 << 20, cpus: "0-1".into() }],
        pmu_mappings: vec![PmuMapping { kind: 1, name: "software".into() }],
        groups: vec![GroupDesc { name: String::new(), leader: 0, members: 2 }],
        sample_time: Some((1000, 1000 + SAMPLES as u64 - 1)),
        clockid_res_ns: Some(1),
        clock_data: Some(ClockData { clockid: 1, wall_ns: 1_700_000_000_000_000_000, clock_ns: 500 }),
        build_ids: vec![BuildIdEntry {
            pid: -1,
            build_id: BuildId::new(&[7; 20]),
            filename: "/nonexistent/burner".into(),
            cpumode: cpumode::USER,
        }],
        bpf_progs: vec![program()],
        bpf_btfs: vec![BpfBtf { id: 3, data: btf() }],
        ..Features::default()
    }
}

/// A program of one function of 8 bytes.
fn program() -> BpfProgInfo {
    let mut info = vec![0; BpfProgInfo::INFO_MAX];
    let mut put = |at: usize, v: &[u8]| info[at..at + v.len()].copy_from_slice(v);
    put(4, &9_u32.to_le_bytes());
    put(8, &[1, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef]);
    put(16, &8_u32.to_le_bytes());
    put(64, b"probe");
    put(104, &1_u32.to_le_bytes());
    put(108, &1_u32.to_le_bytes());
    put(112, &8_u64.to_le_bytes());
    put(120, &16_u64.to_le_bytes());
    put(180, &1_u32.to_le_bytes());
    put(184, &24_u64.to_le_bytes());
    let mut data = vec![0xc3; 8];
    data.extend_from_slice(&0xffff_ffff_c000_0000_u64.to_le_bytes());
    data.extend_from_slice(&[8, 0, 0, 0, 0, 0, 0, 0]);
    data.extend_from_slice(&[1, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef]);
    let arrays = array::JITED_INSNS | array::JITED_KSYMS | array::JITED_FUNC_LENS | array::PROG_TAGS;
    BpfProgInfo { info, arrays, data, endian: Endian::Little }
}

/// The smallest BTF: a header, no types, one empty string.
fn btf() -> Vec<u8> {
    let mut btf = vec![0x9f, 0xeb, 1, 0];
    for word in [24_u32, 0, 0, 0, 1] {
        btf.extend_from_slice(&word.to_le_bytes());
    }
    btf.push(0);
    btf
}

/// The bytes of two programs; the first one is longer than an entry that is not compressed.
pub fn images() -> [Vec<u8>; 2] {
    [[0x0f, 0x1f, 0x44, 0, 0, 0xc3].repeat(1000), vec![0xf3, 0x0f, 0x1e, 0xfa, 0xc3]]
}

pub fn texts() -> Vec<TextDesc> {
    let [program, trampoline] = images().map(|bytes| ImageId::of(&bytes));
    let image = |image, way: &str| ImageUse { image, at_ns: 90, way: way.into(), proven: true };
    let program = TextDesc {
        number: 3,
        kind: "program".into(),
        name: Some("bpf_prog_6deef7357e7b4530_main".into()),
        id: Some(42),
        tag: Some("6deef7357e7b4530".into()),
        function: Some(0),
        address: 0xffff_ffff_c000_1040,
        length: Some(6000),
        length_reported: Some(6000),
        born_ns: Some(50),
        gone_ns: Some(80),
        loader: Some(Loader { pid: 7, comm: "loader".into() }),
        images: vec![image(program, "free-time")],
        ..TextDesc::default()
    };
    let trampoline = TextDesc {
        number: 9,
        kind: "trampoline".into(),
        address: 0xffff_ffff_c000_3000,
        length_reported: Some(4096),
        images: vec![image(trampoline, "fentry")],
        uncertain: true,
        ..TextDesc::default()
    };
    let lost = TextDesc { number: 10, kind: "cbpf".into(), reason: Some("ring full".into()), ..TextDesc::default() };
    vec![program, trampoline, lost]
}

pub fn private() -> Private {
    Private {
        tally: Some(RecordingTally { complete: true, ..RecordingTally::default() }),
        handlers: vec![
            HandlerDesc { name: "count".into(), mechanism: "kfuncs".into(), id: 2, ..HandlerDesc::default() },
            HandlerDesc {
                event: 1,
                name: "mine".into(),
                output_event: Some(2),
                mechanism: "kfuncs".into(),
                id: 16,
                program: Some("on_sample".into()),
                object: Some("./mine.bpf.o".into()),
                tag: Some("6deef7357e7b4530".into()),
                set: [("limit_ns".to_owned(), "1000".to_owned())].into(),
                ..HandlerDesc::default()
            },
        ],
        handler_types: vec![HandlerTypes { handler: 16, btf: btf() }],
        true_counts: vec![TrueCounts { event: 0, counts: (0..150).collect() }],
        texts: texts(),
        images: images().into_iter().map(|bytes| (ImageId::of(&bytes), bytes)).collect(),
        jit: vec![JitPiece {
            pid: 77,
            source: JitPiece::MAP,
            since_ns: 40,
            at_ns: 60,
            path: b"/tmp/perf-5.map".to_vec(),
            data: b"7f0000001000 40 LazyCompile:*hot /srv/app.js:7\n".to_vec(),
        }],
        nested: vec![NestedPid { pid: 77, since_ns: 40, own: 5, namespace: 4_026_532_201 }],
        ..Private::default()
    }
}

/// Writes sideband and samples in two rounds; a checkpoint after each.
pub fn fill<W: Write + Seek>(writer: &mut FileWriter<W>) {
    fill_with(writer, SAMPLES);
}

/// The same with so many samples.
pub fn fill_with<W: Write + Seek>(writer: &mut FileWriter<W>, samples: usize) {
    let layout = Layout::new(&events()[0].attr, Endian::Little);
    for record in sideband() {
        writer.record(&record, &layout).unwrap();
    }
    let chain = chain();
    for i in 0..samples {
        writer.record(&Record::Sample(sample(i, &chain)), &layout).unwrap();
        if i == samples / 2 {
            writer.finished_round().unwrap();
            writer.checkpoint().unwrap();
        }
    }
    writer.finished_round().unwrap();
    writer.checkpoint().unwrap();
}

/// The whole recording as bytes.
pub fn recording() -> Vec<u8> {
    let mut writer = FileWriter::create(Cursor::new(Vec::new()), &events()).unwrap();
    fill(&mut writer);
    writer.finish(&features(), Some(&private())).unwrap().into_inner()
}
