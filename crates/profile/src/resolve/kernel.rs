//! Names of the kernel's own text and of its modules, if they are the recorded kernel's.

use std::collections::BTreeSet;
use std::ops::Range;

use afterimage_perf_data::record::cpumode;
use afterimage_perf_data::{BuildId, Features};
use afterimage_symbols::{KernelHit, KernelTable, ObjectFile, Reason, SymbolTable};

use crate::state::KernelMap;

/// The name of the kernel itself in build ID entries and map records.
const KERNEL: &str = "[kernel.kallsyms]";

/// In the number of a symbol that the recording carries.
const CARRIED: u32 = 1 << 31;

/// Names of the recorded kernel: a table and how far the recorded addresses lie from it, or why there is none.
pub(crate) struct KernelNames {
    table: Result<Table, Reason>,
    /// Recorded address minus address in the table; other than 0 after another boot of the same kernel.
    shift: u64,
    /// What the recording carries of them, asked first: it is of this very boot, modules included.
    carried: Option<KernelTable>,
}

/// What names a kernel.
enum Table {
    /// A list of its symbols, in the form of /proc/kallsyms.
    List(KernelTable),
    /// Its image with symbols (vmlinux), which has no modules.
    Image(Box<SymbolTable>),
}

/// The kernel's build ID as the recording has it.
pub(crate) fn recorded_build_id(features: &Features, map: Option<&KernelMap>) -> Option<BuildId> {
    let listed = features
        .build_ids
        .iter()
        .find(|entry| entry.cpumode == cpumode::KERNEL && entry.pid == -1 && entry.filename.starts_with(KERNEL));
    listed.map(|entry| entry.build_id).or(map?.build_id).filter(|id| !id.is_empty())
}

impl KernelNames {
    fn new(table: Result<Table, Reason>, shift: u64) -> KernelNames {
        KernelNames { table, shift, carried: None }
    }

    /// None but those that the recording carries.
    pub(crate) fn refused(reason: Reason) -> KernelNames {
        KernelNames::new(Err(reason), 0)
    }

    /// From a text in the form of /proc/kallsyms that the user says is right.
    pub(crate) fn given(kallsyms: &[u8]) -> KernelNames {
        KernelNames::new(usable(KernelTable::parse(kallsyms)).map(Table::List), 0)
    }

    /// From the running kernel, if it is the recorded one.
    pub(crate) fn of_running(recorded: Option<BuildId>, features: &Features, map: Option<&KernelMap>) -> KernelNames {
        let none = KernelNames::refused;
        let known = match (afterimage_symbols::kernel_build_id(), recorded) {
            (Some(running), Some(recorded)) => running == recorded.as_bytes(),
            (_, None) => is_of_this_machine(features),
            (None, Some(_)) => false,
        };
        if !known {
            return none(Reason::OtherKernel);
        }
        let table = match KernelTable::running().map_err(|_| Reason::Unreadable).and_then(usable) {
            Ok(table) => table,
            Err(reason) => return none(reason),
        };
        match shift(&table, map) {
            // Without a build ID a kernel is known by lying where the recorded one lay.
            Some(shift) if recorded.is_some() || shift == 0 => KernelNames::new(Ok(Table::List(table)), shift),
            _ => none(Reason::OtherKernel),
        }
    }

    /// From an image of the kernel, whose build ID was compared.
    pub(crate) fn of_image(image: &ObjectFile, map: &KernelMap) -> Result<KernelNames, Reason> {
        let table = image.symbols()?;
        let linked = image.symbol_address(&map.symbol).ok_or(Reason::NoSymbols)?;
        let shift = map.symbol_addr.wrapping_sub(linked);
        Ok(KernelNames::new(Ok(Table::Image(Box::new(table))), shift))
    }

    /// From a list of symbols that was kept of a kernel of the recorded build, perhaps of another boot.
    pub(crate) fn of_list(list: &[u8], map: &KernelMap) -> Result<KernelNames, Reason> {
        let table = usable(KernelTable::parse(list))?;
        let shift = shift(&table, Some(map)).ok_or(Reason::OtherKernel)?;
        Ok(KernelNames::new(Ok(Table::List(table)), shift))
    }

    /// Why there are no names but those that the recording carries.
    pub(crate) fn refusal(&self) -> Option<Reason> {
        self.table.as_ref().err().copied()
    }

    /// The same, to be asked for what the recording's own symbols, in the form of /proc/kallsyms, do not name.
    pub(crate) fn behind(self, recorded: &[u8]) -> KernelNames {
        let carried = (!recorded.is_empty()).then(|| KernelTable::parse(recorded));
        KernelNames { carried, ..self }
    }

