//! Where a text ends whose length the kernel does not tell: of trampolines it reports a page.
//!
//! BPF hands text out in pieces of 64 bytes. What a text leaves of its last piece is filled with breakpoints, and what it
//! leaves of a page of its own is zeros; the next piece is another's. So a text ends where fill goes to the end of a piece,
//! and behind an instruction that leaves it: without that the fill may be a number of its own. A text that leaves nothing
//! to fill cannot be told from one that goes on.

/// What fills a piece behind its text.
pub(super) const FILL: u8 = 0xcc;
/// Texts are handed out in pieces of so many bytes.
const PIECE: u64 = 64;
/// A jump with its distance: its first byte, and its length.
const JUMP: (u8, usize) = (0xe9, 5);
const RETURN: u8 = 0xc3;
/// Fewer breakpoints than this may be an instruction's own bytes; zeros may be a constant of up to eight.
const LEAST_ZEROS: usize = 9;
const LEAST_BREAKPOINTS: usize = 4;

/// The end of a text in the bytes from its start `addr` on, and whether it is known to end there. Where it is not, the end is
/// where fill begins that is no instruction's, or that of the bytes. `next`: another text begins behind them, or nothing does.
pub fn end_of_text(addr: u64, bytes: &[u8], next: bool) -> (usize, bool) {
    match known_end(addr, bytes, next) {
        Some(end) => (end, true),
        None => (before_fill(addr, bytes), false),
    }
}

/// The end that the bytes show.
pub(super) fn known_end(addr: u64, bytes: &[u8], next: bool) -> Option<usize> {
    of_a_page(bytes).or_else(|| {
        let first = (PIECE - addr % PIECE) as usize;
        for end in (first..bytes.len()).step_by(PIECE as usize) {
            let piece = bytes.get(..end)?;
            if let Some(end) = left(piece, FILL) {
                return Some(end);
            }
            // It may have ended here, and left nothing to fill.
            if leaves(piece) {
                return None;
            }
        }
        let whole = bytes.get(..with_its_distance(bytes, last_but(bytes, FILL)))?;
        let at_a_piece = addr.wrapping_add(bytes.len() as u64) % PIECE == 0;
        let filled = at_a_piece && whole.len() < bytes.len();
        ((filled || next) && leaves(whole)).then_some(whole.len())
    })
}

/// The end of a text with a page of its own.
fn of_a_page(bytes: &[u8]) -> Option<usize> {
    let zeros = bytes.len() - last_but(bytes, 0);
    if zeros < LEAST_ZEROS { None } else { left(bytes, 0) }
}

/// The end of a text that fill follows up to the end of these bytes, if it is left there.
fn left(bytes: &[u8], fill: u8) -> Option<usize> {
    let before = bytes.get(..last_but(bytes, fill))?;
    let text = bytes.get(..with_its_distance(bytes, last_but(before, FILL)))?;
    (text.len() < bytes.len() && leaves(text)).then_some(text.len())
}

/// Behind the last byte that is something else.
fn last_but(bytes: &[u8], fill: u8) -> usize {
    bytes.iter().rposition(|byte| *byte != fill).map_or(0, |last| last + 1)
}

/// Whether a text ends in an instruction that leaves it: a return, or a jump to one.
fn leaves(text: &[u8]) -> bool {
    let jump = text.len().checked_sub(JUMP.1).and_then(|at| text.get(at));
    text.last() == Some(&RETURN) || jump == Some(&JUMP.0)
}

/// The end of a jump whose distance ends in bytes that look like fill.
fn with_its_distance(bytes: &[u8], last: usize) -> usize {
    let ends = (1..JUMP.1).filter_map(|before| {
        let jump = last.checked_sub(before)?;
        let end = jump + JUMP.1;
        let is_jump = bytes.get(jump) == Some(&JUMP.0);
        (is_jump && bytes.get(last..end)?.iter().all(|byte| *byte == FILL)).then_some(end)
    });
    ends.min().unwrap_or(last)
}

/// Where the fill behind a text begins, in the bytes from its start `addr` on: fill goes to the end of a piece at least, and
/// what stands behind it is another's.
fn before_fill(addr: u64, bytes: &[u8]) -> usize {
    let mut start = 0;
    for at in 0..bytes.len() {
        let least = match bytes.get(at) {
            Some(&FILL) => LEAST_BREAKPOINTS,
            Some(0) => LEAST_ZEROS,
            _ => {
                start = at + 1;
                continue;
            }
        };
        if bytes.get(start) != bytes.get(at) {
            start = at;
        }
        if addr.wrapping_add(at as u64 + 1) % PIECE == 0 && at + 1 - start >= least {
            break;
        }
    }
    let found = (start < bytes.len()).then_some(start);
    before_fill_at_end(found.and_then(|found| bytes.get(..found)).unwrap_or(bytes))
}

