//! The private section (feature bit 200): what perf's format has no place for. `docs/format.md` describes it.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::bytes::{Cursor, Out};
use crate::features::{BpfBtf, BpfProgInfo};
use crate::journal::PackedEntry;
use crate::texts::{self, ImageId, TextDesc};
use crate::{Endian, Error, ErrorKind, JitPiece, RecordingTally, Result};

/// The feature bit. Never trusted alone: the section must begin with [`MAGIC`].
pub const FEATURE_BIT: u32 = 200;
/// The first eight bytes of the section.
pub const MAGIC: [u8; 8] = *b"AFTERIMG";
/// The version that this code writes.
pub const VERSION: u32 = 1;
/// The most bytes that one compressed entry may have when unpacked.
const UNPACKED_MAX: u64 = 256 << 20;
/// Entries of at least this many bytes are compressed when that makes them smaller.
const PACK_FROM: usize = 4096;

/// Kinds of entries.
pub mod entry {
    /// JSON of a [`crate::RecordingTally`].
    pub const TALLY: u32 = 1;
    /// JSON of an array of [`crate::HandlerDesc`].
    pub const HANDLERS: u32 = 2;
    /// JSON of an array of [`crate::TextDesc`].
    pub const TEXTS: u32 = 3;
    /// Images of texts, see [`crate::Private::images`].
    pub const IMAGES: u32 = 4;
    /// Counts of one event's samples, see [`crate::TrueCounts`].
    pub const TRUE_COUNTS: u32 = 5;
    /// Names of kernel symbols, see [`crate::Private::kernel_symbols`].
    pub const KERNEL_SYMBOLS: u32 = 6;
    /// One BPF program as in BPF_PROG_INFO, see [`crate::Private::programs`].
    pub const PROGRAM: u32 = 7;
    /// Types of one BPF program as in BPF_BTF, see [`crate::Private::program_types`].
    pub const PROGRAM_TYPES: u32 = 8;
    /// The BTF of one handler, see [`crate::private::HandlerTypes`].
    pub const HANDLER_TYPES: u32 = 9;
    /// JSON of an array of [`crate::private::GateDesc`].
    pub const GATES: u32 = 10;
    /// JSON of an array of [`crate::private::WayDesc`].
    pub const WAYS: u32 = 11;
    /// JSON of a [`crate::private::ArchiveDesc`].
    pub const ARCHIVE: u32 = 12;
    /// What is kept of one object, see [`crate::Private::objects`].
    pub const OBJECT: u32 = 13;
    /// What a JIT compiler told, see [`crate::JitPiece`].
    pub const JIT: u32 = 14;
    /// The unwind tables of one object, see [`crate::Private::tables`].
    pub const TABLES: u32 = 15;
    /// JSON of an array of [`crate::private::NestedPid`].
    pub const NESTED: u32 = 16;
}

/// Bits of an entry's flags.
pub mod flag {
    /// The bytes are one zstd frame.
    pub const ZSTD: u32 = 1;
}

/// What runs on an event's samples, and where it leaves them.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HandlerDesc {
    /// Index of the event in the file.
    pub event: usize,
    /// `none`, `emit`, `count`, or the name that a handler from an object goes by.
    pub name: String,
    /// Whether samples also go to the event's own ring.
    pub chain: bool,
    /// Index of the `bpf-output` or count event that holds the handler's own output.
    pub output_event: Option<usize>,
    /// How the handler reads the sample: `kfuncs` or `plain`.
    pub mechanism: String,
    /// The handler's number, as in [`crate::AiHdr::handler`]; 0 where it is not told.
    #[serde(default)]
    pub id: u16,
    /// The name of its program in the object; null for a built-in one.
    #[serde(default)]
    pub program: Option<String>,
    /// The path of the object as the user gave it; null for a built-in one.
    #[serde(default)]
    pub object: Option<String>,
    /// The kernel's tag of the loaded program, 16 hex digits.
    #[serde(default)]
    pub tag: Option<String>,
    /// The constants that the user set before the load, as written.
    #[serde(default)]
    pub set: BTreeMap<String, String>,
    /// The first generation that it ran in: of the pairs of gate and handler that a recording had one after the other, the
    /// number of the first with this handler. 0 in recordings that had one alone.
    #[serde(default)]
    pub generation: u32,
    /// With `count`: the id of those SAMPLEs of the event that are entries of its table, among which true counts are told.
    /// `None`: all of them are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entries_id: Option<u64>,
    /// The expression that a sample had to fulfil to get to the handler; left out where there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<String>,
}

