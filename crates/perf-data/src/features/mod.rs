//! Feature sections: what stands around the records (tools/perf/util/header.h, `enum HEADER_*`).

mod bpf;
mod build_ids;
mod decode;
mod encode;
mod strings;
mod types;

pub use bpf::{BpfBtf, BpfProgInfo, array};
pub use build_ids::BuildIdEntry;
pub use types::{
    ClockData, Compressed, CpuTopology, DescribedEvent, Features, GroupDesc, NumaNode, PmuMapping, RawFeature,
};

pub(crate) use decode::decode_one;

/// Numbers of the feature bits.
#[expect(missing_docs, reason = "the names are perf's")]
pub mod bit {
    pub const TRACING_DATA: u32 = 1;
    pub const BUILD_ID: u32 = 2;
    pub const HOSTNAME: u32 = 3;
    pub const OSRELEASE: u32 = 4;
    pub const VERSION: u32 = 5;
    pub const ARCH: u32 = 6;
    pub const NRCPUS: u32 = 7;
    pub const CPUDESC: u32 = 8;
    pub const CPUID: u32 = 9;
    pub const TOTAL_MEM: u32 = 10;
    pub const CMDLINE: u32 = 11;
    pub const EVENT_DESC: u32 = 12;
    pub const CPU_TOPOLOGY: u32 = 13;
    pub const NUMA_TOPOLOGY: u32 = 14;
    pub const BRANCH_STACK: u32 = 15;
    pub const PMU_MAPPINGS: u32 = 16;
    pub const GROUP_DESC: u32 = 17;
    pub const AUXTRACE: u32 = 18;
    pub const STAT: u32 = 19;
    pub const CACHE: u32 = 20;
    pub const SAMPLE_TIME: u32 = 21;
    pub const MEM_TOPOLOGY: u32 = 22;
    pub const CLOCKID: u32 = 23;
    pub const DIR_FORMAT: u32 = 24;
    pub const BPF_PROG_INFO: u32 = 25;
    pub const BPF_BTF: u32 = 26;
    pub const COMPRESSED: u32 = 27;
    pub const CPU_PMU_CAPS: u32 = 28;
    pub const CLOCK_DATA: u32 = 29;
    pub const HYBRID_TOPOLOGY: u32 = 30;
    pub const PMU_CAPS: u32 = 31;
    /// The first bit that perf 6.12 does not know.
    pub const FIRST_UNKNOWN: u32 = 32;
    /// Bits in a header.
    pub const COUNT: u32 = 256;
}
