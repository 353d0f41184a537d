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

/// Pieces of code that are taken of one process at most. What is beyond has no name.
const MOST: usize = 4 << 20;
/// Lines that are taken of one process at most.
const MOST_LINES: usize = 8 << 20;

/// The code of one process from its start, or its last exec, to its end.
#[derive(Debug, Default)]
pub struct JitCode {
    /// What holds the code.
    pub layers: Vec<Layer>,
    /// What came and moved, by time; of one time in the order in which it was told.
    pub changes: Vec<Change>,
    /// Pieces of code that were left out because there were too many.
    pub left_out: u64,
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
    /// By what moves call code: the last body of that number.
    by_index: FxHashMap<(u32, u64), u32>,
    files: Vec<Arc<str>>,
    by_file: FxHashMap<Arc<str>, u32>,
    lines: usize,
    left_out: u64,
}

impl Builder {
    /// Lines of a map, which were read at `at`. Lines of another form are skipped.
    pub fn map(&mut self, path: &Path, at: u64, text: &[u8]) {
        let source = self.source(path, Machine::Other);
        for line in text.split(|&b| b == b'\n') {
            let Some((addr, end, name)) = perfmap::read_line(line) else { continue };
            let name = String::from_utf8_lossy(name).into();
            self.body(source, at, Body { addr, end, name, code: Vec::new(), lines: Vec::new() });
        }
    }

    /// A dump, or its header with some whole records of it. Where `at` is given its times are of no clock that counts: all
    /// came at that time.
    ///
    /// What is none, or damaged, tells nothing, or what stands before the damage.
    pub fn dump(&mut self, path: &Path, at: Option<u64>, read_at: u64, dump: &[u8]) {
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
                        self.lines_of(&mut body, lines.iter().map(|line| (line.addr, line.line, line.file)));
                    }
                    if let Some(number) = self.body(source, at.unwrap_or(time), body) {
                        self.by_index.insert((source, index), number);
                    }
                }
                Event::Move { time, index, to, .. } => {
                    if let (Some(body), true) = (self.by_index.get(&(source, index)), self.changes.len() < 2 * MOST) {
                        self.changes.push((at.unwrap_or(time), *body, to));
                    }
                }
                Event::Unwinding { .. } | Event::Close | Event::Other(_) => {}
            }
        }
    }

    fn source(&mut self, path: &Path, machine: Machine) -> u32 {
        let known = self.told_by.iter().position(|(known, _)| known == path);
        let number = known.unwrap_or(self.told_by.len());
        if known.is_none() {
            self.told_by.push((path.to_path_buf(), machine));
        }
        u32::try_from(number).unwrap_or(u32::MAX)
    }

    fn body(&mut self, source: u32, time: u64, body: Body) -> Option<u32> {
        if body.end <= body.addr {
            return None;
        }
        if self.bodies.len() >= MOST {
            self.left_out += 1;
            return None;
        }
        let number = u32::try_from(self.bodies.len()).ok()?;
        self.changes.push((time, number, body.addr));
        self.bodies.push(body);
        self.sources.push(source);
        Some(number)
    }

    fn lines_of<'d>(&mut self, body: &mut Body, lines: impl Iterator<Item = (u64, u32, &'d [u8])>) {
        for (addr, line, file) in lines {
            if self.lines >= MOST_LINES {
                return;
            }
            self.lines += 1;
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
    pub fn finish(mut self) -> JitCode {
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
                    let found = match layers.place(&self.bodies, *number, source) {
                        Ok(layer) => Some((layer, true)),
                        Err(same) => placed.get(same as usize).copied().flatten().map(|(layer, _)| (layer, false)),
                    };
                    if let Some(placed) = placed.get_mut(at) {
                        *placed = found;
                    }
                    // What is there already does not change.
                    let Some((layer, true)) = found else { continue };
                    layer
                }
            };
            let Some(end) = start.checked_add(body.end - body.addr) else { continue };
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
        JitCode { layers, changes, left_out: self.left_out }
    }
}

/// How deep the code at each address lies that came there last.
#[derive(Default)]
struct Layers {
    /// By first address: the address behind, the depth, the body.
    last: BTreeMap<u64, (u64, u32, u32)>,
    by_depth: FxHashMap<(u32, u32), u32>,
    /// The source of each layer.
    sources: Vec<u32>,
}

impl Layers {
    /// The layer of a body: above all that was where it is. If the same is there already, the number of that one.
    fn place(&mut self, bodies: &[Body], number: u32, source: u32) -> Result<u32, u32> {
        let body = bodies.get(number as usize).ok_or(number)?;
        let (start, end) = (body.addr, body.end);
        let reaches_in = self.last.range(..start).next_back().filter(|(_, (until, ..))| *until > start);
        let first = reaches_in.map_or(start, |(from, _)| *from);
        let over: Vec<(u64, (u64, u32, u32))> =
            self.last.range(first..end).map(|(from, piece)| (*from, *piece)).collect();
        if let [(from, (until, _, other))] = over.as_slice() {
            let before = bodies.get(*other as usize).ok_or(number)?;
            let same = (before.addr, before.end, &before.name, &before.code) == (start, end, &body.name, &body.code);
            if same && (*from, *until) == (start, end) {
                return Err(*other);
            }
        }
        let depth = over.iter().map(|(_, (_, depth, _))| depth.saturating_add(1)).max().unwrap_or(0);
        for (from, (until, depth, of)) in &over {
            self.last.remove(from);
            if *from < start {
                self.last.insert(*from, (start, *depth, *of));
            }
            if *until > end {
                self.last.insert(end, (*until, *depth, *of));
            }
        }
        self.last.insert(start, (end, depth, number));
        let sources = &mut self.sources;
        let layer = self.by_depth.entry((source, depth)).or_insert_with(|| {
            sources.push(source);
            u32::try_from(sources.len() - 1).unwrap_or(u32::MAX)
        });
        Ok(*layer)
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
        let mut builder = Builder::default();
        parts.iter().for_each(|(at, text)| builder.map(Path::new("/tmp/perf-7.map"), *at, text.as_bytes()));
        builder.finish()
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
            builder.dump(Path::new("/x/jit-7.dump"), None, 99, &dump.bytes);
            let code = builder.finish();
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
            builder.dump(Path::new("jit-7.dump"), at, 50, &bytes);
            builder.finish().changes[0].time
        };
        assert_eq!((times(None, 0), times(Some(0), 0), times(None, 1)), (1 << 60, 0, 50));
    }

    proptest! {
        /// Whatever comes in whatever order: at each time each address has the name of the last that came to it.
        #[test]
        fn the_last_that_came_is_there(
            lines in prop::collection::vec((0u64..40, 1u64..20, 0u64..3), 0..40),
        ) {
            let name = |n: usize| format!("n{}", n % 7);
            let mut builder = Builder::default();
            let mut time = 0;
            let mut told = Vec::new();
            for (n, (start, len, later)) in lines.iter().enumerate() {
                time += later;
                builder.map(Path::new("m"), time, format!("{start:x} {len:x} {}\n", name(n)).as_bytes());
                told.push((time, *start, start + len, name(n)));
            }
            let code = builder.finish();
            for t in 0..=time {
                for addr in 0..60 {
                    let expected = told.iter().rev().find(|(at, start, end, _)| *at <= t && (*start..*end).contains(&addr));
                    let expected = expected.map(|(_, start, _, name)| (name.clone(), addr - start));
                    prop_assert_eq!(at(&code, t, addr), expected, "{} at {}", addr, t);
                }
            }
        }
    }
}
