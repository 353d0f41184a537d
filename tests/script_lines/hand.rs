//! Recordings made by hand, for fields that this machine's events do not have.

use std::fs::File;
use std::path::Path;

use afterimage_perf_data::record::{FileId, Mmap2, Regs, StackUser};
use afterimage_perf_data::{
    Attr, AttrFlags, Endian, EventDesc, Features, FileWriter, Layout, Record, Sample, SampleId, SampleType,
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

/// Writes a recording of this machine in which process 7 has mapped a file of it at an address.
#[allow(dead_code, reason = "other tests use it")]
pub(crate) fn write_mapped<'s>(
    path: &Path,
    attr: Attr,
    (addr, mapped): (u64, &Path),
    samples: impl IntoIterator<Item = Sample<'s>>,
) {
    use std::os::unix::fs::MetadataExt;
    let meta = std::fs::metadata(mapped).unwrap();
    let (dev, ino) = (meta.dev(), meta.ino());
    let (maj, min) = ((dev >> 8 & 0xfff) as u32, ((dev & 0xff) | (dev >> 12 & 0xfff00)) as u32);
    let layout = Layout::new(&attr, Endian::Little);
    let events = [EventDesc { attr, ids: Vec::new(), name: "made".to_owned() }];
    let mut writer = FileWriter::create(File::create(path).unwrap(), &events).unwrap();
    let id = SampleId { pid: Some(7), tid: Some(7), time: Some(1), ..SampleId::default() };
    let file = FileId::Inode { maj, min, ino, generation: 0 };
    let filename = mapped.to_str().unwrap().as_bytes();
    let len = meta.len().next_multiple_of(0x1000);
    let map = Mmap2 { pid: 7, tid: 7, addr, len, pgoff: 0, file, prot: 5, flags: 2, filename, misc: 2, id };
    writer.record(&Record::Mmap2(map), &layout).unwrap();
    for sample in samples {
        writer.record(&Record::Sample(sample), &layout).unwrap();
    }
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let (arch, hostname) = (Some("x86_64".to_owned()), Some(host.trim().to_owned()));
    writer.finish(&Features { arch, hostname, ..Features::default() }, None).unwrap();
}

/// Writes a recording of this machine in which two processes map the same file (device and inode) one after the other, each with a
/// sample at an address; `mapping` is start, length and offset.
#[allow(dead_code, reason = "other tests use it")]
pub(crate) fn write_two(
    path: &Path,
    filename: &str,
    (dev, ino): (u64, u64),
    (addr, len, pgoff): (u64, u64, u64),
    pids: [u32; 2],
    ip: u64,
) {
    let (maj, min) = ((dev >> 8 & 0xfff) as u32, ((dev & 0xff) | (dev >> 12 & 0xfff00)) as u32);
    let attr = raw_event(SampleType::empty());
    let layout = Layout::new(&attr, Endian::Little);
    let events = [EventDesc { attr, ids: Vec::new(), name: "made".to_owned() }];
    let mut writer = FileWriter::create(File::create(path).unwrap(), &events).unwrap();
    for (pid, time) in pids.into_iter().zip([10, 20]) {
        let id = SampleId { pid: Some(pid), tid: Some(pid), time: Some(time), ..SampleId::default() };
        let file = FileId::Inode { maj, min, ino, generation: 0 };
        let filename = filename.as_bytes();
        let map = Mmap2 { pid, tid: pid, addr, len, pgoff, file, prot: 5, flags: 2, filename, misc: 2, id };
        writer.record(&Record::Mmap2(map), &layout).unwrap();
        let one = Sample { pid: Some(pid), tid: Some(pid), ip: Some(ip), time: Some(time + 1), ..sample(0) };
        writer.record(&Record::Sample(one), &layout).unwrap();
    }
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let (arch, hostname) = (Some("x86_64".to_owned()), Some(host.trim().to_owned()));
    writer.finish(&Features { arch, hostname, ..Features::default() }, None).unwrap();
}
