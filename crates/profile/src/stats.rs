//! What a replay saw.

use std::collections::BTreeMap;

use afterimage_perf_data::Error;
use afterimage_perf_data::record::kind;

use crate::unwinding::StackEnds;

/// What a replay saw, and what it could not use. Counts of records, unless said otherwise.
#[derive(Debug, Default)]
pub struct ReplayStats {
    /// All records.
    pub records: u64,
    /// The same by type.
    pub kinds: KindCounts,
    /// By event, as an index into the recording's events.
    pub events: Vec<EventStats>,
    /// Those that became samples.
    pub samples: u64,
    /// Records older than what had been replayed when they were read; they took effect late.
    pub late: u64,
    /// Records whose fields did not fit into them; left out.
    pub undecodable: u64,
    /// The error of the first of them.
    pub first_undecodable: Option<Error>,
    /// Samples with an id that no event has; left out.
    pub unknown_event: u64,
    /// Samples that stand for more than one, for how many of which damage has made unknown; they count as one.
    pub unknown_count: u64,
    /// Kernel records of a type that is not known; left out. Those of other tools are in [`KindCounts::private`].
    pub unknown_type: u64,
    /// Records of a stream that told of events, names or features only behind its samples; they were not used.
    pub told_late: u64,
    /// What could not be read of records behind the head of a stream that tell about it.
    pub problems: Vec<Error>,
    /// Records (not only samples) lost for want of ring space, as the LOST records in the rings say. They miss what was
    /// lost after the last record that found room.
    pub lost: u64,
    /// Records about processes and kernel text that were lost in a ring of their own: names may be missing, samples are
    /// not. Known only where the recorder keeps such records apart.
    pub sideband_lost: u64,
    /// Samples lost for want of ring space as LOST_SAMPLES records say, which tools write from the kernel's counters.
    pub lost_samples: u64,
    /// Samples dropped by a BPF filter as LOST_SAMPLES records say.
    pub filtered_samples: u64,
    /// THROTTLE records: times that an event was held back.
    pub throttles: u64,
    /// Why stacks ended that were unwound from copies; none unless they were ([`replay_unwinding`](crate::replay_unwinding)).
    pub stack_ends: StackEnds,
    /// FINISHED_ROUND records.
    pub rounds: u64,
    /// Whether the recording was ended as it should be; if not, it goes up to the last pass that was written.
    pub finished: bool,
    /// Places in the records that were damaged, with records again behind them.
    pub damaged: u64,
    /// The error of the first of them; it names the place.
    pub first_damage: Option<Error>,
    /// Bytes that belong to no record, because of damage.
    pub skipped_bytes: u64,
    /// Bytes of a last record that the recorder had not finished; they are no damage.
    pub cut_bytes: u64,
    /// Why reading stopped before the end, if it did; the error names the place.
    pub error: Option<Error>,
    /// Time of the first sample, ns.
    pub first_time: Option<u64>,
    /// Time of the last sample, ns.
    pub last_time: Option<u64>,
}

impl ReplayStats {
    /// Counts damage that records followed.
    pub(crate) fn add_damage(&mut self, damage: Option<Error>) {
        let Some(damage) = damage else { return };
        self.damaged += 1;
        self.first_damage.get_or_insert(damage);
    }
}

/// What there was of one event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventStats {
    /// SAMPLE records; where samples have counter values, those with which this event went on.
    pub samples: u64,
    /// Samples that LOST_SAMPLES records tell of.
    pub lost_samples: u64,
}

/// Records by type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KindCounts {
    /// Of low numbers, which are nearly all.
    low: Vec<u64>,
    high: BTreeMap<u32, u64>,
}

/// Types below this are counted without a look-up.
const LOW: u32 = 128;

impl KindCounts {
    /// Adds many of one type.
    pub(crate) fn add_many(&mut self, kind: u32, count: u64) {
        if count != 0 {
            self.add(kind);
            let low = self.low.get_mut(kind as usize);
            *low.unwrap_or_else(|| self.high.entry(kind).or_default()) += count - 1;
        }
    }

    #[inline]
    pub(crate) fn add(&mut self, kind: u32) {
        if kind >= LOW {
            *self.high.entry(kind).or_default() += 1;
            return;
        }
        if self.low.is_empty() {
            self.low.resize(LOW as usize, 0);
        }
        if let Some(count) = self.low.get_mut(kind as usize) {
            *count += 1;
        }
    }

    /// The types that there were, with how many, by number.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u64)> {
        let low = (0..LOW).zip(self.low.iter().copied()).filter(|(_, count)| *count != 0);
        low.chain(self.high.iter().map(|(kind, count)| (*kind, *count)))
    }

    /// How many of one type.
    pub fn of(&self, kind: u32) -> u64 {
        self.iter().find(|(of, _)| *of == kind).map_or(0, |(_, count)| count)
    }

    /// Records of types that other tools use for themselves; they are left out.
    pub fn private(&self) -> u64 {
        let known = kind::FIRST_USER..kind::FIRST_USER + kind::KNOWN_USER;
        self.iter().filter(|(of, _)| *of >= kind::FIRST_USER && !known.contains(of)).map(|(_, count)| count).sum()
    }
}
