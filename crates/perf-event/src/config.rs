//! What every sampling event of ours carries besides what it counts.

use afterimage_perf_data::{AttrFlags, ReadFormat, SampleType};

use crate::spec::EventSpec;

/// The frequency when none is asked for, samples a second.
pub const DEFAULT_FREQ: u64 = 4000;

/// The longest copy of a stack that the kernel takes, in bytes: the size of a record has 16 bits, and it a multiple of 8.
pub const MAX_STACK_COPY: u32 = 65_528;

/// The registers of a process that samples can have, by bits of asm/perf_regs.h: all that the kernel knows of a 64-bit task.
/// 0 on machines whose stacks cannot be unwound here.
pub const USER_REGISTERS: u64 = if cfg!(target_arch = "x86_64") {
    // All of `enum perf_event_x86_regs` but ds, es, fs and gs.
    0xff_0fff
} else if cfg!(target_arch = "aarch64") {
    (1 << 33) - 1
} else {
    0
};

/// How often an event is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// Samples a second (`-F`).
    Freq(u64),
    /// Counts from sample to sample (`-c`).
    Period(u64),
}

/// What the user asked of all events alike.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// `-F` or `-c`. `None` leaves tracepoints and breakpoints at every hit and gives the others `DEFAULT_FREQ`.
    pub rate: Option<Rate>,
    /// Stacks with each sample (`-g`).
    pub callchain: bool,
    /// Most addresses of a stack; `None` is the system's limit.
    pub max_stack: Option<u16>,
    /// Bytes of the user's stack that are copied with each sample, and the user's registers, instead of the user part of the
    /// stack: for unwinding later. At most [`MAX_STACK_COPY`], a multiple of 8; only beside `callchain`.
    pub stack_copy: Option<u32>,
    /// Fields of samples besides ours.
    pub sample_type: SampleType,
    /// Bytes in a ring that wake its reader; `None` is half of the ring.
    pub watermark: Option<u32>,
}

impl Config {
    /// Fills in the attr of one event. Its own terms (`/period=…/`) win over the common rate.
    ///
    /// Samples carry id, ip, pid and tid, time, CPU and period; times are CLOCK_MONOTONIC; reads carry times, id and losses. The
    /// event is opened disabled, and reports no maps or processes: those come by the sideband.
    pub fn apply(&self, spec: &mut EventSpec) {
        let attr = &mut spec.attr;
        attr.sample_type |= self.sample_type
            | SampleType::IDENTIFIER
            | SampleType::IP
            | SampleType::TID
            | SampleType::TIME
            | SampleType::CPU
            | SampleType::PERIOD;
        if self.callchain {
            attr.sample_type |= SampleType::CALLCHAIN;
            attr.sample_max_stack = self.max_stack.unwrap_or(0);
            if let Some(bytes) = self.stack_copy {
                attr.sample_type |= SampleType::REGS_USER | SampleType::STACK_USER;
                attr.sample_regs_user = USER_REGISTERS;
                attr.sample_stack_user = bytes;
                attr.flags |= AttrFlags::EXCLUDE_CALLCHAIN_USER;
            }
        }
        attr.read_format |=
            ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::TOTAL_TIME_RUNNING | ReadFormat::ID | ReadFormat::LOST;
        attr.flags |= AttrFlags::DISABLED | AttrFlags::SAMPLE_ID_ALL | AttrFlags::USE_CLOCKID;
        attr.clockid = libc::CLOCK_MONOTONIC;
        if let Some(bytes) = self.watermark {
            attr.flags |= AttrFlags::WATERMARK;
            attr.wakeup = bytes;
        }
        let rate = spec.own_rate.or(self.rate).or(spec.default_rate).unwrap_or(Rate::Freq(DEFAULT_FREQ));
        match rate {
            Rate::Freq(hz) => {
                attr.flags |= AttrFlags::FREQ;
                attr.period_or_freq = hz;
            }
            Rate::Period(counts) => {
                attr.flags -= AttrFlags::FREQ;
                attr.period_or_freq = counts;
            }
        }
    }
}
