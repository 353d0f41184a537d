use crate::{Endian, Error, ErrorKind, Result};

/// `struct perf_event_header`: what every record begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// The type, see [`kind`].
    pub kind: u32,
    /// The CPU mode and bits whose meaning depends on the type, see [`misc`].
    pub misc: u16,
    /// Bytes of the whole record, this header included.
    pub size: u16,
}

impl RecordHeader {
    /// Bytes of a header.
    pub const SIZE: usize = 8;

    /// Reads a header.
    #[inline]
    pub fn decode(bytes: [u8; 8], endian: Endian) -> Self {
        let [a, b, c, d, e, f, g, h] = bytes;
        Self { kind: endian.u32([a, b, c, d]), misc: endian.u16([e, f]), size: endian.u16([g, h]) }
    }

    /// Bytes of the whole record: `size`, but for records of simpleperf, which are longer than 16 bits can tell and have the
    /// higher ones in `misc` (`simpleperf_record_header`, simpleperf/record.h).
    #[inline]
    pub fn bytes(&self) -> usize {
        let size = usize::from(self.size);
        if kind::SIMPLEPERF.contains(&self.kind) { usize::from(self.misc) << 16 | size } else { size }
    }

    /// The part of [`RecordHeader::misc`] that says where the CPU was, see [`cpumode`].
    pub fn cpumode(&self) -> u16 {
        self.misc & cpumode::MASK
    }
}

/// Bytes of a record at most; of one that is simpleperf's, for all others have 16 bits for it. A stream holds it until its
/// end has come.
const LARGEST: usize = 16 << 20;

/// One record, not looked into yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawRecord<'a> {
    /// Its header.
    pub header: RecordHeader,
    /// The whole record, header included.
    pub bytes: &'a [u8],
    /// Its place in the file or the ring, in bytes.
    pub offset: u64,
}

impl<'a> RawRecord<'a> {
    /// The record that begins at the start of `bytes`; more may follow it.
    ///
    /// # Errors
    /// [`ErrorKind::Truncated`] when the bytes end before the record does, [`ErrorKind::BadSize`] when its size is less
    /// than its header, or larger than any: only simpleperf's could be.
    #[inline]
    pub fn parse(bytes: &'a [u8], offset: u64, endian: Endian) -> Result<Self> {
        let Some(head) = bytes.first_chunk::<8>() else {
            return Err(Error::at(ErrorKind::Truncated, "record header", offset));
        };
        let header = RecordHeader::decode(*head, endian);
        let size = header.bytes();
        if !(RecordHeader::SIZE..=LARGEST).contains(&size) {
            return Err(Error::at(ErrorKind::BadSize, format!("record of {size} bytes"), offset));
        }
        match bytes.get(..size) {
            Some(bytes) => Ok(Self { header, bytes, offset }),
            None => Err(Error::at(ErrorKind::Truncated, "record", offset)),
        }
    }

    /// The bytes after the header.
    #[inline]
    pub fn body(&self) -> &'a [u8] {
        self.bytes.get(RecordHeader::SIZE..).unwrap_or_default()
    }
}

/// Record types (`enum perf_event_type`, linux/perf_event.h; from 64 on tools/perf/util/event.h).
#[expect(missing_docs, reason = "the names are the kernel's and perf's")]
pub mod kind {
    pub const MMAP: u32 = 1;
    pub const LOST: u32 = 2;
    pub const COMM: u32 = 3;
    pub const EXIT: u32 = 4;
    pub const THROTTLE: u32 = 5;
    pub const UNTHROTTLE: u32 = 6;
    pub const FORK: u32 = 7;
    pub const READ: u32 = 8;
    pub const SAMPLE: u32 = 9;
    pub const MMAP2: u32 = 10;
    pub const AUX: u32 = 11;
    pub const ITRACE_START: u32 = 12;
    pub const LOST_SAMPLES: u32 = 13;
    pub const SWITCH: u32 = 14;
    pub const SWITCH_CPU_WIDE: u32 = 15;
    pub const NAMESPACES: u32 = 16;
    pub const KSYMBOL: u32 = 17;
    pub const BPF_EVENT: u32 = 18;
    pub const CGROUP: u32 = 19;
    pub const TEXT_POKE: u32 = 20;
    pub const AUX_OUTPUT_HW_ID: u32 = 21;
    pub const CALLCHAIN_DEFERRED: u32 = 22;
    /// The first type that tools write and kernels do not.
    pub const FIRST_USER: u32 = 64;
    pub const HEADER_ATTR: u32 = 64;
    pub const HEADER_EVENT_TYPE: u32 = 65;
    pub const HEADER_TRACING_DATA: u32 = 66;
    pub const HEADER_BUILD_ID: u32 = 67;
    pub const FINISHED_ROUND: u32 = 68;
    pub const ID_INDEX: u32 = 69;
    pub const AUXTRACE_INFO: u32 = 70;
    pub const AUXTRACE: u32 = 71;
    pub const AUXTRACE_ERROR: u32 = 72;
    pub const THREAD_MAP: u32 = 73;
    pub const CPU_MAP: u32 = 74;
    pub const STAT_CONFIG: u32 = 75;
    pub const STAT: u32 = 76;
    pub const STAT_ROUND: u32 = 77;
    pub const EVENT_UPDATE: u32 = 78;
    pub const TIME_CONV: u32 = 79;
    pub const HEADER_FEATURE: u32 = 80;
    pub const COMPRESSED: u32 = 81;
    pub const FINISHED_INIT: u32 = 82;
    pub const COMPRESSED2: u32 = 83;
    pub const BPF_METADATA: u32 = 84;
    /// Types from here on are simpleperf's own (`SIMPLE_PERF_RECORD_TYPE_START`).
    pub const SIMPLEPERF: std::ops::Range<u32> = 0x8000..0x8100;
    /// How many types of tools are known here.
    pub const KNOWN_USER: u32 = BPF_METADATA - FIRST_USER + 1;
}

/// Where the CPU was: the low three bits of `misc`.
#[expect(missing_docs, reason = "the names say it")]
pub mod cpumode {
    pub const MASK: u16 = 7;
    pub const UNKNOWN: u16 = 0;
    pub const KERNEL: u16 = 1;
    pub const USER: u16 = 2;
    pub const HYPERVISOR: u16 = 3;
    pub const GUEST_KERNEL: u16 = 4;
    pub const GUEST_USER: u16 = 5;
}

/// The other bits of `misc`.
pub mod misc {
    /// MMAP, MMAP2: a map of data.
    pub const MMAP_DATA: u16 = 1 << 13;
    /// COMM: the name changed by an exec.
    pub const COMM_EXEC: u16 = 1 << 13;
    /// FORK: made up by a tool; the maps of the parent are not to be copied.
    pub const FORK_EXEC: u16 = 1 << 13;
    /// SWITCH: the task leaves the CPU.
    pub const SWITCH_OUT: u16 = 1 << 13;
    /// SAMPLE: the instruction pointer is exact.
    pub const EXACT_IP: u16 = 1 << 14;
    /// SWITCH with SWITCH_OUT: the task was preempted.
    pub const SWITCH_OUT_PREEMPT: u16 = 1 << 14;
    /// MMAP2: a build ID stands where the inode would.
    pub const MMAP_BUILD_ID: u16 = 1 << 14;
    /// LOST_SAMPLES made by perf: a BPF program dropped them.
    pub const LOST_SAMPLES_BPF: u16 = 1 << 15;
    /// BUILD_ID entries: the size of the build ID is given.
    pub const BUILD_ID_SIZE: u16 = 1 << 15;
}
