//! One map or dump: what is new in it, in whole lines or whole records.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

use afterimage_perf_data::JitPiece;
use afterimage_symbols::jitdump::{self, Header};

/// Bytes that are read at once.
const STEP: usize = 1 << 20;
/// The longest header of a dump.
const MAX_HEADER: usize = 4096;
/// The longest record of a dump that is waited for.
const MAX_RECORD: usize = 64 << 20;

/// How much of it all a recording takes.
pub(super) struct Room {
    /// Bytes of maps and dumps.
    bytes: usize,
    /// Bytes of records with code. What is beyond goes without its code.
    code: usize,
    /// Bytes that were left out.
    pub(super) left_out: usize,
}

impl Default for Room {
    fn default() -> Room {
        Room { bytes: 256 << 20, code: 64 << 20, left_out: 0 }
    }
}

/// An open map or dump.
pub(super) struct Followed {
    file: File,
    /// As the process names it.
    pub(super) path: PathBuf,
    /// [`JitPiece::MAP`] or [`JitPiece::DUMP`].
    pub(super) source: u32,
    /// What stands before this was read.
    at: u64,
    step: usize,
    /// The header of a dump, with its bytes.
    header: Option<(Header, Vec<u8>)>,
    /// It is not what it ought to be.
    broken: bool,
}

impl Followed {
    pub(super) fn new(file: File, path: PathBuf, source: u32) -> Followed {
        Followed { file, path, source, at: 0, step: STEP, header: None, broken: false }
    }

    /// Whether it was cut short, or nobody can open it any more.
    pub(super) fn is_gone(&self) -> bool {
        self.file.metadata().is_ok_and(|meta| meta.len() < self.at || meta.nlink() == 0)
    }

    /// What is new, if there is anything; `last` when nothing will follow.
    pub(super) fn next(&mut self, room: &mut Room, last: bool) -> Option<Vec<u8>> {
        if self.broken {
            return None;
        }
        match self.source {
            JitPiece::MAP => self.next_lines(room, last),
            _ => self.next_records(room),
        }
    }

    fn next_lines(&mut self, room: &mut Room, last: bool) -> Option<Vec<u8>> {
        let mut lines = self.read(STEP)?;
        let whole = lines.iter().rposition(|byte| *byte == b'\n').map(|end| end + 1);
        let whole = match whole {
            Some(whole) => whole,
            // The end, or no line at all.
            None if last || lines.len() == STEP => lines.len(),
            None => return None,
        };
        lines.truncate(whole);
        self.at += whole as u64;
        room.take(lines)
    }

    fn next_records(&mut self, room: &mut Room) -> Option<Vec<u8>> {
        if self.header.is_none() {
            self.read_header()?;
        }
        let (header, front) = self.header.as_ref()?;
        let mut records = self.read(self.step)?;
        let full = records.len() == self.step;
        match header.whole(&records) {
            None => {
                self.broken = true;
                return None;
            }
            // A record that is longer than what was read.
            Some(0) if full && self.step < MAX_RECORD => {
                self.step *= 4;
                return self.next_records(room);
            }
            Some(0) => return None,
            Some(whole) => records.truncate(whole),
        }
        let read = records.len();
        if room.code < read {
            records = without_code(header, &records);
        } else {
            room.code -= read;
        }
        let piece = [front.as_slice(), &records].concat();
        self.at += read as u64;
        self.step = STEP;
        room.take(piece)
    }

    fn read_header(&mut self) -> Option<()> {
        let front = self.read(jitdump::HEADER)?;
        if front.len() < jitdump::HEADER {
            return None;
        }
        let header = Header::read(&front).filter(|header| header.len as usize <= MAX_HEADER);
        self.broken = header.is_none();
        let header = header?;
        let front = self.read(header.len as usize)?;
        if front.len() < header.len as usize {
            return None;
        }
        self.at = front.len() as u64;
        self.header = Some((header, front));
        Some(())
    }

    /// Up to so many bytes from where it was read to; `None` for none.
    fn read(&self, most: usize) -> Option<Vec<u8>> {
        let left = self.file.metadata().ok()?.len().checked_sub(self.at)?;
        let mut bytes = vec![0; usize::try_from(left).unwrap_or(most).min(most)];
        let mut have = 0;
        while have < bytes.len() {
            match self.file.read_at(bytes.get_mut(have..)?, self.at + have as u64) {
                Ok(0) | Err(_) => break,
                Ok(got) => have += got,
            }
        }
        bytes.truncate(have);
        (!bytes.is_empty()).then_some(bytes)
    }
}

