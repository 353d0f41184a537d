//! The unwind tables of what processes have mapped: those of a file once, for all processes.

use std::collections::hash_map::Entry;

use afterimage_symbols::{Machine, Placed, Reason, Segment, UnwindSections};
use afterimage_unwind::{Arch, Code, Modules, Section, Sections, StackEnd, Table};
use rustc_hash::FxHashMap;

use crate::resolve::{FoundTables, Resolver};
use crate::state::{ObjectId, ProcessId, State};

/// Bytes of tables that are held; when there are more, all are forgotten and come again as they are needed.
const ROOM: usize = 1 << 30;

/// Files that are kept open for their code; of others only the tables are known.
const MOST_OPEN: usize = 200;

/// The tables that were asked for, and why others could not be had.
#[derive(Default)]
pub(super) struct Files {
    modules: FxHashMap<ObjectId, Result<Module, StackEnd>>,
    held: usize,
    open: usize,
}

struct Module {
    table: Table,
    segments: Vec<Segment>,
}

/// What a process has mapped now.
pub(super) struct View<'a> {
    pub(super) files: &'a mut Files,
    pub(super) state: &'a State,
    pub(super) process: ProcessId,
    pub(super) resolver: &'a mut Resolver,
}

impl Modules for View<'_> {
    fn table(&mut self, address: u64) -> Result<(&mut Table, u64), StackEnd> {
        let mapping = self.state.mapping(self.process, address).ok_or(StackEnd::NoMapping)?;
        let (id, offset) = (mapping.object, address.wrapping_add(mapping.delta));
        if self.files.held > ROOM && !self.files.modules.contains_key(&id) {
            *self.files = Files::default();
        }
        let files = &mut *self.files;
        let module = match files.modules.entry(id) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let module = load(self.state, self.resolver, id, files.open < MOST_OPEN);
                files.open += usize::from(module.is_ok());
                files.held += module.as_ref().map_or(0, |module| module.table.held_bytes());
                new.insert(module)
            }
        };
        let module = module.as_mut().map_err(|end| *end)?;
        let holds = |s: &&Segment| offset.checked_sub(s.offset).is_some_and(|into| into < s.file_size);
        let segment = module.segments.iter().find(holds).ok_or(StackEnd::NoTables)?;
        Ok((&mut module.table, segment.vaddr.wrapping_add(offset - segment.offset)))
    }
}

fn load(state: &State, resolver: &mut Resolver, id: ObjectId, keep_open: bool) -> Result<Module, StackEnd> {
    let FoundTables { sections, code } = resolver.unwind_tables(state, id).map_err(end_of)?;
    let UnwindSections { machine, eh_frame, eh_frame_hdr, debug_frame, left_out, text, got, mut segments } = sections;
    let arch = arch_of(machine).ok_or(StackEnd::NoTables)?;
    let section = |placed: Placed| Section { address: placed.address, bytes: placed.bytes };
    let (eh_frame, eh_frame_hdr) = (eh_frame.map(section), eh_frame_hdr.map(section));
    let code = if keep_open { code } else { Box::new(()) as Box<dyn Code> };
    let table = Table::new(arch, Sections { eh_frame, eh_frame_hdr, debug_frame, text, got, left_out }, code);
    if table.is_empty() {
        return Err(table.without(StackEnd::NoTables));
    }
    // Where segments share a page of the file, code is what is meant.
    segments.sort_by_key(|segment| !segment.executable);
    Ok(Module { table, segments })
}

/// The CPUs of a machine, if stacks of them can be unwound.
pub(crate) fn arch_of(machine: Machine) -> Option<Arch> {
    match machine {
        Machine::X86_64 => Some(Arch::X86_64),
        Machine::Aarch64 => Some(Arch::Aarch64),
        _ => None,
    }
}

fn end_of(reason: Reason) -> StackEnd {
    match reason {
        Reason::Anonymous | Reason::Special | Reason::MapNotOwned | Reason::Damaged => StackEnd::NoTables,
        Reason::NoMapping => StackEnd::NoMapping,
        Reason::TooLarge => StackEnd::LeftOut,
        _ => StackEnd::NoFile,
    }
}
