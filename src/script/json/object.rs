//! JSON written piece by piece: a line a sample has no place for a tree in memory.

use std::fmt;
use std::io::Write as _;

/// An object or a list under way. It has to be [closed](Self::close).
pub(super) struct Open<'o> {
    out: &'o mut Vec<u8>,
    any: bool,
    end: u8,
}

impl<'o> Open<'o> {
    /// An object.
    pub(super) fn object(out: &'o mut Vec<u8>) -> Self {
        out.push(b'{');
        Open { out, any: false, end: b'}' }
    }

    /// A list.
    pub(super) fn list(out: &'o mut Vec<u8>) -> Self {
        out.push(b'[');
        Open { out, any: false, end: b']' }
    }

    pub(super) fn close(self) {
        self.out.push(self.end);
    }

    /// The place of the next item of a list.
    pub(super) fn item(&mut self) -> &mut Vec<u8> {
        if self.any {
            self.out.push(b',');
        }
        self.any = true;
        self.out
    }

    /// The place of the value of a key that needs no escapes.
    pub(super) fn key(&mut self, key: &str) -> &mut Vec<u8> {
        let out = self.item();
        out.push(b'"');
        out.extend_from_slice(key.as_bytes());
        out.extend_from_slice(b"\":");
        out
    }

    /// The place of the value of any key.
    pub(super) fn named(&mut self, key: &str) -> &mut Vec<u8> {
        let out = self.item();
        quoted(out, key);
        out.push(b':');
        out
    }

    /// A number, or null.
    pub(super) fn number(&mut self, key: &str, number: impl Into<Option<u64>>) {
        match number.into() {
            Some(number) => display(self.key(key), number),
            None => self.key(key).extend_from_slice(b"null"),
        }
    }

    /// An address, as a string: numbers of 64 bits are more than many readers of JSON hold.
    pub(super) fn address(&mut self, key: &str, address: u64) {
        display(self.key(key), format_args!("\"{address:#x}\""));
    }

    pub(super) fn truth(&mut self, key: &str, truth: bool) {
        display(self.key(key), truth);
    }

    /// Text with nothing in it that needs an escape.
    pub(super) fn plain(&mut self, key: &str, text: impl fmt::Display) {
        display(self.key(key), format_args!("\"{text}\""));
    }

    /// Any text.
    pub(super) fn text(&mut self, key: &str, text: &str) {
        quoted(self.key(key), text);
    }
}

/// Appends what something displays.
pub(super) fn display(out: &mut Vec<u8>, what: impl fmt::Display) {
    // Writing to a Vec does not fail.
    let _ = write!(out, "{what}");
}

/// Appends text in quotes, with escapes.
pub(super) fn quoted(out: &mut Vec<u8>, text: &str) {
    // Neither does writing a string to it.
    let _ = serde_json::to_writer(out, text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_json() {
        let mut out = Vec::new();
        let mut object = Open::object(&mut out);
        object.number("a", 1);
        object.number("none", None::<u64>);
        object.address("b", u64::MAX);
        object.text("c", "x\"\n\u{1}");
        object.named("k\\").extend_from_slice(b"true");
        let mut list = Open::list(object.key("d"));
        display(list.item(), 1);
        display(list.item(), 2);
        list.close();
        object.close();
        let read: serde_json::Value = serde_json::from_slice(&out).unwrap();
        let expected = serde_json::json!({
            "a": 1, "none": null, "b": "0xffffffffffffffff", "c": "x\"\n\u{1}", "k\\": true, "d": [1, 2]
        });
        assert_eq!(read, expected);
    }
}
