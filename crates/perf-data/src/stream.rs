//! Records of what cannot be gone back in: a pipe, or the contents of compressed records.
//!
//! ```text
//!   feed ──▶ [ chunk ][ chunk ][ chunk ··· ]        Each chunk holds whole records, but for the last, which is being
//!               3        0        12                filled. It counts its records that are waited for, and goes when
//!               └── records waited for ──┘          there are none: memory is that of what waits, not of what came.
//! ```

use std::collections::VecDeque;
use std::fmt;
use std::io::Read;
use std::sync::Arc;

use crate::compressed::Unpacker;
use crate::header::{FileHeader, SIZE_PIPE};
use crate::pipe::Told;
use crate::record::{RawRecord, kind};
use crate::records::{End, Records, bytes_behind, not_a_record};
use crate::source::{PackedCounts, Source};
use crate::table::EventTable;
use crate::{Endian, Error, ErrorKind, Result, resync};

/// Bytes that are asked for at once.
const PIECE: usize = 256 << 10;

/// A chunk that has so many bytes gets no more.
const CHUNK: usize = 1 << 20;

/// The most that a stream may tell of itself before its first sample: descriptions of events, formats of tracepoints.
const LONGEST_HEAD: usize = 1 << 30;

/// Of records about what there was before the recording so many bytes may stand in front of that: perf names events only
/// behind the maps of the kernel.
const MOST_BEFORE: usize = 64 << 20;

/// Reads a stream up to its first sample or the end of its first round, or a little further: what [`crate::FileReader::open_packed`] needs to
/// know of it. A recording in seekable form is read to its end, for what it says of itself stands there, but no further
/// than `most` bytes. Of what is no recording no more is read than shows that.
///
/// # Errors
/// When the stream cannot be read.
pub fn read_head(from: &mut impl Read, most: u64) -> Result<Vec<u8>> {
    let failed = |e| Error::io("read the recording", e);
    let mut head = Vec::new();
    from.by_ref().take(SIZE_PIPE).read_to_end(&mut head).map_err(failed)?;
    // A header of the other form goes on; what is cut short is for the reader to name.
    let header = match FileHeader::decode(&head) {
        Ok(header) if header.pipe => header,
        Err(e) if e.kind() != ErrorKind::Truncated => return Ok(head),
        _ => {
            from.take(most).read_to_end(&mut head).map_err(failed)?;
            return Ok(head);
        }
    };
    let (mut at, mut before) = (head.len(), 0);
    while head.len() < LONGEST_HEAD {
        let got = from.by_ref().take(PIECE as u64).read_to_end(&mut head).map_err(failed)?;
        if got == 0 || !tells_only(&head, &mut at, &mut before, header.endian) {
            break;
        }
    }
    Ok(head)
}

/// Whether all records from `at` on, which moves on, are such as tell of the stream or of what there was `before` it, or the
/// last one lacks its end.
fn tells_only(head: &[u8], at: &mut usize, before: &mut usize, endian: Endian) -> bool {
    for raw in Records::new(head.get(*at..).unwrap_or_default(), *at as u64, endian) {
        match raw {
            Err(e) => return e.kind() == ErrorKind::Truncated,
            Ok(raw) => match raw.header.kind {
                kind::SAMPLE | kind::FINISHED_INIT | kind::FINISHED_ROUND => return false,
                kind::COMPRESSED | kind::COMPRESSED2 => return false,
                kind if kind < kind::FIRST_USER => {
                    *before += raw.bytes.len();
                    *at = at.saturating_add(raw.bytes.len());
                    if *before > MOST_BEFORE {
                        return false;
                    }
                }
                _ => {
                    let behind = usize::try_from(bytes_behind(&raw, endian)).unwrap_or(usize::MAX);
                    *at = at.saturating_add(raw.bytes.len()).saturating_add(behind);
                }
            },
        }
    }
    true
}

/// What became of a wish for more bytes.
pub(crate) enum Fed {
    /// There are more now.
    More,
    /// There will be none.
    End,
    /// Something was damaged; there may be more behind it.
    Damage(Error),
}

/// Where the bytes of a stream come from.
pub(crate) trait Feed {
    /// Appends some bytes.
    fn feed(&mut self, to: &mut Vec<u8>) -> Fed;

    /// Bytes so far that were damaged before they came here.
    fn skipped(&self) -> u64 {
        0
    }

