//! The header of a perf.data file (`struct perf_file_header`, tools/perf/util/header.h).

use crate::bytes::{Cursor, Out};
use crate::features::bit;
use crate::{Endian, Error, ErrorKind, Result};

/// The first eight bytes of a file of a little-endian machine.
pub(crate) const MAGIC: [u8; 8] = *b"PERFILE2";
/// The same of a big-endian machine.
const MAGIC_BIG: [u8; 8] = *b"2ELIFREP";
/// What files of the first tools (Linux 2.6.31 to 3.3) begin with, whatever the byte order; the rest is laid out alike.
const MAGIC_V1: [u8; 8] = *b"PERFFILE";
/// Bytes of the header of the seekable form.
pub(crate) const SIZE: u64 = 104;
/// Bytes of that header without its feature bits, as the first tools wrote it.
const SIZE_OLD: u64 = 72;
/// Bytes of the header of the pipe form.
pub(crate) const SIZE_PIPE: u64 = 16;

/// A place in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Section {
    pub(crate) offset: u64,
    pub(crate) size: u64,
}

impl Section {
    fn decode(c: &mut Cursor<'_>) -> Result<Self> {
        const W: &str = "file header";
        Ok(Self { offset: c.u64(W)?, size: c.u64(W)? })
    }

    pub(crate) fn encode(self, o: &mut Out<'_>) {
        o.u64(self.offset);
        o.u64(self.size);
    }

    pub(crate) fn read(bytes: &[u8], at: u64, endian: Endian) -> Result<Self> {
        Self::decode(&mut Cursor::new(bytes, at, endian))
    }

    /// The section's bytes.
    pub(crate) fn of<'a>(&self, file: &'a [u8], what: &'static str) -> Result<&'a [u8]> {
        let outside = || Error::at(ErrorKind::BadOffset, what, self.offset);
        let start = usize::try_from(self.offset).map_err(|_| outside())?;
        let rest = file.get(start..).ok_or_else(outside)?;
        let size = usize::try_from(self.size).ok();
        size.and_then(|n| rest.get(..n)).ok_or_else(|| Error::at(ErrorKind::Truncated, what, self.offset))
    }
}

/// Which features a file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Bits(pub(crate) [u64; 4]);

impl Bits {
    pub(crate) fn set(&mut self, feature: u32) {
        if let Some(word) = self.0.get_mut(feature as usize / 64) {
            *word |= 1 << (feature % 64);
        }
    }

    pub(crate) fn has(&self, feature: u32) -> bool {
        self.0.get(feature as usize / 64).is_some_and(|word| word >> (feature % 64) & 1 != 0)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + use<> {
        let this = *self;
        (0..bit::COUNT).filter(move |feature| this.has(*feature))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0 == [0; 4]
    }

    /// Bits written by a 32-bit big-endian machine: its words have 32 bits, so pairs of them stand the other way round.
    fn words32_swapped(self) -> Self {
        Self(self.0.map(|word| word.rotate_left(32)))
    }
}

/// The header of a file, in either form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileHeader {
    pub(crate) endian: Endian,
    pub(crate) pipe: bool,
    /// Bytes of an entry of the attrs section.
    pub(crate) attr_size: u64,
    pub(crate) attrs: Section,
    pub(crate) data: Section,
    pub(crate) features: Bits,
    /// Whether the header has feature bits at all.
    pub(crate) has_features: bool,
}

