//! Where records go on after bytes that are none.
//!
//! A record has no mark to know it by: a small number for its type, some bits, its size. So a place counts as the start
//! of a record when what stands there can be one of this recording's (a known type, a size that its fields fit into, an
//! id of an event, numbers of processes and CPUs that a kernel gives out), and when so can what follows it, several times
//! over or up to the very end.

use crate::SampleType;
use crate::record::{RawRecord, Record, RecordHeader, cpumode, kind};
use crate::records::bytes_behind;
use crate::table::EventTable;

/// Records in a row that make a place the start of one.
const ENOUGH: usize = 4;

/// Bytes that hold that many records, whatever their sizes.
pub(crate) const LOOK_AHEAD: usize = (ENOUGH + 1) << 16;

/// Places are tried in pieces of so many bytes: first those that are a multiple of 8 bytes away, then the others, which
/// occur only behind records of tools that are not padded.
const PIECE: usize = 64 << 10;

/// Times that are further apart than this, in ns (about 20 hours), do not follow each other.
const MOST_APART: u64 = 1 << 46;

/// The largest process number a kernel gives out (`PID_MAX_LIMIT`).
const MOST_PID: u32 = 1 << 22;

/// More CPUs than any machine has.
const MOST_CPUS: u32 = 1 << 16;

/// Whether kernels or tools write records of this type.
#[inline]
pub(crate) fn is_known(kind: u32) -> bool {
    kind.wrapping_sub(1) < kind::CALLCHAIN_DEFERRED || kind.wrapping_sub(kind::FIRST_USER) < kind::KNOWN_USER
}

/// Whether a type that is not known may be one of a newer kernel or of another tool: their numbers are small.
fn may_be_newer(kind: u32) -> bool {
    let of_kernels = kind::CALLCHAIN_DEFERRED + 1..kind::FIRST_USER;
    let of_tools = kind::FIRST_USER + kind::KNOWN_USER..128;
    of_kernels.contains(&kind) || of_tools.contains(&kind) || kind::SIMPLEPERF.contains(&kind)
}

/// Whether a record of a type that nobody knows may be one of another writer's: what stands behind it, at `offset`, is a row
/// of records, or the records end there. Unless `ends`, there have to be [`LOOK_AHEAD`] bytes.
pub(crate) fn may_be_private(raw: &RawRecord<'_>, behind: &[u8], offset: u64, ends: bool, table: &EventTable) -> bool {
    let kind = raw.header.kind;
    kind != 0
        && (ends && behind.is_empty() || row_begins(table, behind, 0, offset, ends, Some(kind)))
        && !hides_records(raw, table)
}

/// Records of the kernel are larger than this only with pieces of stacks or of data in them: a path has 4,096 bytes at most.
const LARGE: usize = 4096 + 512;

/// Whether the size of a record is a lie that can be seen: it has room for records that stand where it ought to end.
#[inline]
pub(crate) fn is_too_large(raw: &RawRecord<'_>, table: &EventTable) -> bool {
    match raw.header.kind {
        kind::FINISHED_ROUND | kind::FINISHED_INIT => raw.bytes.len() > RecordHeader::SIZE,
        _ => raw.bytes.len() > LARGE && !may_be_large(raw, table) && hides_records(raw, table),
    }
}

/// Whether records of this kind and event hold data of any size.
#[cold]
fn may_be_large(raw: &RawRecord<'_>, table: &EventTable) -> bool {
    let large = SampleType::RAW | SampleType::STACK_USER | SampleType::AUX;
    match raw.header.kind {
        kind::COMPRESSED | kind::COMPRESSED2 => true,
        kind::SAMPLE => {
            let layout = table.event_for(raw).and_then(|event| table.layout(event));
            layout.is_none_or(|layout| layout.sample_type.intersects(large))
        }
        _ => false,
    }
}

/// Whether a row of records stands within what says that it is one record.
#[cold]
pub(crate) fn hides_records(raw: &RawRecord<'_>, table: &EventTable) -> bool {
    let mut places = (RecordHeader::SIZE..raw.bytes.len()).step_by(8);
    places.any(|at| row_begins(table, raw.bytes, at, raw.offset, false, None))
}

