//! What is kept of an object, so that a recording can be read where the object is not: the names, the code and the lines of
//! those of its functions that samples fell into.
//!
//! An archive is anybody's bytes. What is decoded from it answers as the object did, or not at all: no length in it is
//! believed before the bytes are there, and no path in it is opened.
#![forbid(unsafe_code)]

mod lines;
mod tables;
mod wire;

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) use lines::KeptLines;
pub use tables::{KeptTables, UnwindContent};

use crate::elf::{Origin, Segment};
use crate::jit::Body;
use crate::lines::DwarfLines;
use crate::names::{self, Hit, NameMap, Span};
use crate::perfmap::PerfMap;
use crate::{Machine, ObjectFile, Reason, SymbolTable};

/// Bytes of code, and rows of lines, that are kept of one object at most. What is beyond has a name and no more.
const MOST_CODE: u64 = 32 << 20;
const MOST_ROWS: usize = 1 << 20;
/// Of one function, in bytes.
const MOST_FUNCTION: u64 = 1 << 20;

/// One object of a recording, and what was had of it.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptObject {
    /// Which object of the recording.
    pub of: ObjectName,
    /// What is kept, or why there was nothing to be kept.
    pub content: Result<Arc<KeptContent>, Reason>,
}

/// What tells the objects of a recording apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObjectName {
    /// The path of the mapping, as the record has it.
    pub path: Vec<u8>,
    /// What the record says of the file.
    pub file: FileName,
    /// Of what has no file of its own: the process, and what is added to an address (wrapping) to give the address in the
    /// object.
    pub own: Option<(u32, u64)>,
}

/// What a record says of a mapped file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FileName {
    /// Nothing but its path.
    Path,
    /// The device's numbers, the inode and its generation.
    Inode(u32, u32, u64, u64),
    /// The build id.
    BuildId(Vec<u8>),
}

/// Names, code and lines of some functions of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptContent {
    pub(crate) table: SymbolTable,
    /// Whether the object has symbols at all.
    pub(crate) named: bool,
    /// Whether the names are those of a JIT compiler's map.
    pub(crate) jit: bool,
    pub(crate) machine: Machine,
    /// Where the object was found: to be shown, not to be opened.
    pub(crate) path: PathBuf,
    /// Pieces of code by their address, ascending.
    pub(crate) code: Vec<(u64, Vec<u8>)>,
    pub(crate) lines: Arc<KeptLines>,
}

/// A line of a source file, and on whose word it is asked for: debug information is anybody's, and may name any file.
#[derive(Clone, Copy, Debug)]
pub struct LineOf<'a> {
    /// The path of the file, as debug information has it.
    pub file: &'a str,
    /// The line, counted from 1.
    pub line: u32,
    /// The MD5 that the file had when the code was made of it, where that was written down.
    pub md5: Option<[u8; 16]>,
    /// The user number of whoever owns the file that the debug information stands in; all bits set for nobody on this machine.
    pub owner: u32,
}

