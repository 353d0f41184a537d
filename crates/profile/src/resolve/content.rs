//! The code behind a place: where its symbol begins and ends, and the file that holds it.

use std::ops::Range;
use std::sync::Arc;

use afterimage_perf_data::BuildId;
use afterimage_symbols::kept::UnwindContent;
use afterimage_symbols::lines::SourceFrame;
use afterimage_symbols::{ObjectFile, PathKind, Reason, UnwindSections, demangle};
use afterimage_unwind::Code;

use super::{Resolver, kernel};
use crate::loc::{Loc, Place};
use crate::state::{ObjectId, State};

/// The unwind tables of an object, and its code.
pub(crate) struct FoundTables {
    pub(crate) sections: UnwindSections,
    pub(crate) code: Box<dyn Code>,
}

struct Opened(ObjectFile);

impl Code for Opened {
    fn read(&self, address: u64, to: &mut [u8]) -> bool {
        let code = self.0.code(address, to.len() as u64).filter(|code| code.len() == to.len());
        code.is_some_and(|code| {
            to.copy_from_slice(&code);
            true
        })
    }
}

/// What an archive has of an object's code.
struct Pieces(Arc<UnwindContent>);

impl Code for Pieces {
    fn read(&self, address: u64, to: &mut [u8]) -> bool {
        let piece = self.0.code.iter().find(|(start, _)| *start == address);
        piece.and_then(|(_, bytes)| bytes.get(..to.len())).is_some_and(|code| {
            to.copy_from_slice(code);
            true
        })
    }
}

/// A vDSO: its addresses are places in its image.
struct Image(Arc<[u8]>);

impl Code for Image {
    fn read(&self, address: u64, to: &mut [u8]) -> bool {
        let from = usize::try_from(address).ok().and_then(|from| self.0.get(from..)?.get(..to.len()));
        from.is_some_and(|code| {
            to.copy_from_slice(code);
            true
        })
    }
}

impl Resolver {
    /// From the start of the symbol at a place to its end: kernel addresses of [`Place::Kernel`] and [`Place::Text`]
    /// (whose end is the reported one), addresses in the object's own address space of [`Place::Object`]. `None` where no
    /// symbol is known, and of code that is in no file.
    pub fn extent(&mut self, state: &State, loc: Loc) -> Option<Range<u64>> {
        match loc.place {
            Place::Kernel => {
                self.ask_kernel(state);
                self.kernel.as_ref()?.extent(loc.addr)
            }
            Place::Text(id) => {
                let text = state.kernel().text(id)?;
                Some(text.addr..text.addr.checked_add(text.len.into())?)
            }
            Place::Object(id) => {
                let object = state.object_details(id)?;
                let has_file = matches!(object.kind, PathKind::File | PathKind::Deleted | PathKind::Memfd);
                if !has_file && object.jit.is_none() {
                    return None;
                }
                self.ask_user(state);
                let table = self.user.as_mut()?.table(id, object).ok()?;
                table.extent(table.lookup_offset(loc.addr)?.id)
            }
            _ => None,
        }
    }

    /// The file of an object, opened.
    ///
    /// # Errors
    /// Why there is none: a file of another build, one that is gone, memory that never was a file.
    pub fn file(&mut self, state: &State, id: ObjectId) -> Result<ObjectFile, Reason> {
        let object = state.object_details(id).ok_or(Reason::NoMapping)?;
        self.ask_user(state);
        self.user.as_mut().ok_or(Reason::NoFile)?.file(id, object)
    }

    /// The unwind tables of an object.
    ///
    /// # Errors
    /// Why there are none: as of [`file`](Resolver::file).
    pub(crate) fn unwind_tables(&mut self, state: &State, id: ObjectId) -> Result<FoundTables, Reason> {
        let object = state.object_details(id).ok_or(Reason::NoMapping)?;
        self.ask_user(state);
        if let Some(kept) = self.user.as_ref().and_then(|user| user.kept_tables(object)) {
            let content = kept?;
            return Ok(FoundTables { sections: content.sections.clone(), code: Box::new(Pieces(content)) });
        }
        if object.kind == PathKind::Vdso {
            let own = self.user.as_mut().ok_or(Reason::NoFile)?.vdso(object)?;
            let sections = own.unwind_sections().map_err(|_| Reason::Damaged)?;
            return Ok(FoundTables { sections, code: Box::new(Image(own.image().clone())) });
        }
        let file = self.user.as_mut().ok_or(Reason::NoFile)?.whole_file(object)?;
        let sections = file.unwind_sections().map_err(|_| Reason::Damaged)?;
        Ok(FoundTables { sections, code: Box::new(Opened(file)) })
    }

    /// The symbol at an address of an object's own address space, and how many bytes into it that is.
    pub fn symbol_in(&mut self, state: &State, id: ObjectId, vaddr: u64) -> Option<(Arc<str>, u64)> {
        let object = state.object_details(id)?;
        self.ask_user(state);
        let hit = self.user.as_mut()?.table(id, object).ok()?.lookup_vaddr(vaddr)?;
        Some((demangle(hit.name).into(), hit.offset))
    }

    /// Where the code at an address of an object (an offset in its file, as [`Loc::addr`] has it) comes from in the source,
    /// innermost first: what was inlined there, then what it was inlined into. Empty where nothing is known.
    pub fn source_of(&mut self, state: &State, id: ObjectId, offset: u64) -> Vec<SourceFrame> {
        if !self.dwarf.contains_key(&id) {
            let file = self.file(state, id).ok();
            let lines = file.and_then(|file| Some((file.lines().ok()?, file)));
            self.dwarf.insert(id, lines);
        }
        let Some(Some((lines, file))) = self.dwarf.get(&id) else { return Vec::new() };
        file.vaddr_of_offset(offset).map(|vaddr| lines.frames(vaddr)).unwrap_or_default()
    }

    /// The build ID of the recorded kernel.
    pub fn kernel_build_id(&self, state: &State) -> Option<BuildId> {
        kernel::recorded_build_id(&self.features, state.kernel_map())
    }

    /// The image with symbols (vmlinux) of the recorded kernel, where it is on this machine, and how far its addresses
    /// lie below the recorded ones. `release` is the recorded kernel's.
    ///
    /// # Errors
    /// Why there is none. Without a build ID none is taken for the right one.
    pub fn kernel_file(&mut self, state: &State, release: &str) -> Result<(ObjectFile, u64), Reason> {
        self.ask_user(state);
        if let Some(kept) = self.user.as_ref().and_then(|user| user.kept().kernel()) {
            // Its addresses are the recorded ones.
            return Ok((ObjectFile::kept(kept.clone()), 0));
        }
        let id = self.kernel_build_id(state).ok_or(Reason::NoFile)?;
        let map = state.kernel_map().ok_or(Reason::OtherKernel)?;
        let given = self.vmlinux.clone();
        let finder = self.user.as_mut().ok_or(Reason::NoFile)?.finder_mut();
        let file = finder.kernel_file(id.as_bytes(), release, given.as_deref())?;
        let linked = file.symbol_address(&map.symbol).ok_or(Reason::NoSymbols)?;
        let shift = map.symbol_addr.wrapping_sub(linked);
        Ok((file, shift))
    }
}
