//! The books of a running recording: what came out of the rings, by event and CPU.

use std::collections::HashMap;

use afterimage_perf_data::record::kind;

/// What was seen of one event on one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Row {
    /// Samples read from the sampling ring.
    pub(crate) delivered: u64,
    /// Records read from the handler ring.
    pub(crate) handler_delivered: u64,
    /// Samples that drained entries of the count table stand for.
    pub(crate) stored: u64,
    /// What LOST records said; they miss the tail, so that the final number comes from elsewhere.
    pub(crate) lost_records: u64,
    /// How often the event was held back.
    pub(crate) throttles: u64,
    /// For how long, ns.
    pub(crate) throttled_ns: u64,
    pub(crate) throttled_since: Option<u64>,
}

/// Where the records of an id belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The sampling event.
    pub(crate) event: usize,
    /// The CPU.
    pub(crate) cpu: u32,
    /// Whether it is the event's handler ring.
    pub(crate) handler: bool,
}

/// Whose records a ring holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RingOwner {
    /// One event alone. A software event may be given the id and the size of another one of its type, so the ring says
    /// whose its samples are and `id` is put into them.
    One {
        /// Where samples belong.
        place: Place,
        /// The id that its samples get when they carry one that is not the event's.
        id: u64,
    },
    /// Several events, told apart by id.
    Shared,
    /// Records about processes and kernel text.
    Sideband,
}

/// The books. Ids that nobody knows are counted as [`Book::strangers`].
#[derive(Debug)]
pub(crate) struct Book {
    ids: HashMap<u64, Place>,
    cpus: Vec<u32>,
    rows: Vec<Row>,
    last: Option<(u64, Place)>,
    /// Samples of unknown ids.
    pub(crate) strangers: u64,
    /// Sideband records that were lost: maps and names may be missing.
    pub(crate) sideband_lost: u64,
}

impl Book {
    /// Books for `events` sampling events on `cpus`.
    pub(crate) fn new(events: usize, cpus: &[u32]) -> Book {
        let rows = vec![Row::default(); events * cpus.len()];
        Book { ids: HashMap::new(), cpus: cpus.to_vec(), rows, last: None, strangers: 0, sideband_lost: 0 }
    }

    /// Says where the samples of an id belong.
    pub(crate) fn know(&mut self, id: u64, place: Place) {
        self.ids.insert(id, place);
    }

    /// What was seen of an event on a CPU.
    pub(crate) fn row(&self, event: usize, cpu: u32) -> Row {
        self.index(event, cpu).and_then(|at| self.rows.get(at)).copied().unwrap_or_default()
    }

    fn index(&self, event: usize, cpu: u32) -> Option<usize> {
        Some(event * self.cpus.len() + self.cpus.binary_search(&cpu).ok()?)
    }

    fn row_mut(&mut self, place: Place) -> Option<&mut Row> {
        let at = self.index(place.event, place.cpu)?;
        self.rows.get_mut(at)
    }

    /// Counts samples that a drained entry of the count table stands for.
    pub(crate) fn stored(&mut self, event: usize, cpu: u32, samples: u64) {
        if let Some(row) = self.row_mut(Place { event, cpu, handler: false }) {
            row.stored += samples;
        }
    }

    /// Enters one record of a ring and appends it to `out`, with its id put right where the ring knows better.
    pub(crate) fn take(&mut self, owner: RingOwner, record: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(record);
        match word32(record, 0) {
            Some(kind::SAMPLE) => self.sample(owner, word(record, 8), out, start),
            Some(kind::LOST) => self.lost(owner, word(record, 8).unwrap_or(0), word(record, 16).unwrap_or(0)),
            Some(kind::THROTTLE) => self.throttle(record, true),
            Some(kind::UNTHROTTLE) => self.throttle(record, false),
            _ => (),
        }
    }

    fn sample(&mut self, owner: RingOwner, id: Option<u64>, out: &mut [u8], start: usize) {
        let known = id.and_then(|id| self.place(id));
        let place = match owner {
            RingOwner::One { place, id } => {
                if !known.is_some_and(|k| k.event == place.event && k.handler == place.handler) {
                    if let Some(field) = out.get_mut(start + 8..start + 16) {
                        field.copy_from_slice(&id.to_ne_bytes());
                    }
                }
                Some(place)
            }
            RingOwner::Shared => known,
            RingOwner::Sideband => None,
        };
        match place.and_then(|p| Some((p.handler, self.row_mut(p)?))) {
            Some((false, row)) => row.delivered += 1,
            Some((true, row)) => row.handler_delivered += 1,
            None => self.strangers += 1,
        }
    }