    /// Bytes of a last record that lacked its end before it came here.
    fn cut(&self) -> u64 {
        0
    }

    /// Records that held others, which came here in their place.
    fn packed_counts(&self) -> PackedCounts {
        PackedCounts::default()
    }

    /// What was told before it came here, where these bytes tell nothing.
    fn told(&mut self) -> Option<&mut Told> {
        None
    }
}

struct Plain<R>(R);

impl<R: Read> Feed for Plain<R> {
    fn feed(&mut self, to: &mut Vec<u8>) -> Fed {
        match self.0.by_ref().take(PIECE as u64).read_to_end(to) {
            Ok(0) => Fed::End,
            Ok(_) => Fed::More,
            Err(e) => Fed::Damage(Error::io("read the recording", e)),
        }
    }
}

/// Some bytes of a stream, from the start of a record on.
struct Chunk {
    /// Place of the first byte in the stream.
    start: u64,
    bytes: Vec<u8>,
    /// Records in it that were handed out and not released.
    waiting: u64,
}

/// What stands where the next record would.
enum Look {
    Record {
        len: usize,
        kind: u32,
    },
    /// More bytes have to come first.
    Incomplete,
    End,
    Bad(Error),
}

/// The records of a stream as they come.
pub struct RecordStream<'r> {
    feed: Box<dyn Feed + 'r>,
    table: Arc<EventTable>,
    chunks: VecDeque<Chunk>,
    /// Room for the next chunk.
    spare: Vec<u8>,
    /// Where the next record stands in the last chunk.
    at: usize,
    /// Nothing comes any more.
    ended: bool,
    /// What that end is.
    end: End,
    /// What follows AUXTRACE records is in the stream.
    has_behind: bool,
    /// Bytes of it that are still to be dropped.
    to_drop: u64,
    /// What is told behind this place was not in the head. Contents of compressed records tell nothing.
    head: u64,
    told: Told,
    /// What went wrong while records were looked for behind damage, and is not told yet.
    failed: Option<Error>,
    skipped: u64,
    cut: u64,
}

impl fmt::Debug for RecordStream<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordStream").field("at", &self.place()).field("ended", &self.ended).finish_non_exhaustive()
    }
}

impl<'r> RecordStream<'r> {
    /// The records of a recording in pipe form: `head` is its beginning, as [`read_head`] gave it, `rest` what follows. With
    /// `packed`, compressed records are replaced by what is in them.
    pub fn new(head: &'r [u8], rest: impl Read + 'r, table: Arc<EventTable>, packed: bool) -> Self {
        let behind_header = head.get(SIZE_PIPE as usize..).unwrap_or_default();
        let plain = Box::new(Plain(behind_header.chain(rest)));
        let mut stream = Self::of(plain, SIZE_PIPE, table, true);
        stream.head = head.len() as u64;
        if packed { stream.unpacked() } else { stream }
    }

    /// The records of a compressed recording in memory: `data` are its records as they stand in the file, at `offset`.
    pub(crate) fn packed(data: &'r [u8], offset: u64, table: Arc<EventTable>, end: End) -> Self {
        let mut outer = Self::of(Box::new(Plain(data)), offset, table, true);
        outer.end = end;
        outer.unpacked()
    }

    /// The contents of the compressed records among the others.
    fn unpacked(self) -> Self {
        let (table, start) = (Arc::clone(&self.table), self.place());
        Self::of(Box::new(Unpacker::new(self)), start, table, false)
    }

    fn of(feed: Box<dyn Feed + 'r>, start: u64, table: Arc<EventTable>, has_behind: bool) -> Self {
        Self {
            feed,
            table,
            chunks: VecDeque::from([Chunk { start, bytes: Vec::new(), waiting: 0 }]),
            spare: Vec::new(),
            at: 0,
            ended: false,
            end: End::Growing,
            has_behind,
            to_drop: 0,
            head: u64::MAX,
            told: Told::default(),
            failed: None,
            skipped: 0,
            cut: 0,
        }
    }

    /// The byte order.
    pub fn endian(&self) -> Endian {
        self.table.endian()
    }

    /// What the stream told about itself behind its head.
    pub(crate) fn told(&mut self) -> &mut Told {
        match self.feed.told() {
            Some(told) => told,
            None => &mut self.told,
        }
    }