impl HandlerDesc {
    /// Whether it is one that comes with the product, and not one from an object.
    pub fn is_built_in(&self) -> bool {
        self.object.is_none() && self.program.is_none() && self.id < Self::FIRST_FROM_OBJECT
    }

    /// The first number of a handler from an object.
    pub const FIRST_FROM_OBJECT: u16 = 16;
}

/// Which samples got to the handler from some time on.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GateDesc {
    /// The first generation with this gate: of the pairs of gate and handler that a recording had one after the other.
    pub generation: u32,
    /// When it was put in force, ns on the recording's clock. Samples of a later time may still have met the one before, on
    /// a CPU that was just taking one.
    pub since_ns: u64,
    /// The expression that a sample has to fulfil; null: from here on all of them got to the handler.
    pub expression: Option<String>,
}

/// Whether a way to keep kernel text that goes worked where it was recorded.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WayDesc {
    /// The way, as images name it.
    pub way: String,
    /// A part of what it covers, in words; left out for all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// Why it was not used; null where it was.
    pub missing: Option<String>,
}

/// By what number a process in a pid namespace of its own knows itself.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NestedPid {
    /// The process, by its number where the recorder was.
    pub pid: u32,
    /// From when on, ns on the recording's clock; 0: from before the recording.
    #[serde(default)]
    pub since_ns: u64,
    /// Its number for itself.
    pub own: u32,
    /// The inode of its pid namespace; 0 where it is the recorder's.
    #[serde(default)]
    pub namespace: u64,
}

/// That a recording holds what names it elsewhere, and who put that in.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ArchiveDesc {
    /// Who made the archive, with the version.
    pub tool: String,
    /// The recording was not finished when it was put in: what its header says now is no word of its recorder's.
    #[serde(default)]
    pub unfinished: bool,
}

/// The types of one handler's values and labels.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct HandlerTypes {
    /// The handler's number: [`HandlerDesc::id`].
    pub handler: u32,
    /// The `.BTF` section of its object as it is there, in the byte order of the machine that recorded.
    pub btf: Vec<u8>,
}

/// For how many samples each SAMPLE of an event stands: the `i`-th in file order stands for `counts[i]`. Where a handler
/// has an [`HandlerDesc::entries_id`] in this event, SAMPLEs with another id are not counted there and stand for one.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct TrueCounts {
    /// Index of the event in the file.
    pub event: usize,
    /// One number a SAMPLE.
    pub counts: Vec<u64>,
}

/// An entry of a kind that is not known here, unpacked.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct RawEntry {
    /// The kind.
    pub kind: u32,
    /// The bytes.
    pub data: Vec<u8>,
}

