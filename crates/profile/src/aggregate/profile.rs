//! What a recording says, with names.

use std::sync::{Arc, OnceLock};

use afterimage_perf_data::{EventDesc, EventTally, FileReader, HandlerDesc, RecordingTally, Tally, Unit};
use afterimage_symbols::Reason;
use rustc_hash::FxHashMap;

use super::collect::{Collector, Entry, EventSums};
use super::inline::put_in;
use super::labels::{KnownLabels, SaidSum};
use super::more::More;
use super::name::{Named, name as name_places};
use super::paths::Paths;
use super::places::{LocId, Stacks};
use super::shared::{ByEvent, Shared};
use super::{AggregateOptions, ChainKey, Sizes, SortKey, Weight, sizes};
use crate::filter::{FilterKind, Pattern};
use crate::lines::{Lines, SourceLine};
use crate::replay::{Replayed, stands_apart};
use crate::resolve::Frame;
use crate::state::State;
use crate::stats::ReplayStats;

/// `PERF_TYPE_SOFTWARE` and `PERF_COUNT_SW_DUMMY` (linux/perf_event.h): an event that has no samples.
const DUMMY: (u32, u64) = (1, 9);

/// One event's part of a profile.
#[derive(Clone, Debug)]
pub struct EventProfile {
    /// Its index in the recording.
    pub event: usize,
    /// Its name; of a handler's output beside the samples, `EVENT/emit` or `EVENT/count`.
    pub name: Arc<str>,
    /// What its periods count.
    pub unit: Unit,
    /// Its samples are times in which threads were on no CPU.
    pub off_cpu: bool,
    /// All its samples in the recording.
    pub read: Weight,
    /// Those that filters let through: what its rows add up to. Where branches are looked at, those in place of samples.
    pub total: Weight,
    /// What filters left out, by the first that did, in the order in which they are asked. Where branches are looked at,
    /// those in place of samples.
    pub left_out: Vec<(FilterKind, Weight)>,
    /// Where branches are looked at: samples that have some. Those that filters of samples left out are neither here nor in
    /// `without_branches`.
    pub with_branches: u64,
    /// Where branches are looked at: samples that have none.
    pub without_branches: u64,
    /// Samples whose stack has a user part. Of a stream, those that filters by names left out are among them.
    pub user_stacks: u64,
    /// Those whose user part ends within two frames: most likely code without frame pointers.
    pub short_user_stacks: u64,
}

impl EventProfile {
    /// What filters let through and what they left out.
    pub fn recorded(&self) -> Weight {
        self.with(|_| true)
    }

    /// What percentages are of in perf unless they are to be of what filters let through: that, and what was left out for
    /// other reasons than its time and its CPU.
    pub fn considered(&self) -> Weight {
        self.with(FilterKind::counts_in_percentages)
    }

    fn with(&self, counts: impl Fn(FilterKind) -> bool) -> Weight {
        let mut sum = self.total;
        self.left_out.iter().filter(|(kind, _)| counts(*kind)).for_each(|(_, weight)| sum.add(*weight));
        sum
    }
}

/// Where a tally comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TallySource {
    /// The recorder wrote it at the end.
    Recording,
    /// The recorder wrote it during the recording, which was not finished: it goes up to the last pass.
    Journal,
    /// Nobody wrote one: it says what the records show, and names no event's loss apart.
    Records,
}

/// What a recording says: samples by event, with names for all places.
#[derive(Debug)]
pub struct Profile {
    /// The events that have samples, or could have had.
    pub events: Vec<EventProfile>,
    /// What the replay saw.
    pub stats: ReplayStats,
    /// Samples whose own address has no name, by reason, most first.
    pub unresolved: Vec<(Reason, u64)>,
    /// What became of every overflow.
    pub tally: RecordingTally,
    /// Where the tally comes from.
    pub tally_source: TallySource,
    /// The state at the end: names of threads and cgroups, kernel text.
    pub state: State,
    /// What handlers from objects wrote, by event, label, handler and type.
    pub said: Vec<SaidSum>,
    pub(crate) more: More,
    pub(crate) parents: Option<Pattern>,
    pub(crate) labels: KnownLabels,
    pub(crate) label_names: Vec<Arc<str>>,
    pub(crate) sort: Vec<SortKey>,
    pub(crate) chain_key: ChainKey,
    pub(crate) children: bool,
    /// Frames without a name are left out of chains.
    pub(crate) hide_unresolved: bool,
    pub(crate) entries: Vec<Entry>,
    pub(crate) stacks: Stacks,
    /// By place.
    pub(crate) frames: Vec<Frame>,
    /// By number; empty unless they were asked for.
    lines: Vec<Arc<SourceLine>>,
    /// The same.
    sizes: Vec<Sizes>,
    /// Made when somebody asks for rows with children or for trees.
    paths: OnceLock<Paths>,
    /// Made when somebody asks for rows.
    pub(crate) shared: OnceLock<Shared>,
    /// Made when somebody asks for the entries of one of several events.
    pub(crate) by_event: OnceLock<ByEvent>,
}

