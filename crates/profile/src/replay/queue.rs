//! Records in time order.
//!
//! ```text
//!   ring 0:  1 3 5 | 6 9  | 12       A recorder drains its rings one after the other, so the file holds runs that
//!   ring 1:  2 4   | 5 8  | 10       overlap in time. A FINISHED_ROUND (|) ends each pass over all rings. What is
//!   file:    1 3 5 2 4 | 6 9 5 8 | … read after a round is never older than the newest record of the round before it:
//!                 max=5      max=9   at round n everything up to the newest of round n−1 may go.
//! ```
//!
//! The same rule as perf's (`perf_event__process_finished_round`). Only times and places are queued, never records.

/// A record in the queue: its time, its place, its size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) time: u64,
    /// Offset in the file above, 16 bits of size below.
    place: u64,
}

impl Entry {
    pub(crate) fn new(time: u64, offset: u64, size: u16) -> Entry {
        Entry { time, place: offset << 16 | u64::from(size) }
    }

    /// Where the record begins, and its size.
    pub(crate) fn place(self) -> (u64, u16) {
        (self.place >> 16, (self.place & 0xffff) as u16)
    }
}

/// Entries of the longest list whose room is kept for the next: 16 MiB.
const MOST_SPARE: usize = 1 << 20;

/// Records that wait for their turn.
#[derive(Debug)]
pub(crate) struct Queue {
    waiting: Vec<Entry>,
    /// Room for the next list.
    spare: Vec<Entry>,
    /// Whether something came since `waiting` was last put in order.
    unsorted: bool,
    newest: u64,
    limit: u64,
    /// Everything up to this time has been handed out.
    handed_out: u64,
    most: usize,
    pub(crate) late: u64,
}

impl Queue {
    /// A queue of at most `most` records; when it is full the older half goes, whatever the rounds say.
    pub(crate) fn new(most: usize) -> Queue {
        let (waiting, spare) = (Vec::new(), Vec::new());
        Queue { waiting, spare, unsorted: false, newest: 0, limit: 0, handed_out: 0, most: most.max(2), late: 0 }
    }

    /// Takes a record in. True: the queue is full.
    #[inline]
    pub(crate) fn push(&mut self, entry: Entry) -> bool {
        self.newest = self.newest.max(entry.time);
        self.late += u64::from(entry.time < self.handed_out);
        self.waiting.push(entry);
        self.unsorted = true;
        self.waiting.len() >= self.most
    }

    /// Whether there is no more room beside what weighs as much as `more` records.
    #[inline]
    pub(crate) fn is_full_with(&self, more: usize) -> bool {
        self.waiting.len().saturating_add(more) >= self.most
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// A round ended: what may go, in order.
    pub(crate) fn round(&mut self) -> Vec<Entry> {
        let ready = self.up_to(self.limit);
        self.limit = self.newest;
        ready
    }

    /// The older half, in order.
    pub(crate) fn half(&mut self) -> Vec<Entry> {
        self.sort();
        match self.waiting.get(self.waiting.len() / 2).map(|middle| middle.time) {
            Some(time) => self.up_to(time),
            None => Vec::new(),
        }
    }

    /// Everything, in order.
    pub(crate) fn rest(&mut self) -> Vec<Entry> {
        self.up_to(u64::MAX)
    }

    fn up_to(&mut self, limit: u64) -> Vec<Entry> {
        self.sort();
        let ready = self.waiting.partition_point(|entry| entry.time <= limit);
        if ready == 0 {
            return Vec::new();
        }
        // What waits on is most often the smaller part.
        let mut later = std::mem::take(&mut self.spare);
        later.extend_from_slice(self.waiting.get(ready..).unwrap_or_default());
        self.waiting.truncate(ready);
        if let Some(last) = self.waiting.last() {
            self.handed_out = self.handed_out.max(last.time);
        }
        std::mem::replace(&mut self.waiting, later)
    }

    /// Takes back a list that was handed out, for its room.
    pub(crate) fn done(&mut self, mut list: Vec<Entry>) {
        if list.capacity() > self.spare.capacity() && list.capacity() <= MOST_SPARE {
            list.clear();
            self.spare = list;
        }
    }

    /// The first place in the file of a record that waits.
    pub(crate) fn first_place(&self) -> Option<u64> {
        self.waiting.iter().map(|entry| entry.place().0).min()
    }

    /// Stable: records of one time stay in the order of the file. The queue is made of a few sorted runs, which the
    /// sort finds and merges.
    fn sort(&mut self) {
        if self.unsorted && !self.waiting.is_sorted_by_key(|entry| entry.time) {
            self.waiting.sort_by_key(|entry| entry.time);
        }
        self.unsorted = false;
    }
}
