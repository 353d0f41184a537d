//! A recording made by hand, so that what a view prints of it is known to the letter.
#![allow(dead_code, reason = "each test file uses its part")]

use std::fs::File;
use std::path::Path;

use afterimage_perf_data::record::{BpfEvent, Comm, FileId, Ksymbol, Mmap2};
use afterimage_perf_data::{
    Attr, AttrFlags, Callchain, Endian, EventDesc, Features, FileWriter, Layout, Private, Record, Sample, SampleId,
    SampleType, context,
};

/// Addresses of samples lie from here on; nothing is mapped there unless a test says so.
pub(crate) const CODE: u64 = 0x40_0000;

const FIELDS: SampleType = SampleType::IP
    .union(SampleType::TID)
    .union(SampleType::TIME)
    .union(SampleType::CPU)
    .union(SampleType::PERIOD)
    .union(SampleType::IDENTIFIER);

/// A software event of a recording made by hand: `cpu-clock` or `page-faults`.
pub(crate) fn event(name: &str, id: u64, chains: bool) -> EventDesc {
    let more = if chains { SampleType::CALLCHAIN } else { SampleType::empty() };
    let attr = Attr {
        kind: 1,
        config: if name == "page-faults" { 2 } else { 0 },
        period_or_freq: 1000,
        sample_type: FIELDS.union(more),
        flags: AttrFlags::SAMPLE_ID_ALL,
        ..Attr::default()
    };
    EventDesc { attr, ids: vec![id], name: name.to_owned() }
}

/// The recording under way.
pub(crate) struct Made {
    writer: FileWriter<File>,
    events: Vec<EventDesc>,
    time: u64,
}

impl Made {
    pub(crate) fn at(path: &Path, events: Vec<EventDesc>) -> Self {
        let file = File::create(path).unwrap();
        Made { writer: FileWriter::create(file, &events).unwrap(), events, time: 1_000_000_000 }
    }

    fn id(&mut self, pid: u32) -> SampleId {
        self.time += 1_000_000;
        let id = self.events[0].ids[0];
        SampleId {
            pid: Some(pid),
            tid: Some(pid),
            time: Some(self.time),
            cpu: Some(0),
            identifier: Some(id),
            ..SampleId::default()
        }
    }

    fn put(&mut self, record: &Record<'_>, event: usize) {
        let layout = Layout::new(&self.events[event].attr, Endian::Little);
        self.writer.record(record, &layout).unwrap();
    }

    /// A thread gets a name.
    pub(crate) fn comm(&mut self, pid: u32, comm: &[u8]) {
        let id = self.id(pid);
        self.put(&Record::Comm(Comm { pid, tid: pid, comm, misc: 0, id }), 0);
    }

    /// A process maps a file at [`CODE`].
    pub(crate) fn map(&mut self, pid: u32, filename: &[u8]) {
        let id = self.id(pid);
        let file = FileId::Inode { maj: 8, min: 1, ino: 7, generation: 0 };
        let map =
            Mmap2 { pid, tid: pid, addr: CODE, len: 0x1000, pgoff: 0, file, prot: 5, flags: 2, filename, misc: 2, id };
        self.put(&Record::Mmap2(map), 0);
    }

    /// The kernel's own text: where it begins, and the address of `_text`.
    pub(crate) fn kernel_map(&mut self, start: u64, len: u64, text: u64) {
        let id = self.id(u32::MAX);
        let file = FileId::Inode { maj: 0, min: 0, ino: 0, generation: 0 };
        let filename = b"[kernel.kallsyms]_text";
        let (pid, tid) = (u32::MAX, 0);
        let map = Mmap2 { pid, tid, addr: start, len, pgoff: text, file, prot: 5, flags: 2, filename, misc: 1, id };
        self.put(&Record::Mmap2(map), 0);
    }

