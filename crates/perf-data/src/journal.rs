//! `FILE.journal`: what a recording must not lose when its recorder is killed. Entries are those of the private section,
//! each with a checksum; a clean end folds them into that section and removes the journal.
//!
//! Within a pass the journal is written before the records that it speaks of: then it may know counts of samples that
//! the file does not hold, which a reader then takes for lost, and never the other way round.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::bytes::{Cursor, Out};
use crate::features::{BpfBtf, BpfProgInfo};
use crate::private::{
    GateDesc, HandlerTypes, JIT_BYTES, NestedPid, Private, WayDesc, encode_counts, encode_types, entry, pack, to_json,
    unpack,
};
use crate::texts::{TEXTS_AN_ENTRY, encode_images};
use crate::{Endian, Error, ErrorKind, HandlerDesc, ImageId, JitPiece, RecordingTally, Result, TextDesc};

/// The first eight bytes of a journal.
pub const MAGIC: [u8; 8] = *b"AFTERJRN";
/// The version that this code writes.
pub const VERSION: u32 = 1;

/// Where the journal of a recording stands: `FILE.journal`.
pub fn path_of(recording: &Path) -> PathBuf {
    let mut name = recording.as_os_str().to_owned();
    name.push(".journal");
    name.into()
}

/// Appends entries to a journal. Each is one `write_all`; after one that failed the next takes its place, since nothing
/// behind half an entry would be read.
#[derive(Debug)]
pub struct Writer<W: Write + Seek> {
    to: W,
    buf: Vec<u8>,
    /// Bytes of whole entries.
    bytes: u64,
}

impl<W: Write + Seek> Writer<W> {
    /// Begins a journal at the start of `to`.
    ///
    /// # Errors
    /// When the header cannot be written.
    pub fn create(to: W) -> Result<Self> {
        let mut this = Self { to, buf: Vec::new(), bytes: 0 };
        this.buf.extend_from_slice(&MAGIC);
        this.buf.extend_from_slice(&VERSION.to_le_bytes());
        this.buf.extend_from_slice(&[0; 4]);
        this.put()?;
        Ok(this)
    }

    /// Appends the tally so far; the last one counts.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn tally(&mut self, tally: &RecordingTally) -> Result<()> {
        self.append(entry::TALLY, to_json(tally)?)
    }

    /// Appends the description of the handlers; the last one counts.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn handlers(&mut self, handlers: &[HandlerDesc]) -> Result<()> {
        self.append(entry::HANDLERS, to_json(&handlers)?)
    }

    /// Appends the counts of the next SAMPLEs of an event.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn true_counts(&mut self, event: usize, counts: &[u64]) -> Result<()> {
        self.append(entry::TRUE_COUNTS, encode_counts(event, counts))
    }

    /// Appends descriptions of texts; a later one of the same number replaces an earlier one.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn texts(&mut self, texts: &[TextDesc]) -> Result<()> {
        texts.chunks(TEXTS_AN_ENTRY).try_for_each(|part| self.append(entry::TEXTS, to_json(&part)?))
    }

    /// Appends images of texts, each `(its id, its bytes)`.
    ///
    /// # Errors
    /// When they cannot be written, or one has 4 GiB or more.
    pub fn images<'a>(&mut self, images: impl IntoIterator<Item = (&'a ImageId, &'a [u8])>) -> Result<()> {
        let data = encode_images(images)?;
        if data.is_empty() { Ok(()) } else { self.append(entry::IMAGES, data) }
    }

    /// Appends what the kernel tells of a BPF program; the last of an id counts.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn program(&mut self, program: &BpfProgInfo) -> Result<()> {
        self.append(entry::PROGRAM, program.encode_one()?)
    }

    /// Appends types of BPF programs; the last of an id counts.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn program_types(&mut self, types: &BpfBtf) -> Result<()> {
        self.append(entry::PROGRAM_TYPES, types.encode_one()?)
    }

    /// Appends the types of a handler from an object; the last of a number counts.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn handler_types(&mut self, types: &HandlerTypes) -> Result<()> {
        self.append(entry::HANDLER_TYPES, encode_types(types))
    }

    /// Appends a gate that was put in force.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn gate(&mut self, gate: &GateDesc) -> Result<()> {
        self.append(entry::GATES, to_json(&[gate])?)
    }

    /// Appends the ways to keep kernel text; the last list counts.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn ways(&mut self, ways: &[WayDesc]) -> Result<()> {
        self.append(entry::WAYS, to_json(&ways)?)
    }

    /// Appends what a JIT compiler told.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn jit(&mut self, piece: &JitPiece) -> Result<()> {
        self.append(entry::JIT, piece.encode())
    }

    /// Appends processes in pid namespaces of their own; all count.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn nested(&mut self, processes: &[NestedPid]) -> Result<()> {
        self.append(entry::NESTED, to_json(&processes)?)
    }

    /// Appends an entry of any kind.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn append(&mut self, kind: u32, data: Vec<u8>) -> Result<()> {
        let (flags, data) = pack(data);
        let mut o = Out { buf: &mut self.buf, endian: Endian::Little };
        o.u32(kind);
        o.u32(flags);
        o.u64(data.len() as u64);
        o.u64(checksum(kind, flags, &data));
        o.bytes(&data);
        o.pad(0, 8);
        self.put()
    }

    fn put(&mut self) -> Result<()> {
        let written = self.to.write_all(&self.buf).and_then(|()| self.to.flush());
        match &written {
            Ok(()) => self.bytes += self.buf.len() as u64,
            Err(_) => drop(self.to.seek(SeekFrom::Start(self.bytes))),
        }
        self.buf.clear();
        written.map_err(|e| Error::io("write the journal", e))
    }

    /// Bytes written so far.
    pub fn bytes_written(&self) -> u64 {
        self.bytes
    }

    /// The inner writer.
    pub fn get_ref(&self) -> &W {
        &self.to
    }

    /// The inner writer.
    pub fn into_inner(self) -> W {
        self.to
    }
}

