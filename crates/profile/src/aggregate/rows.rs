//! Rows: what the entries of an event add up to, by the values of the sort keys.

use std::sync::Arc;

use afterimage_perf_data::TextDesc;
use rustc_hash::FxHashMap;

use super::collect::{Entry, NO_CPU};
use super::labels::Label;
use super::paths::PathId;
use super::places::LocId;
use super::{Profile, SortKey, Weight};
use crate::lines::SourceLine;
use crate::resolve::{Dso, Frame, SymId};

/// A value of a [`SortKey`].
#[derive(Clone, Debug)]
pub enum Key {
    /// The thread's name.
    Comm(Arc<str>),
    /// The object.
    Dso(Arc<Dso>),
    /// The symbol: a frame in it. Its address and offset are those of one of the row's samples.
    Sym(Frame),
    /// The line of source code; `None` where no way led to one.
    Srcline(Option<Arc<SourceLine>>),
    /// The text; `None` for code that neither came nor went.
    Text(Option<Box<TextDesc>>),
    /// The process, and its name at the end of the recording.
    Pid(u32, Arc<str>),
    /// The thread, and its name at the end of the recording.
    Tid(u32, Arc<str>),
    /// The CPU; `None` where samples do not say.
    Cpu(Option<u32>),
    /// The event.
    Event(Arc<str>),
    /// A label: its name, and its value where the sample has one.
    Label(Arc<str>, Option<Arc<Label>>),
    /// The cgroup's path; its number where no record told of its path.
    Cgroup(Arc<str>),
}

/// A row.
#[derive(Clone, Debug)]
pub struct Row {
    /// The values of the sort keys, in their order.
    pub keys: Vec<Key>,
    /// Samples taken in the row's own code.
    pub own: Weight,
    /// Samples taken in it or in what it called, each once however often it is on the stack. Without
    /// [`children`](super::AggregateOptions::children) the same as `own`.
    pub children: Weight,
    /// The numbers of the entries that it is made of.
    pub(crate) entries: Vec<u32>,
    /// The symbol that the row is of, if symbols tell rows apart.
    pub(crate) sym: Option<SymId>,
}

/// What tells the rows of one entry apart that its frames do not: values of the sort keys as numbers.
type EntryPart = [u64; 6];

/// The same of frames.
type FramePart = [u64; 4];

/// The number of an entry's part above that of a frame's part.
type RowKey = u64;

/// Rows while they are added up.
#[derive(Default)]
struct Rows {
    rows: Vec<Row>,
    /// By row: the last entry that was added to it.
    last: Vec<u32>,
    index: FxHashMap<RowKey, u32>,
    entry_parts: FxHashMap<EntryPart, u32>,
    /// By place.
    frame_parts: Vec<u32>,
    /// With children: by the entry's part and the frame's, and the path, where its rows stand in `lists`.
    known: FxHashMap<(RowKey, PathId), (usize, usize)>,
    /// The rows of an entry, its own first.
    lists: Vec<u32>,
}

impl Profile {
    /// The rows of an event (an index into [`Profile::events`]), heaviest first: by children where those were asked
    /// for, else by own weight.
    pub fn rows(&self, event: usize) -> Vec<Row> {
        let mut to = Rows { frame_parts: self.frame_parts(), ..Rows::default() };
        for (number, entry) in self.entries_of(event) {
            let Some(leaf) = self.frame(entry.key.leaf) else { continue };
            let next = u32::try_from(to.entry_parts.len()).unwrap_or(u32::MAX);
            let part = *to.entry_parts.entry(self.entry_part(entry)).or_insert(next);
            let own = to.key(part, entry.key.leaf);
            if !self.children {
                let row = self.row(&mut to, event, entry, leaf, own);
                to.add(row, number, entry);
                if let Some(row) = to.rows.get_mut(row as usize) {
                    row.own.add(entry.weight);
                }
                continue;
            }
            let known = (own, self.paths().of_entry(number));
            let (from, until) = match to.known.get(&known) {
                Some(list) => *list,
                None => {
                    let list = self.list(&mut to, event, (number, entry), leaf, (part, own));
                    to.known.insert(known, list);
                    list
                }
            };
            for at in from..until {
                let Some(row) = to.lists.get(at).copied() else { break };
                to.add(row, number, entry);
                if let (true, Some(row)) = (at == from, to.rows.get_mut(row as usize)) {
                    row.own.add(entry.weight);
                }
            }
        }
        let mut rows = to.rows;
        // Equal weights stay in the order of their first samples.
        rows.sort_by_key(|row| std::cmp::Reverse((row.children.period, row.own.period)));
        rows
    }

    /// The rows of an entry and of all that is on its stack, each once, its own first.
    fn list(
        &self,
        to: &mut Rows,
        event: usize,
        (number, entry): (u32, &Entry),
        leaf: &Frame,
        (part, own): (u32, RowKey),
    ) -> (usize, usize) {
        let from = to.lists.len();
        let row = self.row(to, event, entry, leaf, own);
        to.list(row, number);
        for loc in self.locs_of(entry) {
            let Some(frame) = self.frame(loc) else { continue };
            let key = to.key(part, loc);
            let row = self.row(to, event, entry, frame, key);
            to.list(row, number);
        }
        (from, to.lists.len())
    }

