use super::{Body, SampleId};
use crate::Result;
use crate::bytes::{Cursor, Out};

/// PERF_RECORD_CGROUP: the path of a cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[doc(alias = "PERF_RECORD_CGROUP")]
pub struct Cgroup<'a> {
    /// The id that samples carry.
    pub cgroup: u64,
    /// The path below the root of the hierarchy.
    pub path: &'a [u8],
    /// The header's `misc`.
    pub misc: u16,
    /// The sample id at the end.
    pub id: SampleId,
}

impl<'a> Body<'a> for Cgroup<'a> {
    fn decode(c: &mut Cursor<'a>, misc: u16, id: SampleId) -> Result<Self> {
        Ok(Self { cgroup: c.u64("CGROUP record")?, path: c.name(), misc, id })
    }

    fn encode(&self, o: &mut Out<'_>) {
        o.u64(self.cgroup);
        o.name(self.path);
    }

    fn misc(&self) -> u16 {
        self.misc
    }

    fn id(&self) -> &SampleId {
        &self.id
    }
}