/// The text of a line of a source file, where it can be had and may be kept.
pub type TextOfLine<'t> = &'t mut dyn FnMut(&LineOf<'_>) -> Option<Arc<str>>;

impl KeptContent {
    /// What is kept of an object: the symbols of `table` that cover `vaddrs`, with their code and lines where there is a
    /// file.
    pub fn of_object(
        table: &SymbolTable,
        file: Option<&ObjectFile>,
        vaddrs: &BTreeSet<u64>,
        text: TextOfLine<'_>,
    ) -> KeptContent {
        let mut kept = KeptContent::of_names(table.excerpt(vaddrs.iter().copied()));
        kept.named = !table.is_empty();
        let spans = spans(&kept.table, vaddrs);
        if let Some(file) = file {
            kept.add_file(file, &spans, vaddrs, 0, text);
        }
        kept
    }

    /// What is kept of the kernel's own image, where it has code and lines for these functions. `shift` is how far they lay
    /// above the image's addresses when they were recorded.
    pub fn of_kernel(
        file: &ObjectFile,
        functions: &[Range<u64>],
        addrs: &BTreeSet<u64>,
        shift: u64,
        text: TextOfLine<'_>,
    ) -> KeptContent {
        let mut kept = KeptContent::of_names(SymbolTable::empty());
        kept.add_file(file, functions, addrs, shift, text);
        kept
    }

    /// What is kept of a JIT compiler's map: the symbols of these addresses of the process, at file offsets `addr + delta`.
    pub fn of_map(map: &PerfMap, addrs: &BTreeSet<u64>, delta: u64) -> KeptContent {
        let mut kept = KeptContent::of_names(map.excerpt(addrs.iter().copied(), delta));
        (kept.named, kept.jit) = (true, true);
        kept
    }

    /// Code of a JIT compiler that lies apart.
    pub(crate) fn of_jit(mut bodies: Vec<Body>, files: &[Arc<str>], machine: Machine, path: &Path) -> KeptContent {
        bodies.sort_by_key(|body| body.addr);
        let (mut ranges, mut text) = (Vec::with_capacity(bodies.len()), String::new());
        for body in &bodies {
            let (Ok(at), Ok(len)) = (u32::try_from(text.len()), u32::try_from(body.name.len())) else { break };
            text.push_str(&body.name);
            ranges.push(names::Range { start: body.addr, end: body.end, rank: 0, name: Span { at, len } });
        }
        let all = Segment { offset: 0, file_size: u64::MAX, vaddr: 0, executable: true };
        let (build_id, origin, names) = (Vec::new(), Origin::Symtab, NameMap::build(&ranges, text));
        let mut kept = KeptContent::of_names(SymbolTable { build_id, segments: vec![all], origin, names });
        (kept.named, kept.jit, kept.machine, kept.path) = (true, true, machine, path.to_path_buf());
        kept.lines = Arc::new(KeptLines::of_bodies(&bodies, files, MOST_ROWS));
        kept.code = bodies.into_iter().filter(|b| !b.code.is_empty()).map(|body| (body.addr, body.code)).collect();
        kept
    }

    fn of_names(table: SymbolTable) -> KeptContent {
        let (machine, path, lines) = (Machine::Other, PathBuf::new(), Arc::default());
        KeptContent { named: !table.is_empty(), table, jit: false, machine, path, code: Vec::new(), lines }
    }

    fn add_file(
        &mut self,
        file: &ObjectFile,
        spans: &[Range<u64>],
        addrs: &BTreeSet<u64>,
        shift: u64,
        text: TextOfLine<'_>,
    ) {
        self.machine = file.machine();
        self.path = file.path().to_path_buf();
        let mut room = MOST_CODE;
        for span in spans {
            let len = (span.end - span.start).min(MOST_FUNCTION);
            if len > room {
                continue;
            }
            if let Some(bytes) = file.code(span.start.wrapping_sub(shift), len) {
                room -= bytes.len() as u64;
                self.code.push((span.start, bytes));
            }
        }
        if let Ok(lines) = file.lines() {
            self.lines = Arc::new(KeptLines::of(&lines, spans, addrs, shift, MOST_ROWS, text));
        }
    }

    /// The symbol at an offset in the file.
    ///
    /// # Errors
    /// [`Reason::NoSymbols`] and [`Reason::NotInSymbol`], as the object itself had answered.
    pub fn lookup_offset(&self, offset: u64) -> Result<Hit<'_>, Reason> {
        match self.named {
            true => self.table.lookup_offset(offset).ok_or(Reason::NotInSymbol),
            false => Err(Reason::NoSymbols),
        }
    }

    /// The symbols.
    pub fn table(&self) -> &SymbolTable {
        &self.table
    }

    /// Whether the names are those of a JIT compiler's map.
    pub fn is_jit(&self) -> bool {
        self.jit
    }

    /// How many functions there are with code, and how many rows of lines.
    pub fn counts(&self) -> (usize, usize) {
        (self.code.len(), self.lines.count())
    }

    pub(crate) fn code_at(&self, vaddr: u64, len: u64) -> Option<Vec<u8>> {
        let at = self.code.partition_point(|(start, _)| *start <= vaddr).checked_sub(1)?;
        let (start, bytes) = self.code.get(at)?;
        let from = usize::try_from(vaddr - start).ok()?;
        let rest = bytes.get(from..).filter(|rest| !rest.is_empty())?;
        let len = usize::try_from(len).unwrap_or(usize::MAX).min(rest.len());
        rest.get(..len).map(<[u8]>::to_vec)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn dwarf(&self) -> Option<DwarfLines> {
        (self.lines.count() > 0).then(|| DwarfLines::kept(self.lines.clone()))
    }
}

/// The functions that hold these addresses, ascending and apart from each other.
fn spans(table: &SymbolTable, vaddrs: &BTreeSet<u64>) -> Vec<Range<u64>> {
    let ids: BTreeSet<u32> = vaddrs.iter().filter_map(|vaddr| table.id_of_vaddr(*vaddr)).collect();
    joined(ids.into_iter().filter_map(|id| table.extent(id)).collect())
}

/// Ranges in order, those that touch or overlap as one.
pub(crate) fn joined(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| (range.start, range.end));
    let mut all: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match all.last_mut() {
            Some(last) if range.start < last.end => last.end = last.end.max(range.end),
            _ => all.push(range),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::source::RealFiles;
    use crate::{Finder, Request};

    #[test]
    fn ranges_that_overlap_are_one() {
        assert_eq!(joined(vec![30..40, 0..10, 5..20, 6..7, 20..25]), [0..20, 20..25, 30..40]);
        assert_eq!(joined(Vec::new()), []);
    }

    /// What is kept of our own program answers as the program does.
    #[test]
    fn the_same_answers_as_the_object() {
        let path = std::env::current_exe().unwrap();
        let request = Request { path: path.as_os_str().as_encoded_bytes(), build_id: None, live: None };
        let mut finder = Finder::with(Box::new(RealFiles), None);
        let (table, file) = (finder.find(&request).unwrap(), finder.file(&request).unwrap());
        let hits: Vec<Hit<'_>> = table.iter().filter(|hit| hit.name.contains("kept")).take(40).collect();
        assert!(hits.len() > 10, "{}", hits.len());
        let vaddrs: BTreeSet<u64> = hits.iter().map(|hit| hit.start + 1).collect();
        let mut text = |of: &LineOf<'_>| Some(Arc::from(format!("line {}", of.line)));
        let content = KeptContent::of_object(&table, Some(&file), &vaddrs, &mut text);
        let name = ObjectName { path: b"/x".to_vec(), file: FileName::BuildId(b"id".to_vec()), own: None };
        let kept = KeptObject { of: name, content: Ok(Arc::new(content)) };
        let again = KeptObject::decode(&kept.encode()).unwrap();
        assert_eq!(again, kept);
        let again = again.content.unwrap();
        let (lines, dwarf) = (file.lines().unwrap(), again.dwarf().unwrap());
        let mut with_lines = 0;
        for vaddr in &vaddrs {
            let shown = |table: &SymbolTable| {
                let hit = table.lookup_vaddr(*vaddr);
                hit.map(|hit| (hit.name.to_owned(), hit.offset, table.extent(hit.id).unwrap()))
            };
            assert_eq!(shown(&again.table), shown(&table));
            let Some((_, _, extent)) = shown(&table) else { continue };
            let len = extent.end - extent.start;
            assert_eq!(again.code_at(extent.start, len), file.code(extent.start, len));
            for at in extent.filter(|at| at.abs_diff(*vaddr) % 7 == 0).take(200) {
                let there: Vec<_> = lines.frames(at);
                let here: Vec<_> =
                    dwarf.frames(at).into_iter().map(|f| crate::lines::SourceFrame { text: None, ..f }).collect();
                assert_eq!(here, there, "{at:#x}");
                with_lines += usize::from(!here.is_empty());
            }
            let first = dwarf.frames(*vaddr).first().cloned();
            assert!(first.is_none_or(|f| f.line == 0 || f.text.as_deref() == Some(&*format!("line {}", f.line))));
        }
        assert!(with_lines > 100, "{with_lines}");
    }
}
