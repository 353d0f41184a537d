//! The records that perf events write, and those that perf's tools add: one type, one file.
//!
//! A record is decoded in place: names, chains and raw bytes are borrowed, nothing is allocated.

mod aux;
mod bpf_event;
mod branch;
mod callchain;
mod cgroup;
mod comm;
mod header;
mod ksymbol;
mod layout;
mod lost;
mod misc_records;
mod mmap;
mod mmap2;
mod namespaces;
mod overlong;
mod read;
mod sample;
mod sample_id;
mod switch;
mod task;
mod text_poke;
mod throttle;
mod user;

pub use aux::{Aux, AuxOutputHwId, ItraceStart};
pub use bpf_event::BpfEvent;
pub use branch::{BranchEntry, BranchStack};
pub use callchain::{Callchain, CallchainDeferred};
pub use cgroup::Cgroup;
pub use comm::Comm;
pub use header::{RawRecord, RecordHeader, cpumode, kind, misc};
pub use ksymbol::Ksymbol;
pub use layout::Layout;
pub use lost::{Lost, LostSamples};
pub use misc_records::Unknown;
pub use mmap::Mmap;
pub use mmap2::{FileId, Mmap2};
pub use namespaces::{Namespace, Namespaces};
pub use overlong::append_repaired;
pub use read::{Read, ReadValue, ReadValues};
pub use sample::{Regs, Sample, StackUser};
pub use sample_id::SampleId;
pub use switch::{Switch, SwitchCpuWide};
pub use task::Task;
pub use text_poke::TextPoke;
pub use throttle::Throttle;
pub use user::UserRecord;

use crate::bytes::{Cursor, Out};
use crate::{Endian, Error, ErrorKind, Result};

/// The largest record in bytes: the size field has 16 bits and sizes are multiples of 8.
pub const MAX_RECORD: usize = 65528;

