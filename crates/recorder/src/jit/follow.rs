//! One map or dump: what is new in it, in whole lines or whole records.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

use afterimage_perf_data::JitPiece;
use afterimage_symbols::jitdump::{self, Header};

use super::Watch;

/// Bytes that are read at once.
const STEP: usize = 1 << 20;
/// The longest header of a dump.
const MAX_HEADER: usize = 4096;
/// The longest record of a dump: one function's code and its lines. A dump with a longer one is not followed any further.
const MAX_RECORD: usize = 16 << 20;
/// A line that is longer is taken for one that ends here, so that no more than this is read twice.
const MAX_LINE: usize = 64 << 10;

/// How much of it all a recording takes.
pub(super) struct Room {
    left: Left,
    /// By user: nobody but root and who records takes more than half of it, so that there is something left for the others.
    users: HashMap<u32, Left>,
    /// Bytes that were left out.
    pub(super) left_out: u64,
}

#[derive(Clone, Copy)]
struct Left {
    /// Bytes of maps and dumps.
    bytes: usize,
    /// Bytes of records with code. What is beyond goes without its code.
    code: usize,
}

impl Default for Room {
    fn default() -> Room {
        Room { left: Left { bytes: 256 << 20, code: 64 << 20 }, users: HashMap::new(), left_out: 0 }
    }
}

/// An open map or dump.
pub(super) struct Followed {
    pub(super) file: File,
    /// As the process names it.
    pub(super) path: PathBuf,
    /// [`JitPiece::MAP`] or [`JitPiece::DUMP`].
    pub(super) source: u32,
    /// The user whose room it takes.
    user: u32,
    /// What stands before this was read.
    at: u64,
    /// The file has to be longer than this before there can be anything whole.
    beyond: u64,
    /// The header of a dump, with its bytes.
    header: Option<(Header, Vec<u8>)>,
    /// The number of the process that the header has to name.
    number: Option<u32>,
    /// It is not what it ought to be, or more than there is room for.
    broken: bool,
    /// Tells when it has grown.
    pub(super) watch: Option<Watch>,
}

impl Followed {
    pub(super) fn new(file: File, path: PathBuf, source: u32, user: u32) -> Followed {
        Followed { file, path, source, user, at: 0, beyond: 0, header: None, number: None, broken: false, watch: None }
    }

    /// Counts only if its header is of this process.
    pub(super) fn of(self, number: u32) -> Followed {
        Followed { number: Some(number), ..self }
    }

    /// Tells everything once more.
    pub(super) fn restart(&mut self) {
        (self.at, self.beyond, self.header) = (0, 0, None);
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
        // What stands there without an end has been seen.
        if last {
            self.beyond = 0;
        }
        let mut lines = self.read(STEP)?;
        let whole = lines.iter().rposition(|byte| *byte == b'\n').map(|end| end + 1);
        let whole = match whole {
            Some(whole) => whole,
            // The end, or no line at all.
            None if last || lines.len() >= MAX_LINE => lines.len(),
            None => {
                self.beyond = self.at + lines.len() as u64;
                return None;
            }
        };
        lines.truncate(whole);
        self.at += whole as u64;
        self.take(lines, room)
    }

    fn next_records(&mut self, room: &mut Room) -> Option<Vec<u8>> {
        if self.header.is_none() {
            self.read_header()?;
        }
        let (header, front) = self.header.as_ref()?;
        // The record at the front is all there, for the file is longer than `beyond`.
        let most = STEP.max(usize::try_from(self.beyond.saturating_sub(self.at)).unwrap_or(0) + 1);
        let mut records = self.read(most)?;
        match header.whole(&records) {
            None => {
                self.broken = true;
                return None;
            }
            Some(0) => {
                let len = header.first_len(&records);
                self.beyond = self.at + len as u64 - 1;
                if len > MAX_RECORD {
                    self.broken = true;
                    room.left_out = room.left_out.saturating_add(len as u64);
                    return None;
                }
                // It is longer than what is read at once; or it is not there yet.
                return if self.wanted(STEP) > 0 { self.next_records(room) } else { None };
            }
            Some(whole) => records.truncate(whole),
        }
        let read = records.len();
        if !room.take_code(self.user, read) {
            records = without_code(header, &records);
        }
        let piece = [front.as_slice(), &records].concat();
        self.at += read as u64;
        self.take(piece, room)
    }

    /// Takes bytes, if there is room for them; otherwise this was all.
    fn take(&mut self, bytes: Vec<u8>, room: &mut Room) -> Option<Vec<u8>> {
        let bytes = room.take(self.user, bytes);
        if bytes.is_none() {
            self.broken = true;
            let rest = self.file.metadata().map_or(0, |meta| meta.len()).saturating_sub(self.at);
            room.left_out = room.left_out.saturating_add(rest);
        }
        bytes
    }

