//! What an archive holds beside the recording: for every place that a view may ask for, what names it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use afterimage_kernel_text::TextKind;
use afterimage_perf_data::{AnySource, FileReader, JitPiece, SampleType};
use afterimage_symbols::Reason;
use afterimage_symbols::kept::{KeptContent, KeptObject, KeptTables, TextOfLine, UnwindContent};
use afterimage_unwind::return_code;
use rustc_hash::FxHashSet;

use super::user::kernel_name;
use super::{FoundTables, Resolver};
use crate::loc::{CpuMode, Loc, Place};
use crate::replay::{ReplayOptions, Replayed, Sink};
use crate::sample::TimedSample;
use crate::state::{ObjectId, State};
use crate::stats::ReplayStats;
use crate::unwinding::{Naming, arch_of, replay_unwinding};

/// What [`Resolver::keep`] gathered.
#[derive(Debug)]
pub struct Kept {
    /// For each object that samples fell into, its entry for an archive.
    pub objects: Vec<Vec<u8>>,
    /// Of a recording with copied stacks: the unwind tables of each.
    pub tables: Vec<Vec<u8>>,
    /// Symbols of the kernel, in the form of /proc/kallsyms.
    pub kernel_symbols: Vec<u8>,
    /// Objects with names.
    pub named: usize,
    /// Functions with code.
    pub functions: usize,
    /// Dumps of JIT compilers that the recording tells of and does not hold.
    pub jit: Vec<JitPiece>,
    /// Objects of which there was nothing to be kept, by their path and why.
    pub missing: Vec<(String, Reason)>,
    /// Objects whose unwind tables were more than is kept: their stacks have one frame elsewhere.
    pub without_tables: Vec<String>,
    /// What the replay saw.
    pub stats: ReplayStats,
}

/// Bytes of unwind tables that are kept at most.
const MOST_TABLES: u64 = 256 << 20;

/// The tables of an object, with the code that tells where signal handlers return to.
fn content_of(found: FoundTables, offsets: &BTreeSet<u64>) -> UnwindContent {
    let FoundTables { sections, code } = found;
    let places: BTreeSet<u64> = offsets.iter().filter_map(|offset| sections.vaddr_of_offset(*offset)).collect();
    let code = match arch_of(sections.machine) {
        Some(arch) => places.into_iter().filter_map(|at| Some((at, return_code(arch, &*code, at)?))).collect(),
        None => Vec::new(),
    };
    UnwindContent { sections, code }
}

/// Every place that samples tell of.
#[derive(Default)]
struct Places {
    all: FxHashSet<Loc>,
}

impl Sink for Places {
    fn sample(&mut self, state: &State, sample: &TimedSample<'_>) {
        self.all.insert(state.locate(sample.process, sample.mode(), sample.ip));
        state.walk(sample, |step| _ = self.all.insert(step.loc));
        if let Some(addr) = sample.addr {
            self.all.insert(state.locate(sample.process, CpuMode::Unknown, addr));
        }
        if !sample.layout.sample_type.contains(SampleType::BRANCH_STACK) || sample.is_emitted() {
            return;
        }
        let branches = sample.decode().ok().and_then(|sample| sample.branch_stack);
        for branch in branches.iter().flat_map(|branches| branches.iter()) {
            for addr in [branch.from, branch.to] {
                // Branches lead into the kernel and out of it.
                let mode = match sample.mode() {
                    CpuMode::Kernel | CpuMode::User if addr >> 63 == 1 => CpuMode::Kernel,
                    CpuMode::Kernel | CpuMode::User => CpuMode::User,
                    other => other,
                };
                self.all.insert(state.locate(sample.process, mode, addr));
            }
        }
    }
}

