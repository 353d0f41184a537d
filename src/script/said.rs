//! What handlers from objects said of a sample: labels beside it, values on lines of their own.

use std::fmt::Write as _;

use afterimage_profile::{Label, Said, SaidTypes};

use super::digits::pad;
use crate::terminal::clean;

/// Appends the labels as `name=value`, each with a blank behind it.
pub(crate) fn labels(out: &mut Vec<u8>, types: &SaidTypes<'_>, said: &[Said<'_>]) {
    for one in said {
        let Some(name) = one.name() else { continue };
        let name = if name.is_empty() { "label" } else { &*name };
        out.extend_from_slice(clean(name).as_bytes());
        out.push(b'=');
        out.extend_from_slice(text(types, one).as_bytes());
        out.push(b' ');
    }
}

/// As wide as the words before other output of BPF programs.
const WORDS: &str = "       BPF value:";

/// Appends the values, each as a line that begins with a line break and has none at its end.
pub(crate) fn values(out: &mut Vec<u8>, types: &SaidTypes<'_>, said: &[Said<'_>]) {
    for one in said.iter().filter(|said| said.key.is_none()) {
        out.push(b'\n');
        out.extend_from_slice(WORDS.as_bytes());
        pad(out, b' ', 1);
        if types.handlers() > 1 {
            let name = types.handler(one.handler).map_or_else(|| format!("handler {}", one.handler), str::to_owned);
            out.extend_from_slice(format!("{}: ", clean(&name)).as_bytes());
        }
        if let Some(name) = types.type_name(one) {
            out.extend_from_slice(clean(&name).as_bytes());
            out.push(b' ');
        }
        out.extend_from_slice(text(types, one).as_bytes());
    }
}

pub(super) fn text(types: &SaidTypes<'_>, said: &Said<'_>) -> String {
    let mut text = String::new();
    // Writing to a String does not fail.
    let _ = match types.read(said) {
        Ok(value) => write!(text, "{value}"),
        Err(_) => text.write_str(&Label::of(types, said).text),
    };
    clean(&text).into_owned()
}