    pub(crate) fn lookup(&self, addr: u64) -> Result<KernelHit<'_>, Reason> {
        if let Some(hit) = self.carried.as_ref().and_then(|table| table.lookup(addr)) {
            // The numbers of two tables must not meet.
            return Ok(KernelHit { id: hit.id | CARRIED, ..hit });
        }
        let there = addr.wrapping_sub(self.shift);
        match self.table.as_ref().map_err(|reason| *reason)? {
            // Only the kernel's own text moves as a whole; modules of another boot lie anywhere.
            Table::List(table) if self.shift != 0 && !table.contains(there) => Err(Reason::OtherKernel),
            Table::List(table) => table.lookup(there).ok_or(Reason::NoKernelText),
            Table::Image(table) => {
                let hit = table.lookup_vaddr(there).ok_or(Reason::NoKernelText)?;
                Ok(KernelHit { name: hit.name, module: None, id: hit.id, start: hit.start, offset: hit.offset })
            }
        }
    }

    /// The symbols that cover these addresses of the recording, in the form of /proc/kallsyms: behind those that the recording
    /// carries, where it does.
    pub(crate) fn excerpt(&self, recorded: &[u8], addrs: &BTreeSet<u64>) -> Vec<u8> {
        let carried = |addr: &u64| self.carried.as_ref().is_some_and(|table| table.lookup(*addr).is_some());
        let there = addrs.iter().filter(|addr| !carried(addr)).map(|addr| addr.wrapping_sub(self.shift));
        let more = match &self.table {
            Ok(Table::List(table)) => {
                table.excerpt_moved(there.filter(|at| self.shift == 0 || table.contains(*at)), self.shift)
            }
            Ok(Table::Image(table)) => self.lines_of_image(table, there),
            Err(_) => Vec::new(),
        };
        [recorded, &more].concat()
    }

    /// The same of an image, which does not say where its text ends: the kernel's own text is as long as what is named.
    fn lines_of_image(&self, table: &SymbolTable, addrs: impl Iterator<Item = u64>) -> Vec<u8> {
        let ids: BTreeSet<u32> = addrs.filter_map(|addr| table.id_of_vaddr(addr)).collect();
        let symbols: Vec<_> = ids.iter().filter_map(|id| Some((table.symbol(*id)?.name, table.extent(*id)?))).collect();
        let (Some(start), Some(end)) =
            (symbols.iter().map(|(_, e)| e.start).min(), symbols.iter().map(|(_, e)| e.end).max())
        else {
            return Vec::new();
        };
        let mut text = String::new();
        let mut line = |addr: u64, kind: char, name: &str| {
            text.push_str(&format!("{:016x} {kind} {name}\n", addr.wrapping_add(self.shift)));
        };
        if self.carried.is_none() {
            line(start, 't', "_stext");
            line(end, 't', "_etext");
        }
        for (name, extent) in symbols {
            line(extent.start, 't', name);
            line(extent.end, 'r', "end");
        }
        text.into_bytes()
    }

    /// From the start to the end of the symbol at an address.
    pub(crate) fn extent(&self, addr: u64) -> Option<Range<u64>> {
        if let Some(range) = self.carried.as_ref().and_then(|table| table.extent(addr)) {
            return Some(range);
        }
        let there = addr.wrapping_sub(self.shift);
        let range = match self.table.as_ref().ok()? {
            Table::List(table) if self.shift != 0 && !table.contains(there) => return None,
            Table::List(table) => table.extent(there)?,
            Table::Image(table) => table.extent(table.id_of_vaddr(there)?)?,
        };
        Some(range.start.wrapping_add(self.shift)..range.end.wrapping_add(self.shift))
    }
}

/// Whether the recording says that it was made on this machine, under a kernel of the release that runs now.
fn is_of_this_machine(features: &Features) -> bool {
    let is = |recorded: &Option<String>, path: &str| {
        let own = std::fs::read_to_string(path).unwrap_or_default();
        recorded.as_deref().is_some_and(|recorded| !recorded.is_empty() && recorded == own.trim_end())
    };
    is(&features.hostname, "/proc/sys/kernel/hostname") && is(&features.os_release, "/proc/sys/kernel/osrelease")
}

fn usable(table: KernelTable) -> Result<KernelTable, Reason> {
    if table.hidden() { Err(Reason::KernelHidden) } else { Ok(table) }
}

/// How far the recorded kernel lies from the table. `None` if the recording does not say where it lay: another boot
/// puts the same kernel at other addresses.
fn shift(table: &KernelTable, map: Option<&KernelMap>) -> Option<u64> {
    let map = map.filter(|map| map.symbol_addr != 0)?;
    let at_its_place = |name: &str| name == map.symbol || name == "_text" || name == "_stext";
    match table.lookup(map.symbol_addr) {
        Some(hit) if hit.offset == 0 && at_its_place(hit.name) => Some(0),
        _ => Some(map.symbol_addr.wrapping_sub(table.start())),
    }
}
