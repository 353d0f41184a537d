//! Code of JIT compilers through time: what maps and dumps of a process told, put into an order in which an address means
//! one thing at a time.
//!
//! Code that took the place of other code lies in another layer, so that within a layer each address has one name for ever:
//!
//! ```text
//! layer 1           [new──────)
//! layer 0   [old────────)  [other──)          an address is looked up in the layer that its process has there at the time
//! ```
//! A layer answers as a file does ([`KeptContent`]): with names, code and lines. Its addresses are those where the code was
//! first; code that moved is still there, and the mapping says how far away it is.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::Machine;
use crate::jitdump::{Event, Header, Load};
use crate::kept::KeptContent;
use crate::perfmap;

/// Layers of one process at most. Code that lies higher has no name.
const MOST_LAYERS: usize = 4096;

/// How much is taken of all processes of a recording together. What is beyond has no name, or no lines.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Pieces of code, and as many moves.
    bodies: usize,
    moves: usize,
    lines: usize,
    layers: usize,
}

impl Default for Room {
    fn default() -> Room {
        Room { bodies: 8 << 20, moves: 8 << 20, lines: 16 << 20, layers: 64 << 10 }
    }
}

/// Takes one of what there is room for.
fn takes(left: &mut usize) -> bool {
    let less = left.checked_sub(1);
    *left = less.unwrap_or(0);
    less.is_some()
}

/// The code of one process from its start, or its last exec, to its end.
#[derive(Debug, Default)]
pub struct JitCode {
    /// What holds the code.
    pub layers: Vec<Layer>,
    /// What came and moved, by time; of one time in the order in which it was told.
    pub changes: Vec<Change>,
    /// Pieces of code that have no name, and moves that were left out, because there were too many.
    pub left_out: u64,
    /// Lines that were left out because there were too many.
    pub lines_left_out: u64,
}

/// Code that lies apart: each address has at most one name.
#[derive(Debug)]
pub struct Layer {
    /// The map or dump that told of it, as the process names it.
    pub path: PathBuf,
    /// Names, code and lines.
    pub content: Arc<KeptContent>,
}

/// From some time on a range of addresses is code of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// ns on the clock of whoever told of it.
    pub time: u64,
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// Which of [`JitCode::layers`].
    pub layer: u32,
    /// Added to an address (wrapping) it gives the address in the layer: 0 but for code that moved.
    pub delta: u64,
}

/// A piece of code.
#[derive(Debug)]
pub(crate) struct Body {
    pub(crate) addr: u64,
    /// One past its last address.
    pub(crate) end: u64,
    pub(crate) name: Box<str>,
    pub(crate) code: Vec<u8>,
    /// From where on code is of which line, and which file (a number of [`Builder::files`]).
    pub(crate) lines: Vec<(u64, u32, u32)>,
}

/// Puts together what was told of one process, in the order in which it was told.
#[derive(Default)]
pub struct Builder {
    bodies: Vec<Body>,
    /// The source of each body.
    sources: Vec<u32>,
    /// Time, body, where it is from then on.
    changes: Vec<(u64, u32, u64)>,
    /// Paths and machines of maps and dumps.
    told_by: Vec<(PathBuf, Machine)>,
    by_path: FxHashMap<PathBuf, u32>,
    /// By what moves call code: the last body of that number.
    by_index: FxHashMap<(u32, u64), u32>,
    files: Vec<Arc<str>>,
    by_file: FxHashMap<Arc<str>, u32>,
    left_out: u64,
    lines_left_out: u64,
}

impl Builder {
    /// Lines of a map, which were read at `at`. Lines of another form are skipped.
    pub fn map(&mut self, path: &Path, at: u64, text: &[u8], room: &mut Room) {
        let source = self.source(path, Machine::Other);
        for line in text.split(|&b| b == b'\n') {
            let Some((addr, end, name)) = perfmap::read_line(line) else { continue };
            let name = String::from_utf8_lossy(name).into();
            let body = Body { addr, end, name, code: Vec::new(), lines: Vec::new() };
            self.body(source, at, body, room);
        }
    }

