//! Writing of feature sections.

use super::strings::{put, put_list};
use super::types::{CpuTopology, DescribedEvent};
use super::{BpfBtf, BpfProgInfo, Features, bit};
use crate::bytes::Out;
use crate::private::FEATURE_BIT;
use crate::{Attr, Endian, Private, Result};

impl Features {
    /// The sections that there is something for, in the order of their bits, `private` last.
    ///
    /// # Errors
    /// When something is too long for its field.
    pub fn encode(&self, endian: Endian, private: Option<&Private>) -> Result<Vec<(u32, Vec<u8>)>> {
        let mut sections = Vec::new();
        for feature in 1..bit::COUNT {
            if let Some(data) = self.encode_one(feature, endian, private)? {
                sections.push((feature, data));
            }
        }
        Ok(sections)
    }

    fn encode_one(&self, feature: u32, endian: Endian, private: Option<&Private>) -> Result<Option<Vec<u8>>> {
        if let Some(extra) = self.extra.iter().find(|e| e.bit == feature) {
            return Ok(Some(extra.data.clone()));
        }
        let mut data = Vec::new();
        let mut o = Out { buf: &mut data, endian };
        let some = match feature {
            bit::HOSTNAME => text(&mut o, self.hostname.as_ref()),
            bit::OSRELEASE => text(&mut o, self.os_release.as_ref()),
            bit::VERSION => text(&mut o, self.version.as_ref()),
            bit::ARCH => text(&mut o, self.arch.as_ref()),
            bit::CPUDESC => text(&mut o, self.cpu_desc.as_ref()),
            bit::CPUID => text(&mut o, self.cpuid.as_ref()),
            bit::NRCPUS => self.nr_cpus.map(|(available, online)| {
                o.u32(available);
                o.u32(online);
            }),
            bit::TOTAL_MEM => self.total_mem.map(|kib| o.u64(kib)),
            bit::CMDLINE => (!self.cmdline.is_empty()).then(|| put_list(&mut o, &self.cmdline)),
            bit::EVENT_DESC => (!self.event_desc.is_empty()).then(|| event_desc(&mut o, &self.event_desc)),
            bit::CPU_TOPOLOGY => self.cpu_topology.as_ref().map(|t| cpu_topology(&mut o, t)),
            bit::BRANCH_STACK => self.branch_stack.then_some(()),
            bit::SAMPLE_TIME => self.sample_time.map(|(first, last)| {
                o.u64(first);
                o.u64(last);
            }),
            bit::CLOCKID => self.clockid_res_ns.map(|ns| o.u64(ns)),
            bit::CLOCK_DATA => self.clock_data.map(|clock| {
                o.u32(1);
                o.u32(clock.clockid);
                o.u64(clock.wall_ns);
                o.u64(clock.clock_ns);
            }),
            bit::DIR_FORMAT => self.dir_format.map(|version| o.u64(version)),
            _ => self.encode_list(feature, &mut o, private)?,
        };
        Ok(some.map(|()| data))
    }

    /// The sections that hold lists, and those that can fail.
    fn encode_list(&self, feature: u32, o: &mut Out<'_>, private: Option<&Private>) -> Result<Option<()>> {
        let some = |there: bool| there.then_some(());
        Ok(match feature {
            bit::BUILD_ID => {
                self.build_ids.iter().try_for_each(|entry| entry.encode(0, o))?;
                some(!self.build_ids.is_empty())
            }
            bit::NUMA_TOPOLOGY => some(!self.numa.is_empty()).inspect(|()| {
                o.u32(self.numa.len() as u32);
                for node in &self.numa {
                    o.u32(node.node);
                    o.u64(node.total_kib);
                    o.u64(node.free_kib);
                    put(o, &node.cpus);
                }
            }),
            bit::PMU_MAPPINGS => some(!self.pmu_mappings.is_empty()).inspect(|()| {
                o.u32(self.pmu_mappings.len() as u32);
                for pmu in &self.pmu_mappings {
                    o.u32(pmu.kind);
                    put(o, &pmu.name);
                }
            }),
            bit::GROUP_DESC => some(!self.groups.is_empty()).inspect(|()| {
                o.u32(self.groups.len() as u32);
                for group in &self.groups {
                    put(o, &group.name);
                    o.u32(group.leader);
                    o.u32(group.members);
                }
            }),
            bit::BPF_PROG_INFO if !self.bpf_progs.is_empty() => Some(BpfProgInfo::encode_all(&self.bpf_progs, o)?),
            bit::BPF_BTF if !self.bpf_btfs.is_empty() => Some(BpfBtf::encode_all(&self.bpf_btfs, o)?),
            bit::COMPRESSED => self.compressed.map(|z| {
                [z.version, z.kind, z.level, z.ratio, z.mmap_len].into_iter().for_each(|v| o.u32(v));
            }),
            FEATURE_BIT => match private {
                Some(private) => {
                    o.bytes(&private.encode()?);
                    Some(())
                }
                None => None,
            },
            _ => None,
        })
    }
}

fn text(o: &mut Out<'_>, value: Option<&String>) -> Option<()> {
    value.map(|s| put(o, s))
}

fn event_desc(o: &mut Out<'_>, events: &[DescribedEvent]) {
    o.u32(events.len() as u32);
    o.u32(Attr::SIZE);
    for event in events {
        event.attr.encode_as(o.buf, o.endian, Attr::SIZE);
        o.u32(event.ids.len() as u32);
        put(o, &event.name);
        event.ids.iter().for_each(|id| o.u64(*id));
    }
}

fn cpu_topology(o: &mut Out<'_>, t: &CpuTopology) {
    put_list(o, &t.cores);
    put_list(o, &t.threads);
    for (core, socket) in &t.cpus {
        o.u32(*core);
        o.u32(*socket);
    }
    if !t.dies.is_empty() {
        put_list(o, &t.dies);
        t.die_of_cpu.iter().for_each(|die| o.u32(*die));
    }
}
