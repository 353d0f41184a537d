//! The unwind tables of one file.

use gimli::{BaseAddresses, DebugFrame, EhFrame, LittleEndian, UnwindContext, UnwindOffset, UnwindSection, Vendor};
use rustc_hash::FxHashMap;

use crate::arch::{Arch, Registers};
use crate::end::StackEnd;
use crate::index::{Bytes, Header, Index};
use crate::rule::{Part, Rule};
use crate::signal;
use crate::stack::StackCopy;

/// A section with the address that it asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Its first address, in the file's own address space.
    pub address: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// What a file has of tables; little-endian.
#[derive(Clone, Debug, Default)]
pub struct Sections {
    /// `.eh_frame`
    pub eh_frame: Option<Section>,
    /// `.eh_frame_hdr`, which makes finding things in `.eh_frame` quick.
    pub eh_frame_hdr: Option<Section>,
    /// `.debug_frame`, unpacked; asked where `.eh_frame` knows nothing.
    pub debug_frame: Option<Vec<u8>>,
    /// The address of `.text`, which some tables count from; 0 if it has none.
    pub text: u64,
    /// The same of `.got`.
    pub got: u64,
    /// The file has more tables, which are not here: stacks that end for want of one say so.
    pub left_out: bool,
}

/// Gives bytes of a file's code.
pub trait Code {
    /// Fills `to` with what is at an address of the file's own address space; `false` if that is not all there.
    fn read(&self, address: u64, to: &mut [u8]) -> bool;
}

/// No code at all: for files of which the tables alone are known.
impl Code for () {
    fn read(&self, _: u64, _: &mut [u8]) -> bool {
        false
    }
}

/// The unwind tables of one file, and what was found in them so far.
pub struct Table {
    arch: Arch,
    frames: Option<Tables>,
    debug: Option<Tables>,
    left_out: bool,
    code: Box<dyn Code>,
    rules: Vec<Rule>,
    by_rule: FxHashMap<Rule, u32>,
    /// By twice the address, and one for places that nothing was called from.
    by_address: FxHashMap<u64, Option<u32>>,
}

struct Tables {
    bytes: Vec<u8>,
    bases: BaseAddresses,
    index: Index,
}

/// Addresses whose rules are remembered; with more all are forgotten.
const REMEMBERED: usize = 1 << 16;

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let remembered = self.by_address.len();
        f.debug_struct("Table").field("arch", &self.arch).field("remembered", &remembered).finish_non_exhaustive()
    }
}

impl Table {
    /// The tables in some sections. Damage is met when an entry is asked for that cannot be read: it covers nothing.
    pub fn new(arch: Arch, sections: Sections, code: Box<dyn Code>) -> Table {
        let Sections { eh_frame, eh_frame_hdr, debug_frame, text, got, left_out } = sections;
        let bases = BaseAddresses::default().set_text(text).set_got(got);
        let frames = eh_frame.map(|Section { address, bytes }| {
            let bases = bases.clone().set_eh_frame(address);
            let index = eh_frame_hdr.and_then(|hdr| Header::new(hdr, address)).map(Index::Header);
            let index = index.unwrap_or_else(|| Index::of(&eh_frame_of(&bytes, arch), &bases));
            Tables { bytes, bases, index }
        });
        let debug = debug_frame.map(|bytes| {
            let index = Index::of(&debug_frame_of(&bytes, arch), &bases);
            Tables { bytes, bases: bases.clone(), index }
        });
        let used = |tables: &Tables| !tables.index.is_empty();
        let (frames, debug) = (frames.filter(used), debug.filter(used));
        let (by_rule, by_address) = (FxHashMap::default(), FxHashMap::default());
        Table { arch, frames, debug, left_out, code, rules: Vec::new(), by_rule, by_address }
    }

    /// The address of `.eh_frame` by its header at `address`, for files whose sections have no names.
    pub fn eh_frame_address(address: u64, header: &[u8]) -> Option<u64> {
        Header::frames_of(address, header)
    }

    /// What kind of CPU the file is for.
    pub fn arch(&self) -> Arch {
        self.arch
    }

    /// The end of a stack for want of a table: there may be one among those that were left out.
    pub fn without(&self, end: StackEnd) -> StackEnd {
        match end {
            StackEnd::NoTables if self.left_out => StackEnd::LeftOut,
            end => end,
        }
    }

    /// Whether there are no tables: then nothing is known of any address.
    pub fn is_empty(&self) -> bool {
        self.frames.is_none() && self.debug.is_none()
    }

    /// Bytes of tables that are held.
    pub fn held_bytes(&self) -> usize {
        [&self.frames, &self.debug].into_iter().flatten().map(|tables| tables.bytes.len()).sum()
    }

