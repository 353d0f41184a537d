//! Encode, then decode: every record type with every layout, and everything else that is written here.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use proptest::collection::vec;
use proptest::prelude::*;

use afterimage_perf_data::record::{
    Aux, AuxOutputHwId, BpfEvent, BranchStack, Callchain, CallchainDeferred, Cgroup, Comm, FileId, ItraceStart,
    Ksymbol, Lost, LostSamples, Mmap, Mmap2, Namespaces, RawRecord, Read, ReadValues, Record, Regs, Sample, SampleId,
    StackUser, Switch, SwitchCpuWide, Task, TextPoke, Throttle, Unknown, UserRecord, decode, kind, misc,
};
use afterimage_perf_data::{Attr, AttrFlags, BuildId, Endian, Layout, ReadFormat, SampleType, Words, attr};

/// Everything that records are made of here: a layout, and values of every shape.
#[derive(Debug, Clone)]
struct Parts {
    attr: Attr,
    endian: Endian,
    n: [u64; 16],
    misc: u16,
    name: Vec<u8>,
    bytes: Vec<u8>,
    words: Vec<u64>,
}

impl Parts {
    fn layout(&self) -> Layout {
        Layout::new(&self.attr, self.endian)
    }

    fn n32(&self, i: usize) -> u32 {
        (self.n[i] >> 7) as u32
    }

    /// The words as bytes in the byte order.
    fn word_bytes(&self) -> Vec<u8> {
        self.words.iter().flat_map(|w| self.endian.put_u64(*w)).collect()
    }

    fn has(&self, bits: SampleType) -> bool {
        self.attr.sample_type.intersects(bits)
    }

    /// A sample id with the fields that the layout has.
    fn id(&self) -> SampleId {
        use SampleType as S;
        if !self.attr.flags.contains(AttrFlags::SAMPLE_ID_ALL) {
            return SampleId::default();
        }
        SampleId {
            pid: self.has(S::TID).then_some(self.n32(8)),
            tid: self.has(S::TID).then_some(self.n32(9)),
            time: self.has(S::TIME).then_some(self.n[10]),
            id: self.has(S::ID).then_some(self.n[11]),
            stream_id: self.has(S::STREAM_ID).then_some(self.n[12]),
            cpu: self.has(S::CPU).then_some(self.n32(13)),
            identifier: self.has(S::IDENTIFIER).then_some(self.n[14]),
        }
    }
}

fn endians() -> impl Strategy<Value = Endian> {
    prop_oneof![Just(Endian::Little), Just(Endian::Big)]
}

/// A name as files, threads and symbols have it: no NUL.
fn names() -> impl Strategy<Value = Vec<u8>> {
    vec(1_u8.., 0..40)
}

fn attrs() -> impl Strategy<Value = Attr> {
    let bits = (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>());
    (bits, any::<[u64; 10]>()).prop_map(|((sample_type, read_format, flags, branch, regs_user, regs_intr), n)| Attr {
        kind: n[0] as u32,
        config: n[1],
        period_or_freq: n[2],
        sample_type: SampleType::from_bits_retain(sample_type & 0x1ff_ffff),
        read_format: ReadFormat::from_bits_retain(read_format & 0x1f),
        flags: AttrFlags::from_bits_retain(flags),
        wakeup: n[3] as u32,
        bp_type: (n[3] >> 32) as u32,
        config1: n[4],
        config2: n[5],
        branch_sample_type: branch,
        sample_regs_user: regs_user,
        sample_stack_user: n[6] as u32,
        clockid: (n[6] >> 32) as i32,
        sample_regs_intr: regs_intr,
        aux_watermark: n[7] as u32,
        sample_max_stack: (n[7] >> 32) as u16,
        aux_sample_size: n[8] as u32,
        aux_action: (n[8] >> 32) as u32,
        sig_data: n[9],
        config3: n[9] ^ n[8],
    })
}

fn parts() -> impl Strategy<Value = Parts> {
    (attrs(), endians(), any::<[u64; 16]>(), any::<u16>(), names(), vec(any::<u8>(), 0..50), vec(any::<u64>(), 0..40))
        .prop_map(|(attr, endian, n, misc, name, bytes, words)| Parts { attr, endian, n, misc, name, bytes, words })
}

/// Encodes and decodes; the result must be the same, and the size a multiple of 8.
fn same(record: &Record<'_>, layout: &Layout) -> Result<(), TestCaseError> {
    let mut bytes = vec![0xaa; 3];
    record.encode(layout, &mut bytes).unwrap();
    let raw = RawRecord::parse(&bytes[3..], 0, layout.endian).unwrap();
    prop_assert_eq!(raw.bytes.len(), bytes.len() - 3);
    if raw.header.kind < kind::FIRST_USER {
        prop_assert_eq!(raw.bytes.len() % 8, 0);
    }
    prop_assert_eq!(&decode(&raw, layout).unwrap(), record);
    // Cut short anywhere, it is an error or a shorter record, and no panic.
    for end in 8..raw.bytes.len() {
        let _ = decode(&RawRecord { bytes: &raw.bytes[..end], ..raw }, layout);
    }
    Ok(())
}