    /// The bytes from the next record on that are here, and their place.
    fn rest(&self) -> (&[u8], u64) {
        let Some(chunk) = self.chunks.back() else { return (&[], 0) };
        (chunk.bytes.get(self.at..).unwrap_or_default(), chunk.start + self.at as u64)
    }

    fn place(&self) -> u64 {
        self.rest().1
    }

    /// Gets more bytes behind those that are here. An error is damage in the feed.
    fn more(&mut self) -> Result<()> {
        let Some(last) = self.chunks.back_mut() else { return Ok(()) };
        if last.waiting == 0 {
            // What is left is moved only where it is the smaller part.
            if 2 * self.at < last.bytes.len() {
                return self.fed();
            }
            last.bytes.drain(..self.at);
            last.start += self.at as u64;
            self.at = 0;
        } else if last.bytes.len() >= CHUNK {
            let mut bytes = std::mem::take(&mut self.spare);
            bytes.extend_from_slice(last.bytes.get(self.at..).unwrap_or_default());
            last.bytes.truncate(self.at);
            let start = last.start + last.bytes.len() as u64;
            self.chunks.push_back(Chunk { start, bytes, waiting: 0 });
            self.at = 0;
        }
        self.fed()
    }

    fn fed(&mut self) -> Result<()> {
        let Some(last) = self.chunks.back_mut() else { return Ok(()) };
        match self.feed.feed(&mut last.bytes) {
            Fed::More => Ok(()),
            Fed::End => {
                self.ended = true;
                Ok(())
            }
            Fed::Damage(e) => {
                self.ended = e.kind() == ErrorKind::Io;
                Err(e)
            }
        }
    }

    /// Finds the next record and gives its place in the last chunk.
    fn step(&mut self) -> Option<Result<usize>> {
        // That nothing more can be read is told where it was to come.
        if let Some(e) = self.failed.take_if(|e| e.kind() != ErrorKind::Io) {
            return Some(Err(e));
        }
        loop {
            if self.to_drop > 0 {
                if let Err(e) = self.drop_behind() {
                    return Some(Err(e));
                }
            }
            match self.look() {
                Look::Record { len, kind } => return Some(Ok(self.take(len, kind))),
                Look::End if self.end == End::Missing => {
                    self.end = End::Whole;
                    return Some(Err(Error::at(ErrorKind::Truncated, "records", self.place())));
                }
                Look::End => return self.failed.take().map(Err),
                Look::Bad(e) => return self.damaged(e),
                Look::Incomplete => match self.more() {
                    Ok(()) => (),
                    Err(e) => return Some(Err(e)),
                },
            }
        }
    }

    /// What stands where the next record would.
    #[inline]
    fn look(&self) -> Look {
        let (rest, place) = self.rest();
        match RawRecord::parse(rest, place, self.table.endian()) {
            Ok(raw) if resync::is_known(raw.header.kind) => match resync::is_too_large(&raw, &self.table) {
                false => Look::Record { len: raw.bytes.len(), kind: raw.header.kind },
                true => Look::Bad(not_a_record(&raw)),
            },
            Ok(raw) => {
                let behind = rest.get(raw.bytes.len()..).unwrap_or_default();
                let place = place + raw.bytes.len() as u64;
                if behind.len() < resync::LOOK_AHEAD && !self.ended {
                    Look::Incomplete
                } else if resync::may_be_private(&raw, behind, place, self.ended, &self.table) {
                    Look::Record { len: raw.bytes.len(), kind: raw.header.kind }
                } else {
                    Look::Bad(not_a_record(&raw))
                }
            }
            Err(e) if e.kind() == ErrorKind::Truncated && !self.ended => Look::Incomplete,
            Err(_) if rest.is_empty() => Look::End,
            Err(e) => Look::Bad(e),
        }
    }

    /// Takes the record that was seen there.
    #[inline]
    fn take(&mut self, len: usize, kind: u32) -> usize {
        let at = self.at;
        let Some(chunk) = self.chunks.back_mut() else { return at };
        chunk.waiting += 1;
        self.at += len;
        // Those of the kernel tell nothing of the stream, and nothing follows them.
        if kind >= kind::FIRST_USER {
            self.of_tools(at);
        }
        at
    }

