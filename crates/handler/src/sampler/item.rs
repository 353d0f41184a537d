//! What is in the rings.

use std::borrow::Cow;
use std::fmt;

use afterimage_perf_data::btf::{Types, Unreadable, Value};
use afterimage_perf_data::record::{Record, kind};
use afterimage_perf_data::{
    AiHdr, EmitPayload, Endian, Error, LabelPayload, Layout, RawRecord, RecordHeader, Sample, ValuePayload, decode,
};

/// One thing that came of a sample.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
#[expect(clippy::large_enum_variant, reason = "there is one at a time, and it is not moved")]
pub enum Item<'a> {
    /// The ordinary sample: the handler let it chain, or there is none.
    Sample(Sample<'a>),
    /// A sample in short form, by the built-in handler `emit`.
    Emit(EmitPayload<'a>),
    /// What a handler of an object wrote by `ai_emit`.
    Value {
        /// Which sample and handler it is of.
        hdr: AiHdr,
        /// The value by its type in the object, or why it cannot be read.
        value: Result<Value<'a>, Unreadable>,
    },
    /// What one said of a sample by `ai_label`.
    Label {
        /// Which sample and handler it is of.
        hdr: AiHdr,
        /// The label's name.
        name: Cow<'a, str>,
        /// Its value by its type in the object, or why it cannot be read.
        value: Result<Value<'a>, Unreadable>,
    },
}

impl<'a> Item<'a> {
    /// Reads a record of one of our rings; `None` for one that tells of losses or throttling, which counters know too.
    pub(super) fn of(bytes: &'a [u8], layout: &Layout, types: &[(u16, Types<'a>)]) -> Result<Option<Item<'a>>, Error> {
        let Some(header) = bytes.first_chunk::<8>().map(|header| RecordHeader::decode(*header, Endian::NATIVE)) else {
            return Ok(None);
        };
        if header.kind != kind::SAMPLE {
            return Ok(None);
        }
        let Record::Sample(sample) = decode(&RawRecord { header, bytes, offset: 0 }, layout)? else { return Ok(None) };
        let Some(raw) = sample.raw else { return Ok(Some(Item::Sample(sample))) };
        let typed = |hdr: AiHdr, type_id: u32, bytes: &[u8]| {
            let of = types.iter().find(|(id, _)| *id == hdr.handler).map(|(_, types)| types);
            of.ok_or(Unreadable::NoTypes)?.values(type_id, bytes)
        };
        Ok(Some(match AiHdr::decode(raw)?.kind {
            AiHdr::VALUE => {
                let ValuePayload { hdr, type_id, bytes } = ValuePayload::decode(raw)?;
                Item::Value { hdr, value: typed(hdr, type_id, bytes) }
            }
            AiHdr::LABEL => {
                let label = LabelPayload::decode(raw)?;
                Item::Label { hdr: label.hdr, name: label.name(), value: typed(label.hdr, label.type_id, label.bytes) }
            }
            _ => Item::Emit(EmitPayload::decode(raw)?),
        }))
    }

    /// Where the sample was taken.
    pub fn ip(&self) -> u64 {
        match self {
            Item::Sample(sample) => sample.ip.unwrap_or(0),
            Item::Emit(EmitPayload { hdr, .. }) | Item::Value { hdr, .. } | Item::Label { hdr, .. } => hdr.ip,
        }
    }

    /// When, in ns of CLOCK_MONOTONIC; 0 where the kernel tells a handler no time.
    pub fn time(&self) -> u64 {
        match self {
            Item::Sample(sample) => sample.time.unwrap_or(0),
            Item::Emit(EmitPayload { hdr, .. }) | Item::Value { hdr, .. } | Item::Label { hdr, .. } => hdr.time,
        }
    }

    /// On which CPU.
    pub fn cpu(&self) -> u32 {
        match self {
            Item::Sample(sample) => sample.cpu.unwrap_or(0),
            Item::Emit(EmitPayload { hdr, .. }) | Item::Value { hdr, .. } | Item::Label { hdr, .. } => hdr.cpu,
        }
    }

    /// In which thread; `None` of values and labels, which name it if the handler wrote it.
    pub fn tid(&self) -> Option<u32> {
        match self {
            Item::Sample(sample) => sample.tid,
            Item::Emit(emit) => Some(emit.tid),
            Item::Value { .. } | Item::Label { .. } => None,
        }
    }

    /// The value of a label of this name.
    pub fn label(&self, wanted: &str) -> Option<&Value<'a>> {
        match self {
            Item::Label { name, value: Ok(value), .. } if name == wanted => Some(value),
            _ => None,
        }
    }
}

/// One line: time in seconds, CPU, address, and what there is to say.
impl fmt::Display for Item<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, micros) = (self.time() / 1_000_000_000, self.time() / 1000 % 1_000_000);
        write!(f, "{seconds}.{micros:06} [{:03}] {:#018x} ", self.cpu(), self.ip())?;
        let read = |f: &mut fmt::Formatter<'_>, value: &Result<Value<'_>, Unreadable>| match value {
            Ok(value) => write!(f, "{value}"),
            Err(reason) => write!(f, "<{reason}>"),
        };
        match self {
            Item::Sample(sample) => write!(f, "sample of thread {}", sample.tid.unwrap_or(0)),
            Item::Emit(emit) => {
                write!(f, "emitted of thread {}", emit.tid)?;
                if emit.callchain.is_empty() { Ok(()) } else { write!(f, ", stack of {}", emit.callchain.len()) }
            }
            Item::Value { value, .. } => read(f, value),
            Item::Label { name, value, .. } => {
                write!(f, "{name}=")?;
                read(f, value)
            }
        }
    }
}
