//! `struct perf_event_attr` (linux/perf_event.h) and the bits in it.

use crate::bytes::{Cursor, Out};
use crate::{Endian, Error, ErrorKind, Result};

bitflags::bitflags! {
    /// What each sample carries (`enum perf_event_sample_format`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct SampleType: u64 {
        /// The instruction pointer.
        const IP = 1;
        /// Process and thread id.
        const TID = 1 << 1;
        /// The time on the event's clock, ns.
        const TIME = 1 << 2;
        /// The data address, the fault address, or what the event calls its address.
        const ADDR = 1 << 3;
        /// Counter values, as [`ReadFormat`] says.
        const READ = 1 << 4;
        /// The stack as addresses.
        const CALLCHAIN = 1 << 5;
        /// The id of the event, or of its group leader.
        const ID = 1 << 6;
        /// The CPU.
        const CPU = 1 << 7;
        /// The period that this sample stands for.
        const PERIOD = 1 << 8;
        /// The id of the event itself.
        const STREAM_ID = 1 << 9;
        /// Bytes of a tracepoint or of a BPF program.
        const RAW = 1 << 10;
        /// Last branches.
        const BRANCH_STACK = 1 << 11;
        /// User registers.
        const REGS_USER = 1 << 12;
        /// Bytes of the user stack.
        const STACK_USER = 1 << 13;
        /// One weight, hardware dependent.
        const WEIGHT = 1 << 14;
        /// Where the data came from (`union perf_mem_data_src`).
        const DATA_SRC = 1 << 15;
        /// The id, at a fixed place in every record.
        const IDENTIFIER = 1 << 16;
        /// Transactional memory flags.
        const TRANSACTION = 1 << 17;
        /// Registers at the interrupt.
        const REGS_INTR = 1 << 18;
        /// The physical data address.
        const PHYS_ADDR = 1 << 19;
        /// AUX bytes in the sample.
        const AUX = 1 << 20;
        /// The id of the cgroup.
        const CGROUP = 1 << 21;
        /// Page size at the data address.
        const DATA_PAGE_SIZE = 1 << 22;
        /// Page size at the instruction pointer.
        const CODE_PAGE_SIZE = 1 << 23;
        /// Three weights in one word.
        const WEIGHT_STRUCT = 1 << 24;
        const _ = !0;
    }

    /// What a read of a counter carries (`enum perf_event_read_format`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct ReadFormat: u64 {
        /// ns that the event was enabled.
        const TOTAL_TIME_ENABLED = 1;
        /// ns that the event was counting.
        const TOTAL_TIME_RUNNING = 1 << 1;
        /// The id of the event.
        const ID = 1 << 2;
        /// All events of the group.
        const GROUP = 1 << 3;
        /// Samples lost for want of ring space.
        const LOST = 1 << 4;
        const _ = !0;
    }

    /// The one-bit fields of the attr, and the two bits of precise_ip (see [`Attr::precise_ip`]).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct AttrFlags: u64 {
        /// Off when opened.
        const DISABLED = 1;
        /// Children inherit it.
        const INHERIT = 1 << 1;
        /// Must always be on the PMU.
        const PINNED = 1 << 2;
        /// Only group on the PMU.
        const EXCLUSIVE = 1 << 3;
        /// Not in user mode.
        const EXCLUDE_USER = 1 << 4;
        /// Not in the kernel.
        const EXCLUDE_KERNEL = 1 << 5;
        /// Not in the hypervisor.
        const EXCLUDE_HV = 1 << 6;
        /// Not when idle.
        const EXCLUDE_IDLE = 1 << 7;
        /// MMAP records of executable maps.
        const MMAP = 1 << 8;
        /// COMM records.
        const COMM = 1 << 9;
        /// `period_or_freq` is a frequency in Hz.
        const FREQ = 1 << 10;
        /// Counts per task.
        const INHERIT_STAT = 1 << 11;
        /// On at the next exec.
        const ENABLE_ON_EXEC = 1 << 12;
        /// FORK and EXIT records.
        const TASK = 1 << 13;
        /// `wakeup` is in bytes.
        const WATERMARK = 1 << 14;
        /// Low bit of precise_ip.
        const PRECISE_IP_LOW = 1 << 15;
        /// High bit of precise_ip.
        const PRECISE_IP_HIGH = 1 << 16;
        /// MMAP records of data maps.
        const MMAP_DATA = 1 << 17;
        /// Every record ends in a sample id.
        const SAMPLE_ID_ALL = 1 << 18;
        /// Not in the host.
        const EXCLUDE_HOST = 1 << 19;
        /// Not in guests.
        const EXCLUDE_GUEST = 1 << 20;
        /// No kernel part in callchains.
        const EXCLUDE_CALLCHAIN_KERNEL = 1 << 21;
        /// No user part in callchains.
        const EXCLUDE_CALLCHAIN_USER = 1 << 22;
        /// MMAP2 records in place of MMAP.
        const MMAP2 = 1 << 23;
        /// COMM records say whether an exec made them.
        const COMM_EXEC = 1 << 24;
        /// `clockid` holds the clock.
        const USE_CLOCKID = 1 << 25;
        /// SWITCH records.
        const CONTEXT_SWITCH = 1 << 26;
        /// The ring is written backwards.
        const WRITE_BACKWARD = 1 << 27;
        /// NAMESPACES records.
        const NAMESPACES = 1 << 28;
        /// KSYMBOL records.
        const KSYMBOL = 1 << 29;
        /// BPF_EVENT records.
        const BPF_EVENT = 1 << 30;
        /// Output goes to the AUX area.
        const AUX_OUTPUT = 1 << 31;
        /// CGROUP records.
        const CGROUP = 1 << 32;
        /// TEXT_POKE records.
        const TEXT_POKE = 1 << 33;
        /// MMAP2 records carry build IDs.
        const BUILD_ID = 1 << 34;
        /// Threads inherit it, processes do not.
        const INHERIT_THREAD = 1 << 35;
        /// Gone at exec.
        const REMOVE_ON_EXEC = 1 << 36;
        /// SIGTRAP at each overflow.
        const SIGTRAP = 1 << 37;
        const _ = !0;
    }
}

