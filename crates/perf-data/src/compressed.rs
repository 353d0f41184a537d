//! Compressed recordings (`perf record -z`): COMPRESSED records hold pieces of one zstd stream, whose contents are
//! ordinary records. A record may begin in one piece and end in the next.

use zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};

use crate::bytes::{Cursor, Out};
use crate::features::bit;
use crate::header::{Bits, FileHeader, SIZE, SIZE_PIPE, Section};
use crate::pipe::Told;
use crate::record::{RawRecord, RecordHeader, kind};
use crate::records::Records;
use crate::source::Source;
use crate::stream::{Fed, Feed, RecordStream};
use crate::{Endian, Error, ErrorKind, Result};

/// The contents of one compressed record: perf compresses what a ring held, a piece of this size at most.
const LARGEST_PIECE: usize = 32 << 20;

/// A recording as it would be without compression, for [`crate::FileReader::open`].
#[derive(Debug)]
pub struct Unpacked {
    /// The bytes. Offsets in them are not those of the file on disk.
    pub bytes: Vec<u8>,
    /// What ended the records early. Those before it are in `bytes`.
    pub damage: Option<Error>,
}

/// Unpacks a compressed recording into at most `limit` bytes; `None` when it is not compressed.
///
/// # Errors
/// When the file's header makes no sense.
pub fn unpack(file: &[u8], limit: u64) -> Result<Option<Unpacked>> {
    let mut header = FileHeader::decode(file)?;
    let finished = header.settle(file);
    let records = if header.pipe { pipe_records(file, &header) } else { seekable_records(file, &header) };
    let compressed = |raw: RawRecord<'_>| matches!(raw.header.kind, kind::COMPRESSED | kind::COMPRESSED2);
    // Only a finished file says in its header whether it is compressed.
    let yes = if finished && !header.pipe {
        header.features.has(bit::COMPRESSED)
    } else {
        records.clone().map_while(Result::ok).any(compressed)
    };
    if !yes || !header.pipe && !header.has_features {
        return Ok(None);
    }
    let head = if header.pipe { &file[..SIZE_PIPE as usize] } else { file };
    let mut stream = Stream::new(head.to_vec(), limit, header.endian)?;
    let damage = stream.all(records).err();
    let mut bytes = stream.out;
    if !header.pipe {
        rewrite(&mut bytes, file, &header);
    }
    Ok(Some(Unpacked { bytes, damage }))
}

fn pipe_records<'a>(file: &'a [u8], header: &FileHeader) -> Records<'a> {
    Records::new(file.get(SIZE_PIPE as usize..).unwrap_or_default(), SIZE_PIPE, header.endian)
}

fn seekable_records<'a>(file: &'a [u8], header: &FileHeader) -> Records<'a> {
    let rest = usize::try_from(header.data.offset).ok().and_then(|at| file.get(at..)).unwrap_or_default();
    let size = usize::try_from(header.data.size).unwrap_or(usize::MAX);
    Records::new(&rest[..size.min(rest.len())], header.data.offset, header.endian)
}

/// Points the header to the unpacked records behind the old file, and puts a table of the other sections after them.
fn rewrite(bytes: &mut Vec<u8>, file: &[u8], header: &FileHeader) {
    let data = Section { offset: file.len() as u64, size: (bytes.len() - file.len()) as u64 };
    let old_table = header.data.offset.saturating_add(header.data.size);
    let mut features = Bits::default();
    for (i, feature) in header.features.iter().enumerate() {
        if feature == bit::COMPRESSED {
            continue;
        }
        features.set(feature);
        let entry = Section { offset: old_table.saturating_add(16 * i as u64), size: 16 };
        // A missing entry stays missing: its section is then outside the file.
        bytes.extend_from_slice(entry.of(file, "feature table").unwrap_or(&[0xff; 16]));
    }
    let mut head = Vec::new();
    FileHeader { data, features, ..*header }.encode(&mut Out { buf: &mut head, endian: header.endian });
    for (to, from) in bytes.iter_mut().zip(&head[..SIZE as usize]) {
        *to = *from;
    }
}

struct Stream {
    zstd: Decoder<'static>,
    endian: Endian,
    /// The new file, whole records only.
    out: Vec<u8>,
    /// The beginning of a record whose end is in the next piece.
    partial: Vec<u8>,
    limit: u64,
}

impl Stream {
    fn new(out: Vec<u8>, limit: u64, endian: Endian) -> Result<Self> {
        let zstd = Decoder::new().map_err(|e| Error::io("begin to decompress", e))?;
        Ok(Self { zstd, endian, out, partial: Vec::new(), limit })
    }