    /// The rule that holds at an address; `exact` if the code there was interrupted, else the address is that of the byte
    /// before the one that a call returns to.
    #[inline]
    pub(crate) fn rule(&mut self, address: u64, exact: bool, context: &mut UnwindContext<usize>) -> Option<u32> {
        let key = address << 1 | u64::from(exact);
        match self.by_address.get(&key) {
            Some(known) => *known,
            None => self.find_out(key, address, exact, context),
        }
    }

    #[cold]
    fn find_out(&mut self, key: u64, address: u64, exact: bool, context: &mut UnwindContext<usize>) -> Option<u32> {
        let rule = self.search(address, exact, context);
        if self.by_address.len() >= REMEMBERED {
            self.by_address.clear();
            self.by_rule.clear();
            self.rules.clear();
        }
        let number = rule.map(|rule| match self.by_rule.get(&rule) {
            Some(number) => *number,
            None => {
                let number = u32::try_from(self.rules.len()).unwrap_or(u32::MAX);
                self.rules.push(rule.clone());
                self.by_rule.insert(rule, number);
                number
            }
        });
        self.by_address.insert(key, number);
        number
    }

    fn search(&self, address: u64, exact: bool, context: &mut UnwindContext<usize>) -> Option<Rule> {
        let here = if exact { address } else { address.wrapping_add(1) };
        let place = Place { address, here };
        let frames = self.frames.as_ref().and_then(|tables| {
            tables.row(&eh_frame_of(&tables.bytes, self.arch), place, context, self.arch, Part::Frames)
        });
        let found = frames.or_else(|| {
            let tables = self.debug.as_ref()?;
            tables.row(&debug_frame_of(&tables.bytes, self.arch), place, context, self.arch, Part::Debug)
        });
        // The code is read, from its file, only where it may be what handlers return to: no function begins in another.
        let may_return = found.as_ref().is_none_or(|(rule, within)| rule.signal || !within);
        if may_return && self.is_return(here) {
            return Some(signal::rule(self.arch));
        }
        let (rule, _) = found?;
        // What the kernel saved says more than these.
        let lesser = rule.signal && self.arch == Arch::Aarch64;
        Some(if lesser { signal::rule(self.arch) } else { rule })
    }

    fn is_return(&self, here: u64) -> bool {
        let mut code = [0; signal::LEN];
        self.code.read(here, &mut code) && signal::is_return(self.arch, &code)
    }

    /// Whether a rule is of code that signal handlers return to.
    pub(crate) fn is_signal(&self, rule: u32) -> bool {
        self.rules.get(rule as usize).is_some_and(|rule| rule.signal)
    }

    /// Makes the registers `now` those of the caller, by a rule.
    pub(crate) fn to_caller(
        &self,
        rule: u32,
        now: &mut Registers,
        stack: &StackCopy<'_>,
        exact: bool,
    ) -> Result<(), StackEnd> {
        let rule = self.rules.get(rule as usize).ok_or(StackEnd::BadFrame)?;
        let tables = match rule.part {
            Part::Frames => &self.frames,
            Part::Debug => &self.debug,
        };
        rule.to_caller(now, stack, tables.as_ref().map_or(&[], |tables| &tables.bytes), exact)
    }
}

/// Where a rule is looked for.
#[derive(Clone, Copy)]
struct Place {
    /// The address that the entry has to cover.
    address: u64,
    /// Where the code goes on: the same, or one behind it.
    here: u64,
}

impl Tables {
    /// The rule of the row that covers an address, and whether the code goes on within the entry, behind its beginning.
    fn row<'b, S>(
        &self,
        section: &S,
        Place { address, here }: Place,
        context: &mut UnwindContext<usize>,
        arch: Arch,
        part: Part,
    ) -> Option<(Rule, bool)>
    where
        S: UnwindSection<Bytes<'b>>,
        S::Offset: UnwindOffset<usize>,
    {
        let offset = S::Offset::from(self.index.find(address)?);
        let fde = section.fde_from_offset(&self.bases, offset, S::cie_from_offset).ok()?;
        if !fde.contains(address) {
            return None;
        }
        let row = fde.unwind_info_for_address(section, &self.bases, context, address).ok()?;
        let rule = Rule::of(row, fde.cie().return_address_register(), fde.is_signal_trampoline(), arch, part)?;
        Some((rule, fde.contains(here) && fde.initial_address() != here))
    }
}

fn eh_frame_of(bytes: &[u8], arch: Arch) -> EhFrame<Bytes<'_>> {
    let mut section = EhFrame::new(bytes, LittleEndian);
    section.set_address_size(8);
    section.set_vendor(vendor(arch));
    section
}

fn debug_frame_of(bytes: &[u8], arch: Arch) -> DebugFrame<Bytes<'_>> {
    let mut section = DebugFrame::new(bytes, LittleEndian);
    section.set_address_size(8);
    section.set_vendor(vendor(arch));
    section
}

/// Whose instructions there may be beside the standard's.
fn vendor(arch: Arch) -> Vendor {
    match arch {
        Arch::X86_64 => Vendor::Default,
        Arch::Aarch64 => Vendor::AArch64,
    }
}