/// What each kernel record but SAMPLE does: its own fields stand between the header and the sample id.
trait Body<'a>: Sized {
    fn decode(c: &mut Cursor<'a>, misc: u16, id: SampleId) -> Result<Self>;
    fn encode(&self, out: &mut Out<'_>);
    fn misc(&self) -> u16;
    fn id(&self) -> &SampleId;
}

/// A decoded record.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
#[expect(clippy::large_enum_variant, reason = "samples are most of the records, and a box would be an allocation each")]
pub enum Record<'a> {
    /// 1: an executable map, without the file's identity.
    Mmap(Mmap<'a>),
    /// 2: records that found no room in the ring.
    Lost(Lost),
    /// 3: a thread's name.
    Comm(Comm<'a>),
    /// 4: a thread ended.
    Exit(Task),
    /// 5: an event was held back for sampling too often.
    Throttle(Throttle),
    /// 6: and let go again.
    Unthrottle(Throttle),
    /// 7: a thread began.
    Fork(Task),
    /// 8: a counter's value at a child's exit.
    Read(Read<'a>),
    /// 9: one overflow of an event.
    Sample(Sample<'a>),
    /// 10: a map with its file's identity.
    Mmap2(Mmap2<'a>),
    /// 11: bytes arrived in the AUX area.
    Aux(Aux),
    /// 12: hardware tracing began.
    ItraceStart(ItraceStart),
    /// 13: samples that were lost, in hardware or as a tool counted them.
    LostSamples(LostSamples),
    /// 14: a context switch of the task.
    Switch(Switch),
    /// 15: a context switch on the CPU.
    SwitchCpuWide(SwitchCpuWide),
    /// 16: the namespaces of a thread.
    Namespaces(Namespaces<'a>),
    /// 17: kernel text came or went.
    Ksymbol(Ksymbol<'a>),
    /// 18: a BPF program came or went.
    BpfEvent(BpfEvent),
    /// 19: a cgroup's path.
    Cgroup(Cgroup<'a>),
    /// 20: kernel text was changed in place.
    TextPoke(TextPoke<'a>),
    /// 21: which hardware id an AUX output event has.
    AuxOutputHwId(AuxOutputHwId),
    /// 22: the user part of an earlier callchain.
    CallchainDeferred(CallchainDeferred<'a>),
    /// 68: a pass over all rings ended here.
    FinishedRound,
    /// 64 and up: written by tools, not by the kernel.
    User(UserRecord<'a>),
    /// A kernel record that is not known here.
    Unknown(Unknown<'a>),
}

/// Decodes one record whose event has `layout`. Bytes after the last field of a SAMPLE are left alone: kernels leave junk
/// there.
///
/// # Errors
/// When a field does not fit into the record; the error names the field and its place.
pub fn decode<'a>(raw: &RawRecord<'a>, layout: &Layout) -> Result<Record<'a>> {
    let k = raw.header.kind;
    Ok(match k {
        kind::SAMPLE => Record::Sample(Sample::decode(raw, layout)?),
        kind::MMAP => Record::Mmap(body(raw, layout)?),
        kind::LOST => Record::Lost(body(raw, layout)?),
        kind::COMM => Record::Comm(body(raw, layout)?),
        kind::EXIT => Record::Exit(body(raw, layout)?),
        kind::THROTTLE => Record::Throttle(body(raw, layout)?),
        kind::UNTHROTTLE => Record::Unthrottle(body(raw, layout)?),
        kind::FORK => Record::Fork(body(raw, layout)?),
        kind::READ => Record::Read(Read::decode(raw, layout)?),
        kind::MMAP2 => Record::Mmap2(body(raw, layout)?),
        kind::AUX => Record::Aux(body(raw, layout)?),
        kind::ITRACE_START => Record::ItraceStart(body(raw, layout)?),
        kind::LOST_SAMPLES => Record::LostSamples(body(raw, layout)?),
        kind::SWITCH => Record::Switch(body(raw, layout)?),
        kind::SWITCH_CPU_WIDE => Record::SwitchCpuWide(body(raw, layout)?),
        kind::NAMESPACES => Record::Namespaces(body(raw, layout)?),
        kind::KSYMBOL => Record::Ksymbol(body(raw, layout)?),
        kind::BPF_EVENT => Record::BpfEvent(body(raw, layout)?),
        kind::CGROUP => Record::Cgroup(body(raw, layout)?),
        kind::TEXT_POKE => Record::TextPoke(body(raw, layout)?),
        kind::AUX_OUTPUT_HW_ID => Record::AuxOutputHwId(body(raw, layout)?),
        kind::CALLCHAIN_DEFERRED => Record::CallchainDeferred(body(raw, layout)?),
        kind::FINISHED_ROUND => Record::FinishedRound,
        kind::FIRST_USER.. => Record::User(UserRecord { kind: k, misc: raw.header.misc, body: raw.body() }),
        _ => Record::Unknown(Unknown { kind: k, misc: raw.header.misc, body: raw.body() }),
    })
}

/// Splits the sample id off the end, then decodes what is left.
fn body<'a, B: Body<'a>>(raw: &RawRecord<'a>, layout: &Layout) -> Result<B> {
    let (bytes, id) = SampleId::split(raw, layout)?;
    B::decode(&mut Cursor::new(bytes, raw.offset + RecordHeader::SIZE as u64, layout.endian), raw.header.misc, id)
}

impl Record<'_> {
    /// Appends the record, header included, in the layout's byte order and with its sample id.
    ///
    /// A field that the layout asks for and the record lacks is written as 0, as perf does for records it makes up.
    ///
    /// # Errors
    /// [`ErrorKind::TooLong`] when the record would be larger than 65,528 bytes; nothing is appended then.
    pub fn encode(&self, layout: &Layout, out: &mut Vec<u8>) -> Result<()> {
        use Record as R;
        match self {
            R::Mmap(b) => put(kind::MMAP, b, layout, out),
            R::Lost(b) => put(kind::LOST, b, layout, out),
            R::Comm(b) => put(kind::COMM, b, layout, out),
            R::Exit(b) => put(kind::EXIT, b, layout, out),
            R::Throttle(b) => put(kind::THROTTLE, b, layout, out),
            R::Unthrottle(b) => put(kind::UNTHROTTLE, b, layout, out),
            R::Fork(b) => put(kind::FORK, b, layout, out),
            R::Read(b) => framed(kind::READ, b.misc, layout.endian, out, |o| b.encode(layout, o)),
            R::Sample(b) => framed(kind::SAMPLE, b.misc, layout.endian, out, |o| b.encode(layout, o)),
            R::Mmap2(b) => put(kind::MMAP2, b, layout, out),
            R::Aux(b) => put(kind::AUX, b, layout, out),
            R::ItraceStart(b) => put(kind::ITRACE_START, b, layout, out),
            R::LostSamples(b) => put(kind::LOST_SAMPLES, b, layout, out),
            R::Switch(b) => put(kind::SWITCH, b, layout, out),
            R::SwitchCpuWide(b) => put(kind::SWITCH_CPU_WIDE, b, layout, out),
            R::Namespaces(b) => put(kind::NAMESPACES, b, layout, out),
            R::Ksymbol(b) => put(kind::KSYMBOL, b, layout, out),
            R::BpfEvent(b) => put(kind::BPF_EVENT, b, layout, out),
            R::Cgroup(b) => put(kind::CGROUP, b, layout, out),
            R::TextPoke(b) => put(kind::TEXT_POKE, b, layout, out),
            R::AuxOutputHwId(b) => put(kind::AUX_OUTPUT_HW_ID, b, layout, out),
            R::CallchainDeferred(b) => put(kind::CALLCHAIN_DEFERRED, b, layout, out),
            R::FinishedRound => framed(kind::FINISHED_ROUND, 0, layout.endian, out, |_| ()),
            R::User(b) => framed(b.kind, b.misc, layout.endian, out, |o| o.bytes(b.body)),
            R::Unknown(b) => framed(b.kind, b.misc, layout.endian, out, |o| o.bytes(b.body)),
        }
    }

    /// The sample id, of the records that have one. A SAMPLE's own fields are gathered into one.
    pub fn sample_id(&self) -> Option<SampleId> {
        use Record as R;
        Some(match self {
            R::Mmap(b) => b.id,
            R::Lost(b) => b.id,
            R::Comm(b) => b.id,
            R::Exit(b) | R::Fork(b) => b.id,
            R::Throttle(b) | R::Unthrottle(b) => b.id,
            R::Read(b) => b.id,
            R::Sample(b) => b.sample_id(),
            R::Mmap2(b) => b.id,
            R::Aux(b) => b.id,
            R::ItraceStart(b) => b.id,
            R::LostSamples(b) => b.id,
            R::Switch(b) => b.id,
            R::SwitchCpuWide(b) => b.id,
            R::Namespaces(b) => b.id,
            R::Ksymbol(b) => b.id,
            R::BpfEvent(b) => b.id,
            R::Cgroup(b) => b.id,
            R::TextPoke(b) => b.id,
            R::AuxOutputHwId(b) => b.id,
            R::CallchainDeferred(b) => b.id,
            R::FinishedRound | R::User(_) | R::Unknown(_) => return None,
        })
    }

    /// The record's time on its events' clock in ns, where it carries one.
    pub fn time(&self) -> Option<u64> {
        self.sample_id()?.time
    }
}

fn put<'a, B: Body<'a>>(kind: u32, body: &B, layout: &Layout, out: &mut Vec<u8>) -> Result<()> {
    framed(kind, body.misc(), layout.endian, out, |o| {
        let start = o.buf.len();
        body.encode(o);
        o.pad(start, 8);
        body.id().encode(layout, o);
    })
}

/// Writes a header, lets `fill` write the body, and puts the size into the header.
pub(crate) fn framed(
    kind: u32,
    misc: u16,
    endian: Endian,
    out: &mut Vec<u8>,
    fill: impl FnOnce(&mut Out<'_>),
) -> Result<()> {
    let start = out.len();
    let mut o = Out { buf: out, endian };
    o.u32(kind);
    o.u16(misc);
    o.u16(0);
    fill(&mut o);
    let size = out.len() - start;
    match u16::try_from(size) {
        Ok(size16) if size <= MAX_RECORD => {
            out[start + 6..start + 8].copy_from_slice(&endian.put_u16(size16));
            Ok(())
        }
        _ => {
            out.truncate(start);
            Err(Error::new(ErrorKind::TooLong, format!("record {kind} of {size} bytes")))
        }
    }
}
