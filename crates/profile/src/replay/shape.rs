//! Where the fields of an event's samples lie, worked out once, so that a sample costs a few loads.
//!
//! Order and sizes are those of `perf_output_sample` (kernel/events/core.c); the fields up to PERIOD take 8 bytes each.

use afterimage_perf_data::{Attr, Callchain, Endian, RawRecord, ReadFormat, SampleType};

/// Offsets from the start of the record in bytes; 0 is no field's, since every record begins with its header.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shape {
    ip: usize,
    task: usize,
    time: usize,
    addr: usize,
    cpu: usize,
    period: usize,
    /// First byte behind the fields of fixed size.
    variable: usize,
    read: Option<Read>,
    chain: bool,
    /// Whether the cgroup is behind them: reaching it takes a full decode.
    pub(crate) cgroup: bool,
    /// What a sample without a period stands for, as in perf.
    default_period: u64,
    /// Bytes from the end of other records to their time, 0 without.
    time_from_end: usize,
    endian: Endian,
}

/// READ: counter values, one event's or a group's.
#[derive(Clone, Copy, Debug)]
enum Read {
    One(usize),
    Group { head: usize, each: usize },
}

/// The fields of a sample that a replay hands on.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'f> {
    pub(crate) ip: u64,
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) time: Option<u64>,
    pub(crate) addr: Option<u64>,
    pub(crate) cpu: Option<u32>,
    pub(crate) period: u64,
    pub(crate) chain: Callchain<'f>,
}

impl Shape {
    pub(crate) fn new(attr: &Attr, endian: Endian) -> Shape {
        use SampleType as S;
        let mut shape = Shape { endian, default_period: attr.period_or_freq, ..Shape::default() };
        let mut at = 8;
        let mut field = |bit: S| {
            let here = at;
            let there = attr.sample_type.contains(bit);
            at += if there { 8 } else { 0 };
            if there { here } else { 0 }
        };
        field(S::IDENTIFIER);
        shape.ip = field(S::IP);
        shape.task = field(S::TID);
        shape.time = field(S::TIME);
        shape.addr = field(S::ADDR);
        field(S::ID);
        field(S::STREAM_ID);
        shape.cpu = field(S::CPU);
        shape.period = field(S::PERIOD);
        shape.variable = at;
        shape.read = attr.sample_type.contains(S::READ).then(|| Read::of(attr.read_format));
        shape.chain = attr.sample_type.contains(S::CALLCHAIN);
        shape.cgroup = attr.sample_type.contains(S::CGROUP);
        shape.time_from_end = time_from_end(attr);
        shape
    }

    /// Whether times of records are found at the same places.
    pub(crate) fn same_time(&self, other: &Shape) -> bool {
        (self.time, self.time_from_end) == (other.time, other.time_from_end)
    }

    /// Whether samples have counter values.
    #[inline]
    pub(crate) fn has_read(&self) -> bool {
        self.read.is_some()
    }

    /// The time of a SAMPLE, if it has one.
    #[inline]
    pub(crate) fn time_of_sample(&self, bytes: &[u8]) -> Option<u64> {
        self.optional(bytes, self.time)
    }

    /// The time of another record, if it has one.
    #[inline]
    pub(crate) fn time_of_other(&self, bytes: &[u8]) -> Option<u64> {
        match self.time_from_end {
            0 => None,
            back => self.u64(bytes, bytes.len().checked_sub(back).filter(|at| *at >= 8)?),
        }
    }

    #[inline]
    fn u64(&self, bytes: &[u8], at: usize) -> Option<u64> {
        bytes.get(at..)?.first_chunk::<8>().map(|b| self.endian.u64(*b))
    }

    #[inline]
    fn u32(&self, bytes: &[u8], at: usize) -> Option<u32> {
        bytes.get(at..)?.first_chunk::<4>().map(|b| self.endian.u32(*b))
    }

    #[inline]
    fn optional(&self, bytes: &[u8], at: usize) -> Option<u64> {
        if at == 0 { None } else { self.u64(bytes, at) }
    }

    /// The fields of a SAMPLE; `None` if they do not fit into it.
    #[inline]
    pub(crate) fn fields<'f>(&self, raw: &RawRecord<'f>) -> Option<Fields<'f>> {
        let bytes = raw.bytes;
        if bytes.len() < self.variable {
            return None;
        }
        let (pid, tid) = match self.task {
            // perf's numbers for "not said" would be u32::MAX; a process 0 has the name swapper, which is wrong too.
            0 => (u32::MAX, u32::MAX),
            at => (self.u32(bytes, at)?, self.u32(bytes, at + 4)?),
        };
        Some(Fields {
            ip: self.optional(bytes, self.ip).unwrap_or(0),
            pid,
            tid,
            time: self.optional(bytes, self.time),
            addr: self.optional(bytes, self.addr),
            cpu: if self.cpu == 0 { None } else { self.u32(bytes, self.cpu) },
            period: if self.period == 0 { self.default_period } else { self.u64(bytes, self.period)? },
            chain: if self.chain { self.chain(bytes)? } else { Callchain::default() },
        })
    }

    #[inline]
    fn chain<'f>(&self, bytes: &'f [u8]) -> Option<Callchain<'f>> {
        let at = match self.read {
            None => self.variable,
            Some(Read::One(size)) => self.variable + size,
            Some(Read::Group { head, each }) => {
                let count = usize::try_from(self.u64(bytes, self.variable)?).ok()?;
                self.variable.checked_add(head)?.checked_add(count.checked_mul(each)?)?
            }
        };
        let count = usize::try_from(self.u64(bytes, at)?).ok()?;
        let chain = bytes.get(at + 8..)?.get(..count.checked_mul(8)?)?;
        Some(Callchain::new(chain, self.endian))
    }
}

impl Read {
    fn of(format: ReadFormat) -> Read {
        use ReadFormat as R;
        let words = |bits: R| 8 * format.intersection(bits).bits().count_ones() as usize;
        let times = words(R::TOTAL_TIME_ENABLED | R::TOTAL_TIME_RUNNING);
        let each = 8 + words(R::ID | R::LOST);
        if format.contains(R::GROUP) { Read::Group { head: 8 + times, each } } else { Read::One(times + each) }
    }
}

fn time_from_end(attr: &Attr) -> usize {
    use SampleType as S;
    let has_trailer = attr.flags.contains(afterimage_perf_data::AttrFlags::SAMPLE_ID_ALL);
    if !has_trailer || !attr.sample_type.contains(S::TIME) {
        return 0;
    }
    let behind = S::ID | S::STREAM_ID | S::CPU | S::IDENTIFIER;
    8 + 8 * attr.sample_type.intersection(behind).bits().count_ones() as usize
}