proptest! {
    #[test]
    fn maps(p in parts(), by_inode in any::<bool>()) {
        let l = p.layout();
        let (pid, tid, addr, len, pgoff) = (p.n32(0), p.n32(1), p.n[2], p.n[3], p.n[4]);
        same(&Record::Mmap(Mmap { pid, tid, addr, len, pgoff, filename: &p.name, misc: p.misc, id: p.id() }), &l)?;
        let (file, misc) = if by_inode {
            let file = FileId::Inode { maj: p.n32(5), min: p.n32(6), ino: p.n[6], generation: p.n[7] };
            (file, p.misc & !misc::MMAP_BUILD_ID)
        } else {
            (FileId::BuildId(BuildId::new(&p.bytes)), p.misc | misc::MMAP_BUILD_ID)
        };
        let (prot, flags) = (p.n32(6), p.n32(7));
        same(&Record::Mmap2(Mmap2 { pid, tid, addr, len, pgoff, file, prot, flags, filename: &p.name, misc, id: p.id() }), &l)?;
    }

    #[test]
    fn tasks(p in parts()) {
        let (l, id, misc) = (p.layout(), p.id(), p.misc);
        let task = Task { pid: p.n32(0), ppid: p.n32(1), tid: p.n32(2), ptid: p.n32(3), time: p.n[4], misc, id };
        same(&Record::Fork(task), &l)?;
        same(&Record::Exit(task), &l)?;
        same(&Record::Comm(Comm { pid: p.n32(0), tid: p.n32(1), comm: &p.name, misc, id }), &l)?;
        same(&Record::Switch(Switch { misc, id }), &l)?;
        same(&Record::SwitchCpuWide(SwitchCpuWide { other_pid: p.n32(0), other_tid: p.n32(1), misc, id }), &l)?;
        let mut words = p.word_bytes();
        words.truncate(words.len() / 16 * 16);
        let links = Words::new(&words, p.endian);
        same(&Record::Namespaces(Namespaces { pid: p.n32(0), tid: p.n32(1), links, misc, id }), &l)?;
        same(&Record::Cgroup(Cgroup { cgroup: p.n[0], path: &p.name, misc, id }), &l)?;
    }

    #[test]
    fn event_records(p in parts()) {
        let (l, id, misc) = (p.layout(), p.id(), p.misc);
        same(&Record::Lost(Lost { event_id: p.n[0], lost: p.n[1], misc, id }), &l)?;
        same(&Record::LostSamples(LostSamples { lost: p.n[0], misc, id }), &l)?;
        let throttle = Throttle { time: p.n[0], event_id: p.n[1], stream_id: p.n[2], misc, id };
        same(&Record::Throttle(throttle), &l)?;
        same(&Record::Unthrottle(throttle), &l)?;
        same(&Record::Aux(Aux { offset: p.n[0], size: p.n[1], flags: p.n[2], misc, id }), &l)?;
        same(&Record::ItraceStart(ItraceStart { pid: p.n32(0), tid: p.n32(1), misc, id }), &l)?;
        same(&Record::AuxOutputHwId(AuxOutputHwId { hw_id: p.n[0], misc, id }), &l)?;
        let words = p.word_bytes();
        let callchain = Callchain::new(&words, p.endian);
        same(&Record::CallchainDeferred(CallchainDeferred { cookie: p.n[0], callchain, misc, id }), &l)?;
    }

    #[test]
    fn kernel_text(p in parts(), cut in any::<prop::sample::Index>()) {
        let (l, id, misc) = (p.layout(), p.id(), p.misc);
        let (kind, flags) = (p.n[2] as u16, p.n[3] as u16);
        same(&Record::Ksymbol(Ksymbol { addr: p.n[0], len: p.n32(1), kind, flags, name: &p.name, misc, id }), &l)?;
        let tag = p.n[1].to_le_bytes();
        same(&Record::BpfEvent(BpfEvent { kind, flags, prog_id: p.n32(0), tag, misc, id }), &l)?;
        let (old, new) = p.bytes.split_at(cut.index(p.bytes.len() + 1));
        same(&Record::TextPoke(TextPoke { addr: p.n[0], old, new, misc, id }), &l)?;
    }

    #[test]
    fn other_records(p in parts()) {
        let l = p.layout();
        same(&Record::FinishedRound, &l)?;
        same(&Record::User(UserRecord { kind: 64 + (p.n32(0) % 4), misc: p.misc, body: &p.bytes }), &l)?;
        let words = p.word_bytes();
        same(&Record::Unknown(Unknown { kind: 23 + p.n32(0) % 41, misc: p.misc, body: &words }), &l)?;
    }

    #[test]
    fn reads(p in parts()) {
        let words = reads_words(&p);
        let values = ReadValues::new(p.attr.read_format, Words::new(&words, p.endian)).unwrap();
        same(&Record::Read(Read { pid: p.n32(0), tid: p.n32(1), values, misc: p.misc, id: p.id() }), &p.layout())?;
        // What was put in comes out under its name.
        let format = p.attr.read_format;
        prop_assert_eq!(values.enabled(), format.contains(ReadFormat::TOTAL_TIME_ENABLED).then_some(1001));
        prop_assert_eq!(values.running(), format.contains(ReadFormat::TOTAL_TIME_RUNNING).then_some(1002));
        for (i, v) in values.iter().enumerate() {
            prop_assert_eq!(v.value, 10 * i as u64);
            prop_assert_eq!(v.id, format.contains(ReadFormat::ID).then_some(10 * i as u64 + 1));
            prop_assert_eq!(v.lost, format.contains(ReadFormat::LOST).then_some(10 * i as u64 + 2));
        }
    }

    #[test]
    fn samples(p in parts(), abi in 0..3_u64, dyn_size in any::<u64>()) {
        let raw = padded(&p.bytes, 4);
        let aux = padded(&p.bytes, 0);
        let stack = padded(&p.bytes[p.bytes.len() / 2..], 0);
        let reads = reads_words(&p);
        let words = p.word_bytes();
        let regs: Vec<u8> = (0..64_u64).flat_map(|i| p.endian.put_u64(p.n[0] ^ i)).collect();
        let sample = sample(&p, &Pieces { raw: &raw, aux: &aux, stack: &stack, reads: &reads, words: &words, regs: &regs, abi, dyn_size });
        same(&Record::Sample(sample), &p.layout())?;
        // Kernels leave junk behind the last field.
        let mut bytes = Vec::new();
        Record::Sample(sample).encode(&p.layout(), &mut bytes).unwrap();
        bytes.extend_from_slice(&p.bytes);
        let size = u16::try_from(bytes.len()).unwrap();
        bytes[6..8].copy_from_slice(&p.endian.put_u16(size));
        let junk = RawRecord::parse(&bytes, 0, p.endian).unwrap();
        prop_assert_eq!(Sample::decode(&junk, &p.layout()).unwrap(), sample);
    }

    /// A sample with nothing in it is written with zeros, and reads as such.
    #[test]
    fn empty_samples(p in parts()) {
        let mut bytes = Vec::new();
        Record::Sample(Sample::default()).encode(&p.layout(), &mut bytes).unwrap();
        let raw = RawRecord::parse(&bytes, 0, p.endian).unwrap();
        prop_assert_eq!(raw.bytes.len(), bytes.len());
        let read = Sample::decode(&raw, &p.layout()).unwrap();
        prop_assert_eq!(read.time, p.has(SampleType::TIME).then_some(0));
        prop_assert_eq!(read.callchain.map(|c| c.len()), p.has(SampleType::CALLCHAIN).then_some(0));
    }

    #[test]
    fn event_attrs(attr in attrs(), endian in endians(), words in 8..=17_u32, junk in vec(any::<u8>(), 0..20)) {
        let size = 8 * words;
        let mut bytes = Vec::new();
        attr.encode_as(&mut bytes, endian, size);
        prop_assert_eq!(bytes.len(), size as usize);
        bytes.extend_from_slice(&junk);
        let read = Attr::decode(&bytes, endian).unwrap();
        if size == Attr::MAX_SIZE {
            prop_assert_eq!(&read, &attr);
        }
        // Written again at the same size it is the same: nothing but the missing tail was lost.
        let mut again = Vec::new();
        read.encode_as(&mut again, endian, size);
        prop_assert_eq!(&again[..], &bytes[..size as usize]);
        let mut cut = bytes[..size as usize - 1].to_vec();
        prop_assert!(Attr::decode(&cut, endian).is_err());
        cut.truncate(3);
        prop_assert!(Attr::decode(&cut, endian).is_err());
    }

    #[test]
    fn precise(level in 0_u8..=3, endian in endians(), other in any::<u64>()) {
        let mut attr = Attr { flags: AttrFlags::from_bits_retain(other), ..Attr::default() };
        attr.set_precise_ip(level);
        let mut bytes = Vec::new();
        attr.encode_as(&mut bytes, endian, Attr::SIZE);
        prop_assert_eq!(Attr::decode(&bytes, endian).unwrap().precise_ip(), level);
    }

    #[test]
    fn build_ids(bytes in vec(any::<u8>(), 1..=20)) {
        let id = BuildId::new(&bytes);
        prop_assert_eq!(id.to_string().parse::<BuildId>().unwrap(), id);
    }
}

