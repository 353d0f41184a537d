//! Patterns of names as instructions.

use super::asm::{Label, Test, code};
use super::emit::{COMM_AT, Emitter};
use super::glob::{COMM, COMM_MAX, Glob, Piece};

const FP: u8 = 10;

impl Emitter<'_> {
    /// Goes to `hit` when the name on the stack matches, else to `miss`.
    ///
    /// The first piece is compared as it stands. For each later one there is a block of attempts, one for each place where
    /// it may begin, which a failure goes down and a success leaves for the next block.
    pub(super) fn comm(&mut self, glob: &Glob, hit: Label, miss: Label) {
        let Some((first, rest)) = glob.pieces.split_first() else { return self.asm.jump(miss) };
        let Some((last, middle)) = rest.split_last() else {
            self.anchored(first, true, miss);
            return self.asm.jump(hit);
        };
        self.anchored(first, false, miss);
        let mut start = first.len();
        let mut blocks: Vec<(&Piece, Vec<Option<Label>>, bool)> = Vec::new();
        let searched = middle.iter().map(|piece| (piece, false));
        let searched = searched.chain((!last.is_empty()).then_some((last, true)));
        for (piece, at_end) in searched {
            let fits = |at: usize| at >= start && at + piece.len() <= COMM_MAX;
            let labels = (0..COMM).map(|at| fits(at).then(|| self.asm.label())).collect();
            blocks.push((piece, labels, at_end));
            start += piece.len();
        }
        let entry = |block: Option<&(&Piece, Vec<Option<Label>>, bool)>, at: usize| match block {
            Some((_, labels, _)) => labels.get(at).copied().flatten().unwrap_or(miss),
            None => hit,
        };
        self.asm.jump(entry(blocks.first(), first.len()));
        for (number, (piece, labels, at_end)) in blocks.iter().enumerate() {
            for (at, label) in labels.iter().enumerate() {
                let Some(label) = *label else { continue };
                self.asm.bind(label);
                let next = labels.get(at + 1).copied().flatten().unwrap_or(miss);
                self.piece(piece, at, next);
                if *at_end {
                    self.byte(at + piece.len());
                    self.asm.jump_if(Test::Unequal, 1, 0, 2, next);
                }
                self.asm.jump(entry(blocks.get(number + 1), at + piece.len()));
            }
        }
    }

    /// The bytes at the front of the name, and that it ends there when `whole`; two words at a time.
    fn anchored(&mut self, piece: &Piece, whole: bool, miss: Label) {
        let (mut value, mut mask) = ([0u8; COMM], [0u8; COMM]);
        let end = piece.len().min(COMM_MAX);
        for (at, want) in piece.iter().take(end).enumerate() {
            if let Some(byte) = want {
                (value[at], mask[at]) = (*byte, 0xff);
            }
        }
        if whole {
            mask[end] = 0xff;
        }
        for (at, (value, mask)) in value.as_chunks_8().into_iter().zip(mask.as_chunks_8()).enumerate() {
            if mask == 0 {
                continue;
            }
            self.asm.load(code::DW, 1, FP, COMM_AT + 8 * at as i16);
            if mask != u64::MAX {
                self.asm.constant(2, mask);
                self.asm.alu_reg(code::AND, 1, 2);
            }
            self.asm.jump_if(Test::Unequal, 1, value, 2, miss);
        }
        for (at, _) in piece.iter().take(end).enumerate().filter(|(_, want)| want.is_none()) {
            self.byte(at);
            self.asm.jump_if(Test::Equal, 1, 0, 2, miss);
        }
    }

    /// The bytes of a piece at one place.
    fn piece(&mut self, piece: &Piece, at: usize, miss: Label) {
        for (offset, want) in piece.iter().enumerate() {
            self.byte(at + offset);
            match want {
                Some(byte) => self.asm.jump_if(Test::Unequal, 1, (*byte).into(), 2, miss),
                None => self.asm.jump_if(Test::Equal, 1, 0, 2, miss),
            }
        }
    }

    fn byte(&mut self, at: usize) {
        self.asm.load(code::B, 1, FP, COMM_AT + at.min(COMM - 1) as i16);
    }
}

/// Both words of a name, as the machine loads them.
trait Words {
    fn as_chunks_8(&self) -> [u64; 2];
}

impl Words for [u8; COMM] {
    fn as_chunks_8(&self) -> [u64; 2] {
        let (mut low, mut high) = ([0; 8], [0; 8]);
        low.copy_from_slice(&self[..8]);
        high.copy_from_slice(&self[8..]);
        [u64::from_ne_bytes(low), u64::from_ne_bytes(high)]
    }
}
