//! Names of the kernel's own text and of its modules, if they are the recorded kernel's.

use std::ops::Range;

use afterimage_perf_data::record::cpumode;
use afterimage_perf_data::{BuildId, Features};
use afterimage_symbols::{KernelHit, KernelTable, Reason};

use crate::state::KernelMap;

/// The name of the kernel itself in build ID entries and map records.
const KERNEL: &str = "[kernel.kallsyms]";

/// In the number of a symbol that the recording carries.
const CARRIED: u32 = 1 << 31;

/// Names of the recorded kernel: a table and how far the recorded addresses lie from it, or why there is none.
pub(crate) struct KernelNames {
    table: Result<KernelTable, Reason>,
    /// Recorded address minus address in the table; other than 0 after another boot of the same kernel.
    shift: u64,
    /// What the recording carries of them, asked first: it is of this very boot, modules included.
    carried: Option<KernelTable>,
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
    /// From a text in the form of /proc/kallsyms that the user says is right.
    pub(crate) fn given(kallsyms: &[u8]) -> KernelNames {
        KernelNames { table: usable(KernelTable::parse(kallsyms)), shift: 0, carried: None }
    }

    /// From the running kernel, if it is the recorded one.
    pub(crate) fn of_running(recorded: Option<BuildId>, map: Option<&KernelMap>) -> KernelNames {
        let same = match (afterimage_symbols::kernel_build_id(), recorded) {
            (Some(running), Some(recorded)) => running == recorded.as_bytes(),
            _ => false,
        };
        if !same {
            return KernelNames { table: Err(Reason::OtherKernel), shift: 0, carried: None };
        }
        let table = KernelTable::running().map_err(|_| Reason::Unreadable).and_then(usable);
        match table {
            Ok(table) => match shift(&table, map) {
                Some(shift) => KernelNames { table: Ok(table), shift, carried: None },
                None => KernelNames { table: Err(Reason::OtherKernel), shift: 0, carried: None },
            },
            Err(reason) => KernelNames { table: Err(reason), shift: 0, carried: None },
        }
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
        let table = self.table.as_ref().map_err(|reason| *reason)?;
        let there = addr.wrapping_sub(self.shift);
        // Only the kernel's own text moves as a whole; modules of another boot lie anywhere.
        if self.shift != 0 && !table.contains(there) {
            return Err(Reason::OtherKernel);
        }
        table.lookup(there).ok_or(Reason::NoKernelText)
    }
}

impl KernelNames {
    /// From the start to the end of the symbol at an address.
    pub(crate) fn extent(&self, addr: u64) -> Option<Range<u64>> {
        if let Some(range) = self.carried.as_ref().and_then(|table| table.extent(addr)) {
            return Some(range);
        }
        let table = self.table.as_ref().ok()?;
        let there = addr.wrapping_sub(self.shift);
        if self.shift != 0 && !table.contains(there) {
            return None;
        }
        let range = table.extent(there)?;
        Some(range.start.wrapping_add(self.shift)..range.end.wrapping_add(self.shift))
    }
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
