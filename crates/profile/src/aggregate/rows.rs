//! Rows: what the entries of an event add up to, by the values of the sort keys.

use std::sync::Arc;

use afterimage_perf_data::{DataSrc, TextDesc};
use afterimage_symbols::container::Container;
use rustc_hash::FxHashMap;

use super::collect::{Entry, NO_CPU};
use super::labels::Label;
use super::paths::PathId;
use super::places::LocId;
use super::shared::Shared;
use super::{Profile, SortKey, Weight};
use crate::lines::SourceLine;
use crate::resolve::{Dso, Frame, FrameKind, SymId};

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
    /// A line of source code for another key: of which the file alone is meant ([`SortKey::Srcfile`]), or that a branch led
    /// from or to.
    Line(SortKey, Option<Arc<SourceLine>>),
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
    /// The container or unit of the cgroup; `None` where it is of none, or not known.
    Container(Option<Container<'static>>),
    /// Device and inode of the cgroup namespace; `None` where no record told of it.
    CgroupId(Option<(u64, u64)>),
    /// A number that keys of this sort have: a weight, a size in bytes, an address, a time in ns. `None` where the sample does
    /// not have it. [`SortKey::Weight`] and [`SortKey::InsLat`] are those of each sample.
    Number(SortKey, Option<u64>),
    /// A part of the data source; `None` where the sample does not have one.
    Source(SortKey, Option<DataSrc>),
    /// The place of a branch's end or of a data address, with the address itself where that tells rows apart; `None` where the
    /// sample has none. The key says whether its symbol or its object is meant.
    Place(SortKey, Option<(Frame, Option<u64>)>),
    /// Whether something holds of a branch; `None` where it is not said.
    Flag(SortKey, Option<bool>),
    /// The innermost parent on the stack; `None` where there is none.
    Parent(Option<Frame>),
    /// The number of the value in a column of the caller's; `None` where the sample has none.
    Column(u8, Option<u32>),
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
    /// Of the row's own samples, those of each mode.
    pub modes: Modes,
    /// The numbers of the entries that it is made of.
    pub(crate) entries: Vec<u32>,
    /// The symbol that the row is of, if symbols tell rows apart.
    pub(crate) sym: Option<SymId>,
}

/// Periods by what ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modes {
    /// The kernel.
    pub kernel: u64,
    /// A process.
    pub user: u64,
    /// A guest's kernel.
    pub guest_kernel: u64,
    /// A guest's process.
    pub guest_user: u64,
}

impl Modes {
    fn count(&mut self, kind: FrameKind, period: u64) {
        let sum = match kind {
            FrameKind::Kernel | FrameKind::Module | FrameKind::Bpf => &mut self.kernel,
            FrameKind::User | FrameKind::Vdso | FrameKind::Jit | FrameKind::Unknown => &mut self.user,
            FrameKind::GuestKernel => &mut self.guest_kernel,
            FrameKind::GuestUser => &mut self.guest_user,
            FrameKind::Hypervisor => return,
        };
        *sum = sum.saturating_add(period);
    }

    /// Adds those of another row.
    pub fn add(&mut self, other: Modes) {
        self.kernel = self.kernel.saturating_add(other.kernel);
        self.user = self.user.saturating_add(other.user);
        self.guest_kernel = self.guest_kernel.saturating_add(other.guest_kernel);
        self.guest_user = self.guest_user.saturating_add(other.guest_user);
    }
}

/// What tells the rows of one entry apart that its frames do not: values of the sort keys as numbers.
type EntryPart = [u64; 8];

/// The number of an entry's part above that of a frame's part.
type RowKey = u64;

/// Rows while they are added up.
struct Rows<'p> {
    shared: &'p Shared,
    rows: Vec<Row>,
    /// By row: the last entry that was added to it.
    last: Vec<u32>,
    index: FxHashMap<RowKey, u32>,
    entry_parts: FxHashMap<EntryPart, u32>,
    /// With children: by the entry's part and the frame's, and the path, where its rows stand in `lists`.
    known: FxHashMap<(RowKey, PathId), (usize, usize)>,
    /// The rows of an entry, its own first.
    lists: Vec<u32>,
}