    fn lost(&mut self, owner: RingOwner, id: u64, lost: u64) {
        let place = match owner {
            RingOwner::One { place, .. } => Some(place),
            RingOwner::Shared => self.place(id),
            RingOwner::Sideband => {
                self.sideband_lost += lost;
                return;
            }
        };
        // The handler ring's losses are counted where they happen, by the program.
        if let Some(row) = place.filter(|p| !p.handler).and_then(|p| self.row_mut(p)) {
            row.lost_records += lost;
        }
    }

    fn throttle(&mut self, record: &[u8], begins: bool) {
        // time, id, stream_id follow the header.
        let (Some(time), Some(id)) = (word(record, 8), word(record, 16)) else { return };
        let Some(row) = self.place(id).and_then(|p| self.row_mut(p)) else { return };
        if begins {
            row.throttles += 1;
            row.throttled_since = Some(time);
        } else if let Some(since) = row.throttled_since.take() {
            row.throttled_ns += time.saturating_sub(since);
        }
    }

    fn place(&mut self, id: u64) -> Option<Place> {
        match self.last {
            Some((last, place)) if last == id => Some(place),
            _ => {
                let place = *self.ids.get(&id)?;
                self.last = Some((id, place));
                Some(place)
            }
        }
    }
}

fn word(record: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(record.get(at..at + 8)?.try_into().ok()?))
}

fn word32(record: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(record.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, words: &[u64]) -> Vec<u8> {
        let size = 8 + 8 * words.len();
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend((0u16).to_ne_bytes());
        bytes.extend((size as u16).to_ne_bytes());
        words.iter().for_each(|w| bytes.extend(w.to_ne_bytes()));
        bytes
    }

    const PLACE: Place = Place { event: 0, cpu: 3, handler: false };

    fn book() -> Book {
        let mut book = Book::new(2, &[1, 3]);
        book.know(70, PLACE);
        book.know(71, Place { event: 1, cpu: 1, handler: false });
        book
    }

    #[test]
    fn a_shared_ring_goes_by_id() {
        let mut book = book();
        let mut out = Vec::new();
        for id in [70, 70, 71, 99] {
            book.take(RingOwner::Shared, &record(kind::SAMPLE, &[id, 5]), &mut out);
        }
        assert_eq!((book.row(0, 3).delivered, book.row(1, 1).delivered, book.strangers), (2, 1, 1));
        assert_eq!(out.len(), 4 * 24);
    }

    #[test]
    fn a_ring_of_one_event_puts_its_id_right() {
        let mut book = book();
        let mut out = Vec::new();
        let owner = RingOwner::One { place: PLACE, id: 70 };
        book.take(owner, &record(kind::SAMPLE, &[71, 5]), &mut out);
        assert_eq!(word(&out, 8), Some(70));
        assert_eq!((book.row(0, 3).delivered, book.row(1, 1).delivered), (1, 0));
    }

    #[test]
    fn losses_and_throttling() {
        let mut book = book();
        let mut out = Vec::new();
        book.take(RingOwner::Shared, &record(kind::LOST, &[70, 12]), &mut out);
        book.take(RingOwner::Sideband, &record(kind::LOST, &[1, 4]), &mut out);
        book.take(RingOwner::Shared, &record(kind::THROTTLE, &[1000, 70, 70]), &mut out);
        book.take(RingOwner::Shared, &record(kind::UNTHROTTLE, &[1500, 70, 70]), &mut out);
        let row = book.row(0, 3);
        assert_eq!((row.lost_records, row.throttles, row.throttled_ns, book.sideband_lost), (12, 1, 500, 4));
    }

    #[test]
    fn short_records_are_no_panic() {
        let mut out = Vec::new();
        for kind in 0..20 {
            book().take(RingOwner::One { place: PLACE, id: 70 }, &record(kind, &[]), &mut out);
            book().take(RingOwner::Shared, &record(kind, &[]), &mut out);
        }
    }
}
