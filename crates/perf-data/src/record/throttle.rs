use super::{Body, SampleId};
use crate::Result;
use crate::bytes::{Cursor, Out};

/// PERF_RECORD_THROTTLE and PERF_RECORD_UNTHROTTLE: an event sampled too often and was held back, or let go again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[doc(alias = "PERF_RECORD_THROTTLE")]
#[doc(alias = "PERF_RECORD_UNTHROTTLE")]
pub struct Throttle {
    /// When, in ns on the event's clock.
    pub time: u64,
    /// The id of the event or its group leader.
    pub event_id: u64,
    /// The id of the event.
    pub stream_id: u64,
    /// The header's `misc`.
    pub misc: u16,
    /// The sample id at the end.
    pub id: SampleId,
}

impl Body<'_> for Throttle {
    fn decode(c: &mut Cursor<'_>, misc: u16, id: SampleId) -> Result<Self> {
        const W: &str = "THROTTLE record";
        Ok(Self { time: c.u64(W)?, event_id: c.u64(W)?, stream_id: c.u64(W)?, misc, id })
    }

    fn encode(&self, o: &mut Out<'_>) {
        o.u64(self.time);
        o.u64(self.event_id);
        o.u64(self.stream_id);
    }

    fn misc(&self) -> u16 {
        self.misc
    }

    fn id(&self) -> &SampleId {
        &self.id
    }
}
