//! Samples by the place within one thing: a text of the kernel's timeline, a function of the kernel, a function of a file.
//!
//! Things of one name stay apart: texts by their number in the timeline, functions of files by the file's build ID, or,
//! without one, by the very file that was mapped.

use std::collections::BTreeMap;
use std::sync::Arc;

use afterimage_kernel_text::{Text, TextId, TextKind};
use afterimage_perf_data::{AnySource, EventDesc, FileReader, Unit};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::aggregate::{EventProfile, EventSums, Weight, events};
use crate::loc::{Loc, Place};
use crate::replay::{ReplayOptions, Replayed, Sink, replay_from};
use crate::resolve::{Dso, Frame, FrameKind, Resolver, SymId};
use crate::sample::TimedSample;
use crate::state::{ObjectId, State};
use crate::stats::ReplayStats;

/// Where the code of a thing comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// A text that came or went during the recording.
    Text(TextId),
    /// A function of the kernel or of a module that stayed.
    Kernel,
    /// A function of something that processes had mapped.
    Object(ObjectId),
}

/// The samples of one event in one thing.
#[derive(Clone, Debug, Default)]
pub struct Hits {
    /// All of them.
    pub total: Weight,
    /// By bytes from the thing's start.
    pub by_offset: BTreeMap<u64, Weight>,
}

/// One function or text, and the samples that were taken in it.
#[derive(Clone, Debug)]
pub struct Thing {
    /// Its name, as reports show it.
    pub name: Arc<str>,
    /// Where its code comes from.
    pub subject: Subject,
    /// What kind of code it is.
    pub kind: FrameKind,
    /// The object that it is part of.
    pub dso: Arc<Dso>,
    /// The address of its first byte: a kernel address, or one of the object's own address space.
    pub start: u64,
    /// Its length in bytes, where its symbol or its record says.
    pub len: Option<u64>,
    /// Its samples by event (an index into the recording's events).
    pub hits: BTreeMap<usize, Hits>,
}

impl Thing {
    /// All samples in it, of one event or of all: only for putting things in order.
    pub fn weight(&self, event: Option<usize>) -> Weight {
        let mut sum = Weight::default();
        let of = self.hits.iter().filter(|(number, _)| event.is_none_or(|event| event == **number));
        of.for_each(|(_, hits)| sum.add(hits.total));
        sum
    }
}

/// What [`annotate`] found.
#[derive(Debug)]
pub struct Things {
    /// The events that have samples, or could have had.
    pub events: Vec<EventProfile>,
    /// Everything that samples were taken in and that has a name, heaviest first.
    pub things: Vec<Thing>,
    /// The state at the end: kernel text, objects.
    pub state: State,
    /// What the replay saw.
    pub stats: ReplayStats,
}