    /// The number of the row of a key; `entry` and `frame` are what it shows if they are the first.
    fn row(&self, to: &mut Rows, event: usize, entry: &Entry, frame: &Frame, key: RowKey) -> u32 {
        let next = u32::try_from(to.rows.len()).unwrap_or(u32::MAX);
        let at = *to.index.entry(key).or_insert(next);
        if at == next {
            to.rows.push(Row {
                keys: self.sort.iter().map(|sort| self.key(*sort, event, entry, frame)).collect(),
                own: Weight::default(),
                children: Weight::default(),
                entries: Vec::new(),
                sym: self.sort.contains(&SortKey::Sym).then_some(frame.sym),
            });
            to.last.push(NOBODY);
        }
        at
    }

    /// What tells places apart as rows, by place.
    fn frame_parts(&self) -> Vec<u32> {
        let has = |key| self.sort.contains(&key);
        let (dso, sym, line, text) = (has(SortKey::Dso), has(SortKey::Sym), has(SortKey::Srcline), has(SortKey::Text));
        let mut numbers: FxHashMap<FramePart, u32> = FxHashMap::default();
        let part = |frame: &Frame| {
            let of_text = || frame.text.map_or(0, |id| id.index() as u64 + 1);
            [
                if dso { frame.dso_id.into() } else { 0 },
                if sym { frame.sym.0.into() } else { 0 },
                if line { frame.line.into() } else { 0 },
                if text { of_text() } else { 0 },
            ]
        };
        let number = |frame: &Frame| {
            let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
            *numbers.entry(part(frame)).or_insert(next)
        };
        self.frames.iter().map(number).collect()
    }

    fn entry_part(&self, entry: &Entry) -> EntryPart {
        let mut part = [0; 6];
        for sort in &self.sort {
            match sort {
                SortKey::Label(_) => part[0] = entry.key.labels.into(),
                SortKey::Comm => part[1] = entry.key.comm.into(),
                SortKey::Pid => part[2] = entry.key.pid.into(),
                SortKey::Tid => part[3] = entry.key.tid.into(),
                SortKey::Cpu => part[4] = entry.key.cpu.into(),
                SortKey::Cgroup => part[5] = entry.key.cgroup,
                SortKey::Dso | SortKey::Sym | SortKey::Srcline | SortKey::Text | SortKey::Event => {}
            }
        }
        part
    }

    fn key(&self, sort: SortKey, event: usize, entry: &Entry, frame: &Frame) -> Key {
        let task = |tid: u32| self.state.comm_of(tid).cloned().unwrap_or_else(|| "".into());
        match sort {
            SortKey::Comm => Key::Comm(self.state.comm(entry.key.comm()).clone()),
            SortKey::Dso => Key::Dso(frame.dso.clone()),
            SortKey::Sym => Key::Sym(frame.clone()),
            SortKey::Srcline => Key::Srcline(self.source_line(frame).cloned()),
            SortKey::Text => {
                let desc = frame.text.and_then(|id| self.state.kernel().desc(id));
                Key::Text(desc.map(Box::new))
            }
            SortKey::Pid => Key::Pid(entry.key.pid, task(entry.key.pid)),
            SortKey::Tid => Key::Tid(entry.key.tid, task(entry.key.tid)),
            SortKey::Cpu => Key::Cpu((entry.key.cpu != NO_CPU).then_some(entry.key.cpu)),
            SortKey::Event => Key::Event(self.events.get(event).map_or_else(|| "".into(), |e| e.name.clone())),
            SortKey::Label(nth) => {
                let name = self.label_names.get(usize::from(nth)).cloned().unwrap_or_else(|| "".into());
                Key::Label(name, self.labels.get(entry.key.labels, nth.into()).cloned())
            }
            SortKey::Cgroup => Key::Cgroup(match self.state.cgroup(entry.key.cgroup) {
                Some(path) => path.clone(),
                None => format!("unknown {}", entry.key.cgroup).into(),
            }),
        }
    }
}

/// In [`Rows::last`]: no entry yet.
const NOBODY: u32 = u32::MAX;

impl Rows {
    fn key(&self, part: u32, loc: LocId) -> RowKey {
        u64::from(part) << 32 | u64::from(self.frame_parts.get(loc as usize).copied().unwrap_or(u32::MAX))
    }

    /// Puts a row into the list of an entry, unless it is there.
    fn list(&mut self, row: u32, number: u32) {
        if let Some(last) = self.last.get_mut(row as usize).filter(|last| **last != number) {
            *last = number;
            self.lists.push(row);
        }
    }

    fn add(&mut self, row: u32, number: u32, entry: &Entry) {
        if let Some(row) = self.rows.get_mut(row as usize) {
            row.children.add(entry.weight);
            row.entries.push(number);
        }
    }
}