impl FileHeader {
    pub(crate) fn decode(file: &[u8]) -> Result<Self> {
        const W: &str = "file header";
        if file.is_empty() {
            return Err(Error::new(ErrorKind::Empty, "recording"));
        }
        let endian = match file.first_chunk::<8>() {
            Some(&MAGIC) => Endian::Little,
            Some(&MAGIC_BIG) => Endian::Big,
            Some(&MAGIC_V1) => Self::endian_by_size(file),
            _ => return Err(Error::new(ErrorKind::NotPerfData, "recording")),
        };
        let mut c = Cursor::new(file, 0, endian);
        c.u64(W)?;
        let size = c.u64(W)?;
        let mut header = Self {
            endian,
            pipe: size == SIZE_PIPE,
            attr_size: 0,
            attrs: Section::default(),
            data: Section::default(),
            features: Bits::default(),
            has_features: size == SIZE,
        };
        if header.pipe {
            return Ok(header);
        }
        if size != SIZE && size != SIZE_OLD {
            return Err(Error::at(ErrorKind::BadSize, format!("file header of {size} bytes"), 8));
        }
        header.attr_size = c.u64(W)?;
        header.attrs = Section::decode(&mut c)?;
        header.data = Section::decode(&mut c)?;
        Section::decode(&mut c)?;
        if header.has_features {
            header.features = Bits([c.u64(W)?, c.u64(W)?, c.u64(W)?, c.u64(W)?]);
            let swapped = header.features.words32_swapped();
            if endian == Endian::Big && !header.features.has(bit::HOSTNAME) && swapped.has(bit::HOSTNAME) {
                header.features = swapped;
            }
        }
        Ok(header)
    }

    /// The byte order of a file whose magic does not tell it: that in which the size of its header is one that there is.
    fn endian_by_size(file: &[u8]) -> Endian {
        let size = file.get(8..).and_then(|b| b.first_chunk::<8>()).copied().unwrap_or_default();
        let is_big = [SIZE, SIZE_OLD, SIZE_PIPE].contains(&Endian::Big.u64(size));
        if is_big { Endian::Big } else { Endian::Little }
    }

    /// Whether the file of this header was finished. In one that was not, the features are taken out, but for formats of
    /// tracepoints that ours has in front of its records, and records whose size is not told go to the end of the file.
    pub(crate) fn settle(&mut self, file: &[u8]) -> bool {
        if self.pipe {
            return true;
        }
        let finished = match (self.has_features, self.data.size) {
            (false, size) => size != 0,
            (true, 0) => self.table_fits(file),
            (true, _) => self.features.iter().any(|feature| feature != bit::TRACING_DATA),
        };
        if !finished {
            if !self.formats_in_front(file) {
                self.features = Bits::default();
            }
            if self.data.size == 0 {
                self.data.size = (file.len() as u64).saturating_sub(self.data.offset);
            }
        }
        finished
    }

    /// Whether a table of sections stands where the records begin: perf sets its feature bits when it begins to record,
    /// so that they alone do not tell a recording without records from one that was killed. A record there would read as
    /// an offset of 4 GiB at least, since its type or its size is in the higher bits.
    fn table_fits(&self, file: &[u8]) -> bool {
        let entry = Section { offset: self.data.offset, size: 16 };
        let first = entry.of(file, "feature table").and_then(|b| Section::read(b, entry.offset, self.endian));
        !self.features.is_empty() && first.is_ok_and(|s| s.of(file, "feature section").is_ok())
    }

    /// Whether the one section of an unfinished file of ours is there.
    fn formats_in_front(&self, file: &[u8]) -> bool {
        let table = Section { offset: self.data.offset.saturating_add(self.data.size), size: 16 };
        let first = table.of(file, "feature table").and_then(|b| Section::read(b, table.offset, self.endian));
        let in_front = |s: Section| s.offset.checked_add(s.size).is_some_and(|end| end <= self.data.offset);
        self.data.size != 0 && self.features.iter().eq([bit::TRACING_DATA]) && first.is_ok_and(in_front)
    }

    /// Appends the header of the seekable form.
    pub(crate) fn encode(&self, o: &mut Out<'_>) {
        o.u64(u64::from_le_bytes(MAGIC));
        o.u64(SIZE);
        o.u64(self.attr_size);
        self.attrs.encode(o);
        self.data.encode(o);
        Section::default().encode(o);
        self.features.0.into_iter().for_each(|word| o.u64(word));
    }
}
