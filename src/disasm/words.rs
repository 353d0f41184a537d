//! Code that no decoder here knows, as the words that it is made of.

use super::Line;

/// Words of four bytes, as assemblers would take them back.
pub(super) fn decode(code: &[u8]) -> Vec<Line> {
    let words = code.chunks(4).enumerate().map(|(at, bytes)| {
        let text = match <[u8; 4]>::try_from(bytes) {
            Ok(word) => format!(".inst\t0x{:08x}", u32::from_le_bytes(word)),
            Err(_) => format!(".byte\t{}", bytes.iter().map(|b| format!("0x{b:02x}")).collect::<Vec<_>>().join(", ")),
        };
        Line { offset: at as u64 * 4, len: bytes.len(), text, target: None }
    });
    words.collect()
}
