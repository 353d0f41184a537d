//! Compressed recordings (`perf record -z`): COMPRESSED records hold pieces of one zstd stream, whose contents are
//! ordinary records. A record may begin in one piece and end in the next.

use zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};

use crate::bytes::Cursor;
use crate::pipe::Told;
use crate::record::{RawRecord, RecordHeader, kind};
use crate::source::{PackedCounts, Source};
use crate::stream::{Fed, Feed, RecordStream};
use crate::{Endian, Error, ErrorKind, Result};

/// The contents of one compressed record: perf compresses what a ring held, a piece of this size at most.
const LARGEST_PIECE: usize = 32 << 20;

struct Stream {
    zstd: Decoder<'static>,
    endian: Endian,
    /// What was unpacked, whole records only.
    out: Vec<u8>,
    /// The beginning of a record whose end is in the next piece.
    partial: Vec<u8>,
    /// The records that held others.
    packed: PackedCounts,
}

impl Stream {
    fn new(endian: Endian) -> Result<Self> {
        let zstd = Decoder::new().map_err(|e| Error::io("begin to decompress", e))?;
        Ok(Self { zstd, endian, out: Vec::new(), partial: Vec::new(), packed: PackedCounts::default() })
    }

    /// Takes a record, or what is in it.
    fn one(&mut self, raw: &RawRecord<'_>) -> Result<()> {
        let at = raw.offset + RecordHeader::SIZE as u64;
        match raw.header.kind {
            kind::COMPRESSED => {
                self.packed.first += 1;
                self.piece(raw.body(), at)
            }
            kind::COMPRESSED2 => {
                self.packed.second += 1;
                let mut c = Cursor::new(raw.body(), at, self.endian);
                let size = c.u64("COMPRESSED2 record")?;
                self.piece(c.take(size, "COMPRESSED2 record")?, at)
            }
            _ => {
                self.out.extend_from_slice(raw.bytes);
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
        let stream = Stream::new(outer.endian()).ok();
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
                let taken = stream.one(&raw);
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
    fn packed_counts(&self) -> PackedCounts {
        self.stream.as_ref().map(|stream| stream.packed).unwrap_or_default()
    }
    fn told(&mut self) -> Option<&mut Told> {
        Some(self.outer.told())
    }
}
