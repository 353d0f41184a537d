//! The code of the kernel's own functions that samples fell into.
//!
//! What runs is not what the kernel's file holds: addresses are moved, alternatives chosen, static branches patched. Nobody
//! can know it later, so the recording keeps it.

use std::collections::{BTreeMap, HashSet};

use afterimage_symbols::KernelTable;

/// Functions that are read, at most, and their bytes together.
const FUNCTIONS: usize = 8192;
const BYTES: u64 = 32 << 20;
/// The longest function that is read. A symbol that reaches further is no function.
const LONGEST: u64 = 256 << 10;

/// A function of the kernel or of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) module: Option<String>,
    pub(crate) addr: u64,
    pub(crate) len: u32,
}

/// The functions that any of the addresses lie in, by address; how many there were beyond what is read.
pub(crate) fn functions(table: &KernelTable, addresses: &HashSet<u64>) -> (Vec<Function>, usize) {
    let ids: BTreeMap<u32, u64> = addresses.iter().filter_map(|addr| Some((table.id_at(*addr)?, *addr))).collect();
    let mut functions = Vec::new();
    let (mut bytes, mut left_out) = (0, 0);
    for (id, addr) in ids {
        let Some(symbol) = table.symbol(id) else { continue };
        let len = table.extent(addr).map_or(0, |extent| extent.end.saturating_sub(symbol.start));
        bytes += len;
        if len == 0 || len > LONGEST || functions.len() >= FUNCTIONS || bytes > BYTES {
            left_out += 1;
            continue;
        }
        let module = symbol.module.map(str::to_owned);
        functions.push(Function { name: symbol.name.to_owned(), module, addr: symbol.start, len: len as u32 });
    }
    functions.sort_by_key(|function| function.addr);
    (functions, left_out)
}