/// What a journal holds up to its end or its first damaged entry.
#[derive(Debug)]
pub struct Journal {
    /// The contents, as the private section would have held them.
    pub private: Private,
    /// What ended the reading early.
    pub damage: Option<Error>,
    /// Entries that were read.
    pub entries: u64,
}

/// Reads a journal.
///
/// # Errors
/// When it does not begin like one. Damage further on ends the reading and stands in [`Journal::damage`].
pub fn read(bytes: &[u8]) -> Result<Journal> {
    let mut journal = Journal { private: Private::default(), damage: None, entries: 0 };
    let mut jit_room = JIT_BYTES;
    let mut take = |private: &mut Private, entry: PackedEntry<'_>| match entry.kind {
        entry::JIT => {
            private.take_jit(&entry.unpack()?, &mut jit_room);
            Ok(())
        }
        kind => private.apply(kind, &entry.unpack()?),
    };
    for entry in entries(bytes)? {
        match entry.and_then(|entry| take(&mut journal.private, entry)) {
            Ok(()) => journal.entries += 1,
            Err(e) => {
                journal.damage = Some(e);
                break;
            }
        }
    }
    journal.private.settle();
    Ok(journal)
}

/// The entries of a journal one by one, up to its end or the first that is damaged, which comes as an error and is the last.
/// Nothing but the entry at hand is unpacked, so that a journal of any size can be gone through.
///
/// # Errors
/// When it does not begin like a journal.
pub fn entries(bytes: &[u8]) -> Result<Entries<'_>> {
    const W: &str = "journal";
    let mut c = Cursor::new(bytes, 0, Endian::Little);
    if c.bytes::<8>(W)? != MAGIC {
        return Err(Error::at(ErrorKind::BadValue, "magic of the journal", 0));
    }
    let version = c.u32(W)?;
    if version != VERSION {
        return Err(Error::at(ErrorKind::Unsupported, format!("journal of version {version}"), 8));
    }
    c.u32(W)?;
    Ok(Entries { rest: Some(c) })
}

/// See [`entries`].
#[derive(Debug)]
pub struct Entries<'a> {
    rest: Option<Cursor<'a>>,
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<PackedEntry<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        let c = self.rest.as_mut().filter(|c| !c.rest().is_empty())?;
        let entry = next(c);
        if entry.is_err() {
            self.rest = None;
        }
        Some(entry)
    }
}

/// One entry as it stands in a journal, and may stand in a private section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedEntry<'a> {
    /// Its kind, see [`entry`].
    pub kind: u32,
    pub(crate) flags: u32,
    pub(crate) data: &'a [u8],
    at: u64,
}

impl<'a> PackedEntry<'a> {
    /// Its bytes.
    ///
    /// # Errors
    /// When they were packed in a way that is not known here, or cannot be unpacked.
    pub fn unpack(&self) -> Result<Cow<'a, [u8]>> {
        unpack(self.data, self.flags, self.at)
    }

    /// The texts of an entry of kind [`entry::TEXTS`]; none of any other.
    ///
    /// # Errors
    /// When it is damaged.
    pub fn texts(&self) -> Result<Vec<TextDesc>> {
        Ok(self.alone(entry::TEXTS)?.texts)
    }

    /// The images of an entry of kind [`entry::IMAGES`]; none of any other.
    ///
    /// # Errors
    /// When it is damaged.
    pub fn images(&self) -> Result<BTreeMap<ImageId, Vec<u8>>> {
        Ok(self.alone(entry::IMAGES)?.images)
    }

    /// A private section of what this entry tells of a BPF program or its types; an empty one for any other kind.
    ///
    /// # Errors
    /// When it is damaged.
    pub fn programs(&self) -> Result<Private> {
        match self.kind {
            kind @ (entry::PROGRAM | entry::PROGRAM_TYPES) => self.alone(kind),
            _ => Ok(Private::default()),
        }
    }

    /// What the entry would be in a private section of its own, if it is of this kind.
    fn alone(&self, kind: u32) -> Result<Private> {
        let mut private = Private::default();
        if self.kind == kind {
            private.apply(kind, &self.unpack()?)?;
        }
        Ok(private)
    }
}

fn next<'a>(c: &mut Cursor<'a>) -> Result<PackedEntry<'a>> {
    const W: &str = "journal entry";
    let at = c.at();
    let (kind, flags, len, sum) = (c.u32(W)?, c.u32(W)?, c.u64(W)?, c.u64(W)?);
    let data = c.take(len, W)?;
    c.take(len.wrapping_neg() & 7, W)?;
    if checksum(kind, flags, data) != sum {
        return Err(Error::at(ErrorKind::Checksum, W, at));
    }
    Ok(PackedEntry { kind, flags, data, at })
}

/// FNV-1a, 64 bits, over kind, flags, length and bytes, little-endian. It finds torn writes; it is no defence.
fn checksum(kind: u32, flags: u32, data: &[u8]) -> u64 {
    let head = [u64::from(kind) | u64::from(flags) << 32, data.len() as u64];
    let bytes = head.iter().flat_map(|w| w.to_le_bytes()).chain(data.iter().copied());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, b| (hash ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}
