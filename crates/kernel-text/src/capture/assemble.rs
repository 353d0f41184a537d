//! Puts the pieces of texts together.

use std::collections::HashMap;

use super::captured::Captured;
use super::end::before_fill_at_end;
use super::wire::{Piece, What};
use crate::{TextKind, Way};

/// The longest text that is put together (AI_PIECE times AI_PIECES).
const LONGEST: u32 = 4 << 20;

/// Texts whose pieces have not all come.
#[derive(Debug)]
pub(super) struct Assembly {
    way: Way,
    open: HashMap<(u64, u64, u32), Open>,
    pass: u64,
}

#[derive(Debug)]
struct Open {
    text: Captured,
    /// Bytes that are to come.
    whole: u32,
    pass: u64,
}

impl Assembly {
    /// Of texts that are copied in this way.
    pub(super) fn new(way: Way) -> Assembly {
        Assembly { way, open: HashMap::new(), pass: 0 }
    }

    /// Takes a record of the ring; answers a text when it is whole.
    pub(super) fn take(&mut self, record: &[u8]) -> Option<Captured> {
        let piece = Piece::read(record)?;
        let key = (piece.owner, piece.time, piece.function ^ (piece.what as u32) << 24);
        let whole = piece.length.min(LONGEST);
        if piece.is_news() {
            return Some(Captured { proven: false, ..begin(&piece, self.way) });
        }
        if piece.offset == 0 && piece.bytes.len() as u32 >= whole {
            let mut text = begin(&piece, self.way);
            text.bytes.extend_from_slice(piece.bytes);
            fail(&mut text, &piece);
            return Some(finish(text));
        }
        let (pass, way) = (self.pass, self.way);
        let open = self.open.entry(key).or_insert_with(|| Open { text: begin(&piece, way), whole, pass });
        // The pieces of one text come in order, from one CPU. What follows a lost one is of no use.
        if open.text.failed.is_none() && open.text.bytes.len() == piece.offset as usize {
            open.text.bytes.extend_from_slice(piece.bytes);
            fail(&mut open.text, &piece);
        } else if open.text.failed.is_none() {
            open.text.failed = Some(RING_FULL.into());
        }
        let done = piece.offset.saturating_add(piece.bytes.len() as u32) >= open.whole;
        if done { self.open.remove(&key).map(|open| finish(open.text)) } else { None }
    }

    /// Ends a pass: what has waited for more pieces through two of them waits in vain.
    pub(super) fn end_of_pass(&mut self) -> Vec<Captured> {
        let pass = self.pass;
        self.pass += 1;
        let given_up: Vec<_> = self.open.iter().filter(|(_, o)| o.pass + 1 < pass).map(|(key, _)| *key).collect();
        let removed = given_up.iter().filter_map(|key| self.open.remove(key));
        removed
            .map(|mut open| {
                open.text.failed.get_or_insert_with(|| RING_FULL.into());
                finish(open.text)
            })
            .collect()
    }
}

const RING_FULL: &str = "the ring of the capture was full";

fn fail(text: &mut Captured, piece: &Piece<'_>) {
    if piece.error != 0 {
        text.failed = Some(format!("it could not be read as it was freed (error {})", -piece.error).into());
    } else if piece.length > LONGEST {
        text.failed = Some("longer than is copied".into());
    }
}

fn begin(piece: &Piece<'_>, way: Way) -> Captured {
    let program = piece.what == What::Program;
    let kind = match piece.what {
        What::Program if piece.loaded == 0 => TextKind::Cbpf,
        What::Program if piece.function > 0 => TextKind::Subprogram,
        What::Program => TextKind::Program,
        What::Trampoline => TextKind::Trampoline,
        What::ModuleCame | What::ModuleGone => TextKind::Module,
        What::ModuleInit => TextKind::ModuleInit,
        What::StructOps => TextKind::StructOps,
    };
    let came = matches!(piece.what, What::ModuleCame | What::ModuleInit);
    Captured {
        time: piece.time,
        addr: piece.addr,
        len: piece.length,
        name: piece.name.to_vec(),
        tag: (program && kind != TextKind::Cbpf).then_some(piece.tag),
        own_tag: None,
        id: None,
        function: program.then_some(piece.function),
        kind,
        way,
        proven: true,
        bytes: Vec::new(),
        freed: !came,
        came,
        failed: None,
        owner: piece.owner,
        group: piece.owner ^ piece.time.rotate_left(32),
        functions: piece.functions,
        program_type: piece.program_type,
        derived: piece.what == What::Trampoline && piece.loaded != 0,
    }
}