/// The contents of the private section.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Private {
    /// What became of every overflow.
    pub tally: Option<RecordingTally>,
    /// What ran on which event.
    pub handlers: Vec<HandlerDesc>,
    /// For how many samples each SAMPLE stands, one an event at most.
    pub true_counts: Vec<TrueCounts>,
    /// Those symbols of the recorded kernel and its modules that samples fell into, in the form of /proc/kallsyms: what
    /// names them on another machine. Empty where the recorder had none.
    pub kernel_symbols: Vec<u8>,
    /// Kernel texts by number, each once.
    pub texts: Vec<TextDesc>,
    /// The bytes that the texts' images name.
    pub images: BTreeMap<ImageId, Vec<u8>>,
    /// BPF programs. Only a journal has them here: a finished recording has them in BPF_PROG_INFO.
    pub programs: Vec<BpfProgInfo>,
    /// Types of BPF programs. Only a journal has them here: a finished recording has them in BPF_BTF.
    pub program_types: Vec<BpfBtf>,
    /// Types of what handlers from objects write, each handler once.
    pub handler_types: Vec<HandlerTypes>,
    /// The gates that a recording had one after the other; empty where it never had one.
    pub gates: Vec<GateDesc>,
    /// The ways to keep kernel text that were tried; empty where none was kept.
    pub ways: Vec<WayDesc>,
    /// Of an archive: who made it.
    pub archive: Option<ArchiveDesc>,
    /// Of an archive: for each object that samples fell into its names, code and lines, as the crate `symbols` encodes them.
    pub objects: Vec<Vec<u8>>,
    /// Of an archive with copied stacks: the unwind tables of objects that these lead through, as the crate `symbols` encodes them.
    pub tables: Vec<Vec<u8>>,
    /// Objects and tables that could not be unpacked, or are more than a section of its length should hold.
    pub lost_objects: u64,
    /// What JIT compilers told of their code, in the order in which it was read.
    pub jit: Vec<JitPiece>,
    /// Pieces of that which are damaged, or too many.
    pub lost_jit: u64,
    /// Processes in pid namespaces of their own. Empty where namespaces were not recorded: where they were, the recorder
    /// itself is among them.
    pub nested: Vec<NestedPid>,
    /// Entries that are not known here; written back as they are.
    pub other: Vec<RawEntry>,
}

/// Objects of an archive, and their tables, may have so many bytes for each byte of the section when they are unpacked, and in any
/// case [`OBJECTS_ANYWAY`] together: names, code and tables pack to a fifth, not to a hundredth.
const OBJECTS_RATIO: u64 = 64;
const OBJECTS_ANYWAY: u64 = 64 << 20;

/// All pieces of what JIT compilers told have so many bytes together, at most; a recorder keeps to half of it.
pub(crate) const JIT_BYTES: usize = 512 << 20;

impl Private {
    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The counts of one event.
    pub fn true_counts(&self, event: usize) -> Option<&[u64]> {
        self.true_counts.iter().find(|t| t.event == event).map(|t| t.counts.as_slice())
    }

    /// The id of those SAMPLEs of `event` that are entries of a count table; `None` where all of them are.
    pub fn entries_id(&self, event: usize) -> Option<u64> {
        let within = self.handlers.iter().filter(|h| h.event == event && h.output_event.is_none());
        within.filter_map(|handler| handler.entries_id).next()
    }

    /// The first handler on one event: the one that the recording began with.
    pub fn handler(&self, event: usize) -> Option<&HandlerDesc> {
        self.handlers_of(event).next()
    }

    /// The handlers on one event: the one that the recording began with, then those that were swapped in, each once.
    pub fn handlers_of(&self, event: usize) -> impl Iterator<Item = &HandlerDesc> {
        self.handlers.iter().filter(move |h| h.event == event)
    }

    /// The BTF of the handler with this number.
    pub fn types_of(&self, handler: u32) -> Option<&[u8]> {
        self.handler_types.iter().find(|t| t.handler == handler).map(|t| t.btf.as_slice())
    }

