//! Recordings made by hand, for fields that this machine's events do not have.

use std::fs::File;
use std::path::Path;

use afterimage_perf_data::record::{Regs, StackUser};
use afterimage_perf_data::{
    Attr, AttrFlags, Endian, EventDesc, Features, FileWriter, Layout, Record, Sample, SampleType,
};

/// What every sample here has.
pub(crate) const FIELDS: SampleType = SampleType::IP.union(SampleType::TID).union(SampleType::TIME);

/// A raw event whose samples have the fields above and these.
pub(crate) fn raw_event(more: SampleType) -> Attr {
    let flags = AttrFlags::SAMPLE_ID_ALL;
    Attr { kind: 4, config: 1, period_or_freq: 1000, sample_type: FIELDS.union(more), flags, ..Attr::default() }
}

/// A sample in user mode with those fields, `nth` of its recording.
pub(crate) fn sample<'s>(nth: u64) -> Sample<'s> {
    Sample {
        misc: 2,
        ip: Some(0x40_1000 + nth),
        pid: Some(7),
        tid: Some(8),
        time: Some(1_000_000_000 + 1000 * nth),
        ..Sample::default()
    }
}

/// The same with a number for every field that is one, and these registers, of both kinds.
pub(crate) fn full<'s>(nth: u64, regs: Regs<'s>) -> Sample<'s> {
    Sample {
        addr: Some(0xbeef),
        cpu: Some(3),
        period: Some(99),
        raw: Some(b"four"),
        regs_user: Some(regs),
        stack_user: Some(StackUser { bytes: &[7; 64], dyn_size: 40 }),
        weight: Some(1 << 48 | 2 << 32 | 3),
        data_src: Some(0x102_6810_0142),
        transaction: Some(9),
        regs_intr: Some(regs),
        phys_addr: Some(0xfeed),
        cgroup: Some(4),
        data_page_size: Some(4096),
        code_page_size: Some(2 << 20),
        ..sample(nth)
    }
}

/// Writes a recording of a machine: `machine` as `uname -m` names it.
pub(crate) fn write<'s>(path: &Path, machine: &str, attr: Attr, samples: impl IntoIterator<Item = Sample<'s>>) {
    write_with_ids(path, machine, attr, &[], samples);
}

/// The same, and the event has these ids.
pub(crate) fn write_with_ids<'s>(
    path: &Path,
    machine: &str,
    attr: Attr,
    ids: &[u64],
    samples: impl IntoIterator<Item = Sample<'s>>,
) {
    let layout = Layout::new(&attr, Endian::Little);
    let events = [EventDesc { attr, ids: ids.to_vec(), name: "made".to_owned() }];
    let mut writer = FileWriter::create(File::create(path).unwrap(), &events).unwrap();
    for sample in samples {
        writer.record(&Record::Sample(sample), &layout).unwrap();
    }
    let features = Features { arch: Some(machine.to_owned()), ..Features::default() };
    writer.finish(&features, None).unwrap();
}

/// Words as they stand in a recording.
pub(crate) fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}
