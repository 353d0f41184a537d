//! Which true count is which sample's, and which cannot be told any more.
//!
//! The counts stand in the order of the samples, so that a sample that is lost to damage would give all behind it the
//! count of the one before:
//!
//! ```text
//!   counts     7   9   4   4   8   2         Before the first damage they are numbered from the front; behind the last
//!   samples    a   b   ··damage··  e   f     one from the end, where the recording has its end. What stands between two
//!              7   9               8   2     places of damage has counts that nobody can tell, unless no sample is lost.
//! ```

use std::collections::HashMap;

use crate::record::kind;
use crate::{ErrorKind, FileReader, Private, RawRecord};

/// The true counts of a recording's samples, see [`crate::TrueCounts`].
#[derive(Debug, Default)]
pub struct CountedSamples<'p> {
    events: HashMap<usize, Counted<'p>>,
    /// Samples are not noted any more, for all are known.
    settled: bool,
}

/// Those of one event.
#[derive(Debug)]
struct Counted<'p> {
    counts: &'p [u64],
    /// The id of the samples that are counted; `None`: all of them are.
    only: Option<u64>,
    /// Where the samples stand in the file, in order.
    offsets: Vec<u64>,
    /// So many of them are numbered from the front.
    front: usize,
    /// Those from this one on are numbered from the end.
    back: usize,
}

impl<'p> CountedSamples<'p> {
    /// No sample is known yet.
    pub fn new(private: &'p Private) -> Self {
        let event = |event: usize, counts: &'p [u64]| {
            let only = private.entries_id(event);
            Counted { counts, only, offsets: Vec::new(), front: usize::MAX, back: usize::MAX }
        };
        let events = private.true_counts.iter().map(|of| (of.event, event(of.event, &of.counts)));
        Self { events: events.collect(), settled: false }
    }

    /// Whether no event has true counts.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// A SAMPLE was read, in file order. `false` where none of the recording's events wrote it: that is damage.
    pub fn note(&mut self, file: &FileReader<'_>, raw: &RawRecord<'_>) -> bool {
        let Some(event) = file.event_for(raw) else { return false };
        if self.settled {
            return true;
        }
        if let Some(counted) = self.events.get_mut(&event) {
            if counted.only.is_none() || counted.only == file.id_of(raw) {
                counted.offsets.push(raw.offset);
            }
        }
        true
    }

    /// There is damage: the rest of `file` is looked through for where the numbers hold. Reads it once, however often it is
    /// called.
    pub fn settle(&mut self, file: &FileReader<'_>) {
        if std::mem::replace(&mut self.settled, true) {
            return;
        }
        let mut all = CountedSamples { events: HashMap::new(), settled: false };
        for (event, counted) in self.events.drain() {
            all.events.insert(event, Counted { offsets: Vec::new(), ..counted });
        }
        let mut whole = file.finished();
        for raw in file.records() {
            let fits = match &raw {
                Ok(raw) => raw.header.kind != kind::SAMPLE || all.note(file, raw),
                Err(e) => {
                    // An end that is missing is one only until a record follows.
                    whole &= e.kind() != ErrorKind::Truncated;
                    false
                }
            };
            if !fits {
                all.events.values_mut().for_each(Counted::damaged);
            }
        }
        all.events.values_mut().for_each(|counted| counted.end(whole));
        self.events = all.events;
    }

    /// For how many overflows the sample of `event` at `offset` stands, one that is not counted for one. `None`: for a
    /// number that damage has made unknown.
    #[inline]
    pub fn count(&self, event: usize, offset: u64) -> Option<u64> {
        match self.events.get(&event) {
            Some(counted) => counted.of(offset),
            None => Some(1),
        }
    }
}

impl Counted<'_> {
    /// Damage stands here.
    fn damaged(&mut self) {
        self.front = self.front.min(self.offsets.len());
        self.back = self.offsets.len();
    }

    /// All samples were noted. `whole`: those at the end are the last that were counted.
    fn end(&mut self, whole: bool) {
        let (samples, counts) = (self.offsets.len(), self.counts.len());
        if samples == counts {
            // Damage took none of them.
            self.front = usize::MAX;
        }
        if !whole || samples > counts {
            self.back = samples;
        }
    }

    fn of(&self, offset: u64) -> Option<u64> {
        let Ok(nth) = self.offsets.binary_search(&offset) else { return Some(1) };
        if nth < self.front {
            // What has no count is one.
            return Some(self.counts.get(nth).copied().unwrap_or(1));
        }
        if nth < self.back {
            return None;
        }
        self.counts.get((nth + self.counts.len()).checked_sub(self.offsets.len())?).copied()
    }
}
