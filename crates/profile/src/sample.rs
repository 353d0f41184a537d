//! One sample as a replay hands it on.

use afterimage_perf_data::record::Sample;
use afterimage_perf_data::{Callchain, Layout, RawRecord, Result, SampleType};
use afterimage_unwind::StackEnd;

use crate::loc::CpuMode;
use crate::state::{CommId, ProcessId, SpaceId, ThreadId};
use crate::unwinding::COPIES;

/// A sample at its time: its fields, borrowed from the recording, and who was running.
#[derive(Clone, Copy, Debug)]
pub struct TimedSample<'f> {
    /// Which event, as an index into the recording's events. What a handler wrote stands for the event that it ran on,
    /// or for the second event that takes its output where the samples themselves were recorded too.
    pub event: usize,
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The thread's name at that time.
    pub comm: CommId,
    /// The thread, told from an earlier one of the same tid.
    pub thread: ThreadId,
    /// The process, told from an earlier one of the same pid.
    pub process: ProcessId,
    /// What the process had mapped at that time.
    pub space: SpaceId,
    /// The CPU, if recorded.
    pub cpu: Option<u32>,
    /// ns on the recording's clock, if recorded.
    pub time: Option<u64>,
    /// Counts of the event that it stands for.
    pub period: u64,
    /// Overflows that it stands for: more than 1 where a handler counted.
    pub count: u64,
    /// The instruction pointer; 0 if not recorded.
    pub ip: u64,
    /// The record's `misc`; of what a handler wrote only the CPU mode.
    pub misc: u16,
    /// The data address, if recorded.
    pub addr: Option<u64>,
    /// The cgroup's id, if recorded.
    pub cgroup: Option<u64>,
    /// The stack with its markers, innermost first; empty without one.
    pub chain: Callchain<'f>,
    /// Why its stack ended, where that was unwound from a copy.
    pub stack_end: Option<StackEnd>,
    /// The record itself.
    pub raw: RawRecord<'f>,
    /// How the record is laid out.
    pub(crate) layout: &'f Layout,
    /// Whether the fields are those of a handler's payload in the record.
    pub(crate) emitted: bool,
}

impl<'f> TimedSample<'f> {
    /// What ran.
    pub fn mode(&self) -> CpuMode {
        CpuMode::of_misc(self.misc)
    }

    /// Whether a handler wrote it (`emit`, or values and labels of one from an object): then the record is that of the event which takes the handler's output.
    pub fn is_emitted(&self) -> bool {
        self.emitted
    }

    /// Whether registers and stack of the process were copied with it, and its stack is wanted.
    #[inline]
    pub(crate) fn has_copies(&self) -> bool {
        self.layout.sample_type.contains(COPIES) && !self.emitted
    }

    /// Whether its weight is three numbers in one word (`PERF_SAMPLE_WEIGHT_STRUCT`).
    pub fn has_weight_struct(&self) -> bool {
        self.layout.sample_type.contains(SampleType::WEIGHT_STRUCT)
    }

    /// Every field of the record as it lies in the file.
    ///
    /// # Errors
    /// When a field does not fit into the record; those of this struct did.
    pub fn decode(&self) -> Result<Sample<'f>> {
        Sample::decode(&self.raw, self.layout)
    }
}