impl Profile {
    /// The rows of an event (an index into [`Profile::events`]), heaviest first: by children where those were asked
    /// for, else by own weight.
    pub fn rows(&self, event: usize) -> Vec<Row> {
        let mut to = Rows::new(self.shared());
        for (number, entry) in self.entries_of(event) {
            let Some(leaf) = self.frame(entry.key.leaf) else { continue };
            let next = u32::try_from(to.entry_parts.len()).unwrap_or(u32::MAX);
            let part = self.entry_part(&to, entry);
            let part = *to.entry_parts.entry(part).or_insert(next);
            let own = to.key(part, entry.key.leaf);
            if !self.children {
                let row = self.row(&mut to, event, entry, leaf, own);
                to.add(row, number, entry);
                if let Some(row) = to.rows.get_mut(row as usize) {
                    row.add_own(leaf, entry);
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
                    row.add_own(leaf, entry);
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
        to: &mut Rows<'_>,
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
    fn row(&self, to: &mut Rows<'_>, event: usize, entry: &Entry, frame: &Frame, key: RowKey) -> u32 {
        let next = u32::try_from(to.rows.len()).unwrap_or(u32::MAX);
        let at = *to.index.entry(key).or_insert(next);
        if at == next {
            let keys = self.sort.iter().map(|sort| self.key(to.shared, *sort, event, entry, frame)).collect();
            to.rows.push(Row {
                keys,
                own: Weight::default(),
                children: Weight::default(),
                modes: Modes::default(),
                entries: Vec::new(),
                sym: self.sort.contains(&SortKey::Sym).then_some(frame.sym),
            });
            to.last.push(NOBODY);
        }
        at
    }

    /// The innermost parent on the stack of an entry, and its number.
    fn parent_of(&self, parents: &[u32], entry: &Entry) -> Option<(&Frame, u32)> {
        let number = |loc: LocId| parents.get(loc as usize).copied().filter(|number| *number != 0);
        self.locs_of(entry).find_map(|loc| Some((self.frame(loc)?, number(loc)?)))
    }

    fn entry_part(&self, to: &Rows<'_>, entry: &Entry) -> EntryPart {
        let mut part = [0; 8];
        part[0] = to.shared.more_parts.get(entry.key.more as usize).copied().unwrap_or(0).into();
        for sort in &self.sort {
            match sort {
                SortKey::Comm => part[1] = entry.key.comm.into(),
                SortKey::Pid => part[2] = entry.key.pid.into(),
                SortKey::Tid => part[3] = entry.key.tid.into(),
                SortKey::Cpu => part[4] = entry.key.cpu.into(),
                SortKey::Cgroup => part[5] = entry.key.cgroup,
                SortKey::Container => {
                    part[7] = to.shared.containers.get(&entry.key.cgroup).map_or(0, |(number, _)| *number);
                }
                SortKey::Parent => {
                    part[6] = self.parent_of(&to.shared.parents, entry).map_or(0, |(_, number)| number.into());
                }
                _ => {}
            }
        }
        part
    }

    fn key(&self, shared: &Shared, sort: SortKey, event: usize, entry: &Entry, frame: &Frame) -> Key {
        let task = |tid: u32| self.state.comm_of(tid).cloned().unwrap_or_else(|| "".into());
        match sort {
            SortKey::Comm => Key::Comm(self.state.comm(entry.key.comm()).clone()),
            SortKey::Dso => Key::Dso(frame.dso.clone()),
            SortKey::Sym => Key::Sym(frame.clone()),
            SortKey::Srcline => Key::Srcline(self.source_line(frame).cloned()),
            SortKey::Srcfile => Key::Line(sort, self.source_line(frame).cloned()),
            SortKey::SymbolSize => Key::Number(sort, self.sizes(frame).symbol),
            SortKey::DsoSize => Key::Number(sort, self.sizes(frame).mapping),
            SortKey::SrclineFrom | SortKey::SrclineTo => {
                let place = self.more.get(entry.key.more, sort).and_then(|loc| self.frame(LocId::try_from(loc).ok()?));
                Key::Line(sort, place.and_then(|frame| self.source_line(frame)).cloned())
            }
            SortKey::Dcacheline => {
                let place = self.more.get(entry.key.more, sort).and_then(|loc| self.frame(LocId::try_from(loc).ok()?));
                Key::Place(sort, place.map(|frame| (frame.clone(), Some(frame.addr))))
            }
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
                Key::Label(name, self.labels.get(self.more.labels(entry.key.more), nth.into()).cloned())
            }
            SortKey::Cgroup => Key::Cgroup(match self.state.cgroup(entry.key.cgroup) {
                Some(path) => path.clone(),
                None => format!("unknown {}", entry.key.cgroup).into(),
            }),
            SortKey::Parent => Key::Parent(self.parent_of(&shared.parents, entry).map(|(frame, _)| frame.clone())),
            SortKey::Container => {
                let found = shared.containers.get(&entry.key.cgroup);
                Key::Container(found.map(|(_, container)| container.clone()))
            }
            SortKey::CgroupId => Key::CgroupId(self.more.pair(entry.key.more, sort)),
            SortKey::Mem | SortKey::Snoop | SortKey::Tlb | SortKey::Locked | SortKey::Blocked => {
                Key::Source(sort, self.more.get(entry.key.more, sort).map(DataSrc))
            }
            SortKey::Mispredict | SortKey::InTx | SortKey::Abort => {
                Key::Flag(sort, self.more.get(entry.key.more, sort).map(|value| value != 0))
            }
            SortKey::Column(nth) => {
                Key::Column(nth, self.more.get(entry.key.more, sort).and_then(|value| u32::try_from(value).ok()))
            }
            sort if sort.is_place() => {
                let pair = self.more.pair(entry.key.more, sort);
                let place = pair.and_then(|(addr, loc)| Some((addr, self.frame(LocId::try_from(loc).ok()?)?)));
                let has_addr = matches!(sort, SortKey::SymbolDaddr | SortKey::AddrFrom | SortKey::AddrTo);
                let addr = |addr: u64| has_addr.then_some(addr);
                Key::Place(sort, place.map(|(first, frame)| (frame.clone(), addr(first))))
            }
            sort => Key::Number(sort, self.more.get(entry.key.more, sort)),
        }
    }
}

/// In [`Rows::last`]: no entry yet.
const NOBODY: u32 = u32::MAX;

impl Row {
    fn add_own(&mut self, leaf: &Frame, entry: &Entry) {
        self.own.add(entry.weight);
        self.modes.count(leaf.kind, entry.weight.period);
    }
}

impl<'p> Rows<'p> {
    fn new(shared: &'p Shared) -> Rows<'p> {
        Rows {
            shared,
            rows: Vec::new(),
            last: Vec::new(),
            index: FxHashMap::default(),
            entry_parts: FxHashMap::default(),
            known: FxHashMap::default(),
            lists: Vec::new(),
        }
    }

    fn key(&self, part: u32, loc: LocId) -> RowKey {
        u64::from(part) << 32 | u64::from(self.shared.frame_parts.get(loc as usize).copied().unwrap_or(u32::MAX))
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
