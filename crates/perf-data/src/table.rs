//! The events of a recording, as what tells whose a record is and how it is laid out.

use crate::record::{RawRecord, Record, decode, kind};
use crate::{Attr, Endian, EventDesc, Layout, Result};

/// The events of a recording with the layouts of their records, by index and by id.
#[derive(Clone, Debug, Default)]
pub struct EventTable {
    endian: Endian,
    events: Vec<EventDesc>,
    layouts: Vec<Layout>,
    ids: IdTable,
}

impl EventTable {
    /// A table of these events, whose records are in this byte order.
    pub fn new(events: Vec<EventDesc>, endian: Endian) -> Self {
        let layouts = events.iter().map(|e| Layout::new(&e.attr, endian)).collect();
        let ids = IdTable::new(&events);
        Self { endian, events, layouts, ids }
    }

    /// The byte order of the records.
    pub fn endian(&self) -> Endian {
        self.endian
    }

    /// The events, in file order.
    pub fn events(&self) -> &[EventDesc] {
        &self.events
    }

    pub(crate) fn events_mut(&mut self) -> &mut [EventDesc] {
        &mut self.events
    }

    /// The layout of an event's records.
    pub fn layout(&self, event: usize) -> Option<&Layout> {
        self.layouts.get(event)
    }

    /// The event that a record belongs to. Records without an id belong to the first event, as in perf; a SAMPLE with
    /// an id of no event belongs to none.
    #[inline]
    pub fn event_for(&self, raw: &RawRecord<'_>) -> Option<usize> {
        let first = self.layouts.first()?;
        if self.layouts.len() == 1 {
            return Some(0);
        }
        if raw.header.kind >= kind::FIRST_USER {
            return Some(0);
        }
        let Some(place) = id_place(first, raw) else { return Some(0) };
        let id = raw.bytes.get(place..)?.first_chunk::<8>()?;
        match self.endian.u64(*id) {
            0 => Some(0),
            id => self.ids.get(id),
        }
    }

    /// The event that has this id.
    pub(crate) fn of_id(&self, id: u64) -> Option<&EventDesc> {
        self.events.get(self.ids.get(id)?)
    }

    /// The index of the event that has this id.
    pub fn index_of(&self, id: u64) -> Option<usize> {
        self.ids.get(id)
    }

    /// The id that a SAMPLE carries, by which [`EventTable::event_for`] knows its event.
    pub fn id_of(&self, raw: &RawRecord<'_>) -> Option<u64> {
        let place = id_place(self.layouts.first()?, raw)?;
        Some(self.endian.u64(*raw.bytes.get(place..)?.first_chunk::<8>()?))
    }

    /// Decodes a record as one of its event's, or of the first event's where it belongs to none.
    ///
    /// # Errors
    /// When a field does not fit into the record.
    #[inline]
    pub fn decode<'r>(&self, raw: &RawRecord<'r>) -> Result<Record<'r>> {
        let event = self.event_for(raw).unwrap_or(0);
        match self.layouts.get(event) {
            Some(layout) => decode(raw, layout),
            None => decode(raw, &Layout::new(&Attr::default(), self.endian)),
        }
    }
}

/// Where the id of a record of the kernel stands in it.
fn id_place(layout: &Layout, raw: &RawRecord<'_>) -> Option<usize> {
    if raw.header.kind == kind::SAMPLE {
        return layout.id_in_sample();
    }
    layout.id_from_end().and_then(|from_end| raw.bytes.len().checked_sub(from_end))
}

/// Ids to events.
#[derive(Clone, Debug, Default)]
struct IdTable {
    /// Where ids lie close together: events by id from `base` on, `u32::MAX` for none.
    base: u64,
    dense: Vec<u32>,
    /// Where they do not: sorted.
    sparse: Vec<(u64, u32)>,
}

impl IdTable {
    fn new(events: &[EventDesc]) -> Self {
        let all = || events.iter().enumerate().flat_map(|(i, e)| e.ids.iter().map(move |id| (*id, i as u32)));
        let count = all().count() as u64;
        let Some(low) = all().map(|(id, _)| id).min() else { return Self::default() };
        let high = all().map(|(id, _)| id).max().unwrap_or(low);
        if high - low >= count.saturating_mul(8).saturating_add(1024) {
            let mut sparse: Vec<_> = all().collect();
            sparse.sort_by_key(|(id, _)| *id);
            return Self { sparse, ..Self::default() };
        }
        let mut dense = vec![u32::MAX; (high - low + 1) as usize];
        for (id, event) in all() {
            dense[(id - low) as usize] = event;
        }
        Self { base: low, dense, sparse: Vec::new() }
    }

    #[inline]
    fn get(&self, id: u64) -> Option<usize> {
        if self.dense.is_empty() {
            let found = self.sparse.binary_search_by_key(&id, |(id, _)| *id).ok()?;
            return Some(self.sparse.get(found)?.1 as usize);
        }
        let at = usize::try_from(id.checked_sub(self.base)?).ok()?;
        self.dense.get(at).filter(|e| **e != u32::MAX).map(|e| *e as usize)
    }
}
