//! What the rows of all events have in common: numbers for what is shown of places and combinations, made once however
//! many events there are.

use afterimage_perf_data::DataSrc;
use afterimage_symbols::container::{Container, of_cgroup};
use rustc_hash::FxHashMap;

use super::collect::Entry;
use super::more::MoreId;
use super::places::LocId;
use super::{Profile, SortKey};
use crate::resolve::Frame;

/// The same numbers for what looks the same in a row.
#[derive(Debug)]
pub(crate) struct Shared {
    /// By place.
    pub(crate) frame_parts: Vec<u32>,
    /// By combination of what else is asked for.
    pub(crate) more_parts: Vec<u32>,
    /// By place the number of the parent that it is, 0 where it is none; empty unless parents are asked for. As in perf they
    /// are told apart by their names.
    pub(crate) parents: Vec<u32>,
    /// By cgroup, its container with a number; empty unless containers are asked for.
    pub(crate) containers: Containers,
}

/// By cgroup, the number of its container and the container itself. Several cgroups may be of one.
pub(crate) type Containers = FxHashMap<u64, (u64, Container<'static>)>;

/// What tells frames apart as rows.
type FramePart = [u64; 7];

/// The entries of each event.
#[derive(Debug)]
pub(crate) struct ByEvent {
    /// Their numbers, those of one event after those of the other.
    numbers: Vec<u32>,
    /// By event of the recording, where its numbers begin; one more for the end.
    starts: Vec<usize>,
}

impl ByEvent {
    /// Of events with smaller numbers than `events`.
    fn of(entries: &[Entry], events: usize) -> ByEvent {
        let mut starts = vec![0; events + 1];
        let event_of = |entry: &Entry| Some(entry.key.event as usize).filter(|event| *event < events);
        for event in entries.iter().filter_map(event_of) {
            starts[event + 1] += 1;
        }
        for event in 0..events {
            starts[event + 1] += starts[event];
        }
        let (mut next, mut numbers) = (starts.clone(), vec![0; starts[events]]);
        for (number, entry) in (0_u32..).zip(entries) {
            if let Some(event) = event_of(entry) {
                numbers[next[event]] = number;
                next[event] += 1;
            }
        }
        ByEvent { numbers, starts }
    }

    fn numbers(&self, event: usize) -> &[u32] {
        match (self.starts.get(event), self.starts.get(event + 1)) {
            (Some(from), Some(until)) => self.numbers.get(*from..*until).unwrap_or_default(),
            _ => &[],
        }
    }
}

impl Profile {
    /// The entries of an event (an index into [`Profile::events`]), with their numbers.
    pub(crate) fn entries_of(&self, event: usize) -> impl Iterator<Item = (u32, &Entry)> {
        let wanted = self.events.get(event).map(|event| event.event);
        // Most recordings have one, and need no list of all entries.
        let only = (self.events.len() == 1).then(|| {
            let is_its = move |(_, entry): &(u32, &Entry)| Some(entry.key.event as usize) == wanted;
            (0_u32..).zip(&self.entries).filter(is_its)
        });
        let several = wanted.filter(|_| self.events.len() > 1).map(|wanted| {
            let events = || self.events.iter().map(|event| event.event + 1).max().unwrap_or(0);
            let numbers = self.by_event.get_or_init(|| ByEvent::of(&self.entries, events())).numbers(wanted);
            numbers.iter().filter_map(|number| Some((*number, self.entries.get(*number as usize)?)))
        });
        only.into_iter().flatten().chain(several.into_iter().flatten())
    }

    /// What the rows of all events have in common.
    pub(crate) fn shared(&self) -> &Shared {
        self.shared.get_or_init(|| Shared {
            frame_parts: self.frame_parts(),
            more_parts: self.more_parts(),
            parents: self.parents(),
            containers: self.containers(),
        })
    }

    /// The containers of the cgroups that samples are of.
    fn containers(&self) -> Containers {
        let mut containers = Containers::default();
        let mut numbers: FxHashMap<Container<'static>, u64> = FxHashMap::default();
        if !self.sort.contains(&SortKey::Container) {
            return containers;
        }
        for cgroup in self.entries.iter().map(|entry| entry.key.cgroup) {
            if containers.contains_key(&cgroup) {
                continue;
            }
            let path = self.state.cgroup(cgroup);
            let Some(container) = path.and_then(|path| of_cgroup(path)).map(Container::into_owned) else { continue };
            let next = numbers.len() as u64 + 1;
            let number = *numbers.entry(container.clone()).or_insert(next);
            containers.insert(cgroup, (number, container));
        }
        containers
    }

    /// What tells places apart as rows, by place.
    fn frame_parts(&self) -> Vec<u32> {
        let has = |key| self.sort.contains(&key);
        let (dso, sym, line, text) = (has(SortKey::Dso), has(SortKey::Sym), has(SortKey::Srcline), has(SortKey::Text));
        let (file, symbol_size, dso_size) = (has(SortKey::Srcfile), has(SortKey::SymbolSize), has(SortKey::DsoSize));
        let mut files: FxHashMap<&str, u64> = FxHashMap::default();
        let mut numbers: FxHashMap<FramePart, u32> = FxHashMap::default();
        let mut part = |frame: &Frame| {
            let next = files.len() as u64 + 1;
            let name = self.source_line(frame).filter(|_| file).map(|line| line.file_name());
            let sizes = self.sizes(frame);
            let of_text = || frame.text.map_or(0, |id| id.index() as u64 + 1);
            [
                if dso { frame.dso_id.into() } else { 0 },
                if sym { frame.sym.0.into() } else { 0 },
                if line { frame.line.into() } else { 0 },
                if text { of_text() } else { 0 },
                name.map_or(0, |name| *files.entry(name).or_insert(next)),
                sizes.symbol.filter(|_| symbol_size).unwrap_or(u64::MAX),
                sizes.mapping.filter(|_| dso_size).unwrap_or(u64::MAX),
            ]
        };
        let number = |frame: &Frame| {
            let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
            *numbers.entry(part(frame)).or_insert(next)
        };
        self.frames.iter().map(number).collect()
    }

    /// What tells combinations of other values apart as rows: what is shown of them.
    fn more_parts(&self) -> Vec<u32> {
        let mut texts: FxHashMap<String, u64> = FxHashMap::default();
        let mut numbers: FxHashMap<Vec<u64>, u32> = FxHashMap::default();
        let ids = 0..u32::try_from(self.more.len()).unwrap_or(u32::MAX);
        let part = |id: u32| {
            let shown: Vec<u64> = self.more.keys().map(|key| self.shown(&mut texts, id, key)).collect();
            let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
            *numbers.entry(shown).or_insert(next)
        };
        ids.map(part).collect()
    }

    /// A number for what is shown of a key in a combination.
    fn shown(&self, texts: &mut FxHashMap<String, u64>, id: MoreId, key: SortKey) -> u64 {
        let Some((first, last)) = self.more.pair(id, key) else { return u64::MAX };
        let mut text = |text: String| {
            let next = texts.len() as u64;
            *texts.entry(text).or_insert(next)
        };
        let frame = || LocId::try_from(last).ok().and_then(|loc| self.frame(loc));
        match key {
            SortKey::Mem => text(DataSrc(last).level().to_string()),
            SortKey::Snoop => text(DataSrc(last).snoop().to_string()),
            SortKey::Tlb => text(DataSrc(last).translation().to_string()),
            SortKey::Locked => text(DataSrc(last).locked().to_owned()),
            SortKey::Blocked => text(DataSrc(last).blocked().to_owned()),
            SortKey::SymbolFrom | SortKey::SymbolTo => frame().map_or(last, |frame| frame.sym.0.into()),
            SortKey::DsoFrom | SortKey::DsoTo => frame().map_or(last, |frame| frame.dso_id.into()),
            SortKey::SrclineFrom | SortKey::SrclineTo => frame().map_or(last, |frame| frame.line.into()),
            SortKey::DsoDaddr => frame().map_or(last, |frame| text(frame.data_object().to_owned())),
            SortKey::SymbolDaddr | SortKey::AddrFrom | SortKey::AddrTo => first,
            SortKey::CgroupId => text(format!("{first}/{last}")),
            _ => last,
        }
    }

    fn parents(&self) -> Vec<u32> {
        let Some(parents) = self.parents.as_ref().filter(|_| self.sort.contains(&SortKey::Parent)) else {
            return Vec::new();
        };
        let mut numbers: FxHashMap<&str, u32> = FxHashMap::default();
        let mut by_place = Vec::with_capacity(self.frames.len());
        for frame in &self.frames {
            let name = frame.symbol.as_deref().ok().filter(|_| parents.is_parent(frame));
            let next = u32::try_from(numbers.len() + 1).unwrap_or(u32::MAX);
            by_place.push(name.map_or(0, |name| *numbers.entry(name).or_insert(next)));
        }
        by_place
    }
}

#[cfg(test)]
mod tests {
    use super::super::Weight;
    use super::super::collect::EntryKey;
    use super::*;

    #[test]
    fn entries_are_listed_by_event() {
        let entry = |event| {
            let key = EntryKey { cgroup: 0, leaf: 0, stack: 0, comm: 0, pid: 0, tid: 0, cpu: 0, event, more: 0 };
            Entry { key, weight: Weight::default() }
        };
        let list = ByEvent::of(&[3, 0, 3, 9, 1, 0].map(entry), 4);
        let numbers: Vec<&[u32]> = (0..6).map(|event| list.numbers(event)).collect();
        assert_eq!(numbers, [&[1, 5][..], &[4], &[], &[0, 2], &[], &[]]);
        assert!(ByEvent::of(&[], 0).numbers(0).is_empty());
    }
}
