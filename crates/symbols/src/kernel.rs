//! Names of the kernel's own text and of its modules.
//!
//! Text that comes and goes while the kernel runs (BPF programs and trampolines, ftrace and kprobe pages) stands in
//! `/proc/kallsyms` too, at addresses that are reused at once. It is left out here: naming it needs a time.

mod kallsyms;
mod saved;

use std::ops::Range;

use crate::bytes::{Cursor, put_block, seal, unseal};
use crate::error::Error;
use crate::names::{Hit, NameMap};
use crate::notes;

const MAGIC: &[u8; 8] = b"AIKSYM\0\x02";

/// The index over one kernel's `/proc/kallsyms`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KernelTable {
    names: NameMap,
    /// The first symbol of each run of symbols of one module, and the module; the kernel itself has the empty name.
    runs: Vec<(u32, String)>,
    core: Range<u64>,
    /// What ran while the kernel started; empty where that is not known.
    init: Range<u64>,
    hidden: bool,
    build_id: Vec<u8>,
}

/// A kernel symbol that covers an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelHit<'t> {
    /// The symbol's name, not to be demangled.
    pub name: &'t str,
    /// The module it belongs to; `None` for the kernel itself.
    pub module: Option<&'t str>,
    /// The symbol's number in its table.
    pub id: u32,
    /// Where the symbol starts.
    pub start: u64,
    /// How far into the symbol the address is, in bytes.
    pub offset: u64,
}

impl KernelTable {
    /// The running kernel's table, from `/proc/kallsyms` or from the index of it that was kept on disk this boot.
    ///
    /// # Errors
    /// When `/proc/kallsyms` cannot be read.
    pub fn running() -> Result<KernelTable, Error> {
        saved::running(crate::cache::default_dir().as_deref())
    }

    /// The table of any text in the form of `/proc/kallsyms`. Lines that are not of that form are skipped.
    pub fn parse(kallsyms: &[u8]) -> KernelTable {
        kallsyms::parse(kallsyms)
    }

    /// Whether the kernel hid its addresses from us (`kptr_restrict`, no privileges): then there are no names.
    pub fn hidden(&self) -> bool {
        self.hidden
    }