    /// A dump, or its header with some whole records of it. Where `at` is given its times are of no clock that counts: all
    /// came at that time.
    ///
    /// What is none, or damaged, tells nothing, or what stands before the damage.
    pub fn dump(&mut self, path: &Path, at: Option<u64>, read_at: u64, dump: &[u8], room: &mut Room) {
        let Some(header) = Header::read(dump) else { return };
        let Some(records) = dump.get(header.len as usize..) else { return };
        let source = self.source(path, header.machine);
        let at = at.or(header.ticks.then_some(read_at));
        let mut lines = None;
        for event in header.records(records) {
            match event {
                Event::Lines(told) => lines = Some(told),
                Event::Load(Load { time, addr, len, index, name, code }) => {
                    let lines = lines.take().filter(|lines| lines.addr == addr);
                    let Some(end) = addr.checked_add(len).filter(|end| *end > addr) else { continue };
                    let name = String::from_utf8_lossy(name).into();
                    let mut body = Body { addr, end, name, code: code.to_vec(), lines: Vec::new() };
                    if let Some(lines) = lines {
                        self.lines_of(&mut body, lines.iter().map(|line| (line.addr, line.line, line.file)), room);
                    }
                    if let Some(number) = self.body(source, at.unwrap_or(time), body, room) {
                        self.by_index.insert((source, index), number);
                    }
                }
                Event::Move { time, index, to, .. } => {
                    let Some(body) = self.by_index.get(&(source, index)) else { continue };
                    if takes(&mut room.moves) {
                        self.changes.push((at.unwrap_or(time), *body, to));
                    } else {
                        self.left_out += 1;
                    }
                }
                Event::Unwinding { .. } | Event::Close | Event::Other(_) => {}
            }
        }
    }

    fn source(&mut self, path: &Path, machine: Machine) -> u32 {
        if let Some(known) = self.by_path.get(path) {
            return *known;
        }
        let number = u32::try_from(self.told_by.len()).unwrap_or(u32::MAX);
        self.told_by.push((path.to_path_buf(), machine));
        self.by_path.insert(path.to_path_buf(), number);
        number
    }

    fn body(&mut self, source: u32, time: u64, body: Body, room: &mut Room) -> Option<u32> {
        if body.end <= body.addr {
            return None;
        }
        if !takes(&mut room.bodies) {
            self.left_out += 1;
            return None;
        }
        let number = u32::try_from(self.bodies.len()).ok()?;
        self.changes.push((time, number, body.addr));
        self.bodies.push(body);
        self.sources.push(source);
        Some(number)
    }

    fn lines_of<'d>(&mut self, body: &mut Body, lines: impl Iterator<Item = (u64, u32, &'d [u8])>, room: &mut Room) {
        for (addr, line, file) in lines {
            if !takes(&mut room.lines) {
                self.lines_left_out += 1;
                continue;
            }
            let file = String::from_utf8_lossy(file);
            let number = match self.by_file.get(&*file) {
                Some(number) => *number,
                None => {
                    let file: Arc<str> = file.into();
                    let number = u32::try_from(self.files.len()).unwrap_or(u32::MAX);
                    self.files.push(file.clone());
                    self.by_file.insert(file, number);
                    number
                }
            };
            body.lines.push((addr, line, number));
        }
        body.lines.sort_by_key(|line| line.0);
    }

    /// What came of it.
    pub fn finish(mut self, room: &mut Room) -> JitCode {
        self.changes.sort_by_key(|change| change.0);
        let mut layers = Layers::default();
        let mut changes = Vec::with_capacity(self.changes.len());
        // By body: its layer, and whether it is there itself and not by another that is the same.
        let mut placed: Vec<Option<(u32, bool)>> = vec![None; self.bodies.len()];
        for (time, number, start) in &self.changes {
            let at = *number as usize;
            let Some(body) = self.bodies.get(at) else { continue };
            let layer = match placed.get(at).copied().flatten() {
                Some((layer, _)) => layer,
                None => {
                    let source = self.sources.get(at).copied().unwrap_or(0);
                    let mut is_new = false;
                    let found = match layers.place(&self.bodies, *number, source, room) {
                        Ok((layer, named)) => {
                            self.left_out += u64::from(!named);
                            is_new = true;
                            Some((layer, named))
                        }
                        Err(same) => placed.get(same as usize).copied().flatten().map(|(layer, _)| (layer, false)),
                    };
                    if let Some(placed) = placed.get_mut(at) {
                        *placed = found;
                    }
                    // What is there already does not change.
                    let Some((layer, _)) = found.filter(|_| is_new) else { continue };
                    layer
                }
            };
            let Some(end) = start.checked_add(body.end - body.addr) else { continue };
            if *start != body.addr {
                layers.cover(*start, end);
            }
            let delta = body.addr.wrapping_sub(*start);
            changes.push(Change { time: *time, start: *start, end, layer, delta });
        }
        let mut bodies: Vec<Vec<Body>> = layers.sources.iter().map(|_| Vec::new()).collect();
        for (body, placed) in self.bodies.into_iter().zip(&placed) {
            if let Some(to) = placed.filter(|(_, own)| *own).and_then(|(layer, _)| bodies.get_mut(layer as usize)) {
                to.push(body);
            }
        }
        let nobody = (PathBuf::new(), Machine::Other);
        let layer = |(bodies, source): (Vec<Body>, &u32)| {
            let (path, machine) = self.told_by.get(*source as usize).unwrap_or(&nobody);
            Layer { content: Arc::new(KeptContent::of_jit(bodies, &self.files, *machine, path)), path: path.clone() }
        };
        let layers = bodies.into_iter().zip(&layers.sources).map(layer).collect();
        JitCode { layers, changes, left_out: self.left_out, lines_left_out: self.lines_left_out }
    }
}