    /// Takes what a record tells that no kernel wrote.
    fn of_tools(&mut self, at: usize) {
        let endian = self.table.endian();
        let Some(chunk) = self.chunks.back() else { return };
        let bytes = chunk.bytes.get(at..).unwrap_or_default();
        if let Ok(raw) = RawRecord::parse(bytes, chunk.start + at as u64, endian) {
            if self.has_behind {
                self.to_drop = bytes_behind(&raw, endian);
            }
            if raw.offset + raw.bytes.len() as u64 > self.head {
                self.told.take_late(&raw, &self.table);
            }
        }
    }

    /// Drops what follows an AUXTRACE record without being a record.
    fn drop_behind(&mut self) -> Result<()> {
        loop {
            let here = self.rest().0.len();
            let dropped = usize::try_from(self.to_drop).unwrap_or(usize::MAX).min(here);
            self.at += dropped;
            self.to_drop -= dropped as u64;
            if self.to_drop == 0 {
                return Ok(());
            }
            if self.ended {
                self.to_drop = 0;
                return Err(Error::at(ErrorKind::Truncated, "data after a record", self.place()));
            }
            self.more()?;
        }
    }

    /// Goes on behind damage where records are found again.
    #[cold]
    fn damaged(&mut self, e: Error) -> Option<Result<usize>> {
        loop {
            while !self.ended && self.rest().0.len() < 2 * resync::LOOK_AHEAD {
                if let Err(e) = self.more() {
                    self.failed.get_or_insert(e);
                }
            }
            let (rest, place) = self.rest();
            let len = rest.len();
            let found = resync::find(&self.table, rest, place, self.ended);
            let skip = match found {
                Some(skip) => skip,
                None if self.ended => len,
                None => len - resync::LOOK_AHEAD.min(len),
            };
            if found.is_none() && self.ended {
                // The end is told here.
                let end = std::mem::replace(&mut self.end, End::Whole);
                if end == End::Growing && e.kind() == ErrorKind::Truncated {
                    self.cut = len as u64;
                    self.at += len;
                    return self.failed.take().map(Err);
                }
            }
            self.at += skip;
            self.skipped += skip as u64;
            if found.is_some() || self.ended {
                return Some(Err(e));
            }
        }
    }

    /// Gives up the chunks at the front that nobody waits for.
    fn tidy(&mut self) {
        while self.chunks.len() > 1 && self.chunks.front().is_some_and(|chunk| chunk.waiting == 0) {
            self.chunks.pop_front();
        }
    }

    fn chunk_of(&self, offset: u64) -> Option<usize> {
        self.chunks.partition_point(|chunk| chunk.start <= offset).checked_sub(1)
    }
}

impl Source for RecordStream<'_> {
    fn next_record(&mut self) -> Option<Result<RawRecord<'_>>> {
        match self.step()? {
            Err(e) => Some(Err(e)),
            Ok(at) => {
                let chunk = self.chunks.back()?;
                let bytes = chunk.bytes.get(at..)?;
                Some(RawRecord::parse(bytes, chunk.start + at as u64, self.table.endian()))
            }
        }
    }

    fn record_at(&self, offset: u64, size: u16) -> Option<RawRecord<'_>> {
        let chunk = self.chunks.get(self.chunk_of(offset)?)?;
        let at = usize::try_from(offset - chunk.start).ok()?;
        let bytes = chunk.bytes.get(at..at.checked_add(usize::from(size))?)?;
        RawRecord::parse(bytes, offset, self.table.endian()).ok()
    }

    fn release(&mut self, offset: u64) {
        let Some(nth) = self.chunk_of(offset) else { return };
        let last = nth + 1 == self.chunks.len();
        let Some(chunk) = self.chunks.get_mut(nth) else { return };
        chunk.waiting = chunk.waiting.saturating_sub(1);
        if chunk.waiting == 0 && !last {
            let mut bytes = std::mem::take(&mut chunk.bytes);
            if bytes.capacity() > self.spare.capacity() {
                bytes.clear();
                self.spare = bytes;
            }
            self.tidy();
        }
    }

    fn held_bytes(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.bytes.capacity() as u64).sum()
    }

    fn skipped(&self) -> u64 {
        self.skipped + self.feed.skipped()
    }

    fn cut(&self) -> u64 {
        self.cut + self.feed.cut()
    }

    fn packed_counts(&self) -> PackedCounts {
        self.feed.packed_counts()
    }

    fn is_at_end(&self) -> bool {
        self.ended && self.rest().0.is_empty() && self.end != End::Missing
    }
}
