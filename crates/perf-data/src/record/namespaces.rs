use super::{Body, SampleId};
use crate::bytes::{Cursor, Out};
use crate::{Result, Words};

/// One namespace of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Device of its file in nsfs.
    pub dev: u64,
    /// Inode of its file in nsfs.
    pub ino: u64,
}

/// PERF_RECORD_NAMESPACES: the namespaces of a thread, by index: net, uts, ipc, pid, user, mnt, cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[doc(alias = "PERF_RECORD_NAMESPACES")]
pub struct Namespaces<'a> {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// Device and inode of each, two words a namespace.
    pub links: Words<'a>,
    /// The header's `misc`.
    pub misc: u16,
    /// The sample id at the end.
    pub id: SampleId,
}

impl<'a> Namespaces<'a> {
    /// The namespaces in index order.
    pub fn iter(&self) -> impl Iterator<Item = Namespace> + use<'a> {
        let mut words = self.links.iter();
        std::iter::from_fn(move || Some(Namespace { dev: words.next()?, ino: words.next()? }))
    }
}

impl<'a> Body<'a> for Namespaces<'a> {
    fn decode(c: &mut Cursor<'a>, misc: u16, id: SampleId) -> Result<Self> {
        const W: &str = "NAMESPACES record";
        let (pid, tid) = (c.u32(W)?, c.u32(W)?);
        let count = c.u64(W)?;
        let links = c.words(count.saturating_mul(2), W)?;
        Ok(Self { pid, tid, links, misc, id })
    }

    fn encode(&self, o: &mut Out<'_>) {
        let pairs = self.links.len() / 2;
        o.u32(self.pid);
        o.u32(self.tid);
        o.u64(pairs as u64);
        self.links.iter().take(2 * pairs).for_each(|w| o.u64(w));
    }

    fn misc(&self) -> u16 {
        self.misc
    }

    fn id(&self) -> &SampleId {
        &self.id
    }
}
