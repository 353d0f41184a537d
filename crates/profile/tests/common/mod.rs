//! Small recordings made by hand.
#![allow(clippy::unwrap_used, clippy::expect_used, dead_code, reason = "tests")]

use afterimage_perf_data::record::{Comm, FileId, Ksymbol, Mmap2, Record, Sample, SampleId, Task, cpumode, misc};
use afterimage_perf_data::{
    Attr, AttrFlags, Callchain, Endian, EventDesc, Features, FileReader, FileWriter, Layout, Private, SampleType,
};
use afterimage_profile::{Place, ReplayOptions, ReplayStats, Replayed, Sink, State, TimedSample, replay};
use std::io::Cursor;

/// A recording in the making. Every record goes to the end, whatever its time.
pub(crate) struct Recording {
    writer: FileWriter<Cursor<Vec<u8>>>,
    events: Vec<EventDesc>,
}

pub(crate) fn attr() -> Attr {
    Attr {
        kind: 1,
        config: 0,
        period_or_freq: 1000,
        sample_type: SampleType::IDENTIFIER
            | SampleType::IP
            | SampleType::TID
            | SampleType::TIME
            | SampleType::CPU
            | SampleType::PERIOD
            | SampleType::CALLCHAIN,
        flags: AttrFlags::SAMPLE_ID_ALL | AttrFlags::FREQ,
        ..Attr::default()
    }
}

pub(crate) fn bpf_output() -> Attr {
    Attr {
        config: 10,
        period_or_freq: 1,
        sample_type: SampleType::IDENTIFIER
            | SampleType::IP
            | SampleType::TID
            | SampleType::TIME
            | SampleType::CPU
            | SampleType::RAW,
        flags: AttrFlags::SAMPLE_ID_ALL,
        ..attr()
    }
}

pub(crate) fn event(attr: Attr, id: u64, name: &str) -> EventDesc {
    EventDesc { attr, ids: vec![id], name: name.into() }
}

pub(crate) fn id(pid: u32, time: u64) -> SampleId {
    SampleId {
        pid: Some(pid),
        tid: Some(pid),
        time: Some(time),
        identifier: Some(1),
        cpu: Some(0),
        ..SampleId::default()
    }
}

impl Recording {
    pub(crate) fn new() -> Recording {
        Recording::of(vec![event(attr(), 1, "cpu-clock")])
    }

    pub(crate) fn of(events: Vec<EventDesc>) -> Recording {
        let writer = FileWriter::create(Cursor::new(Vec::new()), &events).unwrap();
        Recording { writer, events }
    }

    pub(crate) fn record(&mut self, event: usize, record: &Record<'_>) {
        let layout = Layout::new(&self.events[event].attr, Endian::Little);
        self.writer.record(record, &layout).unwrap();
    }

    pub(crate) fn round(&mut self) {
        self.writer.finished_round().unwrap();
    }

    pub(crate) fn comm(&mut self, time: u64, pid: u32, name: &str, exec: bool) {
        let misc = if exec { misc::COMM_EXEC } else { 0 };
        self.record(0, &Record::Comm(Comm { pid, tid: pid, comm: name.as_bytes(), misc, id: id(pid, time) }));
    }

    pub(crate) fn fork(&mut self, time: u64, parent: u32, pid: u32) {
        let task = Task { pid, ppid: parent, tid: pid, ptid: parent, time, misc: 0, id: id(parent, time) };
        self.record(0, &Record::Fork(task));
    }

    pub(crate) fn mmap(&mut self, time: u64, pid: u32, addr: u64, len: u64, pgoff: u64, path: &str) {
        let mmap = Mmap2 {
            pid,
            tid: pid,
            addr,
            len,
            pgoff,
            file: FileId::Inode { maj: 8, min: 1, ino: 4, generation: 0 },
            prot: 5,
            flags: 2,
            filename: path.as_bytes(),
            misc: cpumode::USER,
            id: id(pid, time),
        };
        self.record(0, &Record::Mmap2(mmap));
    }

