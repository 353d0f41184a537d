//! One cell of the table: a value of a sort key as perf writes it.

use std::fmt::{self, Write as _};

use afterimage_profile::{Key, Reason, Row, SortKey};

use super::columns::TraceColumns;
use crate::terminal::clean;
use crate::texts::label;

/// The title of a key's column, as perf has it. Labels and fields have their own.
pub(super) fn title(key: SortKey) -> &'static str {
    match key {
        SortKey::Comm => "Command",
        SortKey::Dso => "Shared Object",
        SortKey::Sym => "Symbol",
        SortKey::Srcline => "Source:Line",
        SortKey::Srcfile => "Source File",
        SortKey::SymbolSize => "Symbol size",
        SortKey::DsoSize => "DSO size",
        SortKey::Text => "Text",
        SortKey::Pid => "    Pid:Command",
        SortKey::Tid => "    Tid:Command",
        SortKey::Cpu => "CPU",
        SortKey::Socket => "Socket",
        SortKey::Event => "Event",
        SortKey::Cgroup => "Cgroup",
        SortKey::Container => "Container",
        SortKey::NsPid => "NsPid",
        SortKey::CgroupId => "cgroup id (dev/inode)",
        SortKey::Weight => "Weight",
        SortKey::LocalWeight => "Local Weight",
        SortKey::InsLat => "INSTR Latency",
        SortKey::LocalInsLat => "Local INSTR Latency",
        SortKey::Mem => "Memory access",
        SortKey::Snoop => "Snoop",
        SortKey::Tlb => "TLB access",
        SortKey::Locked => "Locked",
        SortKey::Blocked => "Blocked",
        SortKey::SymbolDaddr => "Data Symbol",
        SortKey::DsoDaddr => "Data Object",
        SortKey::PhysDaddr => "Data Physical Address",
        SortKey::Dcacheline => "Data Cacheline",
        SortKey::DataPageSize => "Data Page Size",
        SortKey::CodePageSize => "Code Page Size",
        SortKey::Transaction => "Transaction",
        SortKey::Addr => "Address",
        SortKey::Time => "Time",
        SortKey::Parent => "Parent symbol",
        SortKey::SymbolFrom => "Source Symbol",
        SortKey::SymbolTo => "Target Symbol",
        SortKey::DsoFrom => "Source Shared Object",
        SortKey::DsoTo => "Target Shared Object",
        SortKey::AddrFrom => "Source Address",
        SortKey::AddrTo => "Target Address",
        SortKey::SrclineFrom => "From Source:Line",
        SortKey::SrclineTo => "To Source:Line",
        SortKey::Mispredict => "Branch Mispredicted",
        SortKey::InTx => "Branch in transaction",
        SortKey::Abort => "Transaction abort",
        SortKey::Cycles => "Basic Block Cycles",
        SortKey::Label(_) => "Label",
        SortKey::Column(_) => "Trace output",
    }
}

