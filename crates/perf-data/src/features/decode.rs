//! Reading of one feature section.

use super::strings::{get, get_list};
use super::types::{ClockData, Compressed, CpuTopology, DescribedEvent, GroupDesc, NumaNode, PmuMapping};
use super::{BpfBtf, BpfProgInfo, BuildIdEntry, Features, bit};
use crate::bytes::Cursor;
use crate::{Attr, Error, ErrorKind, Private, Result, private};

/// Reads one section into `f`. NRCPUS must have been read before CPU_TOPOLOGY, which the bits' order sees to.
///
/// # Errors
/// When the section is damaged; `f` is then as it was before.
pub(crate) fn decode_one(f: &mut Features, feature: u32, mut c: Cursor<'_>) -> Result<()> {
    match feature {
        bit::BUILD_ID => f.build_ids = BuildIdEntry::decode_all(c)?,
        bit::HOSTNAME => f.hostname = Some(get(&mut c, "HOSTNAME section")?),
        bit::OSRELEASE => f.os_release = Some(get(&mut c, "OSRELEASE section")?),
        bit::VERSION => f.version = Some(get(&mut c, "VERSION section")?),
        bit::ARCH => f.arch = Some(get(&mut c, "ARCH section")?),
        bit::NRCPUS => f.nr_cpus = Some((c.u32("NRCPUS section")?, c.u32("NRCPUS section")?)),
        bit::CPUDESC => f.cpu_desc = Some(get(&mut c, "CPUDESC section")?),
        bit::CPUID => f.cpuid = Some(get(&mut c, "CPUID section")?),
        bit::TOTAL_MEM => f.total_mem = Some(c.u64("TOTAL_MEM section")?),
        bit::CMDLINE => f.cmdline = get_list(&mut c, "CMDLINE section")?,
        bit::EVENT_DESC => f.event_desc = event_desc(c)?,
        bit::CPU_TOPOLOGY => f.cpu_topology = Some(cpu_topology(c, f.nr_cpus)?),
        bit::NUMA_TOPOLOGY => f.numa = numa(c)?,
        bit::BRANCH_STACK => f.branch_stack = true,
        bit::PMU_MAPPINGS => f.pmu_mappings = pmu_mappings(c)?,
        bit::GROUP_DESC => f.groups = groups(c)?,
        bit::SAMPLE_TIME => f.sample_time = Some((c.u64("SAMPLE_TIME section")?, c.u64("SAMPLE_TIME section")?)),
        bit::CLOCKID => f.clockid_res_ns = Some(c.u64("CLOCKID section")?),
        bit::CLOCK_DATA => f.clock_data = Some(clock_data(c)?),
        bit::DIR_FORMAT => f.dir_format = Some(c.u64("DIR_FORMAT section")?),
        bit::BPF_PROG_INFO => f.bpf_progs = BpfProgInfo::decode_all(c)?,
        bit::BPF_BTF => f.bpf_btfs = BpfBtf::decode_all(c)?,
        bit::COMPRESSED => f.compressed = Some(compressed(c)?),
        private::FEATURE_BIT if c.rest().starts_with(&private::MAGIC) => {
            f.private = Some(Private::decode(c.rest(), c.at())?);
        }
        _ => f.unknown.push((feature, c.at()..c.at() + c.rest().len() as u64)),
    }
    Ok(())
}

fn event_desc(mut c: Cursor<'_>) -> Result<Vec<DescribedEvent>> {
    const W: &str = "EVENT_DESC section";
    let count = c.u32(W)?;
    let attr_size = c.u32(W)?;
    let mut all = Vec::new();
    for _ in 0..count {
        let at = c.at();
        let attr = Attr::decode(c.take(attr_size.into(), W)?, c.endian)
            .map_err(|e| Error::at(e.kind(), "attr of the EVENT_DESC section", at))?;
        let ids = c.u32(W)?;
        let name = get(&mut c, W)?;
        all.push(DescribedEvent { attr, name, ids: c.words(ids.into(), W)?.iter().collect() });
    }
    Ok(all)
}

fn cpu_topology(mut c: Cursor<'_>, nr_cpus: Option<(u32, u32)>) -> Result<CpuTopology> {
    const W: &str = "CPU_TOPOLOGY section";
    let mut t = CpuTopology { cores: get_list(&mut c, W)?, threads: get_list(&mut c, W)?, ..CpuTopology::default() };
    let cpus = nr_cpus.map_or(0, |(available, _)| available);
    // Old files end before the numbers.
    if c.rest().is_empty() || cpus == 0 {
        return Ok(t);
    }
    let numbers = c.take_many(cpus.into(), 8, W)?;
    let mut pairs = Cursor::new(numbers, c.at(), c.endian);
    while !pairs.rest().is_empty() {
        t.cpus.push((pairs.u32(W)?, pairs.u32(W)?));
    }
    // Less than a count and a string is the padding that newer tools put into streams.
    if c.rest().len() > 8 {
        t.dies = get_list(&mut c, W)?;
        let mut dies = Cursor::new(c.take_many(cpus.into(), 4, W)?, c.at(), c.endian);
        while !dies.rest().is_empty() {
            t.die_of_cpu.push(dies.u32(W)?);
        }
    }
    Ok(t)
}

fn numa(mut c: Cursor<'_>) -> Result<Vec<NumaNode>> {
    const W: &str = "NUMA_TOPOLOGY section";
    let count = c.u32(W)?;
    let mut all = Vec::new();
    for _ in 0..count {
        let (node, total_kib, free_kib) = (c.u32(W)?, c.u64(W)?, c.u64(W)?);
        all.push(NumaNode { node, total_kib, free_kib, cpus: get(&mut c, W)? });
    }
    Ok(all)
}

fn pmu_mappings(mut c: Cursor<'_>) -> Result<Vec<PmuMapping>> {
    const W: &str = "PMU_MAPPINGS section";
    let count = c.u32(W)?;
    let mut all = Vec::new();
    for _ in 0..count {
        all.push(PmuMapping { kind: c.u32(W)?, name: get(&mut c, W)? });
    }
    Ok(all)
}

fn groups(mut c: Cursor<'_>) -> Result<Vec<GroupDesc>> {
    const W: &str = "GROUP_DESC section";
    let count = c.u32(W)?;
    let mut all = Vec::new();
    for _ in 0..count {
        all.push(GroupDesc { name: get(&mut c, W)?, leader: c.u32(W)?, members: c.u32(W)? });
    }
    Ok(all)
}

fn clock_data(mut c: Cursor<'_>) -> Result<ClockData> {
    const W: &str = "CLOCK_DATA section";
    let at = c.at();
    let version = c.u32(W)?;
    if version != 1 {
        return Err(Error::at(ErrorKind::Unsupported, format!("{W} of version {version}"), at));
    }
    Ok(ClockData { clockid: c.u32(W)?, wall_ns: c.u64(W)?, clock_ns: c.u64(W)? })
}

fn compressed(mut c: Cursor<'_>) -> Result<Compressed> {
    const W: &str = "COMPRESSED section";
    Ok(Compressed { version: c.u32(W)?, kind: c.u32(W)?, level: c.u32(W)?, ratio: c.u32(W)?, mmap_len: c.u32(W)? })
}
