//! What rows are told apart by.

use std::fmt;
use std::str::FromStr;

/// A column that tells rows apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SortKey {
    /// The thread's name when the sample was taken.
    Comm,
    /// The object that the code is from.
    Dso,
    /// The symbol.
    Sym,
    /// The line of source code.
    Srcline,
    /// The file of source code.
    Srcfile,
    /// Bytes of the symbol.
    SymbolSize,
    /// Bytes of the mapping that the code is in.
    DsoSize,
    /// The text of the kernel that came and went: one BPF program, told from another of the same name.
    Text,
    /// The process.
    Pid,
    /// The thread.
    Tid,
    /// The CPU.
    Cpu,
    /// The processor that the CPU is on, by its number of the machine.
    Socket,
    /// The event.
    Event,
    /// The cgroup.
    Cgroup,
    /// The container or unit that the cgroup is of.
    Container,
    /// The process by its number in its own pid namespace.
    NsPid,
    /// The thread's cgroup namespace: device and inode of its file.
    CgroupId,
    /// The weight; of a row, that of all its samples.
    Weight,
    /// The weight of each sample.
    LocalWeight,
    /// Cycles until the instruction was done; of a row, those of all its samples.
    InsLat,
    /// The same of each sample.
    LocalInsLat,
    /// The level of the memory hierarchy that had the data.
    Mem,
    /// What other caches answered.
    Snoop,
    /// Where the data address was translated.
    Tlb,
    /// Whether the access was locked.
    Locked,
    /// What the access was blocked by.
    Blocked,
    /// The data address, by symbol where one is known.
    SymbolDaddr,
    /// The object that the data address is in.
    DsoDaddr,
    /// The physical data address.
    PhysDaddr,
    /// The line of the cache that the data address is in: 64 bytes, by the object that they are of.
    Dcacheline,
    /// Bytes of the page of the data address.
    DataPageSize,
    /// Bytes of the page of the instruction.
    CodePageSize,
    /// What a transaction ended with: the CPU's flags and code.
    Transaction,
    /// The sample's own address as it was recorded.
    Addr,
    /// The time, in steps of [`AggregateOptions::time_quantum`](super::AggregateOptions::time_quantum).
    Time,
    /// The innermost symbol of the stack that [`Filters::parents`](crate::Filters::parents) matches.
    Parent,
    /// Of branches: the symbol that it led from.
    SymbolFrom,
    /// The symbol that it led to.
    SymbolTo,
    /// The object that it led from.
    DsoFrom,
    /// The object that it led to.
    DsoTo,
    /// The address that it led from.
    AddrFrom,
    /// The address that it led to.
    AddrTo,
    /// The line of source code that it led from.
    SrclineFrom,
    /// The line of source code that it led to.
    SrclineTo,
    /// Whether it was predicted wrongly.
    Mispredict,
    /// Whether it was in a transaction.
    InTx,
    /// Whether it was a transaction's abort.
    Abort,
    /// Cycles since the branch before.
    Cycles,
    /// A label that a handler put on the sample: the one of this number in
    /// [`AggregateOptions::labels`](super::AggregateOptions::labels).
    Label(u8),
    /// What [`Columns`](super::Columns) says.
    Column(u8),
}