fn finish(mut text: Captured) -> Captured {
    if text.failed.is_some() {
        text.bytes.clear();
        text.proven = false;
    } else if text.derived {
        text.bytes.truncate(before_fill_at_end(&text.bytes));
        text.len = text.bytes.len() as u32;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(offset: u32, length: u32, bytes: &[u8], error: i32) -> Vec<u8> {
        let mut record = vec![0; 200];
        record[..8].copy_from_slice(&7u64.to_ne_bytes());
        record[8..16].copy_from_slice(&9u64.to_ne_bytes());
        record[24..32].copy_from_slice(&1u64.to_ne_bytes());
        record[32..36].copy_from_slice(&length.to_ne_bytes());
        record[36..40].copy_from_slice(&offset.to_ne_bytes());
        record[40..44].copy_from_slice(&(bytes.len() as u32).to_ne_bytes());
        record[44..48].copy_from_slice(&error.to_ne_bytes());
        record[60..64].copy_from_slice(&1u32.to_ne_bytes());
        record[72..75].copy_from_slice(b"abc");
        record.extend_from_slice(bytes);
        // Room that the piece does not use.
        record.extend_from_slice(&[0xee; 64]);
        record
    }

    #[test]
    fn a_text_in_one_piece_is_whole_at_once() {
        let text = Assembly::new(Way::FreeTime).take(&record(0, 3, b"xyz", 0)).unwrap();
        assert_eq!((text.bytes.as_slice(), text.name.as_slice(), text.proven), (&b"xyz"[..], &b"abc"[..], true));
        assert_eq!(text.kind, TextKind::Program);
    }

    #[test]
    fn pieces_are_put_together() {
        let mut assembly = Assembly::new(Way::FreeTime);
        assert_eq!(assembly.take(&record(0, 5, b"ab", 0)), None);
        assert_eq!(assembly.take(&record(2, 5, b"cde", 0)).unwrap().bytes, b"abcde");
        assert!(assembly.open.is_empty());
    }

    #[test]
    fn a_lost_piece_fails_the_text() {
        let mut assembly = Assembly::new(Way::FreeTime);
        assert_eq!(assembly.take(&record(0, 6, b"ab", 0)), None);
        let text = assembly.take(&record(4, 6, b"ef", 0)).unwrap();
        assert_eq!((text.failed.as_deref(), text.proven, text.bytes.len()), (Some(RING_FULL), false, 0));
        assert_eq!(assembly.take(&record(0, 6, b"ab", 0)), None);
        assert!(assembly.end_of_pass().is_empty() && assembly.end_of_pass().is_empty());
        assert_eq!(assembly.end_of_pass().len(), 1);
    }

    #[test]
    fn what_is_only_told_of_waits_for_no_bytes() {
        let mut assembly = Assembly::new(Way::FreeTime);
        let text = assembly.take(&record(0, 100_000, b"", 0)).unwrap();
        assert_eq!((text.len, text.bytes.len(), text.proven, text.failed), (100_000, 0, false, None));
        assert!(text.freed && assembly.open.is_empty());
        // One that could not be read has bytes, though they are none.
        assert_eq!(assembly.take(&record(0, 100_000, b"", -14)), None);
    }

    #[test]
    fn what_could_not_be_read_says_so() {
        let text = Assembly::new(Way::FreeTime).take(&record(0, 3, b"xyz", -14)).unwrap();
        assert!(text.failed.unwrap().contains("14"));
        assert!(text.bytes.is_empty());
    }

    #[test]
    fn made_up_records_are_no_panic() {
        let whole = record(0, 3, b"xyz", 0);
        for cut in 0..whole.len() {
            Assembly::new(Way::FreeTime).take(&whole[..cut]);
        }
        for at in 0..200 {
            let mut bad = whole.clone();
            bad[at] ^= 0xff;
            Assembly::new(Way::FreeTime).take(&bad);
        }
    }
}