    /// Takes in one entry, unpacked: a later tally, list of handlers or of ways replaces the earlier one, the rest is appended.
    /// After the last one comes [`Private::settle`].
    pub(crate) fn apply(&mut self, kind: u32, data: &[u8]) -> Result<()> {
        match kind {
            entry::TALLY => self.tally = Some(json(data, "tally of the private section")?),
            entry::HANDLERS => self.handlers = json(data, "handlers of the private section")?,
            entry::TRUE_COUNTS => self.append_counts(decode_counts(data)?),
            entry::KERNEL_SYMBOLS => self.kernel_symbols.extend_from_slice(data),
            entry::TEXTS => {
                let more: Vec<TextDesc> = json(data, "texts of the private section")?;
                self.texts.extend(more);
            }
            entry::IMAGES => texts::decode_images(data, &mut self.images)?,
            entry::PROGRAM => self.programs.push(BpfProgInfo::decode_one(data)?),
            entry::PROGRAM_TYPES => self.program_types.push(BpfBtf::decode_one(data)?),
            entry::HANDLER_TYPES => self.handler_types.push(decode_types(data)?),
            entry::GATES => {
                let more: Vec<GateDesc> = json(data, "gates of the private section")?;
                self.gates.extend(more);
            }
            entry::WAYS => self.ways = json(data, "ways of the private section")?,
            entry::NESTED => {
                let more: Vec<NestedPid> = json(data, "processes of the private section")?;
                self.nested.extend(more);
            }
            entry::ARCHIVE => self.archive = Some(json(data, "archive entry of the private section")?),
            entry::OBJECT => self.objects.push(data.to_vec()),
            entry::JIT => self.take_jit(data, &mut { JIT_BYTES }),
            entry::TABLES => self.tables.push(data.to_vec()),
            kind => self.other.push(RawEntry { kind, data: data.to_vec() }),
        }
        Ok(())
    }

    /// Brings what several entries may have told into one form: texts by number, each program and its types once, and
    /// each handler's. Of several with the same number or id the last stays.
    pub(crate) fn settle(&mut self) {
        texts::settle(&mut self.texts);
        keep_last(&mut self.programs, BpfProgInfo::id);
        keep_last(&mut self.program_types, |types| types.id);
        keep_last(&mut self.handler_types, |types| types.handler);
        keep_last(&mut self.gates, |gate| gate.generation);
    }

    fn append_counts(&mut self, more: TrueCounts) {
        match self.true_counts.iter_mut().find(|t| t.event == more.event) {
            Some(have) => have.counts.extend(more.counts),
            None => self.true_counts.push(more),
        }
    }

    /// Reads a section whose first byte is at `offset` of the file.
    ///
    /// # Errors
    /// When the magic or the version is another, or an entry is damaged.
    pub fn decode(section: &[u8], offset: u64) -> Result<Self> {
        const W: &str = "private section";
        let mut c = Cursor::new(section, offset, Endian::Little);
        if c.bytes::<8>(W)? != MAGIC {
            return Err(Error::at(ErrorKind::BadValue, "magic of the private section", offset));
        }
        let version = c.u32(W)?;
        if version != VERSION {
            return Err(Error::at(ErrorKind::Unsupported, format!("private section of version {version}"), offset));
        }
        c.u32(W)?;
        let mut private = Self::default();
        let mut room = (section.len() as u64).saturating_mul(OBJECTS_RATIO).max(OBJECTS_ANYWAY);
        let mut jit_room = JIT_BYTES;
        while !c.rest().is_empty() {
            let (kind, flags, len) = (c.u32(W)?, c.u32(W)?, c.u64(W)?);
            let at = c.at();
            let data = c.take(len, W)?;
            // The padding of the last entry may be left out.
            let pad = (len.next_multiple_of(8) - len).min(c.rest().len() as u64);
            c.take(pad, W)?;
            if matches!(kind, entry::OBJECT | entry::TABLES) {
                private.take_object(kind, data, flags, at, &mut room);
                continue;
            }
            let data = unpack(data, flags, at)?;
            match kind {
                entry::JIT => private.take_jit(&data, &mut jit_room),
                kind => private.apply(kind, &data)?,
            }
        }
        private.settle();
        Ok(private)
    }

    /// Takes in what a JIT compiler told, as long as there is room. A damaged piece costs itself and no more.
    pub(crate) fn take_jit(&mut self, data: &[u8], room: &mut usize) {
        let len = data.len();
        match JitPiece::decode(data).ok().zip(room.checked_sub(len)) {
            Some((piece, left)) => {
                self.jit.push(piece);
                *room = left;
            }
            None => self.lost_jit += 1,
        }
    }