    fn all(&mut self, mut records: Records<'_>) -> Result<()> {
        while let Some(next) = records.next_whole() {
            let (raw, whole) = next?;
            self.one(&raw, whole)?;
            self.check_limit(raw.offset)?;
        }
        match self.partial.is_empty() {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::Truncated, "last record of a compressed stream")),
        }
    }

    /// Takes a record, or what is in it. `whole` are its bytes with those that follow it.
    fn one(&mut self, raw: &RawRecord<'_>, whole: &[u8]) -> Result<()> {
        let at = raw.offset + RecordHeader::SIZE as u64;
        match raw.header.kind {
            kind::COMPRESSED => self.piece(raw.body(), at),
            kind::COMPRESSED2 => {
                let mut c = Cursor::new(raw.body(), at, self.endian);
                let size = c.u64("COMPRESSED2 record")?;
                self.piece(c.take(size, "COMPRESSED2 record")?, at)
            }
            kind::HEADER_FEATURE if is_compressed_feature(raw, self.endian) => Ok(()),
            _ => {
                self.out.extend_from_slice(whole);
                Ok(())
            }
        }
    }

    /// Decompresses one piece and takes the whole records.
    fn piece(&mut self, piece: &[u8], at: u64) -> Result<()> {
        let damaged = |_| Error::at(ErrorKind::Damaged, "COMPRESSED record", at);
        let mut input = InBuffer::around(piece);
        let mut room = [0; 16 << 10];
        let mut unpacked = 0;
        loop {
            let mut output = OutBuffer::around(&mut room[..]);
            self.zstd.run(&mut input, &mut output).map_err(damaged)?;
            let got = output.pos();
            self.partial.extend_from_slice(&room[..got]);
            unpacked += got;
            if unpacked > LARGEST_PIECE {
                return Err(Error::at(ErrorKind::TooLong, "contents of a COMPRESSED record", at));
            }
            self.take_whole(at)?;
            self.check_limit(at)?;
            // A full buffer may mean that there is more to come without any input.
            if got < room.len() && input.pos() == piece.len() {
                return Ok(());
            }
            if got == 0 && input.pos() < piece.len() {
                return Err(Error::at(ErrorKind::Damaged, "COMPRESSED record", at));
            }
        }
    }

    fn take_whole(&mut self, at: u64) -> Result<()> {
        let mut end = 0;
        while let Some(head) = self.partial.get(end..).and_then(|b| b.first_chunk::<8>()) {
            let size = usize::from(RecordHeader::decode(*head, self.endian).size);
            if size < RecordHeader::SIZE {
                return Err(Error::at(
                    ErrorKind::BadSize,
                    format!("record of {size} bytes in a COMPRESSED record"),
                    at,
                ));
            }
            if end + size > self.partial.len() {
                break;
            }
            end += size;
        }
        self.out.extend(self.partial.drain(..end));
        Ok(())
    }

    fn check_limit(&self, at: u64) -> Result<()> {
        match self.out.len() as u64 > self.limit {
            true => Err(Error::at(ErrorKind::TooLong, "unpacked recording", at)),
            false => Ok(()),
        }
    }
}

fn is_compressed_feature(raw: &RawRecord<'_>, endian: Endian) -> bool {
    raw.body().first_chunk::<8>().is_some_and(|b| endian.u64(*b) == u64::from(bit::COMPRESSED))
}

/// The records of a stream with what compressed ones hold in place of these.
pub(crate) struct Unpacker<'r> {
    outer: RecordStream<'r>,
    /// `None` where there is no decompressor to be had.
    stream: Option<Stream>,
    /// Compressed bytes that could not be read.
    skipped: u64,
    /// Bytes of a last record without its end.
    cut: u64,
    ended: bool,
}

impl<'r> Unpacker<'r> {
    pub(crate) fn new(outer: RecordStream<'r>) -> Self {
        let stream = Stream::new(Vec::new(), u64::MAX, outer.endian()).ok();
        Self { outer, stream, skipped: 0, cut: 0, ended: false }
    }

    /// The end. A record that began in the last piece is cut where the recorder was.
    fn end(&mut self) -> Fed {
        let partial = self.stream.as_mut().map(|stream| std::mem::take(&mut stream.partial)).unwrap_or_default();
        self.cut += partial.len() as u64;
        self.ended = true;
        Fed::End
    }
}

impl Feed for Unpacker<'_> {
    fn feed(&mut self, to: &mut Vec<u8>) -> Fed {
        if self.ended {
            return Fed::End;
        }
        let Some(stream) = &mut self.stream else {
            self.ended = true;
            return Fed::Damage(Error::new(ErrorKind::Unsupported, "compressed recording"));
        };
        let (offset, taken) = match self.outer.next_record() {
            None => return self.end(),
            Some(Err(e)) => return Fed::Damage(e),
            // The stream drops what follows a record by itself.
            Some(Ok(raw)) => {
                let taken = stream.one(&raw, raw.bytes);
                if taken.is_err() {
                    self.skipped += raw.bytes.len() as u64;
                }
                (raw.offset, taken)
            }
        };
        self.outer.release(offset);
        to.append(&mut stream.out);
        match taken {
            Ok(()) => Fed::More,
            Err(e) => {
                // The pieces are of one stream, so what follows cannot be read either, unless a new one begins.
                stream.partial.clear();
                let _ = stream.zstd.reinit();
                Fed::Damage(e)
            }
        }
    }

    fn skipped(&self) -> u64 {
        self.skipped + self.outer.skipped()
    }
    fn cut(&self) -> u64 {
        self.cut + self.outer.cut()
    }
    fn told(&mut self) -> Option<&mut Told> {
        Some(self.outer.told())
    }
}