    /// The symbol at an address of the kernel's own text or a module's.
    pub fn lookup(&self, addr: u64) -> Option<KernelHit<'_>> {
        let symbol = self.symbol(self.id_at(addr)?)?;
        Some(KernelHit { offset: addr.wrapping_sub(symbol.start), ..symbol })
    }

    /// The symbol of a number, at its start.
    pub fn symbol(&self, id: u32) -> Option<KernelHit<'_>> {
        let Hit { name, id, start, offset } = self.names.get(id)?;
        let run = self.runs.partition_point(|&(first, _)| first <= id).checked_sub(1)?;
        let module = self.runs.get(run).map(|(_, name)| name.as_str()).filter(|name| !name.is_empty());
        Some(KernelHit { name, module, id, start, offset })
    }

    /// The number of the symbol at an address, for counting without names; [`symbol`](KernelTable::symbol) has the rest.
    pub fn id_at(&self, addr: u64) -> Option<u32> {
        self.names.id_at(addr)
    }

    /// From the start of the symbol at an address to its end.
    pub fn extent(&self, addr: u64) -> Option<std::ops::Range<u64>> {
        self.names.extent(self.id_at(addr)?)
    }

    /// The symbols that cover any of these addresses, in the form of `/proc/kallsyms`: what
    /// [`parse`](KernelTable::parse) makes of it answers for them as this table does. Empty when it knows none of them.
    ///
    /// A line of type `r` without a meaning of its own marks where a symbol ends.
    pub fn excerpt(&self, addrs: impl IntoIterator<Item = u64>) -> Vec<u8> {
        self.excerpt_moved(addrs, 0)
    }

    /// The same, with everything `shift` bytes higher (wrapping) in the text: as another boot had it.
    pub fn excerpt_moved(&self, addrs: impl IntoIterator<Item = u64>, shift: u64) -> Vec<u8> {
        let mut ids: Vec<(u32, u64)> = addrs.into_iter().filter_map(|addr| Some((self.id_at(addr)?, addr))).collect();
        ids.sort_unstable();
        ids.dedup_by_key(|(id, _)| *id);
        if ids.is_empty() {
            return Vec::new();
        }
        let mut text = String::new();
        let mut line = |addr: u64, kind: char, name: &str, module: Option<&str>| {
            let module = module.map(|module| format!("\t[{module}]")).unwrap_or_default();
            text.push_str(&format!("{:016x} {kind} {name}{module}\n", addr.wrapping_add(shift)));
        };
        line(self.core.start, 't', "_stext", None);
        line(self.names.end_at(self.core.start), 'r', "end", None);
        line(self.core.end, 't', "_etext", None);
        if ids.iter().any(|(_, addr)| self.init.contains(addr)) {
            line(self.init.start, 't', "_sinittext", None);
            line(self.names.end_at(self.init.start), 'r', "end", None);
            line(self.init.end, 't', "_einittext", None);
        }
        for (id, addr) in ids {
            let Some(symbol) = self.symbol(id) else { continue };
            line(symbol.start, 't', symbol.name, symbol.module);
            line(self.names.end_at(addr), 'r', "end", symbol.module);
        }
        text.into_bytes()
    }

    /// Where the kernel's own text starts (`_stext`).
    pub fn start(&self) -> u64 {
        self.core.start
    }

    /// Where the kernel's own text ends (`_etext`): one past its last address.
    pub fn end(&self) -> u64 {
        self.core.end
    }

    /// Whether an address is inside the kernel's own text, or in what ran while it started.
    pub fn contains(&self, addr: u64) -> bool {
        self.core.contains(&addr) || self.init.contains(&addr)
    }

    /// How many symbols there are, aliases counted once.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there are no symbols.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where each symbol starts, ascending.
    pub fn starts(&self) -> impl Iterator<Item = u64> {
        self.names.iter().map(|hit| hit.start)
    }

    /// The build id of the kernel, where it is known.
    pub fn build_id(&self) -> Option<&[u8]> {
        (!self.build_id.is_empty()).then_some(&self.build_id)
    }

    /// The same table with the build id of the kernel that it is of, at most 64 bytes of it.
    pub fn with_build_id(mut self, build_id: &[u8]) -> KernelTable {
        self.build_id = build_id.iter().copied().take(notes::MAX_BUILD_ID).collect();
        self
    }

    /// A compact, checksummed form.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_block(&mut out, &self.build_id);
        out.extend(u32::from(self.hidden).to_le_bytes());
        for addr in [self.core.start, self.core.end, self.init.start, self.init.end] {
            out.extend(addr.to_le_bytes());
        }
        out.extend((self.runs.len() as u64).to_le_bytes());
        for (first, module) in &self.runs {
            out.extend(first.to_le_bytes());
            put_block(&mut out, module.as_bytes());
        }
        self.names.encode(&mut out);
        seal(MAGIC, &out)
    }

    /// What [`encode`](KernelTable::encode) made, or `None` for anything else.
    pub fn decode(bytes: &[u8]) -> Option<KernelTable> {
        let mut cursor = Cursor(unseal(MAGIC, bytes)?);
        let build_id = cursor.block()?.to_vec();
        let hidden = cursor.u32()? != 0;
        let core = cursor.u64()?..cursor.u64()?;
        let init = cursor.u64()?..cursor.u64()?;
        let mut runs = Vec::new();
        for _ in 0..cursor.count()? {
            let first = cursor.u32()?;
            runs.push((first, std::str::from_utf8(cursor.block()?).ok()?.to_string()));
        }
        let names = NameMap::decode(&mut cursor)?;
        let ascending = runs.windows(2).all(|w| w[0].0 < w[1].0);
        (cursor.0.is_empty() && ascending).then_some(KernelTable { names, runs, core, init, hidden, build_id })
    }
}

/// The build id of the running kernel, from `/sys/kernel/notes`.
pub fn kernel_build_id() -> Option<Vec<u8>> {
    let notes = std::fs::read("/sys/kernel/notes").ok()?;
    notes::build_id_of_notes(&notes).map(<[u8]>::to_vec)
}