    /// Takes in an object as long as there is `room` for it. A damaged one costs itself and no more.
    fn take_object(&mut self, kind: u32, data: &[u8], flags: u32, at: u64, room: &mut u64) {
        let object = unpack_within(data, flags, at, (*room).min(UNPACKED_MAX));
        match object {
            Ok(object) => {
                *room = room.saturating_sub(object.len() as u64);
                let all = if kind == entry::OBJECT { &mut self.objects } else { &mut self.tables };
                all.push(object.into_owned());
            }
            Err(_) => self.lost_objects += 1,
        }
    }

    /// The section's bytes.
    ///
    /// # Errors
    /// When a name cannot be written as JSON.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        let mut o = Out { buf: &mut out, endian: Endian::Little };
        o.bytes(&MAGIC);
        o.u32(VERSION);
        o.u32(0);
        for (kind, data) in self.entries()? {
            let (flags, data) = pack(data);
            o.u32(kind);
            o.u32(flags);
            o.u64(data.len() as u64);
            o.bytes(&data);
            o.pad(0, 8);
        }
        Ok(out)
    }

    fn entries(&self) -> Result<Vec<(u32, Vec<u8>)>> {
        let mut entries = Vec::new();
        if let Some(tally) = &self.tally {
            entries.push((entry::TALLY, to_json(tally)?));
        }
        if !self.handlers.is_empty() {
            entries.push((entry::HANDLERS, to_json(&self.handlers)?));
        }
        entries.extend(self.true_counts.iter().map(|t| (entry::TRUE_COUNTS, encode_counts(t.event, &t.counts))));
        if !self.kernel_symbols.is_empty() {
            entries.push((entry::KERNEL_SYMBOLS, self.kernel_symbols.clone()));
        }
        for part in self.texts.chunks(texts::TEXTS_AN_ENTRY) {
            entries.push((entry::TEXTS, to_json(&part)?));
        }
        entries.extend(texts::image_entries(&self.images)?.into_iter().map(|data| (entry::IMAGES, data)));
        for program in &self.programs {
            entries.push((entry::PROGRAM, program.encode_one()?));
        }
        for types in &self.program_types {
            entries.push((entry::PROGRAM_TYPES, types.encode_one()?));
        }
        entries.extend(self.handler_types.iter().map(|types| (entry::HANDLER_TYPES, encode_types(types))));
        if !self.gates.is_empty() {
            entries.push((entry::GATES, to_json(&self.gates)?));
        }
        if !self.ways.is_empty() {
            entries.push((entry::WAYS, to_json(&self.ways)?));
        }
        if !self.nested.is_empty() {
            entries.push((entry::NESTED, to_json(&self.nested)?));
        }
        if let Some(archive) = &self.archive {
            entries.push((entry::ARCHIVE, to_json(archive)?));
        }
        entries.extend(self.objects.iter().map(|object| (entry::OBJECT, object.clone())));
        entries.extend(self.jit.iter().map(|piece| (entry::JIT, piece.encode())));
        entries.extend(self.tables.iter().map(|tables| (entry::TABLES, tables.clone())));
        entries.extend(self.other.iter().map(|e| (e.kind, e.data.clone())));
        Ok(entries)
    }
}

/// Bytes that an entry of a journal takes in a section.
pub(crate) fn size_of(entry: &PackedEntry<'_>) -> u64 {
    16 + (entry.data.len() as u64).next_multiple_of(8)
}

/// Writes an entry of a journal as one of a section.
pub(crate) fn write_entry(entry: &PackedEntry<'_>, to: &mut impl Write) -> io::Result<()> {
    let mut head = Vec::with_capacity(16);
    let mut o = Out { buf: &mut head, endian: Endian::Little };
    o.u32(entry.kind);
    o.u32(entry.flags);
    o.u64(entry.data.len() as u64);
    to.write_all(&head)?;
    to.write_all(entry.data)?;
    to.write_all(&[0; 8][..entry.data.len().wrapping_neg() & 7])
}

