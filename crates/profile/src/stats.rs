//! What a replay saw.

use afterimage_perf_data::Error;

/// What a replay saw, and what it could not use. Counts of records, unless said otherwise.
#[derive(Debug, Default)]
pub struct ReplayStats {
    /// All records.
    pub records: u64,
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
    /// Kernel records of a type that is not known; left out.
    pub unknown_type: u64,
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
    /// FINISHED_ROUND records.
    pub rounds: u64,
    /// Whether the recording was ended as it should be; if not, it goes up to the last pass that was written.
    pub finished: bool,
    /// Why reading stopped before the end, if it did; the error names the place.
    pub error: Option<Error>,
    /// Time of the first sample, ns.
    pub first_time: Option<u64>,
    /// Time of the last sample, ns.
    pub last_time: Option<u64>,
}