/// Where the fill at the end of these bytes begins, breakpoints or zeros with breakpoints before them.
pub(super) fn before_fill_at_end(bytes: &[u8]) -> usize {
    let before_zeros = bytes.get(..last_but(bytes, 0)).unwrap_or_default();
    with_its_distance(bytes, last_but(before_zeros, FILL))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDR: u64 = 0xffff_ffff_c000_0040;

    fn page(text: &[u8], fill: u8) -> Vec<u8> {
        let mut page = vec![fill; 256];
        page[..text.len()].copy_from_slice(text);
        page
    }

    fn long() -> Vec<u8> {
        [&[0x90; 70][..], &[0xe8, 0xcc, 0xcc, 0xcc, 0xcc, 0xc3]].concat()
    }

    #[test]
    fn the_fill_is_cut_off() {
        for (bytes, length) in [
            (&b"\x55\xc3\0\0\0\0"[..], 2),
            (b"\x55\xc3\xcc\xcc", 2),
            (b"\x55\xc3\xcc\0\0", 2),
            (b"\x55\xc3", 2),
            (b"\0\0", 0),
        ] {
            assert_eq!(before_fill_at_end(bytes), length);
            assert_eq!(before_fill(0x1000, bytes), length);
        }
    }

    #[test]
    fn a_text_ends_where_its_piece_is_filled() {
        let ends = |bytes: &[u8]| end_of_text(ADDR, bytes, false);
        assert_eq!(ends(&page(&long(), FILL)), (76, true));
        assert_eq!(ends(&page(&long(), 0)), (76, true), "a page of its own, with zeros behind");
        let jumps = [&[0x55; 20][..], &[0xe9, 1, 2, 0xcc, 4]].concat();
        assert_eq!(ends(&page(&jumps, FILL)), (25, true));
        // The next text begins behind the fill of this one.
        let mut two = page(&jumps, FILL);
        two[64..128].fill(0x90);
        assert_eq!(ends(&two), (25, true));
        // Its number ends a piece in the middle of the text.
        let mut number = page(&long(), FILL);
        number[..64].copy_from_slice(&[&[0x90; 59][..], &[0xb8, 1, 2, 3, 0xcc]].concat());
        assert_eq!(ends(&number), (76, true));
    }

    /// What stands behind it is another text's, which nobody may have told of.
    #[test]
    fn an_end_that_cannot_be_told_is_not_known() {
        assert_eq!(end_of_text(ADDR, &[0x90; 200], false), (200, false));
        assert_eq!(end_of_text(ADDR, &[], false), (0, false));
        assert_eq!(end_of_text(ADDR, &[], true), (0, false));
        assert_eq!(end_of_text(0x103c, &[FILL; 4], false), (0, false));
        // It fills its piece, and so does the one behind it, or that leaves something to fill.
        let mut whole = [0x90; 128];
        (whole[63], whole[127]) = (RETURN, RETURN);
        assert_eq!(end_of_text(ADDR, &whole, false), (128, false));
        assert_eq!(end_of_text(ADDR, &whole[..64], true), (64, true), "another one begins there");
        assert_eq!(end_of_text(ADDR, &whole[..60], true), (60, false), "one that began there would be within it");
        assert_eq!(end_of_text(ADDR, &whole, true), (128, false), "it may be two");
        whole[100] = RETURN;
        whole[101..].fill(FILL);
        assert_eq!(end_of_text(ADDR, &whole, false), (101, false));
    }

    #[test]
    fn the_distance_of_a_jump_may_look_like_fill() {
        for kept in 0..5 {
            let mut text = vec![0x90; 30];
            text.push(0xe9);
            text.extend([1, 2, 3, 4].iter().take(kept));
            text.resize(35, FILL);
            assert_eq!(end_of_text(ADDR, &page(&text, FILL), false), (35, true), "{kept} bytes of it do not");
            assert_eq!(end_of_text(ADDR, &page(&text, 0), false), (35, true), "{kept} bytes of it do not");
        }
        // It ends where its piece does, or goes on.
        let last = [&[0x90; 59][..], &[0xe9, 1, 2, 3, 0xcc], &[0x90; 64]].concat();
        assert_eq!(end_of_text(ADDR, &last, false), (128, false));
        assert_eq!(end_of_text(ADDR, &last[..64], true), (64, true));
    }

    #[test]
    fn fill_in_the_midst_of_a_text_is_its_own() {
        let text = |length: usize, fill: u8, room: usize| {
            let mut bytes: Vec<u8> = (0..length).map(|n| n as u8 | 1).collect();
            bytes.resize(length + room, fill);
            bytes.extend_from_slice(b"\x55\x48\x89\xe5\xc3");
            bytes.resize(1024, 0xcc);
            bytes
        };
        for (length, fill, room) in [(100, 0xcc, 28), (188, 0xcc, 4), (100, 0xcc, 28 + 128), (100, 0, 28), (55, 0, 9)] {
            assert_eq!(before_fill(ADDR, &text(length, fill, room)), length, "{length} {fill:#x}");
        }
        // Less than tells anything may be its own, too.
        let mut own = text(100, 0xcc, 28);
        own[20..28].fill(0xcc);
        own[56..64].fill(0);
        assert_eq!(before_fill(ADDR, &own), 100);
    }
}
