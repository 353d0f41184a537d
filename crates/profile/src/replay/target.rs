//! Which event a sample stands for, and for how many overflows: what the private section says of handlers.

use afterimage_perf_data::{EventDesc, Private};
use rustc_hash::FxHashMap;

/// `PERF_TYPE_SOFTWARE` and `PERF_COUNT_SW_BPF_OUTPUT` (linux/perf_event.h).
const BPF_OUTPUT: (u32, u64) = (1, 10);

/// What becomes of an event's samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// The event that they stand for.
    pub(crate) event: usize,
    /// Whether their raw data are a handler's payload.
    pub(crate) payload: bool,
}

/// What becomes of each event's samples.
#[derive(Debug)]
pub(crate) struct Targets<'p> {
    targets: Vec<Target>,
    counts: Vec<Option<Counts<'p>>>,
}

/// True counts of an event's samples, by their order in the file.
#[derive(Debug)]
struct Counts<'p> {
    counts: &'p [u64],
    /// Where the samples stand in the file, in order.
    offsets: Vec<u64>,
}

impl<'p> Targets<'p> {
    pub(crate) fn new(events: &[EventDesc], private: Option<&'p Private>) -> Targets<'p> {
        let mut targets: Vec<Target> = (0..events.len()).map(|event| Target { event, payload: false }).collect();
        let known = |event: usize| event < events.len();
        for handler in private.map_or(&[][..], |p| &p.handlers) {
            let Some(output) = handler.output_event.filter(|output| known(*output) && known(handler.event)) else {
                continue;
            };
            let payload = events.get(output).is_some_and(|e| (e.attr.kind, e.attr.config) == BPF_OUTPUT);
            // Beside the samples themselves a handler's output is a second event, never added to the first.
            let event = if handler.chain { output } else { handler.event };
            if let Some(target) = targets.get_mut(output) {
                *target = Target { event, payload };
            }
        }
        let by_event: FxHashMap<usize, &[u64]> =
            private.map_or(&[][..], |p| &p.true_counts).iter().map(|t| (t.event, &*t.counts)).collect();
        let counts = (0..events.len())
            .map(|event| by_event.get(&event).map(|counts| Counts { counts, offsets: Vec::new() }))
            .collect();
        Targets { targets, counts }
    }

    /// Whether any event has true counts, so that samples must be [noted](Targets::note).
    pub(crate) fn has_counts(&self) -> bool {
        self.counts.iter().any(Option::is_some)
    }

    /// A sample of `event` was read at `offset`, in file order.
    pub(crate) fn note(&mut self, event: usize, offset: u64) {
        if let Some(Some(counts)) = self.counts.get_mut(event) {
            counts.offsets.push(offset);
        }
    }

    #[inline]
    pub(crate) fn of(&self, event: usize) -> Target {
        self.targets.get(event).copied().unwrap_or(Target { event, payload: false })
    }

    /// For how many overflows the sample of `event` at `offset` stands.
    #[inline]
    pub(crate) fn count(&self, event: usize, offset: u64) -> u64 {
        match self.counts.get(event) {
            Some(Some(known)) => known.of(offset).unwrap_or(1),
            _ => 1,
        }
    }
}

impl Counts<'_> {
    fn of(&self, offset: u64) -> Option<u64> {
        let index = self.offsets.binary_search(&offset).ok()?;
        self.counts.get(index).copied()
    }
}
