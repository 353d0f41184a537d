//! Rows: what the entries of an event add up to, by the values of the sort keys.

use std::sync::Arc;

use afterimage_perf_data::TextDesc;
use rustc_hash::{FxHashMap, FxHashSet};

use super::collect::{Entry, NO_CPU};
use super::labels::Label;
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

/// Sort keys that there are: ten, and one for all labels together.
const KEYS: usize = 11;

/// The values of the sort keys as numbers.
type RawKey = [u64; KEYS];

impl Profile {
    /// The rows of an event (an index into [`Profile::events`]), heaviest first: by children where those were asked
    /// for, else by own weight.
    pub fn rows(&self, event: usize) -> Vec<Row> {
        let mut rows: Vec<Row> = Vec::new();
        let mut index: FxHashMap<RawKey, u32> = FxHashMap::default();
        let mut seen: FxHashSet<RawKey> = FxHashSet::default();
        for (number, entry) in self.entries_of(event) {
            let Some(leaf) = self.frame(entry.key.leaf) else { continue };
            let own = self.raw_key(entry, leaf);
            let row = self.row(&mut rows, &mut index, event, entry, leaf, own);
            row.own.add(entry.weight);
            row.children.add(entry.weight);
            row.entries.push(number);
            if !self.children {
                continue;
            }
            seen.clear();
            seen.insert(own);
            for frame in self.frames_of(entry) {
                let key = self.raw_key(entry, frame);
                if seen.insert(key) {
                    let row = self.row(&mut rows, &mut index, event, entry, frame, key);
                    row.children.add(entry.weight);
                    row.entries.push(number);
                }
            }
        }
        // Equal weights stay in the order of their first samples.
        rows.sort_by_key(|row| std::cmp::Reverse((row.children.period, row.own.period)));
        rows
    }

    fn row<'r>(
        &self,
        rows: &'r mut Vec<Row>,
        index: &mut FxHashMap<RawKey, u32>,
        event: usize,
        entry: &Entry,
        frame: &Frame,
        key: RawKey,
    ) -> &'r mut Row {
        let next = u32::try_from(rows.len()).unwrap_or(u32::MAX);
        let at = *index.entry(key).or_insert(next) as usize;
        if at == rows.len() {
            rows.push(Row {
                keys: self.sort.iter().map(|sort| self.key(*sort, event, entry, frame)).collect(),
                own: Weight::default(),
                children: Weight::default(),
                entries: Vec::new(),
                sym: self.sort.contains(&SortKey::Sym).then_some(frame.sym),
            });
        }
        &mut rows[at]
    }

    fn raw_key(&self, entry: &Entry, frame: &Frame) -> RawKey {
        let mut key = [0; KEYS];
        let others = self.sort.iter().filter(|sort| !matches!(sort, SortKey::Label(_)));
        let labels = self.sort.iter().find(|sort| matches!(sort, SortKey::Label(_)));
        for (value, sort) in key.iter_mut().zip(labels.into_iter().chain(others)) {
            *value = match sort {
                SortKey::Label(_) => entry.key.labels.into(),
                SortKey::Comm => entry.key.comm.into(),
                SortKey::Dso => frame.dso_id.into(),
                SortKey::Sym => frame.sym.0.into(),
                SortKey::Srcline => frame.line.into(),
                SortKey::Text => frame.text.map_or(0, |id| id.index() as u64 + 1),
                SortKey::Pid => entry.key.pid.into(),
                SortKey::Tid => entry.key.tid.into(),
                SortKey::Cpu => entry.key.cpu.into(),
                SortKey::Event => 0,
                SortKey::Cgroup => entry.key.cgroup,
            };
        }
        key
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