    /// A sample in user mode of an event, with a chain where the event has chains.
    pub(crate) fn sample(&mut self, event: usize, pid: u32, period: u64, addresses: &[u64]) {
        self.time += 1_000_000;
        let attr = &self.events[event].attr;
        let mut words = vec![context::USER];
        words.extend(addresses);
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let chain = attr.sample_type.contains(SampleType::CALLCHAIN);
        let sample = Sample {
            misc: 2,
            identifier: Some(self.events[event].ids[0]),
            ip: addresses.first().copied(),
            pid: Some(pid),
            tid: Some(pid),
            time: Some(self.time),
            cpu: Some(1),
            period: Some(period),
            callchain: chain.then(|| Callchain::new(&bytes, Endian::Little)),
            ..Sample::default()
        };
        self.put(&Record::Sample(sample), event);
    }

    /// A text of the kernel comes (or goes) by the hand of `pid`. Gives the time, ns.
    pub(crate) fn text(&mut self, pid: u32, addr: u64, len: u32, name: &str, goes: bool) -> u64 {
        let id = self.id(pid);
        let flags = if goes { Ksymbol::UNREGISTER } else { 0 };
        let symbol = Ksymbol { addr, len, kind: Ksymbol::BPF, flags, name: name.as_bytes(), misc: 0, id };
        self.put(&Record::Ksymbol(symbol), 0);
        self.time
    }

    /// The texts that `pid` brought last are those of a program.
    pub(crate) fn program(&mut self, pid: u32, prog_id: u32, tag: [u8; 8]) {
        let id = self.id(pid);
        self.put(&Record::BpfEvent(BpfEvent { kind: BpfEvent::LOAD, flags: 0, prog_id, tag, misc: 0, id }), 0);
    }

    /// A sample in the kernel of an event without chains.
    pub(crate) fn kernel_sample(&mut self, event: usize, pid: u32, period: u64, ip: u64) {
        self.time += 1_000_000;
        let sample = Sample {
            misc: 1,
            identifier: Some(self.events[event].ids[0]),
            ip: Some(ip),
            pid: Some(pid),
            tid: Some(pid),
            time: Some(self.time),
            cpu: Some(1),
            period: Some(period),
            ..Sample::default()
        };
        self.put(&Record::Sample(sample), event);
    }

    /// A sample in the kernel with a chain, innermost first.
    pub(crate) fn kernel_chain(&mut self, event: usize, pid: u32, period: u64, addresses: &[u64]) {
        self.time += 1_000_000;
        let words = std::iter::once(context::KERNEL).chain(addresses.iter().copied());
        let bytes: Vec<u8> = words.flat_map(|word| word.to_le_bytes()).collect();
        let sample = Sample {
            misc: 1,
            identifier: Some(self.events[event].ids[0]),
            ip: addresses.first().copied(),
            pid: Some(pid),
            tid: Some(pid),
            time: Some(self.time),
            cpu: Some(1),
            period: Some(period),
            callchain: Some(Callchain::new(&bytes, Endian::Little)),
            ..Sample::default()
        };
        self.put(&Record::Sample(sample), event);
    }

    /// The time of the last record, ns.
    pub(crate) fn now(&self) -> u64 {
        self.time
    }

    /// A millisecond goes by.
    pub(crate) fn pass(&mut self) {
        self.time += 1_000_000;
    }

    /// What a BPF program wrote, a microsecond after what was before.
    pub(crate) fn raw(&mut self, event: usize, pid: u32, payload: &[u8]) {
        self.time += 1_000;
        let sample = Sample {
            misc: 2,
            identifier: Some(self.events[event].ids[0]),
            ip: Some(CODE),
            pid: Some(pid),
            tid: Some(pid),
            time: Some(self.time),
            cpu: Some(1),
            raw: Some(payload),
            ..Sample::default()
        };
        self.put(&Record::Sample(sample), event);
    }

    /// Ends the recording as it should be.
    pub(crate) fn finish(self, private: Option<&Private>) {
        self.finish_with(&Features::default(), private);
    }

    /// Ends the recording with what it says of itself.
    pub(crate) fn finish_with(mut self, features: &Features, private: Option<&Private>) {
        self.writer.finished_round().unwrap();
        self.writer.finish(features, private).unwrap();
    }

    /// Leaves the recording as a recorder that was killed after a pass does.
    pub(crate) fn killed(mut self) {
        self.writer.finished_round().unwrap();
        self.writer.checkpoint().unwrap();
    }
}