/// In place of a body: one that came from elsewhere. The one whose layer this is was there before.
const MOVED: u32 = u32::MAX;

/// The depth of code that has no name.
const NAMELESS: u32 = u32::MAX;

/// How deep the code at each address lies that came there last.
#[derive(Default)]
struct Layers {
    /// By first address: the address behind, the depth, the body or [`MOVED`].
    last: BTreeMap<u64, (u64, u32, u32)>,
    by_depth: FxHashMap<(u32, u32), u32>,
    /// The source of each layer.
    sources: Vec<u32>,
}

impl Layers {
    /// The layer of a body, and whether it has its name there: above all that was where it is. If the same is there already,
    /// the number of that one.
    fn place(&mut self, bodies: &[Body], number: u32, source: u32, room: &mut Room) -> Result<(u32, bool), u32> {
        let body = bodies.get(number as usize).ok_or(number)?;
        let (start, end) = (body.addr, body.end);
        let over = self.over(start, end);
        if let [(from, (until, _, other))] = over.as_slice() {
            let is_same = |before: &Body| {
                (before.addr, before.end, &before.name, &before.code) == (start, end, &body.name, &body.code)
            };
            if (*from, *until) == (start, end) && bodies.get(*other as usize).is_some_and(is_same) {
                return Err(*other);
            }
        }
        let depth = over.iter().map(|(_, (_, depth, _))| depth.saturating_add(1)).max().unwrap_or(0);
        let known = self.by_depth.get(&(source, depth)).copied();
        // There is one without names at most.
        let fits = known.is_some() || self.sources.len() < MOST_LAYERS && takes(&mut room.layers);
        self.cut(&over, start, end);
        // Nothing lies in the one without names: the next one has to lie above what is below that.
        let lies = if fits { (end, depth, number) } else { (end, depth.saturating_sub(1), MOVED) };
        self.last.insert(start, lies);
        let (source, depth) = if fits { (source, depth) } else { (0, NAMELESS) };
        let sources = &mut self.sources;
        let layer = self.by_depth.entry((source, depth)).or_insert_with(|| {
            sources.push(source);
            u32::try_from(sources.len() - 1).unwrap_or(u32::MAX)
        });
        Ok((*layer, fits))
    }

    /// Code that was elsewhere before is there now.
    fn cover(&mut self, start: u64, end: u64) {
        let over = self.over(start, end);
        // As one piece, so that many moves to the same place cost no more than what they find there.
        if let Some(depth) = over.iter().map(|(_, (_, depth, _))| *depth).max() {
            self.cut(&over, start, end);
            self.last.insert(start, (end, depth, MOVED));
        }
    }

    /// What lies there.
    fn over(&self, start: u64, end: u64) -> Vec<(u64, (u64, u32, u32))> {
        let reaches_in = self.last.range(..start).next_back().filter(|(_, (until, ..))| *until > start);
        let first = reaches_in.map_or(start, |(from, _)| *from);
        self.last.range(first..end).map(|(from, piece)| (*from, *piece)).collect()
    }