struct Pieces<'a> {
    raw: &'a [u8],
    aux: &'a [u8],
    stack: &'a [u8],
    reads: &'a [u8],
    words: &'a [u8],
    regs: &'a [u8],
    abi: u64,
    dyn_size: u64,
}

/// A sample with the fields that its layout has.
fn sample<'a>(p: &Parts, x: &Pieces<'a>) -> Sample<'a> {
    use SampleType as S;
    let long = |bit, i: usize| p.has(bit).then_some(p.n[i]);
    let regs = |bit, mask: u64| {
        let count = if x.abi == 0 { 0 } else { mask.count_ones() as usize };
        p.has(bit).then_some(Regs { abi: x.abi, values: Words::new(&x.regs[..8 * count], p.endian) })
    };
    let stack = StackUser { bytes: x.stack, dyn_size: if x.stack.is_empty() { 0 } else { x.dyn_size } };
    let branches = x.words.len() / 24;
    let hw_index = p.attr.branch_sample_type & attr::BRANCH_HW_INDEX != 0;
    let counters = p.attr.branch_sample_type & attr::BRANCH_COUNTERS != 0;
    Sample {
        misc: p.misc,
        identifier: long(S::IDENTIFIER, 0),
        ip: long(S::IP, 1),
        pid: p.has(S::TID).then_some(p.n32(2)),
        tid: p.has(S::TID).then_some(p.n32(3)),
        time: long(S::TIME, 4),
        addr: long(S::ADDR, 5),
        id: long(S::ID, 6),
        stream_id: long(S::STREAM_ID, 7),
        cpu: p.has(S::CPU).then_some(p.n32(8)),
        period: long(S::PERIOD, 9),
        read: p.has(S::READ).then(|| ReadValues::new(p.attr.read_format, Words::new(x.reads, p.endian)).unwrap()),
        callchain: p.has(S::CALLCHAIN).then_some(Callchain::new(x.words, p.endian)),
        raw: p.has(S::RAW).then_some(x.raw),
        branch_stack: p.has(S::BRANCH_STACK).then_some(BranchStack {
            hw_index: hw_index.then_some(p.n[10]),
            entries: Words::new(&x.words[..24 * branches], p.endian),
            counters: counters.then_some(Words::new(&x.words[..8 * branches], p.endian)),
        }),
        regs_user: regs(S::REGS_USER, p.attr.sample_regs_user),
        stack_user: p.has(S::STACK_USER).then_some(stack),
        weight: long(S::WEIGHT | S::WEIGHT_STRUCT, 11),
        data_src: long(S::DATA_SRC, 12),
        transaction: long(S::TRANSACTION, 13),
        regs_intr: regs(S::REGS_INTR, p.attr.sample_regs_intr),
        phys_addr: long(S::PHYS_ADDR, 14),
        cgroup: long(S::CGROUP, 15),
        data_page_size: long(S::DATA_PAGE_SIZE, 0),
        code_page_size: long(S::CODE_PAGE_SIZE, 1),
        aux: p.has(S::AUX).then_some(x.aux),
    }
}