/// `struct perf_event_attr`: what an event counts and what its records carry.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Attr {
    /// `type`: hardware 0, software 1, tracepoint 2, cache 3, raw 4, breakpoint 5, or a PMU's number in sysfs.
    pub kind: u32,
    /// What is counted, in the terms of `kind`.
    pub config: u64,
    /// Samples are this many counts apart, or this many a second with [`AttrFlags::FREQ`].
    pub period_or_freq: u64,
    /// The fields of samples.
    pub sample_type: SampleType,
    /// The fields of counter reads.
    pub read_format: ReadFormat,
    /// The one-bit fields.
    pub flags: AttrFlags,
    /// A wakeup after so many samples, or bytes with [`AttrFlags::WATERMARK`].
    pub wakeup: u32,
    /// Breakpoint type (1 read, 2 write, 4 execute).
    pub bp_type: u32,
    /// `config1`; of a breakpoint its address.
    pub config1: u64,
    /// `config2`; of a breakpoint its length in bytes.
    pub config2: u64,
    /// Which branches (`enum perf_branch_sample_type`).
    pub branch_sample_type: u64,
    /// Which user registers, one bit each.
    pub sample_regs_user: u64,
    /// Bytes of user stack in each sample.
    pub sample_stack_user: u32,
    /// The clock, with [`AttrFlags::USE_CLOCKID`] (`CLOCK_MONOTONIC` is 1).
    pub clockid: i32,
    /// Which registers at the interrupt, one bit each.
    pub sample_regs_intr: u64,
    /// AUX bytes before a wakeup.
    pub aux_watermark: u32,
    /// Most addresses in a callchain; 0 means the system's limit.
    pub sample_max_stack: u16,
    /// AUX bytes in each sample.
    pub aux_sample_size: u32,
    /// Start paused, pause, resume (Linux 6.13).
    pub aux_action: u32,
    /// Passed to the SIGTRAP handler.
    pub sig_data: u64,
    /// `config3` (Linux 6.3).
    pub config3: u64,
}

/// Branch stacks begin with a hardware index (`PERF_SAMPLE_BRANCH_HW_INDEX`).
pub const BRANCH_HW_INDEX: u64 = 1 << 17;
/// Branch stacks end with counters (`PERF_SAMPLE_BRANCH_COUNTERS`).
pub const BRANCH_COUNTERS: u64 = 1 << 19;

impl Attr {
    /// The size that [`Attr::encode`] writes, in bytes: the largest that perf 6.1 reads without complaint.
    pub const SIZE: u32 = 128;
    /// The smallest size that any kernel wrote (`PERF_ATTR_SIZE_VER0`).
    pub const MIN_SIZE: u32 = 64;
    /// Largest size known here; longer attrs are read and their tail is left alone.
    pub const MAX_SIZE: u32 = 136;

    /// Reads an attr of any size. The `size` field inside bounds what is read; 0 there means 64 (as in old files);
    /// fields beyond it are 0 and what is beyond 136 bytes is ignored.
    ///
    /// # Errors
    /// [`ErrorKind::Truncated`] below 64 bytes, [`ErrorKind::BadSize`] when `size` is below 64 or beyond `bytes`.
    pub fn decode(bytes: &[u8], endian: Endian) -> Result<Attr> {
        if bytes.len() < Self::MIN_SIZE as usize {
            return Err(Error::new(ErrorKind::Truncated, "event attr"));
        }
        let size = Self::stated_size(bytes, endian);
        if size < Self::MIN_SIZE as usize || size > bytes.len() {
            return Err(Error::new(ErrorKind::BadSize, format!("event attr of {size} bytes")));
        }
        let mut whole = [0; Self::MAX_SIZE as usize];
        for (to, from) in whole.iter_mut().zip(&bytes[..size]) {
            *to = *from;
        }
        Self::decode_whole(Cursor::new(&whole, 0, endian))
    }