    /// Takes it away, but for what of it is outside.
    fn cut(&mut self, over: &[(u64, (u64, u32, u32))], start: u64, end: u64) {
        for (from, (until, depth, of)) in over {
            self.last.remove(from);
            if *from < start {
                self.last.insert(*from, (start, *depth, *of));
            }
            if *until > end {
                self.last.insert(end, (*until, *depth, *of));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::ObjectFile;
    use crate::jitdump::made::Dump;
    use proptest::prelude::*;

    fn map(parts: &[(u64, &str)]) -> JitCode {
        let (mut builder, room) = (Builder::default(), &mut Room::default());
        parts.iter().for_each(|(at, text)| builder.map(Path::new("/tmp/perf-7.map"), *at, text.as_bytes(), room));
        builder.finish(room)
    }

    /// The name at an address once all changes up to a time have been made.
    fn at(code: &JitCode, time: u64, addr: u64) -> Option<(String, u64)> {
        let change = code.changes.iter().rev().find(|c| c.time <= time && (c.start..c.end).contains(&addr))?;
        let hit = code.layers[change.layer as usize].content.lookup_offset(addr.wrapping_add(change.delta)).unwrap();
        Some((hit.name.to_owned(), hit.offset))
    }

    #[test]
    fn what_takes_the_place_of_other_code_lies_above_it() {
        let code = map(&[
            (10, "1000 100 old\n2000 10 stays\n"),
            (20, "1080 100 new\n"),
            (30, "1080 100 new\n2000 10 stays\n"),
        ]);
        assert_eq!((code.layers.len(), code.changes.len(), code.left_out), (2, 3, 0));
        assert_eq!(at(&code, 15, 0x1090), Some(("old".into(), 0x90)));
        assert_eq!(at(&code, 25, 0x1090), Some(("new".into(), 0x10)));
        assert_eq!(at(&code, 25, 0x1010), Some(("old".into(), 0x10)));
        assert_eq!(at(&code, 25, 0x2001), Some(("stays".into(), 1)));
        assert_eq!(at(&code, 5, 0x2001), None);
        let content = &code.layers[0].content;
        assert!(content.is_jit() && code.layers[0].path == Path::new("/tmp/perf-7.map"));
        assert!(content.lookup_offset(0x1200).is_err());
    }

    #[test]
    fn code_that_moved_is_the_same_code() {
        for big in [false, true] {
            let mut dump = Dump::new(big);
            dump.lines(0x1000, &[(0x1000, 7, b"a.js"), (0x1002, 9, b"\xff")]);
            dump.load(10, 0x1000, 1, "first", &[0x90, 0x90, 0xc3, 0xcc]);
            dump.moved(20, 1, 0x1000, 0x5000, 4);
            dump.load(20, 0x1000, 2, "second", &[0xc3, 0xcc]);
            dump.moved(30, 99, 0x1000, 0x6000, 4);
            let mut builder = Builder::default();
            let room = &mut Room::default();
            builder.dump(Path::new("/x/jit-7.dump"), None, 99, &dump.bytes, room);
            let code = builder.finish(room);
            assert_eq!(at(&code, 10, 0x1002), Some(("first".into(), 2)));
            assert_eq!(at(&code, 20, 0x1001), Some(("second".into(), 1)));
            assert_eq!(at(&code, 20, 0x1002), Some(("first".into(), 2)), "nobody took it");
            assert_eq!(at(&code, 20, 0x5002), Some(("first".into(), 2)));
            assert_eq!(at(&code, 19, 0x5002), None);
            let of =
                |name: &str| code.layers.iter().find(|l| l.content.table().iter().any(|hit| hit.name == name)).unwrap();
            let file = ObjectFile::kept(of("first").content.clone());
            assert_eq!(file.machine(), Machine::X86_64);
            assert_eq!(file.code(0x1000, 100), Some(vec![0x90, 0x90, 0xc3, 0xcc]));
            let lines = file.lines().unwrap();
            let shown = |addr| lines.frames(addr).first().map(|f| (f.file.clone().unwrap(), f.line));
            assert_eq!([0x1001, 0x1003, 0x1004].map(shown), [Some(("a.js".into(), 7)), Some(("a.js".into(), 9)), None]);
            assert_eq!(ObjectFile::kept(of("second").content.clone()).code(0x1000, 8), Some(vec![0xc3, 0xcc]));
        }
    }

    #[test]
    fn times_of_no_clock_do_not_count() {
        let mut dump = Dump::new(false);
        dump.load(1 << 60, 0x1000, 1, "a", &[0xc3]);
        let times = |at, flags| {
            let mut bytes = dump.bytes.clone();
            bytes[32] = flags;
            let mut builder = Builder::default();
            let room = &mut Room::default();
            builder.dump(Path::new("jit-7.dump"), at, 50, &bytes, room);
            builder.finish(room).changes[0].time
        };
        assert_eq!((times(None, 0), times(Some(0), 0), times(None, 1)), (1 << 60, 0, 50));
    }

    #[test]
    fn code_that_was_covered_by_a_move_comes_back() {
        let mut dump = Dump::new(false);
        dump.load(10, 0x1000, 1, "a", &[0xc3; 4]);
        dump.load(10, 0x2000, 2, "b", &[0x90; 4]);
        dump.moved(20, 2, 0x2000, 0x1002, 4);
        dump.load(30, 0x1000, 3, "a", &[0xc3; 4]);
        let (mut builder, room) = (Builder::default(), &mut Room::default());
        builder.dump(Path::new("jit-7.dump"), None, 0, &dump.bytes, room);
        let code = builder.finish(room);
        assert_eq!(at(&code, 10, 0x1003), Some(("a".into(), 3)));
        assert_eq!(at(&code, 20, 0x1003), Some(("b".into(), 1)));
        assert_eq!(at(&code, 30, 0x1003), Some(("a".into(), 3)));
    }

    /// Code that lies too high has no name, and what was there before has none either.
    #[test]
    fn layers_pieces_and_lines_have_an_end() {
        let text: String = (0..MOST_LAYERS + 10).map(|n| format!("1000 10 a{n}\n")).collect();
        let code = map(&[(10, "2000 10 first\n"), (20, &text)]);
        assert_eq!((code.layers.len(), code.left_out), (MOST_LAYERS + 1, 10));
        let last = code.changes.last().unwrap();
        let content = &code.layers[last.layer as usize].content;
        assert!((last.start, last.end) == (0x1000, 0x1010) && content.lookup_offset(0x1000).is_err());
        let before = &code.changes[code.changes.len() - 11];
        let content = &code.layers[before.layer as usize].content;
        assert_eq!(content.lookup_offset(0x1000).unwrap().name, format!("a{}", MOST_LAYERS - 1));

        let (mut builder, room) = (Builder::default(), &mut Room { bodies: 2, moves: 1, lines: 3, layers: 1 });
        let mut dump = Dump::new(false);
        dump.lines(0x1000, &[(0x1000, 1, b"f"), (0x1001, 2, b"f")]);
        dump.load(10, 0x1000, 1, "a", &[0xc3; 4]);
        dump.lines(0x1000, &[(0x1000, 1, b"f"), (0x1001, 2, b"f")]);
        dump.load(20, 0x1000, 2, "b", &[0xc3; 4]);
        dump.load(30, 0x1000, 3, "c", &[0xc3; 4]);
        dump.moved(40, 1, 0x1000, 0x2000, 4);
        dump.moved(40, 2, 0x1000, 0x3000, 4);
        builder.dump(Path::new("jit-7.dump"), None, 0, &dump.bytes, room);
        let code = builder.finish(room);
        // The third, the second move, and the layer of the second.
        assert_eq!((code.left_out, code.lines_left_out), (3, 1));
        assert_eq!((code.layers.len(), code.changes.len()), (2, 3));
    }

    /// As many paths as there are pieces cost no more than one.
    #[test]
    fn paths_are_found_at_once() {
        let (mut builder, room) = (Builder::default(), &mut Room::default());
        for n in 0..200_000 {
            builder.map(Path::new(&format!("/{n}")), 1, b"", room);
        }
        assert_eq!((builder.told_by.len(), builder.source(Path::new("/77"), Machine::Other)), (200_000, 77));
    }

    proptest! {
        /// Whatever comes in whatever order: at each time each address has the name of the last that came to it.
        #[test]
        fn the_last_that_came_is_there(
            events in prop::collection::vec((0u64..40, 1u64..20, 0u64..3, 0usize..8), 0..40),
        ) {
            let (mut builder, room) = (Builder::default(), &mut Room::default());
            let mut dump = Dump::new(false);
            let mut time = 0;
            // When, from where to where, name, how many bytes of code; what moves call it by is its number.
            let mut told: Vec<(u64, u64, u64, usize)> = Vec::new();
            let mut bodies: Vec<(u64, usize)> = Vec::new();
            for (n, (start, len, later, moves)) in events.into_iter().enumerate() {
                time += later;
                if let Some((len, name)) = bodies.get(moves).copied() {
                    dump.moved(time, moves as u64, 0, start, len);
                    told.push((time, start, start + len, name));
                } else {
                    let name = n % 7;
                    dump.load(time, start, bodies.len() as u64, &format!("n{name}"), &vec![0x90; len as usize]);
                    bodies.push((len, name));
                    told.push((time, start, start + len, name));
                }
            }
            builder.dump(Path::new("jit-7.dump"), None, 0, &dump.bytes, room);
            let code = builder.finish(room);
            for t in 0..=time {
                for addr in 0..60 {
                    let expected = told.iter().rev().find(|(at, start, end, _)| *at <= t && (*start..*end).contains(&addr));
                    let expected = expected.map(|(_, start, _, name)| (format!("n{name}"), addr - start));
                    prop_assert_eq!(at(&code, t, addr), expected, "{} at {}", addr, t);
                }
            }
        }
    }
}