/// Those that have a name without more, with what perf and the command line call them.
const NAMED: [(SortKey, &str); 48] = [
    (SortKey::Comm, "comm"),
    (SortKey::Dso, "dso"),
    (SortKey::Sym, "sym"),
    (SortKey::Srcline, "srcline"),
    (SortKey::Srcfile, "srcfile"),
    (SortKey::SymbolSize, "symbol_size"),
    (SortKey::DsoSize, "dso_size"),
    (SortKey::Text, "text"),
    (SortKey::Pid, "pid"),
    (SortKey::Tid, "tid"),
    (SortKey::Cpu, "cpu"),
    (SortKey::Socket, "socket"),
    (SortKey::Event, "event"),
    (SortKey::Cgroup, "cgroup"),
    (SortKey::CgroupId, "cgroup_id"),
    (SortKey::Container, "container"),
    (SortKey::NsPid, "nspid"),
    (SortKey::Weight, "weight"),
    (SortKey::LocalWeight, "local_weight"),
    (SortKey::InsLat, "ins_lat"),
    (SortKey::LocalInsLat, "local_ins_lat"),
    (SortKey::Mem, "mem"),
    (SortKey::Snoop, "snoop"),
    (SortKey::Tlb, "tlb"),
    (SortKey::Locked, "locked"),
    (SortKey::Blocked, "blocked"),
    (SortKey::SymbolDaddr, "symbol_daddr"),
    (SortKey::DsoDaddr, "dso_daddr"),
    (SortKey::PhysDaddr, "phys_daddr"),
    (SortKey::Dcacheline, "dcacheline"),
    (SortKey::DataPageSize, "data_page_size"),
    (SortKey::CodePageSize, "code_page_size"),
    (SortKey::Transaction, "transaction"),
    (SortKey::Addr, "addr"),
    (SortKey::Time, "time"),
    (SortKey::Parent, "parent"),
    (SortKey::SymbolFrom, "symbol_from"),
    (SortKey::SymbolTo, "symbol_to"),
    (SortKey::DsoFrom, "dso_from"),
    (SortKey::DsoTo, "dso_to"),
    (SortKey::AddrFrom, "addr_from"),
    (SortKey::AddrTo, "addr_to"),
    (SortKey::SrclineFrom, "srcline_from"),
    (SortKey::SrclineTo, "srcline_to"),
    (SortKey::Mispredict, "mispredict"),
    (SortKey::InTx, "in_tx"),
    (SortKey::Abort, "abort"),
    (SortKey::Cycles, "cycles"),
];

impl SortKey {
    /// The key's name, as perf and the command line spell it.
    pub fn name(self) -> &'static str {
        let other = if matches!(self, SortKey::Label(_)) { "label" } else { "column" };
        NAMED.iter().find(|(key, _)| *key == self).map_or(other, |(_, name)| name)
    }

    /// The names of all keys.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMED.iter().map(|(_, name)| *name)
    }

    /// Whether it speaks of branches: then each branch of a sample is a row's, and not the sample.
    pub fn is_of_branches(self) -> bool {
        matches!(
            self,
            SortKey::SymbolFrom
                | SortKey::SymbolTo
                | SortKey::DsoFrom
                | SortKey::DsoTo
                | SortKey::AddrFrom
                | SortKey::AddrTo
                | SortKey::SrclineFrom
                | SortKey::SrclineTo
                | SortKey::Mispredict
                | SortKey::InTx
                | SortKey::Abort
                | SortKey::Cycles
        )
    }

    /// Whether its value is a place beside the sample's own.
    pub(crate) fn is_place(self) -> bool {
        matches!(
            self,
            SortKey::SymbolFrom
                | SortKey::SymbolTo
                | SortKey::DsoFrom
                | SortKey::DsoTo
                | SortKey::AddrFrom
                | SortKey::AddrTo
                | SortKey::SrclineFrom
                | SortKey::SrclineTo
                | SortKey::SymbolDaddr
                | SortKey::DsoDaddr
                | SortKey::Dcacheline
        )
    }

    /// Whether lines of source code have to be found for it.
    pub(crate) fn is_of_lines(self) -> bool {
        matches!(self, SortKey::Srcline | SortKey::Srcfile | SortKey::SrclineFrom | SortKey::SrclineTo)
    }
}

impl fmt::Display for SortKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is none of a [`SortKey`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown sort key {0:?}")]
pub struct UnknownSortKey(pub String);

impl FromStr for SortKey {
    type Err = UnknownSortKey;

    fn from_str(name: &str) -> Result<SortKey, UnknownSortKey> {
        let name = if name == "symbol" { "sym" } else { name };
        let known = NAMED.iter().find(|(_, known)| *known == name);
        known.map(|(key, _)| *key).ok_or_else(|| UnknownSortKey(name.to_owned()))
    }
}
