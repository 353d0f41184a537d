//! The bytes that a BPF program sent with a sample: eight to a line, as numbers and as text.

use afterimage_profile::TimedSample;

use super::digits::pad;

/// Appends the raw bytes of a sample, where it has some.
pub(crate) fn write(out: &mut Vec<u8>, sample: &TimedSample<'_>) {
    if let Ok(Some(raw)) = sample.decode().map(|all| all.raw) {
        out.push(b'\n');
        dump(out, raw);
    }
}

const LABEL: usize = 17;
const ROW: usize = 8;

fn dump(out: &mut Vec<u8>, raw: &[u8]) {
    for (nth, row) in raw.chunks(ROW).enumerate() {
        let label = if nth == 0 { "BPF output:" } else { "           " };
        pad(out, b' ', LABEL - label.len());
        out.extend_from_slice(label.as_bytes());
        out.extend_from_slice(format!(" {:04x}:", nth * ROW).as_bytes());
        for byte in row {
            out.extend_from_slice(format!(" {byte:02x}").as_bytes());
        }
        pad(out, b' ', 3 * (ROW - row.len()) + 2);
        out.extend(row.iter().map(|b| if b.is_ascii_graphic() || *b == b' ' { *b } else { b'.' }));
        pad(out, b' ', ROW - row.len());
        out.push(b'\n');
    }
    if let Some(text) = string(raw) {
        out.extend_from_slice(format!("{:>LABEL$} \"{text}\"\n", "BPF string:").as_bytes());
    }
}

/// The bytes as a string, where they are printable text that ends in zeros.
fn string(raw: &[u8]) -> Option<&str> {
    let end = raw.iter().position(|b| *b == 0)?;
    let (text, rest) = raw.split_at(end);
    let printable = !text.is_empty() && text.iter().all(|b| b.is_ascii_graphic() || *b == b' ');
    if !printable || rest.iter().any(|b| *b != 0) {
        return None;
    }
    std::str::from_utf8(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_stand_as_numbers_and_text() {
        let mut out = Vec::new();
        dump(&mut out, b"hello, world\0\x1b");
        let expected = "      BPF output: 0000: 68 65 6c 6c 6f 2c 20 77  hello, w
                  0008: 6f 72 6c 64 00 1b        orld..  \n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn only_printable_text_is_a_string() {
        assert_eq!(string(b"read\0\0\0\0"), Some("read"));
        assert_eq!(string(b"read"), None);
        assert_eq!(string(b"re\x1bad\0"), None);
        assert_eq!(string(b"\0\0"), None);
    }
}
