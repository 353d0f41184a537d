use super::{Body, SampleId};
use crate::Result;
use crate::bytes::{Cursor, Out};

/// PERF_RECORD_KSYMBOL: kernel text came or went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[doc(alias = "PERF_RECORD_KSYMBOL")]
pub struct Ksymbol<'a> {
    /// Where it begins.
    pub addr: u64,
    /// Its bytes as the kernel reports them: exact for BPF programs, always 4,096 for trampolines and dispatchers.
    pub len: u32,
    /// [`Ksymbol::BPF`] or [`Ksymbol::OOL`].
    pub kind: u16,
    /// Bit 0: it goes.
    pub flags: u16,
    /// Its name.
    pub name: &'a [u8],
    /// The header's `misc`.
    pub misc: u16,
    /// The sample id at the end.
    pub id: SampleId,
}

impl Ksymbol<'_> {
    /// Text of BPF: a program, a trampoline, a dispatcher.
    pub const BPF: u16 = 1;
    /// Out-of-line code: kprobe pages, ftrace trampolines.
    pub const OOL: u16 = 2;
    /// The bit of `flags` that says the text goes.
    pub const UNREGISTER: u16 = 1;

    /// Whether the text goes.
    pub fn unregister(&self) -> bool {
        self.flags & Self::UNREGISTER != 0
    }
}

impl<'a> Body<'a> for Ksymbol<'a> {
    fn decode(c: &mut Cursor<'a>, misc: u16, id: SampleId) -> Result<Self> {
        const W: &str = "KSYMBOL record";
        Ok(Self { addr: c.u64(W)?, len: c.u32(W)?, kind: c.u16(W)?, flags: c.u16(W)?, name: c.name(), misc, id })
    }

    fn encode(&self, o: &mut Out<'_>) {
        o.u64(self.addr);
        o.u32(self.len);
        o.u16(self.kind);
        o.u16(self.flags);
        o.name(self.name);
    }

    fn misc(&self) -> u16 {
        self.misc
    }

    fn id(&self) -> &SampleId {
        &self.id
    }
}