impl Room {
    /// Takes bytes, if there is room for them.
    fn take(&mut self, bytes: Vec<u8>) -> Option<Vec<u8>> {
        match self.bytes.checked_sub(bytes.len()) {
            Some(left) => {
                self.bytes = left;
                Some(bytes)
            }
            None => {
                self.left_out = self.left_out.saturating_add(bytes.len());
                None
            }
        }
    }
}

fn without_code(header: &Header, records: &[u8]) -> Vec<u8> {
    let mut less = Vec::new();
    let mut all = header.records(records);
    while let Some(record) = all.next_bytes() {
        match header.without_code(record) {
            Some(record) => less.extend(record),
            None => less.extend_from_slice(record),
        }
    }
    less
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn followed(source: u32) -> (tempfile::NamedTempFile, Followed) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let held = File::open(file.path()).unwrap();
        let followed = Followed::new(held, "/tmp/x".into(), source);
        (file, followed)
    }

    #[test]
    fn lines_come_whole() {
        let (mut file, mut map) = followed(JitPiece::MAP);
        let mut room = Room::default();
        assert_eq!(map.next(&mut room, false), None);
        file.write_all(b"1000 10 a\n2000 1").unwrap();
        assert_eq!(map.next(&mut room, false).unwrap(), b"1000 10 a\n");
        assert_eq!(map.next(&mut room, false), None);
        file.write_all(b"0 b\n3000 10 c").unwrap();
        assert_eq!(map.next(&mut room, false).unwrap(), b"2000 10 b\n");
        assert_eq!(map.next(&mut room, true).unwrap(), b"3000 10 c");
        assert!(!map.is_gone());
        file.as_file().set_len(3).unwrap();
        assert!(map.is_gone());
        assert_eq!(map.next(&mut room, true), None);
    }

    /// A record of code: kind 0, as jitdump-specification.txt has it.
    fn record(index: u64, code: usize) -> Vec<u8> {
        let mut record = Vec::new();
        [0, 16 + 40 + 2 + code as u32].iter().for_each(|word| record.extend(word.to_le_bytes()));
        record.extend(7u64.to_le_bytes());
        [5u32, 5].iter().for_each(|word| record.extend(word.to_le_bytes()));
        [0x1000, 0x1000, code as u64, index].iter().for_each(|word| record.extend(word.to_le_bytes()));
        record.extend(b"f\0");
        record.resize(record.len() + code, 0xc3);
        record
    }

    fn header() -> Vec<u8> {
        let words = [0x4a69_5444u32, 1, 40, 62, 0, 5, 0, 0, 0, 0];
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn records_come_whole_each_time_behind_the_header() {
        let (mut file, mut dump) = followed(JitPiece::DUMP);
        let mut room = Room::default();
        let (header, one, two) = (header(), record(1, 10), record(2, 3 << 20));
        file.write_all(&header[..20]).unwrap();
        assert_eq!(dump.next(&mut room, false), None);
        file.write_all(&header[20..]).unwrap();
        file.write_all(&one).unwrap();
        file.write_all(&two[..100]).unwrap();
        assert_eq!(dump.next(&mut room, false).unwrap(), [&*header, &*one].concat());
        assert_eq!(dump.next(&mut room, false), None);
        file.write_all(&two[100..]).unwrap();
        assert_eq!(dump.next(&mut room, false).unwrap(), [&*header, &*two].concat());
        // There is no room for more code, but for names.
        room.code = 5;
        file.write_all(&one).unwrap();
        let less = dump.next(&mut room, false).unwrap();
        assert_eq!(less.len() + 10, header.len() + one.len());
        room.bytes = 20;
        file.write_all(&one).unwrap();
        assert_eq!((dump.next(&mut room, false), room.left_out > 0), (None, true));
        file.write_all(&[0; 16]).unwrap();
        assert_eq!((dump.next(&mut room, false), dump.broken), (None, true));
    }

    #[test]
    fn what_is_no_dump_is_not_followed() {
        let (mut file, mut dump) = followed(JitPiece::DUMP);
        file.write_all(&[b'x'; 4000]).unwrap();
        assert_eq!((dump.next(&mut Room::default(), true), dump.broken), (None, true));
    }
}