impl Profile {
    pub(crate) fn new(
        reader: &FileReader<'_>,
        options: &AggregateOptions,
        mut collector: Collector<'_>,
        replayed: Replayed,
    ) -> Profile {
        let Replayed { state, stats } = replayed;
        let found = collector.take_frames();
        let Collector { mut entries, events: mut sums, places, mut stacks, labels, more, resolver, .. } = collector;
        let (labels, said) = labels.finish();
        let Named { mut frames, known } = name_places(
            &options.filters,
            (&places, &stacks, &more),
            (&mut entries, &mut sums),
            found,
            (&state, &mut *resolver),
        );
        let sizes = sizes::find(&options.sort, &places, (&mut frames, &known), (&state, &mut *resolver));
        let mut lines = Vec::new();
        if options.sort.iter().any(|key| key.is_of_lines()) || options.chain_key == ChainKey::Srcline {
            let mut finder = Lines::new(reader);
            let looked_up = frames.iter_mut().zip(&places.locs).zip(&known).filter(|(_, known)| **known);
            for ((frame, loc), _) in looked_up {
                frame.line = finder.number_at(&state, resolver, *loc);
            }
            if options.inline {
                put_in((&entries, &mut stacks), &places.locs, &mut frames, (&state, resolver), Some(&mut finder));
            }
            lines = finder.into_all();
        } else if options.inline {
            put_in((&entries, &mut stacks), &places.locs, &mut frames, (&state, resolver), None);
        }
        let events = events(reader, &sums);
        let (tally, tally_source) = tally(reader, &events, &stats);
        let mut profile = Profile {
            events,
            stats,
            unresolved: Vec::new(),
            tally,
            tally_source,
            state,
            said,
            more,
            parents: options.filters.parents.clone(),
            labels,
            label_names: options.labels.iter().map(|name| name.as_str().into()).collect(),
            sort: options.sort.clone(),
            chain_key: options.chain_key,
            children: options.children,
            hide_unresolved: options.filters.hide_unresolved,
            entries,
            stacks,
            frames,
            lines,
            sizes,
            paths: OnceLock::new(),
            shared: OnceLock::new(),
            by_event: OnceLock::new(),
        };
        profile.unresolved = profile.reasons();
        profile
    }

    /// The part of an event, of `100 %`, that a period is.
    pub fn percent(&self, event: usize, period: u64) -> f64 {
        match self.events.get(event).map(|event| event.total.period) {
            None | Some(0) => 0.0,
            Some(total) => 100.0 * period as f64 / total as f64,
        }
    }

    /// What rows are told apart by.
    pub fn sort(&self) -> &[SortKey] {
        &self.sort
    }

    /// What the frames of chains are told apart by.
    pub fn chain_key(&self) -> ChainKey {
        self.chain_key
    }

    /// The line of source code of one of the profile's frames, where lines are among what rows or the frames of chains are
    /// told apart by and one is known.
    pub fn source_line(&self, frame: &Frame) -> Option<&Arc<SourceLine>> {
        self.lines.get((frame.line as usize).checked_sub(1)?)
    }

    /// How long the symbol and the mapping of one of the profile's frames are, as far as keys ask for that.
    pub(crate) fn sizes(&self, frame: &Frame) -> Sizes {
        (frame.sizes as usize).checked_sub(1).and_then(|at| self.sizes.get(at)).copied().unwrap_or_default()
    }

    pub(crate) fn frame(&self, loc: LocId) -> Option<&Frame> {
        self.frames.get(loc as usize)
    }

    /// The places of an entry's stack, innermost first; of one without a stack, its own.
    pub(crate) fn locs_of(&self, entry: &Entry) -> impl DoubleEndedIterator<Item = LocId> + use<'_> {
        let leaf = (entry.key.stack == 0).then_some(entry.key.leaf);
        let (inner, outer) = self.stacks.get(entry.key.stack);
        let hidden =
            move |loc: &LocId| self.hide_unresolved && self.frame(*loc).is_none_or(|frame| frame.symbol.is_err());
        leaf.into_iter().chain(inner.iter().chain(outer).copied()).filter(move |loc| !hidden(loc))
    }

    /// The frames of an entry, innermost first; of one without a stack, its own.
    pub(crate) fn frames_of(&self, entry: &Entry) -> impl DoubleEndedIterator<Item = &Frame> + use<'_> {
        self.locs_of(entry).filter_map(|loc| self.frame(loc))
    }

    /// The profile's stacks as rows and trees see them.
    pub(crate) fn paths(&self) -> &Paths {
        self.paths.get_or_init(|| Paths::new(self))
    }

    fn reasons(&self) -> Vec<(Reason, u64)> {
        let mut by_reason: FxHashMap<Reason, u64> = FxHashMap::default();
        for entry in &self.entries {
            if let Some(Err(reason)) = self.frame(entry.key.leaf).map(|frame| &frame.symbol) {
                let samples = by_reason.entry(*reason).or_default();
                *samples = samples.saturating_add(entry.weight.samples);
            }
        }
        let mut all: Vec<_> = by_reason.into_iter().collect();
        all.sort_by_key(|(reason, samples)| (std::cmp::Reverse(*samples), *reason));
        all
    }
}