    /// How many bytes the attr at the start of `bytes` says it has.
    pub(crate) fn stated_size(bytes: &[u8], endian: Endian) -> usize {
        let stated = bytes.get(4..).and_then(|b| b.first_chunk::<4>()).map_or(0, |b| endian.u32(*b));
        if stated == 0 { Self::MIN_SIZE as usize } else { stated as usize }
    }

    fn decode_whole(mut c: Cursor<'_>) -> Result<Attr> {
        const W: &str = "event attr";
        let kind = c.u32(W)?;
        c.u32(W)?;
        Ok(Attr {
            kind,
            config: c.u64(W)?,
            period_or_freq: c.u64(W)?,
            sample_type: SampleType::from_bits_retain(c.u64(W)?),
            read_format: ReadFormat::from_bits_retain(c.u64(W)?),
            flags: AttrFlags::from_bits_retain(flags_from(c.u64(W)?, c.endian)),
            wakeup: c.u32(W)?,
            bp_type: c.u32(W)?,
            config1: c.u64(W)?,
            config2: c.u64(W)?,
            branch_sample_type: c.u64(W)?,
            sample_regs_user: c.u64(W)?,
            sample_stack_user: c.u32(W)?,
            clockid: c.u32(W)? as i32,
            sample_regs_intr: c.u64(W)?,
            aux_watermark: c.u32(W)?,
            sample_max_stack: {
                let n = c.u16(W)?;
                c.u16(W)?;
                n
            },
            aux_sample_size: c.u32(W)?,
            aux_action: c.u32(W)?,
            sig_data: c.u64(W)?,
            config3: c.u64(W)?,
        })
    }

    /// Appends the attr as 128 little-endian bytes. `config3` has no place in them: no event that needs it is opened.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.encode_as(out, Endian::Little, Self::SIZE);
    }

    /// Appends the first `size` (64 to 136, a multiple of 8) bytes of the attr in a byte order.
    pub fn encode_as(&self, out: &mut Vec<u8>, endian: Endian, size: u32) {
        let size = size.clamp(Self::MIN_SIZE, Self::MAX_SIZE);
        let start = out.len();
        let mut o = Out { buf: out, endian };
        o.u32(self.kind);
        o.u32(size);
        o.u64(self.config);
        o.u64(self.period_or_freq);
        o.u64(self.sample_type.bits());
        o.u64(self.read_format.bits());
        o.u64(flags_to(self.flags.bits(), endian));
        o.u32(self.wakeup);
        o.u32(self.bp_type);
        o.u64(self.config1);
        o.u64(self.config2);
        o.u64(self.branch_sample_type);
        o.u64(self.sample_regs_user);
        o.u32(self.sample_stack_user);
        o.u32(self.clockid as u32);
        o.u64(self.sample_regs_intr);
        o.u32(self.aux_watermark);
        o.u16(self.sample_max_stack);
        o.u16(0);
        o.u32(self.aux_sample_size);
        o.u32(self.aux_action);
        o.u64(self.sig_data);
        o.u64(self.config3);
        out.truncate(start + size as usize);
    }

    /// How precise the instruction pointer must be: 0 may be off, 3 must not be.
    pub fn precise_ip(&self) -> u8 {
        ((self.flags.bits() >> 15) & 3) as u8
    }

    /// Sets [`Attr::precise_ip`]; more than 3 is 3.
    pub fn set_precise_ip(&mut self, level: u8) {
        let bits = self.flags.bits() & !(3 << 15) | u64::from(level.min(3)) << 15;
        self.flags = AttrFlags::from_bits_retain(bits);
    }
}

/// Bit fields count from the other end of the word on big-endian machines.
fn flags_from(word: u64, endian: Endian) -> u64 {
    match endian {
        Endian::Little => word,
        Endian::Big => swap_precise(word.reverse_bits()),
    }
}

/// The inverse of [`flags_from`].
fn flags_to(flags: u64, endian: Endian) -> u64 {
    match endian {
        Endian::Little => flags,
        Endian::Big => swap_precise(flags).reverse_bits(),
    }
}

/// precise_ip has two bits; turning the word around turned them around too.
fn swap_precise(word: u64) -> u64 {
    word & !(3 << 15) | (word >> 1 & 1 << 15) | ((word & 1 << 15) << 1)
}
