use super::{Body, SampleId};
use crate::bytes::{Cursor, Out};
use crate::{Endian, Result, Words};

/// A stack as addresses, innermost first, with the markers of [`crate::context`] among them. Borrowed, not copied: its
/// raw bytes are good as a key before anything is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Callchain<'a>(Words<'a>);

impl<'a> Callchain<'a> {
    /// A chain of u64 values in `bytes`; a tail of less than 8 bytes is left out.
    #[inline]
    pub fn new(bytes: &'a [u8], endian: Endian) -> Self {
        Self(Words::new(bytes, endian))
    }

    /// The u64 values as they are in the recording.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.0.bytes()
    }

    /// Values, markers included.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is nothing in it.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The values in order, markers included.
    #[inline]
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = u64> + ExactSizeIterator + Clone + use<'a> {
        self.0.iter()
    }

    /// The first `at` values, and the others; no value is lost, and none is beyond the end.
    #[inline]
    pub fn split_at(&self, at: usize) -> (Self, Self) {
        let (bytes, endian) = (self.0.bytes(), self.0.endian());
        let (head, rest) = bytes.split_at(at.saturating_mul(8).min(bytes.len()));
        (Self::new(head, endian), Self::new(rest, endian))
    }

    #[inline]
    pub(crate) fn words(&self) -> Words<'a> {
        self.0
    }
}

impl<'a> From<Words<'a>> for Callchain<'a> {
    #[inline]
    fn from(words: Words<'a>) -> Self {
        Self(words)
    }
}

/// PERF_RECORD_CALLCHAIN_DEFERRED (Linux 6.19): the user part of earlier samples with this cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[doc(alias = "PERF_RECORD_CALLCHAIN_DEFERRED")]
pub struct CallchainDeferred<'a> {
    /// What the samples have after [`crate::context::USER_DEFERRED`].
    pub cookie: u64,
    /// The user addresses.
    pub callchain: Callchain<'a>,
    /// The header's `misc`.
    pub misc: u16,
    /// The sample id at the end.
    pub id: SampleId,
}

impl<'a> Body<'a> for CallchainDeferred<'a> {
    fn decode(c: &mut Cursor<'a>, misc: u16, id: SampleId) -> Result<Self> {
        const W: &str = "CALLCHAIN_DEFERRED record";
        let cookie = c.u64(W)?;
        let count = c.u64(W)?;
        Ok(Self { cookie, callchain: Callchain(c.words(count, W)?), misc, id })
    }

    fn encode(&self, o: &mut Out<'_>) {
        o.u64(self.cookie);
        o.u64(self.callchain.len() as u64);
        o.words(self.callchain.words());
    }

    fn misc(&self) -> u16 {
        self.misc
    }

    fn id(&self) -> &SampleId {
        &self.id
    }
}