/// The events worth telling of: those with samples, and those that could have had some.
pub(crate) fn events(reader: &FileReader<'_>, sums: &[EventSums]) -> Vec<EventProfile> {
    let handlers = reader.private().map_or(&[][..], |private| &private.handlers);
    // The output of a handler that took the place of the samples counts as the event itself.
    let stands_apart = |index: usize| {
        let mut writers = handlers.iter().filter(|h| h.output_event == Some(index) && h.event != index).peekable();
        writers.peek()?;
        // So does that of one from an object where all that it wrote stands with the samples.
        reader.private().map(|private| writers.any(|h| h.is_built_in() && stands_apart(private, h)))
    };
    let shown = |index: usize, desc: &EventDesc, sums: &EventSums| {
        let dummy = (desc.attr.kind, desc.attr.config) == DUMMY || desc.attr.period_or_freq == 0;
        sums.weight.records != 0 || sums.read.records != 0 || (!dummy && stands_apart(index) != Some(false))
    };
    reader
        .events()
        .iter()
        .zip(sums)
        .enumerate()
        .filter(|(index, (desc, sums))| shown(*index, desc, sums))
        .map(|(event, (desc, sums))| EventProfile {
            event,
            name: name(reader, event, desc).into(),
            unit: unit(reader, event, desc),
            off_cpu: Unit::is_off_cpu(desc, event, reader.private()),
            read: sums.read,
            total: sums.weight,
            left_out: left_out(sums),
            with_branches: sums.with_branches,
            without_branches: sums.without_branches,
            user_stacks: sums.user_stacks,
            short_user_stacks: sums.short_user_stacks,
        })
        .collect()
}

/// What the periods of an event count; those of a handler's output count what those of its samples do.
fn unit(reader: &FileReader<'_>, event: usize, desc: &EventDesc) -> Unit {
    let handlers = reader.private().map_or(&[][..], |private| &private.handlers);
    let of = handlers.iter().find(|h| h.output_event == Some(event) && h.event != event);
    let of = of.and_then(|handler| Some((handler.event, reader.events().get(handler.event)?)));
    let (event, desc) = of.unwrap_or((event, desc));
    Unit::of(desc, event, reader.private())
}

/// What filters left out of an event, without those that left out nothing.
fn left_out(sums: &EventSums) -> Vec<(FilterKind, Weight)> {
    let all = FilterKind::ALL.into_iter().zip(sums.left_out);
    all.filter(|(_, weight)| weight.records != 0).collect()
}

fn name(reader: &FileReader<'_>, event: usize, desc: &EventDesc) -> String {
    let handlers = reader.private().map_or(&[][..], |private| &private.handlers);
    let is_apart = |h: &HandlerDesc| reader.private().is_some_and(|private| stands_apart(private, h));
    let apart = handlers.iter().find(|h| h.output_event == Some(event) && h.event != event && is_apart(h));
    match apart.and_then(|handler| Some((handler, reader.events().get(handler.event)?))) {
        Some((handler, of)) => format!("{}/{}", of.name, handler.name),
        None => desc.name.clone(),
    }
}

/// The tally that the recorder left, or what the records show.
fn tally(reader: &FileReader<'_>, events: &[EventProfile], stats: &ReplayStats) -> (RecordingTally, TallySource) {
    if let Some(tally) = reader.private().and_then(|private| private.tally.clone()) {
        let source = if reader.finished() { TallySource::Recording } else { TallySource::Journal };
        return (tally, source);
    }
    // Both tell of the same loss; the LOST records of the rings miss its tail, and records that are no samples are in
    // them. Neither says whose samples they were, so they are told of the only event, or of the first.
    let lost = if stats.lost_samples == 0 { stats.lost } else { stats.lost_samples };
    let events = events.iter().enumerate().map(|(i, event)| {
        let mut sum = Tally::default();
        sum.ring.delivered = event.read.samples;
        sum.ring.lost = if i == 0 { lost } else { 0 };
        sum.chained = sum.ring.delivered.saturating_add(sum.ring.lost);
        sum.throttle.episodes = if i == 0 { stats.throttles } else { 0 };
        EventTally { name: event.name.to_string(), per_cpu: Vec::new(), sum, audit: None }
    });
    let tally = RecordingTally { events: events.collect(), complete: reader.finished(), off_cpu: None };
    (tally, TallySource::Records)
}