/// By id, each once; of several with one id the last stays.
fn keep_last<T>(all: &mut Vec<T>, id: impl Fn(&T) -> u32) {
    all.sort_by_key(&id);
    all.reverse();
    all.dedup_by_key(|one| id(one));
    all.reverse();
}

pub(crate) fn to_json(value: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|e| Error::new(ErrorKind::Damaged, format!("JSON of the private section ({e})")))
}

fn json<T: DeserializeOwned>(data: &[u8], what: &'static str) -> Result<T> {
    serde_json::from_slice(data).map_err(|e| Error::new(ErrorKind::Damaged, format!("{what} ({e})")))
}

/// `u32 event, u32 zero, u64 n, u64 counts[n]`.
pub(crate) fn encode_counts(event: usize, counts: &[u64]) -> Vec<u8> {
    let mut data = Vec::with_capacity(16 + 8 * counts.len());
    let mut o = Out { buf: &mut data, endian: Endian::Little };
    o.u32(event as u32);
    o.u32(0);
    o.u64(counts.len() as u64);
    counts.iter().for_each(|n| o.u64(*n));
    data
}

fn decode_counts(data: &[u8]) -> Result<TrueCounts> {
    const W: &str = "true counts";
    let mut c = Cursor::new(data, 0, Endian::Little);
    let event = c.u32(W)? as usize;
    c.u32(W)?;
    let n = c.u64(W)?;
    Ok(TrueCounts { event, counts: c.words(n, W)?.iter().collect() })
}

/// `u32 handler, u32 zero, BTF`.
pub(crate) fn encode_types(types: &HandlerTypes) -> Vec<u8> {
    [&types.handler.to_le_bytes()[..], &[0; 4], &types.btf].concat()
}

fn decode_types(data: &[u8]) -> Result<HandlerTypes> {
    const W: &str = "types of a handler";
    let mut c = Cursor::new(data, 0, Endian::Little);
    let handler = c.u32(W)?;
    c.u32(W)?;
    Ok(HandlerTypes { handler, btf: c.rest().to_vec() })
}

/// Compresses what is long, when that helps.
pub(crate) fn pack(data: Vec<u8>) -> (u32, Vec<u8>) {
    if data.len() >= PACK_FROM {
        if let Ok(packed) = zstd::bulk::compress(&data, 3) {
            if packed.len() < data.len() {
                return (flag::ZSTD, packed);
            }
        }
    }
    (0, data)
}

/// The bytes of an entry as they were before [`pack`].
pub(crate) fn unpack(data: &[u8], flags: u32, offset: u64) -> Result<std::borrow::Cow<'_, [u8]>> {
    unpack_within(data, flags, offset, UNPACKED_MAX)
}

/// The same, if they are no more than `most`.
fn unpack_within(data: &[u8], flags: u32, offset: u64, most: u64) -> Result<std::borrow::Cow<'_, [u8]>> {
    let too_long = || Error::at(ErrorKind::TooLong, "compressed entry", offset);
    match flags {
        0 if data.len() as u64 > most => Err(too_long()),
        0 => Ok(data.into()),
        flag::ZSTD => {
            let damaged = || Error::at(ErrorKind::Damaged, "compressed entry", offset);
            let decoder = zstd::stream::Decoder::with_buffer(data).map_err(|_| damaged())?;
            let mut out = Vec::new();
            decoder.take(most.saturating_add(1)).read_to_end(&mut out).map_err(|_| damaged())?;
            if out.len() as u64 > most {
                return Err(too_long());
            }
            Ok(out.into())
        }
        flags => Err(Error::at(ErrorKind::Unsupported, format!("entry with flags {flags:#x}"), offset)),
    }
}
