//! Foreign text made fit for a terminal.
//!
//! Names of commands, files, symbols and events come from files and from other people's processes. Nothing in them may
//! steer a terminal or break a line: control characters, and the characters that turn the direction of text round,
//! are written as escapes.

use std::borrow::Cow;
use std::fmt::Write;

/// The text with everything escaped that a terminal would act upon.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    // Nearly all text is plain ASCII, which is much quicker to see.
    if text.bytes().all(|b| (b' '..=b'~').contains(&b)) || text.chars().all(|c| !acts(c)) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if acts(c) {
            let code = u32::from(c);
            // Writing to a String does not fail.
            let _ = if code < 0x100 { write!(out, "\\x{code:02x}") } else { write!(out, "\\u{{{code:x}}}") };
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// The width in characters: what `{:<width$}` pads by.
pub(crate) fn width(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.chars().count() }
}

/// A number with a comma between groups of three digits.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn acts(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_steer_the_terminal() {
        assert_eq!(clean("file \x1b[2Jname\nnext\u{9b}"), "file \\x1b[2Jname\\x0anext\\x9b");
        assert_eq!(clean("abc\u{202e}cba"), "abc\\u{202e}cba");
        assert!(matches!(clean("naïve · plain 名"), Cow::Borrowed("naïve · plain 名")));
    }

    #[test]
    fn numbers_are_grouped_by_three() {
        let cases =
            [(0, "0"), (999, "999"), (1000, "1,000"), (12_034, "12,034"), (u64::MAX, "18,446,744,073,709,551,615")];
        for (number, text) in cases {
            assert_eq!(grouped(number), text);
        }
    }
}
