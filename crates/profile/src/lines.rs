//! Lines of source code for places: each distinct line once, by a number.

use std::fmt;
use std::sync::Arc;

use afterimage_kernel_text::TextId;
use afterimage_perf_data::FileReader;
use afterimage_symbols::lines::SourceFrame;
use rustc_hash::FxHashMap;

use crate::bpf::BpfPrograms;
use crate::loc::{Loc, Place};
use crate::resolve::Resolver;
use crate::state::State;

/// A line of source code.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SourceLine {
    /// The file's path as the compiler wrote it down.
    pub file: Arc<str>,
    /// From 1.
    pub line: u32,
    /// What stands in the line, where the debug information has it: of BPF programs.
    pub text: Option<Arc<str>>,
}

impl SourceLine {
    /// The name of the file without its folder.
    pub fn file_name(&self) -> &str {
        self.file.rsplit('/').next().unwrap_or(&self.file)
    }
}

impl fmt::Display for SourceLine {
    /// `file.c:12`, as perf prints it: without the folder.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file_name(), self.line)
    }
}

/// Finds lines of source code, and keeps each distinct one by a number.
pub struct Lines<'f> {
    programs: BpfPrograms<'f>,
    /// Which function of a program a text is.
    of_text: FxHashMap<TextId, Option<(u32, usize)>>,
    all: Vec<Arc<SourceLine>>,
    numbers: FxHashMap<Arc<SourceLine>, u32>,
}

impl<'f> Lines<'f> {
    /// Lines for the places of a replay of this recording.
    pub fn new(reader: &'f FileReader<'_>) -> Lines<'f> {
        Lines {
            programs: BpfPrograms::new(reader.features()),
            of_text: FxHashMap::default(),
            all: Vec::new(),
            numbers: FxHashMap::default(),
        }
    }

    /// The line at a place of the replay that `state` is of; of code that was inlined, the line that it was written in.
    /// Lines of user code are in files, which `resolver` finds.
    pub fn at(&mut self, state: &State, resolver: &mut Resolver, loc: Loc) -> Option<&Arc<SourceLine>> {
        let number = self.number_at(state, resolver, loc);
        self.all.get((number as usize).checked_sub(1)?)
    }

    /// The number of the line at a place; 0 for none.
    pub(crate) fn number_at(&mut self, state: &State, resolver: &mut Resolver, loc: Loc) -> u32 {
        let found = match loc.place {
            Place::Text(id) => self.of_bpf(state, id, loc.addr),
            Place::Object(id) => of_user(&resolver.source_of(state, id, loc.addr)),
            _ => None,
        };
        found.map_or(0, |line| self.number(line))
    }

    /// The number of the line of a function that was inlined, or of what holds it; 0 for none.
    pub(crate) fn number_of(&mut self, source: &SourceFrame) -> u32 {
        of_user(std::slice::from_ref(source)).map_or(0, |line| self.number(line))
    }

    /// All lines that were found; the first has the number 1.
    pub(crate) fn into_all(self) -> Vec<Arc<SourceLine>> {
        self.all
    }

    fn number(&mut self, line: SourceLine) -> u32 {
        if let Some(number) = self.numbers.get(&line) {
            return *number;
        }
        let line = Arc::new(line);
        self.all.push(line.clone());
        let number = u32::try_from(self.all.len()).unwrap_or(0);
        self.numbers.insert(line, number);
        number
    }

    fn of_bpf(&mut self, state: &State, id: TextId, addr: u64) -> Option<SourceLine> {
        let text = state.kernel().text(id)?;
        let programs = &self.programs;
        let of = || programs.function_of(&text).map(|of| (of.info.id(), of.function));
        let (program, function) = (*self.of_text.entry(id).or_insert_with(of))?;
        let line = self.programs.lines(program)?.at(function, addr.wrapping_sub(text.addr))?;
        let text = (!line.text.is_empty()).then(|| line.text.into());
        Some(SourceLine { file: line.file.into(), line: line.line, text })
    }
}

fn of_user(frames: &[SourceFrame]) -> Option<SourceLine> {
    let innermost = frames.first().filter(|frame| frame.line != 0)?;
    Some(SourceLine { file: innermost.file.as_deref()?.into(), line: innermost.line, text: None })
}
