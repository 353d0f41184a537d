//! C++ names (the Itanium ABI), in the spelling of the GNU demangler.

use cpp_demangle::{DemangleOptions, ParseOptions, Symbol};

use super::Bounded;

/// How deep a name may nest before it is left as it is; the parser and the printer recurse.
const MAX_DEPTH: u32 = 160;

/// The readable name, without parameters where they are the function's own.
pub(super) fn demangle(name: &str) -> Option<String> {
    // What stands behind the kind of a thunk is a whole function, and is printed with its parameters.
    if let Some(function) = name.strip_prefix("_ZT").and_then(thunk_target) {
        let kind = match name.as_bytes().get(3) {
            Some(b'h') => "non-virtual thunk to ",
            Some(b'v') => "virtual thunk to ",
            _ => "covariant return thunk to ",
        };
        return spell(&format!("_Z{function}"), true).map(|text| format!("{kind}{text}"));
    }
    if let Some(function) = name.strip_prefix("_ZGTt") {
        return spell(&format!("_Z{function}"), true).map(|text| format!("transaction clone for {text}"));
    }
    spell(name, false)
}

fn spell(name: &str, params: bool) -> Option<String> {
    let limits = ParseOptions::default().recursion_limit(MAX_DEPTH);
    let symbol = Symbol::new_with_options(name.as_bytes(), &limits).ok()?;
    let style = DemangleOptions::new().recursion_limit(MAX_DEPTH).no_return_type();
    let style = if params { style } else { style.no_params() };
    let mut out = Bounded::default();
    symbol.structured_demangle(&mut out, &style).ok()?;
    out.done().map(|text| tidy(text, params))
}

/// What follows the offsets of a thunk: `h` number `_`, `v` number `_` number `_`, `c` two of these.
fn thunk_target(thunk: &str) -> Option<&str> {
    match thunk.split_at_checked(1)? {
        ("c", rest) => call_offset(call_offset(rest)?),
        _ => call_offset(thunk),
    }
}

fn call_offset(text: &str) -> Option<&str> {
    match text.split_at_checked(1)? {
        ("h", rest) => number(rest),
        ("v", rest) => number(number(rest)?),
        _ => None,
    }
}

fn number(text: &str) -> Option<&str> {
    let digits = text.strip_prefix('n').unwrap_or(text);
    let rest = digits.trim_start_matches(|c: char| c.is_ascii_digit());
    if rest.len() == digits.len() { None } else { rest.strip_prefix('_') }
}

/// Integer literals of a template wear their type as a cast here and as a suffix in GNU's spelling.
const LITERALS: [(&str, &str); 6] = [
    ("(unsigned long long)", "ull"),
    ("(long long)", "ll"),
    ("(unsigned long)", "ul"),
    ("(long)", "l"),
    ("(unsigned int)", "u"),
    ("(int)", ""),
];

/// A class that the ABI abbreviates. GNU prints the short name, but the long one for its constructors.
struct Abbreviated {
    short: &'static str,
    short_own: &'static str,
    long: &'static str,
    long_own: &'static str,
}

const CLASSES: [Abbreviated; 4] = [
    Abbreviated {
        short: "std::string",
        short_own: "string",
        long: "std::basic_string<char, std::char_traits<char>, std::allocator<char> >",
        long_own: "basic_string",
    },
    Abbreviated {
        short: "std::istream",
        short_own: "istream",
        long: "std::basic_istream<char, std::char_traits<char> >",
        long_own: "basic_istream",
    },
    Abbreviated {
        short: "std::ostream",
        short_own: "ostream",
        long: "std::basic_ostream<char, std::char_traits<char> >",
        long_own: "basic_ostream",
    },
    Abbreviated {
        short: "std::iostream",
        short_own: "iostream",
        long: "std::basic_iostream<char, std::char_traits<char> >",
        long_own: "basic_iostream",
    },
];

fn tidy(mut text: String, params: bool) -> String {
    if !params {
        // Qualifiers of the function itself go with its parameters. A conversion to a reference has no space there.
        for qualifier in [" &&", " &", " const"] {
            let bare = text.strip_suffix(qualifier).map(str::len);
            text.truncate(bare.unwrap_or(text.len()));
        }
    }
    if text.contains(')') {
        for (cast, suffix) in LITERALS {
            text = cast_to_suffix(text, cast, suffix);
        }
    }
    if text.contains("std::") {
        text = text.replace("std::nullptr_t", "decltype(nullptr)");
        for class in &CLASSES {
            text = lengthen(shorten(text, class), class);
        }
    }
    text
}

/// `(long)5` becomes `5l`, and `(long)-5` becomes `-5l`.
fn cast_to_suffix(text: String, cast: &str, suffix: &str) -> String {
    if !text.contains(cast) {
        return text;
    }
    let mut parts = text.split(cast);
    let mut out = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let digits = part.strip_prefix('-').unwrap_or(part);
        let rest = digits.trim_start_matches(|c: char| c.is_ascii_digit());
        let literal = part.len() - rest.len();
        match part.split_at_checked(literal) {
            Some((number, rest)) if rest.len() < digits.len() => out.extend([number, suffix, rest]),
            _ => out.extend([cast, part]),
        }
    }
    out
}

/// The short name of a class, but not before its constructors and destructors.
fn shorten(text: String, class: &Abbreviated) -> String {
    replace(text, class.long, |rest| {
        let member = rest.strip_prefix("::").map(|m| m.strip_prefix('~').unwrap_or(m));
        let special = member.is_some_and(|m| m.starts_with(class.long_own));
        (!special).then(|| (class.short.to_string(), 0))
    })
}

/// The long name before constructors and destructors.
fn lengthen(text: String, class: &Abbreviated) -> String {
    replace(text, class.short, |rest| {
        let member = rest.strip_prefix("::")?;
        let (tilde, own) = member.strip_prefix('~').map_or(("", member), |own| ("~", own));
        let after = own.strip_prefix(class.short_own)?;
        let ends = !after.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        ends.then(|| (format!("{}::{tilde}{}", class.long, class.long_own), rest.len() - after.len()))
    })
}

/// Puts something else in the place of each `old`, and of some bytes behind it, as `new` says from what follows.
fn replace(text: String, old: &str, new: impl Fn(&str) -> Option<(String, usize)>) -> String {
    let mut out = String::new();
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once(old) {
        out.push_str(before);
        let (put, taken) = new(after).unwrap_or_else(|| (old.to_string(), 0));
        out.push_str(&put);
        rest = after.get(taken..).unwrap_or_default();
    }
    if out.is_empty() {
        return text;
    }
    out + rest
}