    fn read_header(&mut self) -> Option<()> {
        let front = self.read(jitdump::HEADER)?;
        if front.len() < jitdump::HEADER {
            return None;
        }
        let is_own = |header: &Header| self.number.is_none_or(|number| number == header.pid);
        let header = Header::read(&front).filter(|header| header.len as usize <= MAX_HEADER && is_own(header));
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

    /// How many bytes there are to be read now, up to `most`: none as long as no more than part of a line or record is there.
    fn wanted(&self, most: usize) -> usize {
        let len = self.file.metadata().map_or(0, |meta| meta.len());
        let left = if len > self.beyond { len.saturating_sub(self.at) } else { 0 };
        usize::try_from(left).unwrap_or(most).min(most)
    }

    /// Up to so many bytes from where it was read to; `None` for none.
    fn read(&self, most: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; self.wanted(most)];
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
    fn of_user(&mut self, user: u32) -> (&mut Left, &mut Left) {
        let Left { bytes, code } = self.left;
        let is_free = user == 0 || user == rustix::process::geteuid().as_raw();
        let share = if is_free { self.left } else { Left { bytes: bytes / 2, code: code / 2 } };
        (&mut self.left, self.users.entry(user).or_insert(share))
    }

    /// Takes bytes, if there is room for them.
    fn take(&mut self, user: u32, bytes: Vec<u8>) -> Option<Vec<u8>> {
        let (all, own) = self.of_user(user);
        let Some((all_left, own_left)) = all.bytes.checked_sub(bytes.len()).zip(own.bytes.checked_sub(bytes.len()))
        else {
            self.left_out = self.left_out.saturating_add(bytes.len() as u64);
            return None;
        };
        (all.bytes, own.bytes) = (all_left, own_left);
        Some(bytes)
    }

    /// Whether so many bytes of records may go with their code.
    fn take_code(&mut self, user: u32, len: usize) -> bool {
        let (all, own) = self.of_user(user);
        let left = all.code.checked_sub(len).zip(own.code.checked_sub(len));
        if let Some(left) = left {
            (all.code, own.code) = left;
        }
        left.is_some()
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
        let followed = Followed::new(held, "/tmp/x".into(), source, 0);
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
        room.left.code = 5;
        file.write_all(&one).unwrap();
        let less = dump.next(&mut room, false).unwrap();
        assert_eq!(less.len() + 10, header.len() + one.len());
        room.left.bytes = 20;
        file.write_all(&one).unwrap();
        assert_eq!((dump.next(&mut room, false), room.left_out > 0, dump.broken), (None, true, true));
        dump.broken = false;
        file.write_all(&[0; 16]).unwrap();
        assert_eq!((dump.next(&mut room, false), dump.broken), (None, true));
    }

    #[test]
    fn what_is_not_whole_is_not_read_again() {
        let (mut file, mut dump) = followed(JitPiece::DUMP);
        let mut room = Room::default();
        let (header, record) = (header(), record(1, 5 << 20));
        file.write_all(&header).unwrap();
        file.write_all(&record[..16]).unwrap();
        // All but one byte is there, and holds nothing.
        file.as_file().set_len((header.len() + record.len() - 1) as u64).unwrap();
        assert_eq!((dump.next(&mut room, false), dump.wanted(usize::MAX)), (None, 0));
        assert_eq!(dump.next(&mut room, true), None);
        file.write_all(&record[16..]).unwrap();
        assert_eq!(dump.wanted(usize::MAX), record.len());
        assert_eq!(dump.next(&mut room, false).unwrap(), [&*header, &*record].concat());
        // One that is too long is not waited for.
        file.write_all(&[0, 0, 0, 0]).unwrap();
        file.write_all(&(17u32 << 20).to_le_bytes()).unwrap();
        file.write_all(&[0; 100]).unwrap();
        assert_eq!((dump.next(&mut room, false), dump.broken, room.left_out), (None, true, 17 << 20));

        let (mut file, mut map) = followed(JitPiece::MAP);
        file.write_all(&[b'x'; 1000]).unwrap();
        assert_eq!((map.next(&mut room, false), map.wanted(usize::MAX)), (None, 0));
        file.write_all(&[b'x'; MAX_LINE]).unwrap();
        assert_eq!(map.next(&mut room, false).unwrap().len(), 1000 + MAX_LINE);
    }

    #[test]
    fn no_user_takes_it_all() {
        let mut room = Room { left: Left { bytes: 100, code: 100 }, ..Room::default() };
        assert!(room.take(7, vec![0; 40]).is_some() && room.take(7, vec![0; 11]).is_none());
        assert!(room.take_code(7, 50) && !room.take_code(7, 1));
        assert!(room.take(8, vec![0; 20]).is_some() && room.take(0, vec![0; 40]).is_some());
        assert!(room.take_code(0, 50) && !room.take_code(0, 1) && room.take(0, vec![0; 1]).is_none());
        assert_eq!(room.left_out, 12);
    }

    #[test]
    fn what_is_no_dump_is_not_followed() {
        let (mut file, mut dump) = followed(JitPiece::DUMP);
        file.write_all(&[b'x'; 4000]).unwrap();
        assert_eq!((dump.next(&mut Room::default(), true), dump.broken), (None, true));
    }
}
