use std::ops::Range;

use super::{BpfBtf, BpfProgInfo, BuildIdEntry};
use crate::{Attr, Private};

/// What a recording says about itself and its machine. Everything may be missing.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Features {
    /// The machine's name.
    pub hostname: Option<String>,
    /// The kernel's release, as `uname -r`.
    pub os_release: Option<String>,
    /// The version of the tool that recorded.
    pub version: Option<String>,
    /// The architecture, as `uname -m`.
    pub arch: Option<String>,
    /// CPUs that there are, CPUs that were online.
    pub nr_cpus: Option<(u32, u32)>,
    /// The CPU's model for people.
    pub cpu_desc: Option<String>,
    /// The CPU's model for machines.
    pub cpuid: Option<String>,
    /// Memory in KiB.
    pub total_mem: Option<u64>,
    /// The command line.
    pub cmdline: Vec<String>,
    /// Events with names and ids. A writer fills it from its events.
    pub event_desc: Vec<DescribedEvent>,
    /// Which CPUs share what.
    pub cpu_topology: Option<CpuTopology>,
    /// Memory nodes.
    pub numa: Vec<NumaNode>,
    /// Branch stacks are in the samples.
    pub branch_stack: bool,
    /// Names of PMUs by the `kind` of attrs.
    pub pmu_mappings: Vec<PmuMapping>,
    /// Event groups.
    pub groups: Vec<GroupDesc>,
    /// Time of the first and of the last sample, ns on the events' clock.
    pub sample_time: Option<(u64, u64)>,
    /// Resolution of the clock that `attr.clockid` names, ns.
    pub clockid_res_ns: Option<u64>,
    /// The events' clock and the wall clock at one moment.
    pub clock_data: Option<ClockData>,
    /// Build IDs of the files that samples were in.
    pub build_ids: Vec<BuildIdEntry>,
    /// BPF programs.
    pub bpf_progs: Vec<BpfProgInfo>,
    /// Types of BPF programs.
    pub bpf_btfs: Vec<BpfBtf>,
    /// How COMPRESSED records were made.
    pub compressed: Option<Compressed>,
    /// The version of the directory layout.
    pub dir_format: Option<u64>,
    /// What perf's format has no place for.
    pub private: Option<Private>,
    /// Sections that are not looked into, with their place in the file (in pipe form in the stream).
    pub unknown: Vec<(u32, Range<u64>)>,
    /// Sections to write as they are, such as TRACING_DATA. Reading leaves it empty.
    pub extra: Vec<RawFeature>,
}

/// A section's bytes.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct RawFeature {
    /// The feature bit.
    pub bit: u32,
    /// The bytes.
    pub data: Vec<u8>,
}

/// An event in EVENT_DESC.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct DescribedEvent {
    /// Its attr.
    pub attr: Attr,
    /// Its name.
    pub name: String,
    /// Its ids.
    pub ids: Vec<u64>,
}

/// Which CPUs share what.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct CpuTopology {
    /// CPU lists of packages, such as `0-3`.
    pub cores: Vec<String>,
    /// CPU lists of cores.
    pub threads: Vec<String>,
    /// Core and socket number of each CPU.
    pub cpus: Vec<(u32, u32)>,
    /// CPU lists of dies, where the machine has several.
    pub dies: Vec<String>,
    /// Die number of each CPU.
    pub die_of_cpu: Vec<u32>,
}

/// A memory node.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct NumaNode {
    /// Its number.
    pub node: u32,
    /// Its memory in KiB.
    pub total_kib: u64,
    /// What was free, in KiB.
    pub free_kib: u64,
    /// Its CPUs, such as `0-3`.
    pub cpus: String,
}

/// The name of a PMU.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct PmuMapping {
    /// The `kind` of its attrs.
    pub kind: u32,
    /// Its name in sysfs.
    pub name: String,
}

/// A group of events.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct GroupDesc {
    /// A name, mostly empty.
    pub name: String,
    /// Index of the leader among the events.
    pub leader: u32,
    /// How many events, the leader included.
    pub members: u32,
}

/// The events' clock and the wall clock at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ClockData {
    /// The clock.
    pub clockid: u32,
    /// Wall clock, ns since 1970.
    pub wall_ns: u64,
    /// The events' clock, ns.
    pub clock_ns: u64,
}

/// How COMPRESSED records were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Compressed {
    /// 1.
    pub version: u32,
    /// 1 is zstd.
    pub kind: u32,
    /// The level.
    pub level: u32,
    /// Bytes before by bytes after, rounded.
    pub ratio: u32,
    /// Bytes that a decoder needs for one chunk.
    pub mmap_len: u32,
}
