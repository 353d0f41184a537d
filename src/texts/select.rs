//! How a text is named on the command line: `NAME[@WHICH…]`.
//!
//! Names of kernel texts are not unique and neither are addresses, so every `@` narrows the choice: digits are the id of a
//! BPF program, `0x…` is an address, seconds with a point are a time at which the text was there.

use afterimage_perf_data::TextDesc;

use super::time;
use crate::exit::Problem;

/// Which texts are meant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selector {
    /// Symbol, own name of a BPF program, or tag; empty for any.
    name: String,
    id: Option<u32>,
    address: Option<u64>,
    at: Option<u64>,
}

impl Selector {
    /// Reads `NAME[@WHICH…]`.
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        let mut parts = text.split('@');
        let mut selector = Selector { name: parts.next().unwrap_or_default().to_owned(), ..Selector::default() };
        for part in parts {
            if !selector.narrow(part) {
                let problem = Problem::usage(format!("{text}: {part} is no program's id, address or time"));
                return Err(problem.hint("for example NAME@42, NAME@0xffffffffc0001000, NAME@1234.567890").into());
            }
        }
        if selector == Selector::default() {
            return Err(Problem::usage(format!("{text}: no name")).into());
        }
        Ok(selector)
    }

    fn narrow(&mut self, part: &str) -> bool {
        if let Some(hex) = part.strip_prefix("0x") {
            self.address = u64::from_str_radix(hex, 16).ok();
            self.address.is_some()
        } else if part.contains('.') {
            self.at = time::parse(part);
            self.at.is_some()
        } else {
            self.id = part.parse().ok();
            self.id.is_some()
        }
    }

    /// Whether a text is one of those.
    pub(crate) fn takes(&self, text: &TextDesc) -> bool {
        let alive = |at: u64| text.born_ns.unwrap_or(0) <= at && text.gone_ns.is_none_or(|gone| at < gone);
        (self.name.is_empty() || is_called(text, &self.name))
            && self.id.is_none_or(|id| text.id == Some(id))
            && self.address.is_none_or(|address| text.address == address)
            && self.at.is_none_or(alive)
    }
}

/// Whether a text goes by that name: its whole symbol, of `bpf_prog_<tag>_<name>` one of the parts, or without a symbol its
/// tag.
fn is_called(text: &TextDesc, name: &str) -> bool {
    let symbol = text.name.as_deref().unwrap_or_default();
    let part = parts(symbol).is_some_and(|(tag, own)| tag == name || own == name);
    symbol == name || part || (symbol.is_empty() && text.tag.as_deref() == Some(name))
}

/// Tag and own name in the symbol of a BPF program.
fn parts(symbol: &str) -> Option<(&str, &str)> {
    let (tag, rest) = symbol.strip_prefix("bpf_prog_")?.split_at_checked(16)?;
    tag.bytes().all(|b| b.is_ascii_hexdigit()).then_some((tag, rest.strip_prefix('_').unwrap_or(rest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text() -> TextDesc {
        TextDesc {
            name: Some("bpf_prog_6deef7357e7b4530_hot".into()),
            id: Some(42),
            address: 0xffff_ffff_c000_1000,
            born_ns: Some(2_000_000_000),
            gone_ns: Some(3_000_000_000),
            ..TextDesc::default()
        }
    }

    fn takes(text: &TextDesc, selector: &str) -> bool {
        Selector::parse(selector).unwrap().takes(text)
    }

    #[test]
    fn every_part_narrows() {
        for yes in [
            "bpf_prog_6deef7357e7b4530_hot",
            "hot",
            "6deef7357e7b4530",
            "hot@42",
            "@42",
            "@0xffffffffc0001000",
            "hot@42@0xffffffffc0001000@2.0",
            "hot@2.999999",
        ] {
            assert!(takes(&text(), yes), "{yes}");
        }
        for no in ["ho", "hot@43", "hot@3.0", "hot@1.9", "hot@0xffffffffc0001001", "bpf_prog_6deef7357e7b4530"] {
            assert!(!takes(&text(), no), "{no}");
        }
    }

    #[test]
    fn without_times_a_text_was_always_there() {
        let always = TextDesc { born_ns: None, gone_ns: None, ..text() };
        assert!(takes(&always, "hot@0.5") && takes(&always, "hot@99.5"));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (selector, says) in [
            ("hot@x", "hot@x: x is no program's id, address or time"),
            ("hot@0xzz", "hot@0xzz: 0xzz is no program's id, address or time"),
            ("hot@1.2.3", "hot@1.2.3: 1.2.3 is no program's id, address or time"),
            ("hot@", "hot@:  is no program's id, address or time"),
            ("", ": no name"),
        ] {
            assert_eq!(Selector::parse(selector).unwrap_err().to_string(), says);
        }
    }
}