impl Resolver {
    /// Gathers what has to stand beside a recording so that it reads the same where its files and its kernel are not. `text`
    /// gives lines of source files.
    pub fn keep(&mut self, reader: &FileReader<'_>, source: &mut AnySource<'_>, text: TextOfLine<'_>) -> Kept {
        let mut naming = Naming { sink: Places::default(), resolver: &mut *self };
        let Replayed { state, stats } = replay_unwinding(reader, source, &ReplayOptions::default(), &mut naming);
        let places = naming.sink;
        self.learn(source);
        let mut by_object: BTreeMap<ObjectId, BTreeSet<u64>> = BTreeMap::new();
        let mut kernel = BTreeSet::new();
        for loc in places.all {
            match loc.place {
                Place::Object(id) => _ = by_object.entry(id).or_default().insert(loc.addr),
                Place::Kernel => _ = kernel.insert(loc.addr),
                Place::Text(id) => {
                    let text = state.kernel().text(id);
                    if text.is_some_and(|text| matches!(text.kind, TextKind::Module | TextKind::ModuleInit)) {
                        kernel.insert(loc.addr);
                    }
                }
                Place::Unmapped | Place::Elsewhere(_) => {}
            }
        }
        let unwound = stats.stack_ends.total() > 0;
        let mut kept = Kept {
            objects: Vec::new(),
            tables: Vec::new(),
            kernel_symbols: Vec::new(),
            named: 0,
            functions: 0,
            jit: state.jit().pieces_read(),
            missing: Vec::new(),
            without_tables: Vec::new(),
            stats,
        };
        self.keep_kernel(&state, reader, &kernel, &mut kept, text);
        self.ask_user(&state);
        for (id, offsets) in &by_object {
            let Some((object, user)) = state.object_details(*id).zip(self.user.as_mut()) else { continue };
            // The recording holds what told of such code, or will.
            if object.jit.is_some() {
                continue;
            }
            let content = user.keep(*id, object, offsets, text);
            kept.add(KeptObject { of: object.name(), content });
        }
        if unwound {
            self.keep_tables(&state, &by_object, &mut kept);
        }
        kept
    }

    /// Keeps the unwind tables of objects that stacks lead through.
    fn keep_tables(&mut self, state: &State, by_object: &BTreeMap<ObjectId, BTreeSet<u64>>, kept: &mut Kept) {
        let mut room = MOST_TABLES;
        for (id, offsets) in by_object {
            let Some(object) = state.object_details(*id) else { continue };
            let content = self.unwind_tables(state, *id).map(|found| content_of(found, offsets));
            let content = match content {
                Ok(content) if content.len() > room => {
                    kept.without_tables.push(String::from_utf8_lossy(&object.path).into_owned());
                    Err(Reason::TooLarge)
                }
                content => content.map(Arc::new),
            };
            room -= content.as_ref().map_or(0, |content| content.len());
            kept.tables.push(KeptTables { of: object.name(), content }.encode());
        }
    }

    fn keep_kernel(
        &mut self,
        state: &State,
        reader: &FileReader<'_>,
        addrs: &BTreeSet<u64>,
        kept: &mut Kept,
        text: TextOfLine<'_>,
    ) {
        self.ask_kernel(state);
        let Some(names) = &self.kernel else { return };
        kept.kernel_symbols = names.excerpt(&self.recorded_symbols, addrs);
        let functions: BTreeSet<(u64, u64)> =
            addrs.iter().filter_map(|addr| names.extent(*addr)).map(|extent| (extent.start, extent.end)).collect();
        let mut apart: Vec<Range<u64>> = Vec::new();
        for (start, end) in functions {
            let start = apart.last().map_or(start, |last| start.max(last.end));
            if start < end {
                apart.push(start..end);
            }
        }
        let release = reader.features().os_release.clone().unwrap_or_default();
        let Ok((file, shift)) = self.kernel_file(state, &release) else { return };
        let content = KeptContent::of_kernel(&file, &apart, addrs, shift, text);
        kept.add(KeptObject { of: kernel_name(), content: Ok(Arc::new(content)) });
    }
}

impl Kept {
    fn add(&mut self, object: KeptObject) {
        match &object.content {
            Ok(content) => {
                self.named += 1;
                self.functions += content.counts().0;
            }
            Err(reason) => self.missing.push((String::from_utf8_lossy(&object.of.path).into_owned(), *reason)),
        }
        self.objects.push(object.encode());
    }
}