    pub(crate) fn ksymbol(&mut self, time: u64, addr: u64, len: u32, name: &str, unregister: bool) {
        let flags = u16::from(unregister);
        let symbol = Ksymbol { addr, len, kind: Ksymbol::BPF, flags, name: name.as_bytes(), misc: 0, id: id(0, time) };
        self.record(0, &Record::Ksymbol(symbol));
    }

    pub(crate) fn sample(&mut self, time: u64, pid: u32, ip: u64) {
        self.chain_of(0, time, pid, ip, &[]);
    }

    pub(crate) fn chain(&mut self, time: u64, pid: u32, ip: u64, chain: &[u64]) {
        self.chain_of(0, time, pid, ip, chain);
    }

    pub(crate) fn chain_of(&mut self, event: usize, time: u64, pid: u32, ip: u64, chain: &[u64]) {
        let bytes: Vec<u8> = chain.iter().flat_map(|addr| addr.to_le_bytes()).collect();
        let sample = Sample {
            misc: if ip >> 63 == 1 { cpumode::KERNEL } else { cpumode::USER },
            identifier: self.events[event].ids.first().copied(),
            ip: Some(ip),
            pid: Some(pid),
            tid: Some(pid),
            time: Some(time),
            cpu: Some(1),
            period: Some(10),
            callchain: Some(Callchain::new(&bytes, Endian::Little)),
            ..Sample::default()
        };
        self.record(event, &Record::Sample(sample));
    }

    pub(crate) fn raw(&mut self, event: usize, time: u64, payload: &[u8]) {
        let sample = Sample {
            identifier: self.events[event].ids.first().copied(),
            ip: Some(0),
            pid: Some(1),
            tid: Some(1),
            time: Some(time),
            cpu: Some(1),
            raw: Some(payload),
            ..Sample::default()
        };
        self.record(event, &Record::Sample(sample));
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.finish_with(&Features::default(), None)
    }

    pub(crate) fn finish_with(self, features: &Features, private: Option<&Private>) -> Vec<u8> {
        self.writer.finish(features, private).unwrap().into_inner()
    }

    /// As a killed recorder leaves it.
    pub(crate) fn killed(mut self) -> Vec<u8> {
        self.writer.checkpoint().unwrap();
        let mut features = self.writer.finish(&Features::default(), None).unwrap().into_inner();
        // Feature bits are at 72 to 104 of the header.
        features[72..104].fill(0);
        features
    }
}

/// What a replay handed on, as text: one line a sample.
#[derive(Default)]
pub(crate) struct Lines(pub(crate) Vec<String>);

impl Sink for Lines {
    fn sample(&mut self, state: &State, s: &TimedSample<'_>) {
        let loc = state.locate(s.process, s.mode(), s.ip);
        let place = match loc.place {
            Place::Kernel => "kernel".to_owned(),
            Place::Text(text) => state.kernel().text(text).unwrap().name.to_string(),
            Place::Object(object) => String::from_utf8_lossy(state.object(object).unwrap().0).into_owned(),
            Place::Unmapped => "nothing".to_owned(),
            Place::Elsewhere(_) => "elsewhere".to_owned(),
        };
        let time = s.time.unwrap_or(0);
        self.0.push(format!("{time} {} {} {place}+{:#x}", s.pid, state.comm(s.comm), loc.addr));
    }
}

pub(crate) fn lines(bytes: &[u8]) -> (Vec<String>, ReplayStats) {
    lines_with(bytes, &ReplayOptions::default())
}

pub(crate) fn lines_with(bytes: &[u8], options: &ReplayOptions) -> (Vec<String>, ReplayStats) {
    let reader = FileReader::open(bytes).unwrap();
    let mut sink = Lines::default();
    let Replayed { stats, .. } = replay(&reader, options, &mut sink);
    (sink.0, stats)
}
