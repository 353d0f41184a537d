use super::{Body, SampleId, misc};
use crate::Result;
use crate::bytes::{Cursor, Out};

/// PERF_RECORD_SWITCH: the task came onto its CPU or left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[doc(alias = "PERF_RECORD_SWITCH")]
pub struct Switch {
    /// The header's `misc`.
    pub misc: u16,
    /// The sample id at the end.
    pub id: SampleId,
}

impl Switch {
    /// Whether the task left.
    pub fn is_out(&self) -> bool {
        self.misc & misc::SWITCH_OUT != 0
    }
}

impl Body<'_> for Switch {
    fn decode(_: &mut Cursor<'_>, misc: u16, id: SampleId) -> Result<Self> {
        Ok(Self { misc, id })
    }

    fn encode(&self, _: &mut Out<'_>) {}

    fn misc(&self) -> u16 {
        self.misc
    }

    fn id(&self) -> &SampleId {
        &self.id
    }
}

/// PERF_RECORD_SWITCH_CPU_WIDE: a switch on a CPU, with the other task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[doc(alias = "PERF_RECORD_SWITCH_CPU_WIDE")]
pub struct SwitchCpuWide {
    /// The process that comes next (out) or was there before (in).
    pub other_pid: u32,
    /// Its thread.
    pub other_tid: u32,
    /// The header's `misc`.
    pub misc: u16,
    /// The sample id at the end.
    pub id: SampleId,
}

impl SwitchCpuWide {
    /// Whether the record's task left the CPU.
    pub fn is_out(&self) -> bool {
        self.misc & misc::SWITCH_OUT != 0
    }
}

impl Body<'_> for SwitchCpuWide {
    fn decode(c: &mut Cursor<'_>, misc: u16, id: SampleId) -> Result<Self> {
        const W: &str = "SWITCH_CPU_WIDE record";
        Ok(Self { other_pid: c.u32(W)?, other_tid: c.u32(W)?, misc, id })
    }

    fn encode(&self, o: &mut Out<'_>) {
        o.u32(self.other_pid);
        o.u32(self.other_tid);
    }

    fn misc(&self) -> u16 {
        self.misc
    }

    fn id(&self) -> &SampleId {
        &self.id
    }
}
