//! Names made safe. A symbol, command or file name is foreign bytes: it may hold separators, control characters, or
//! what is no text at all.

use std::borrow::Cow;

/// The name as one frame of a folded line: no `;`, which separates frames, and no character that would break a line,
/// an XML document or a terminal.
///
/// `;` becomes `:`, as the collapsers of `perf script` do it; a control character or a character that XML 1.0 does not
/// allow becomes U+FFFD.
#[must_use]
pub fn clean(name: &str) -> Cow<'_, str> {
    if name.chars().all(|c| safe(c) == c) {
        return Cow::Borrowed(name);
    }
    Cow::Owned(name.chars().map(safe).collect())
}

/// The command as the first frame: as [`clean`], and with `_` for spaces, as collapsers of `perf script` write it.
#[must_use]
pub fn clean_comm(comm: &str) -> Cow<'_, str> {
    match clean(comm) {
        name if name.contains(' ') => Cow::Owned(name.replace(' ', "_")),
        name => name,
    }
}

/// What stands for an address without a name: the last part of its file's path in brackets.
#[must_use]
pub fn unnamed(dso: Option<&str>) -> String {
    match dso {
        None | Some("" | "[unknown]") => "[unknown]".into(),
        Some(path) => format!("[{}]", clean(path.rsplit('/').next().unwrap_or(path))),
    }
}

fn safe(c: char) -> char {
    match c {
        ';' => ':',
        '\u{fffe}' | '\u{ffff}' => char::REPLACEMENT_CHARACTER,
        c if c.is_control() => char::REPLACEMENT_CHARACTER,
        c => c,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_names_are_borrowed() {
        assert!(matches!(clean("core::fmt::write<T>"), Cow::Borrowed("core::fmt::write<T>")));
    }

    #[test]
    fn separators_and_control_characters_go() {
        assert_eq!(clean("Lorg/Foo;.run\n\u{1b}[2J"), "Lorg/Foo:.run\u{fffd}\u{fffd}[2J");
        assert_eq!(clean("a\u{ffff}b"), "a\u{fffd}b");
        assert_eq!(clean_comm("Web Content;1"), "Web_Content:1");
    }

    #[test]
    fn an_address_without_a_name_stands_as_its_file() {
        assert_eq!(unnamed(Some("/usr/lib/libc.so.6")), "[libc.so.6]");
        assert_eq!(unnamed(Some("[stack]")), "[[stack]]");
        assert_eq!(unnamed(None), "[unknown]");
    }
}