/// Appends a value.
pub(super) fn cell(to: &mut String, key: &Key, row: &Row, columns: &TraceColumns) -> fmt::Result {
    match key {
        Key::Comm(name) | Key::Event(name) | Key::Cgroup(name) => to.write_str(&clean(name)),
        Key::Dso(dso) => to.write_str(&clean(&dso.short)),
        Key::Sym(frame) => write!(to, "[{}] {}", frame.level(), clean(&frame.name())),
        // As perf writes them.
        Key::Line(SortKey::Srcfile, line) => to.write_str(&clean(line.as_ref().map_or("", |line| line.file_name()))),
        Key::Srcline(None) | Key::Line(_, None) => to.write_str("??:0"),
        Key::Line(_, Some(line)) => to.write_str(&clean(&line.to_string())),
        Key::Srcline(Some(line)) => to.write_str(&clean(&line.to_string())),
        Key::Text(None) => to.write_str("-"),
        Key::Text(Some(text)) => to.write_str(&clean(&label(text))),
        Key::Pid(id, comm) | Key::Tid(id, comm) => write!(to, "{id:>7}:{}", clean(comm)),
        Key::Cpu(Some(cpu)) => write!(to, "{cpu:03}"),
        Key::Cpu(None) => to.write_str("-"),
        Key::Label(_, None) => to.write_str("(none)"),
        Key::Label(_, Some(value)) => to.write_str(&clean(&value.text)),
        Key::Container(None) => to.write_str("-"),
        Key::Container(Some(container)) => to.write_str(&clean(&container.to_string())),
        Key::CgroupId(id) => {
            let (dev, ino) = id.unwrap_or((0, 0));
            write!(to, "{dev}/{ino:#x}")
        }
        Key::Number(SortKey::Cycles, None) => to.write_str("-"),
        Key::Number(SortKey::SymbolSize | SortKey::DsoSize, None) => to.write_str("unknown"),
        Key::Number(_, None) | Key::Source(_, None) | Key::Flag(_, None) => to.write_str("N/A"),
        Key::Number(key, Some(number)) => self::number(to, *key, *number, row),
        Key::Source(SortKey::Mem, Some(source)) => write!(to, "{}", source.level()),
        Key::Source(SortKey::Snoop, Some(source)) => write!(to, "{}", source.snoop()),
        Key::Source(SortKey::Tlb, Some(source)) => write!(to, "{}", source.translation()),
        Key::Source(SortKey::Locked, Some(source)) => to.write_str(source.locked()),
        Key::Source(_, Some(source)) => to.write_str(source.blocked().trim_start()),
        Key::Place(_, None) => to.write_str("[unknown]"),
        // As perf marks what belongs to nothing.
        Key::Place(SortKey::Dcacheline, Some((frame, _))) if frame.symbol == Err(Reason::NoMapping) => {
            write!(to, "[X] {:#018x}", frame.addr)
        }
        Key::Place(SortKey::DsoDaddr, Some((frame, _))) => to.write_str(&clean(frame.data_object())),
        Key::Place(SortKey::DsoFrom | SortKey::DsoTo, Some((frame, _))) => to.write_str(&clean(&frame.dso.short)),
        Key::Place(_, Some((frame, addr))) => match (addr, &frame.symbol) {
            // Addresses show how far into the symbol they are, those of data without one themselves.
            (Some(_), Ok(name)) => write!(to, "[{}] {}+{:#x}", frame.level(), clean(name), frame.offset),
            (Some(addr), Err(_)) if matches!(key, Key::Place(SortKey::SymbolDaddr | SortKey::Dcacheline, _)) => {
                write!(to, "[{}] {addr:#018x}", frame.level())
            }
            _ => write!(to, "[{}] {}", frame.level(), clean(&frame.name())),
        },
        Key::Flag(SortKey::Mispredict, Some(wrong)) => to.write_str(if *wrong { "Y" } else { "N" }),
        Key::Flag(SortKey::InTx, Some(in_it)) => to.write_str(if *in_it { "T" } else { "." }),
        Key::Flag(_, Some(aborts)) => to.write_str(if *aborts { "A" } else { "." }),
        Key::Parent(parent) => match parent.as_ref().map(|frame| frame.name()) {
            Some(name) => to.write_str(&clean(&name)),
            None => to.write_str("[other]"),
        },
        Key::Column(nth, value) => match value.and_then(|value| columns.text(*nth, value)) {
            Some(text) => to.write_str(&clean(text)),
            None => to.write_str("N/A"),
        },
    }
}

fn number(to: &mut String, key: SortKey, number: u64, row: &Row) -> fmt::Result {
    match key {
        // Of all samples of the row, each of which has this much.
        SortKey::Weight | SortKey::InsLat => write!(to, "{}", number.saturating_mul(row.own.records)),
        SortKey::Addr => write!(to, "{number:#x}"),
        SortKey::PhysDaddr => write!(to, "{number:#018x}"),
        SortKey::Time => write!(to, "{}.{:06}", number / 1_000_000_000, number % 1_000_000_000 / 1000),
        SortKey::DataPageSize | SortKey::CodePageSize => page_size(to, number),
        SortKey::Socket => write!(to, "{number:03}"),
        SortKey::Transaction => transaction(to, number),
        _ => write!(to, "{number}"),
    }
}

/// What a transaction ended with, in perf's words (`PERF_TXN_*`, linux/perf_event.h): nothing where there was none.
pub(super) fn transaction(to: &mut String, flags: u64) -> fmt::Result {
    const WORDS: [&str; 8] = ["EL", "TX", "SYNC", "ASYNC", "RETRY", "CON", "CAP-WRITE", "CAP-READ"];
    const SYNC_OR_ASYNC: u64 = 1 << 2 | 1 << 3;
    let set = WORDS.iter().enumerate().filter(|(bit, _)| flags >> bit & 1 == 1).map(|(_, word)| *word);
    let neither = (flags != 0 && flags & SYNC_OR_ASYNC == 0).then_some("NEITHER");
    for word in set.chain(neither) {
        write!(to, "{word} ")?;
    }
    match flags >> 32 {
        0 => Ok(()),
        code => write!(to, ":{code:x}"),
    }
}

/// A size in the largest unit of which it is more than one, as perf writes it.
fn page_size(to: &mut String, size: u64) -> fmt::Result {
    let (mut number, mut unit) = (size, 0);
    while number / 1024 > 1 && unit < 3 {
        number /= 1024;
        unit += 1;
    }
    match size {
        0 => to.write_str("N/A"),
        _ => write!(to, "{number}{}", ["B", "K", "M", "G"][unit]),
    }
}
