//! Which event a sample stands for, and for how many overflows: what the private section says of handlers.

use afterimage_perf_data::{CountedSamples, EventDesc, HandlerDesc, Private};

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
    counts: CountedSamples<'p>,
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
        let counts = private.map(CountedSamples::new).unwrap_or_default();
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

    /// The true counts, for which samples must be [noted](CountedSamples::note).
    pub(crate) fn counts(&mut self) -> &mut CountedSamples<'p> {
        &mut self.counts
    }

    #[inline]
    pub(crate) fn of(&self, event: usize) -> Target {
        self.targets.get(event).copied().unwrap_or(Target::own(event))
    }

    /// For how many overflows the sample of `event` at `offset` stands; `None` where damage has made that unknown.
    #[inline]
    pub(crate) fn count(&self, event: usize, offset: u64) -> Option<u64> {
        self.counts.count(event, offset)
    }
}
