//! Which event a sample stands for, and for how many overflows: what the private section says of handlers.

use afterimage_perf_data::{EventDesc, HandlerDesc, Private};
use rustc_hash::FxHashMap;

/// `PERF_TYPE_SOFTWARE` and `PERF_COUNT_SW_BPF_OUTPUT` (linux/perf_event.h).
const BPF_OUTPUT: (u32, u64) = (1, 10);

/// What becomes of an event's samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// The event that they stand for; of payloads, those of built-in handlers.
    pub(crate) event: usize,
    /// The event that those stand for which a handler from an object wrote.
    pub(crate) said: usize,
    /// Whether their raw data are a handler's payload.
    pub(crate) payload: bool,
}

impl Target {
    /// Of an event that stands for itself.
    fn own(event: usize) -> Target {
        Target { event, said: event, payload: false }
    }
}

/// Whether what a handler writes is a second event beside the samples of its own. A handler from an object decides anew at
/// each sample whether to chain it; where it never did, what it wrote stands for the samples.
pub(crate) fn stands_apart(private: &Private, handler: &HandlerDesc) -> bool {
    let tally = private.tally.as_ref().and_then(|tally| tally.events.get(handler.event));
    match tally.filter(|_| !handler.is_built_in()) {
        Some(tally) => tally.sum.chained != 0,
        None => handler.chain,
    }
}

/// What becomes of each event's samples.
#[derive(Debug)]
pub(crate) struct Targets<'p> {
    targets: Vec<Target>,
    /// By event, the one whose handlers from objects write into it.
    said_of: Vec<Option<usize>>,
    /// By event, whether handlers from objects write of its samples.
    said: Vec<bool>,
    counts: Vec<Option<Counts<'p>>>,
}

/// True counts of an event's samples, by their order in the file.
#[derive(Debug)]
struct Counts<'p> {
    counts: &'p [u64],
    /// The id of the samples that are counted; `None`: all of them are.
    only: Option<u64>,
    /// Where the samples stand in the file, in order.
    offsets: Vec<u64>,
}

impl<'p> Targets<'p> {
    pub(crate) fn new(events: &[EventDesc], private: Option<&'p Private>) -> Targets<'p> {
        let mut targets: Vec<Target> = (0..events.len()).map(Target::own).collect();
        let mut from_objects = vec![None; events.len()];
        let (mut said_of, mut said) = (vec![None; events.len()], vec![false; events.len()]);
        let known = |event: usize| event < events.len();
        for handler in private.map_or(&[][..], |p| &p.handlers) {
            let Some(output) = handler.output_event.filter(|output| known(*output) && known(handler.event)) else {
                continue;
            };
            let payload = events.get(output).is_some_and(|e| (e.attr.kind, e.attr.config) == BPF_OUTPUT);
            // Beside the samples themselves a handler's output is a second event, never added to the first.
            let apart = private.is_some_and(|private| stands_apart(private, handler));
            let event = if apart { output } else { handler.event };
            let (Some(target), Some(from_object)) = (targets.get_mut(output), from_objects.get_mut(output)) else {
                continue;
            };
            target.payload = payload;
            if handler.is_built_in() {
                target.event = event;
            } else {
                *from_object = Some(event);
            }
            if let (true, Some(of), Some(said)) =
                (payload && !handler.is_built_in(), said_of.get_mut(output), said.get_mut(handler.event))
            {
                *of = Some(handler.event);
                *said = true;
            }
        }
        // Where all handlers were of one sort, all that there is stands where theirs does.
        for (output, (target, from_object)) in targets.iter_mut().zip(&from_objects).enumerate() {
            target.said = from_object.unwrap_or(target.event);
            if let (Some(said), true) = (from_object, target.event == output) {
                target.event = *said;
            }
        }
        let by_event: FxHashMap<usize, &[u64]> =
            private.map_or(&[][..], |p| &p.true_counts).iter().map(|t| (t.event, &*t.counts)).collect();
        let counts = (0..events.len())
            .map(|event| {
                let only = private.and_then(|private| private.entries_id(event));
                by_event.get(&event).map(|counts| Counts { counts, only, offsets: Vec::new() })
            })
            .collect();
        Targets { targets, said_of, said, counts }
    }

    /// The event whose handlers write payloads into `event`.
    #[inline]
    pub(crate) fn said_of(&self, event: usize) -> Option<usize> {
        self.said_of.get(event).copied().flatten()
    }

    /// Whether handlers write payloads of the samples of `event`.
    #[inline]
    pub(crate) fn said(&self, event: usize) -> bool {
        self.said.get(event).copied().unwrap_or(false)
    }

    /// Whether there are payloads at all.
    pub(crate) fn has_said(&self) -> bool {
        self.said.contains(&true)
    }

    /// Whether any event has true counts, so that samples must be [noted](Targets::note).
    pub(crate) fn has_counts(&self) -> bool {
        self.counts.iter().any(Option::is_some)
    }

    /// A sample of `event` with this id was read at `offset`, in file order.
    pub(crate) fn note(&mut self, event: usize, id: Option<u64>, offset: u64) {
        if let Some(Some(counts)) = self.counts.get_mut(event) {
            if counts.only.is_none() || counts.only == id {
                counts.offsets.push(offset);
            }
        }
    }

    #[inline]
    pub(crate) fn of(&self, event: usize) -> Target {
        self.targets.get(event).copied().unwrap_or(Target::own(event))
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