/// How many bytes behind the start of `bytes` the first record stands, at least one. `ends`: nothing follows `bytes`;
/// else the last [`LOOK_AHEAD`] of them are for looking ahead alone.
pub(crate) fn find(table: &EventTable, bytes: &[u8], offset: u64, ends: bool) -> Option<usize> {
    let until = if ends { bytes.len() } else { bytes.len().saturating_sub(LOOK_AHEAD) };
    let fits = |at: &usize| row_begins(table, bytes, *at, offset, ends, None);
    let mut from = 0;
    while from < until {
        let to = (from + PIECE).min(until);
        let aligned = (from.max(RecordHeader::SIZE)..to).step_by(8).find(fits);
        let any = || (from.max(1)..to).filter(|at| at % 8 != 0).find(fits);
        if let Some(at) = aligned.or_else(any) {
            return Some(at);
        }
        from = to;
    }
    None
}

/// Whether a row of records begins at `at`; with `strange`, those of that type and of [newer](may_be_newer) ones may be among
/// them, and a row that goes on further than [`LOOK_AHEAD`] is one, so that a file and a stream are read alike.
fn row_begins(table: &EventTable, bytes: &[u8], mut at: usize, offset: u64, ends: bool, strange: Option<u32>) -> bool {
    let may_be = |kind: u32| strange.is_some_and(|own| kind == own || may_be_newer(kind));
    let until = if strange.is_some() { at.saturating_add(LOOK_AHEAD) } else { usize::MAX };
    let mut row = 0;
    let mut time = None;
    while row < ENOUGH {
        if at > until {
            // Behind data of any size: what stands there cannot be seen in a stream.
            return true;
        }
        let rest = bytes.get(at..).unwrap_or_default();
        let Some(head) = rest.first_chunk::<8>() else {
            // Up to the end: any record will do, for there is nothing left that could speak against it.
            return row > 0 && ends && rest.is_empty();
        };
        let header = RecordHeader::decode(*head, table.endian());
        let known = is_known(header.kind);
        if header.bytes() < RecordHeader::SIZE || !known && !may_be(header.kind) {
            // There may be several strangers.
            return strange.is_some() && row > 1;
        }
        if at.saturating_add(header.bytes()) > until {
            return true;
        }
        if rest.len() < header.bytes() {
            // The last record of a file that was cut.
            return row > 1 && ends;
        }
        let Ok(raw) = RawRecord::parse(rest, offset + at as u64, table.endian()) else { return false };
        if known && !is_likely(table, &raw, &mut time) {
            return false;
        }
        at = at.saturating_add(raw.bytes.len()).saturating_add(behind_it(&raw, table));
        row += 1;
    }
    true
}

/// Bytes that follow a record without being one.
fn behind_it(raw: &RawRecord<'_>, table: &EventTable) -> usize {
    usize::try_from(bytes_behind(raw, table.endian())).unwrap_or(usize::MAX)
}

/// Whether a record can be one of this recording's, and its time one that follows `before`.
fn is_likely(table: &EventTable, raw: &RawRecord<'_>, before: &mut Option<u64>) -> bool {
    let header = raw.header;
    if header.kind >= kind::FIRST_USER {
        return match header.kind {
            kind::FINISHED_ROUND | kind::FINISHED_INIT => raw.body().is_empty(),
            _ => !raw.body().is_empty(),
        };
    }
    if header.size % 8 != 0 || header.cpumode() > cpumode::GUEST_USER || table.event_for(raw).is_none() {
        return false;
    }
    let Ok(record) = table.decode(raw) else { return false };
    let Some(id) = record.sample_id() else { return false };
    let pid_fits = |pid: Option<u32>| pid.is_none_or(|pid| pid <= MOST_PID || pid == u32::MAX);
    let cpu_fits = id.cpu.is_none_or(|cpu| cpu < MOST_CPUS || cpu == u32::MAX);
    if !pid_fits(id.pid) || !pid_fits(id.tid) || !cpu_fits || !own_pid(&record).is_none_or(|pid| pid_fits(Some(pid))) {
        return false;
    }
    let Some(time) = id.time.filter(|time| *time != 0 && *time != u64::MAX) else { return true };
    let follows = before.is_none_or(|before| before.abs_diff(time) < MOST_APART);
    *before = Some(time);
    follows
}

/// The process that a record speaks of, beside the one in whose name it was written.
fn own_pid(record: &Record<'_>) -> Option<u32> {
    match record {
        Record::Mmap(map) => Some(map.pid),
        Record::Mmap2(map) => Some(map.pid),
        Record::Comm(comm) => Some(comm.pid),
        Record::Fork(task) | Record::Exit(task) => Some(task.pid),
        _ => None,
    }
}
