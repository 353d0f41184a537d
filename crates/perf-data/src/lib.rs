//! What perf records and perf.data files are: decode, encode, container, features.
//!
//! The crate is pure: its input is a byte slice, its output a `Vec<u8>` or a `Write`. Nothing in it trusts a length,
//! an offset or a count that it reads: each is compared with the bytes that are there before anything is done with it.
//!
//! - [`record`]: one record type per file, [`record::decode`] and [`record::Record::encode`].
//! - [`attr`]: `struct perf_event_attr` and its bits.
//! - [`reader`], [`writer`], [`pipe`], [`stream`]: the containers; [`Source`]: records as they come. [`features`]: what stands around the records.
//! - [`btf`]: types of what handlers write, and values of these types.
//! - [`private`], [`journal`], [`tally`], [`texts`], [`handler_record`]: what the recordings of this profiler hold beyond perf's;
//!   `docs/format.md` is their description.
#![forbid(unsafe_code)]

mod again;
pub mod attr;
pub mod btf;
mod build_id;
mod bytes;
mod compressed;
pub mod context;
mod counted;
mod data_src;
mod endian;
mod error;
pub mod event;
pub mod features;
#[doc(hidden)]
pub mod fuzzing;
pub mod handler_record;
mod header;
mod jit;
pub mod journal;
pub mod off_cpu;
pub mod pipe;
pub mod private;
pub mod reader;
pub mod record;
mod records;
mod regs;
mod resync;
mod source;
pub mod stream;
mod table;
pub mod tally;
pub mod texts;
mod unwritten;
pub mod writer;

pub use attr::{Attr, AttrFlags, ReadFormat, SampleType};
pub use build_id::BuildId;
pub use bytes::Words;
pub use counted::CountedSamples;
pub use data_src::DataSrc;
pub use endian::Endian;
pub use error::{Error, ErrorKind, Result};
pub use event::EventDesc;
pub use features::Features;
pub use handler_record::{AiHdr, EmitPayload, LabelPayload, ValuePayload};
pub use jit::JitPiece;
pub use off_cpu::{OffCpuTally, Unit};
pub use pipe::PipeWriter;
pub use private::{ArchiveDesc, GateDesc, HandlerDesc, HandlerTypes, NestedPid, Private, TrueCounts, WayDesc};
pub use reader::FileReader;
pub use record::{Callchain, Layout, RawRecord, Record, RecordHeader, Sample, SampleId, decode};
pub use records::Records;
pub use regs::Registers;
pub use source::{AnySource, Behind, FileSource, PackedCounts, PartsSource, Source};
pub use stream::RecordStream;
pub use table::EventTable;
pub use tally::{EventTally, RecordingTally, Tally};
pub use texts::{ImageId, ImageUse, TextDesc};
pub use writer::FileWriter;