impl Things {
    /// Adds the texts that no sample fell into and that `wanted` takes: their code may be in the recording all the same.
    pub fn add_texts(&mut self, resolver: &mut Resolver, wanted: impl Fn(&Text<'_>) -> bool) {
        let sampled: FxHashSet<TextId> = self
            .things
            .iter()
            .filter_map(|thing| match thing.subject {
                Subject::Text(id) => Some(id),
                _ => None,
            })
            .collect();
        let texts = self.state.kernel().texts();
        // Functions of the kernel are kept only where samples fell into them.
        let others = texts.filter(|(id, text)| !sampled.contains(id) && text.kind != TextKind::Kernel && wanted(text));
        let added: Vec<(TextId, u64)> = others.map(|(id, text)| (id, text.addr)).collect();
        for (id, addr) in added {
            let loc = Loc { place: Place::Text(id), addr };
            // Of a module the whole text, whatever function is at its start.
            let frame = resolver.frame(&self.state, loc).clone();
            let Some(thing) = thing(&self.state, resolver, &frame, loc) else { continue };
            let text = self.state.kernel().text(id);
            let whole = text.filter(|text| is_function_in(text, &frame)).map(|text| Thing {
                name: text.name.into(),
                len: Some(text.len.into()),
                start: text.addr,
                ..thing.clone()
            });
            self.things.push(whole.unwrap_or(thing));
        }
    }
}

/// Replays a recording in memory and adds its samples up by the thing and the place in it that each was taken in. Only the
/// samples' own addresses count, not their stacks.
pub fn annotate(reader: &FileReader<'_>, options: &ReplayOptions, resolver: &mut Resolver) -> Things {
    annotate_from(reader, &mut AnySource::File(reader.source()), options, resolver)
}

/// The same of a recording whose records come from `source`.
pub fn annotate_from(
    reader: &FileReader<'_>,
    source: &mut AnySource<'_>,
    options: &ReplayOptions,
    resolver: &mut Resolver,
) -> Things {
    let mut spots = Spots { sums: vec![EventSums::default(); reader.events().len()], ..Spots::default() };
    let Replayed { state, stats } = replay_from(reader, source, options, &mut spots);
    resolver.learn(source);
    let mut things = Gathered::default();
    let mut places: Vec<_> = spots.places.into_iter().collect();
    // The map gives them in any order; things of equal weight shall stand in the same one each time.
    places.sort_unstable_by_key(|((event, loc), _)| (*loc, *event));
    for ((event, loc), weight) in places {
        things.add(&state, resolver, event, loc, weight);
    }
    let mut things = things.all;
    let off_cpu: Vec<bool> = (0..).zip(reader.events()).map(|(nth, event)| is_off_cpu(reader, nth, event)).collect();
    // Times off CPU are never added to the weights of other events.
    let weight = |thing: &Thing, waits: bool| {
        let of = thing.hits.iter().filter(|(event, _)| off_cpu.get(**event).is_some_and(|is| *is == waits));
        of.fold(0_u64, |sum, (_, hits)| sum.saturating_add(hits.total.period))
    };
    things.sort_by_key(|thing| (std::cmp::Reverse(weight(thing, false)), std::cmp::Reverse(weight(thing, true))));
    Things { events: events(reader, &spots.sums), things, state, stats }
}

fn is_off_cpu(reader: &FileReader<'_>, nth: usize, event: &EventDesc) -> bool {
    Unit::is_off_cpu(event, nth, reader.private())
}

/// Samples by event and place.
#[derive(Default)]
struct Spots {
    places: FxHashMap<(usize, Loc), Weight>,
    sums: Vec<EventSums>,
}

impl Sink for Spots {
    fn sample(&mut self, state: &State, sample: &TimedSample<'_>) {
        let weight = Weight { period: sample.period, samples: sample.count, records: 1 };
        if let Some(sums) = self.sums.get_mut(sample.event) {
            sums.weight.add(weight);
        }
        let loc = state.locate(sample.process, sample.mode(), sample.ip);
        self.places.entry((sample.event, loc)).or_default().add(weight);
    }
}

/// What tells things apart.
#[derive(PartialEq, Eq, Hash)]
enum Key {
    Text(TextId),
    /// A function within a text: one of a module.
    Within(TextId, SymId),
    /// A piece of code of a JIT compiler, by its first address: several may have one name.
    Code(ObjectId, u64),
    /// A symbol of an object; without a build ID, of the very one that was mapped.
    Symbol(SymId, Arc<Dso>, Option<ObjectId>),
}

#[derive(Default)]
struct Gathered {
    all: Vec<Thing>,
    by_key: FxHashMap<Key, usize>,
}

impl Gathered {
    fn add(&mut self, state: &State, resolver: &mut Resolver, event: usize, loc: Loc, weight: Weight) {
        let frame = resolver.frame(state, loc).clone();
        let (key, offset) = match loc.place {
            Place::Text(id) => match state.kernel().text(id) {
                Some(text) if is_function_in(&text, &frame) => (Key::Within(id, frame.sym), frame.offset),
                Some(text) => (Key::Text(id), loc.addr.wrapping_sub(text.addr)),
                None => return,
            },
            _ if frame.symbol.is_err() => return,
            Place::Object(id) if frame.kind == FrameKind::Jit => {
                (Key::Code(id, loc.addr.wrapping_sub(frame.offset)), frame.offset)
            }
            Place::Object(id) if frame.dso.build_id.is_none() => {
                (Key::Symbol(frame.sym, frame.dso.clone(), Some(id)), frame.offset)
            }
            Place::Kernel | Place::Object(_) => (Key::Symbol(frame.sym, frame.dso.clone(), None), frame.offset),
            Place::Unmapped | Place::Elsewhere(_) => return,
        };
        let at = match self.by_key.get(&key) {
            Some(at) => *at,
            None => {
                let Some(thing) = thing(state, resolver, &frame, loc) else { return };
                self.all.push(thing);
                self.by_key.insert(key, self.all.len() - 1);
                self.all.len() - 1
            }
        };
        if let Some(thing) = self.all.get_mut(at) {
            let hits = thing.hits.entry(event).or_default();
            hits.total.add(weight);
            hits.by_offset.entry(offset).or_default().add(weight);
        }
    }
}

/// Whether a frame names a function that is part of a text, not the text itself: a module holds many.
fn is_function_in(text: &Text<'_>, frame: &Frame) -> bool {
    matches!(text.kind, TextKind::Module | TextKind::ModuleInit) && frame.symbol.is_ok()
}

/// The thing at a place.
fn thing(state: &State, resolver: &mut Resolver, frame: &Frame, loc: Loc) -> Option<Thing> {
    let extent = match loc.place {
        Place::Text(id) => {
            let text = state.kernel().text(id)?;
            if is_function_in(&text, frame) {
                let end = text.addr.saturating_add(text.length.unwrap_or(text.len).into());
                let start = loc.addr.wrapping_sub(frame.offset);
                let own = resolver.extent(state, Loc { place: Place::Kernel, addr: loc.addr });
                Some(start..own.map_or(end, |own| own.end.min(end)))
            } else {
                resolver.extent(state, loc)
            }
        }
        _ => resolver.extent(state, loc),
    };
    let subject = match loc.place {
        Place::Text(id) => Subject::Text(id),
        Place::Kernel => Subject::Kernel,
        Place::Object(id) => Subject::Object(id),
        Place::Unmapped | Place::Elsewhere(_) => return None,
    };
    let name = match (&frame.symbol, subject) {
        (Ok(name), _) => name.clone(),
        (Err(_), Subject::Text(id)) => state.kernel().text(id)?.name.into(),
        (Err(_), _) => return None,
    };
    let start = extent.as_ref().map_or(frame.addr.wrapping_sub(frame.offset), |extent| extent.start);
    let len = extent.map(|extent| extent.end.saturating_sub(extent.start));
    Some(Thing { name, subject, kind: frame.kind, dso: frame.dso.clone(), start, len, hits: BTreeMap::new() })
}
