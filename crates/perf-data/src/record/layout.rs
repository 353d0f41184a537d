use crate::attr::{BRANCH_COUNTERS, BRANCH_HW_INDEX};
use crate::{Attr, AttrFlags, Endian, ReadFormat, SampleType};

/// What an event's records look like, worked out once from its attr.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The fields of a sample.
    pub sample_type: SampleType,
    /// The fields of a counter read.
    pub read_format: ReadFormat,
    /// Whether other records end in a sample id.
    pub sample_id_all: bool,
    /// How many user registers a sample holds.
    pub regs_user: u32,
    /// Which: a bit of asm/perf_regs.h each.
    pub regs_user_mask: u64,
    /// How many interrupt registers a sample holds.
    pub regs_intr: u32,
    /// Branch stacks begin with a hardware index.
    pub branch_hw_index: bool,
    /// Branch stacks end with counters.
    pub branch_counters: bool,
    /// The byte order.
    pub endian: Endian,
    /// Bytes of the fields before READ: each is one u64 where it is present.
    pub(crate) fixed_bytes: usize,
    /// Bytes of the sample id at the end of other records.
    pub(crate) trailer_bytes: usize,
    /// Whether anything that comes after RAW is in samples.
    pub(crate) has_tail: bool,
}

/// The fields of a sample that come first, one word each.
const FIXED: SampleType = SampleType::IDENTIFIER
    .union(SampleType::IP)
    .union(SampleType::TID)
    .union(SampleType::TIME)
    .union(SampleType::ADDR)
    .union(SampleType::ID)
    .union(SampleType::STREAM_ID)
    .union(SampleType::CPU)
    .union(SampleType::PERIOD);

/// The fields of a sample id, one word each.
const TRAILER: SampleType = SampleType::TID
    .union(SampleType::TIME)
    .union(SampleType::ID)
    .union(SampleType::STREAM_ID)
    .union(SampleType::CPU)
    .union(SampleType::IDENTIFIER);

const BEFORE_TAIL: SampleType = FIXED.union(SampleType::READ).union(SampleType::CALLCHAIN).union(SampleType::RAW);

impl Layout {
    /// The layout of the records of an event with this attr.
    pub fn new(attr: &Attr, endian: Endian) -> Self {
        let words = |of: SampleType| attr.sample_type.intersection(of).bits().count_ones() as usize;
        Self {
            sample_type: attr.sample_type,
            read_format: attr.read_format,
            sample_id_all: attr.flags.contains(AttrFlags::SAMPLE_ID_ALL),
            regs_user: attr.sample_regs_user.count_ones(),
            regs_user_mask: attr.sample_regs_user,
            regs_intr: attr.sample_regs_intr.count_ones(),
            branch_hw_index: attr.branch_sample_type & BRANCH_HW_INDEX != 0,
            branch_counters: attr.branch_sample_type & BRANCH_COUNTERS != 0,
            endian,
            fixed_bytes: 8 * words(FIXED),
            trailer_bytes: 8 * words(TRAILER),
            has_tail: attr.sample_type.intersects(BEFORE_TAIL.complement()),
        }
    }

    /// Where the event's id stands in a SAMPLE, in bytes from the start of the record.
    pub(crate) fn id_in_sample(&self) -> Option<usize> {
        use SampleType as S;
        if self.sample_type.contains(S::IDENTIFIER) {
            return Some(8);
        }
        let before = S::IP | S::TID | S::TIME | S::ADDR;
        let words = self.sample_type.intersection(before).bits().count_ones() as usize;
        self.sample_type.contains(S::ID).then_some(8 + 8 * words)
    }

    /// Where the event's id stands in other records, in bytes from the end of the record.
    pub(crate) fn id_from_end(&self) -> Option<usize> {
        use SampleType as S;
        if !self.sample_id_all {
            return None;
        }
        if self.sample_type.contains(S::IDENTIFIER) {
            return Some(8);
        }
        let after = self.sample_type.intersection(S::STREAM_ID | S::CPU).bits().count_ones() as usize;
        self.sample_type.contains(S::ID).then_some(8 + 8 * after)
    }
}