/// The words of a read in the attr's format, numbered so that each can be told: of the i-th event 10 i and the next two.
fn reads_words(p: &Parts) -> Vec<u8> {
    let format = p.attr.read_format;
    let events = if format.contains(ReadFormat::GROUP) { p.words.len() as u64 % 5 } else { 1 };
    let times = [(ReadFormat::TOTAL_TIME_ENABLED, 1001), (ReadFormat::TOTAL_TIME_RUNNING, 1002)];
    let times: Vec<u64> = times.iter().filter(|(bit, _)| format.contains(*bit)).map(|(_, v)| *v).collect();
    let extras = |i: u64| {
        let all = [(ReadFormat::ID, 10 * i + 1), (ReadFormat::LOST, 10 * i + 2)];
        all.into_iter().filter(move |(bit, _)| format.contains(*bit)).map(|(_, v)| v)
    };
    let mut words = Vec::new();
    if format.contains(ReadFormat::GROUP) {
        words.push(events);
        words.extend(times);
        (0..events).for_each(|i| {
            words.push(10 * i);
            words.extend(extras(i));
        });
    } else {
        words.push(0);
        words.extend(times);
        words.extend(extras(0));
    }
    words.iter().flat_map(|w| p.endian.put_u64(*w)).collect()
}

/// The bytes with zeros behind them, so that with `head` bytes before them they end at a multiple of 8.
fn padded(bytes: &[u8], head: usize) -> Vec<u8> {
    let mut out = bytes.to_vec();
    out.resize((head + bytes.len()).next_multiple_of(8) - head, 0);
    out
}
