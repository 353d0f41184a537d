//! ELF notes: the build id.

/// `NT_GNU_BUILD_ID` of elf.h.
const GNU_BUILD_ID: u32 = 3;
/// Longest build id that is believed. The usual ones are 20 bytes (SHA-1), 16 (MD5, UUID) or 8 (fast).
pub(crate) const MAX_BUILD_ID: usize = 64;

/// The GNU build id among notes of the machine's byte order, as `/sys/kernel/notes` and `.note.gnu.build-id` hold them.
///
/// Each note is `u32 name length, u32 descriptor length, u32 type, name, descriptor`, both padded to four bytes (elf(5)).
pub fn build_id_of_notes(notes: &[u8]) -> Option<&[u8]> {
    find(notes, u32::from_ne_bytes)
}

pub(crate) fn find(mut notes: &[u8], word: impl Fn([u8; 4]) -> u32) -> Option<&[u8]> {
    loop {
        let (head, rest) = notes.split_at_checked(12)?;
        let field = |at: usize| head.get(at..at + 4).and_then(|b| b.try_into().ok()).map(&word);
        let name_len = usize::try_from(field(0)?).ok()?;
        let desc_len = usize::try_from(field(4)?).ok()?;
        let kind = field(8)?;
        let name = rest.get(..name_len)?;
        let rest = rest.get(padded(name_len)?..)?;
        let desc = rest.get(..desc_len)?;
        if kind == GNU_BUILD_ID && name == b"GNU\0" && (1..=MAX_BUILD_ID).contains(&desc_len) {
            return Some(desc);
        }
        notes = rest.get(padded(desc_len)?..)?;
    }
}

fn padded(len: usize) -> Option<usize> {
    len.checked_next_multiple_of(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(name: &[u8], kind: u32, desc: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for word in [name.len() as u32, desc.len() as u32, kind] {
            out.extend(word.to_ne_bytes());
        }
        out.extend(name);
        out.resize(out.len().next_multiple_of(4), 0);
        out.extend(desc);
        out.resize(out.len().next_multiple_of(4), 0);
        out
    }

    #[test]
    fn finds_the_id_behind_other_notes() {
        let mut notes = note(b"Linux\0", 0, b"6.1");
        notes.extend(note(b"GNU\0", 1, &[0; 16]));
        notes.extend(note(b"GNU\0", GNU_BUILD_ID, &[7; 20]));
        assert_eq!(build_id_of_notes(&notes), Some(&[7u8; 20][..]));
    }

    #[test]
    fn lengths_that_lie_find_nothing() {
        let mut notes = note(b"GNU\0", GNU_BUILD_ID, &[7; 20]);
        notes[4..8].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(build_id_of_notes(&notes), None);
        notes[0..4].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(build_id_of_notes(&notes), None);
        assert_eq!(build_id_of_notes(&[]), None);
    }

    #[test]
    fn the_running_kernel_has_one() {
        let Ok(notes) = std::fs::read("/sys/kernel/notes") else { return };
        assert_eq!(build_id_of_notes(&notes).map(<[u8]>::len), Some(20));
    }
}
