//! From text to words.

use super::error::{Span, Wrong, syntax};

/// One word of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    Number(u64),
    Text(Vec<u8>),
    Word(String),
    /// An operator or a bracket.
    Sign(&'static str),
    End,
}

impl Token {
    /// What it is, in a sentence.
    pub(crate) fn describe(&self) -> String {
        match self {
            Token::Number(n) => format!("the number {n}"),
            Token::Text(_) => "a text".to_owned(),
            Token::Word(word) => format!("`{word}`"),
            Token::Sign(sign) => format!("`{sign}`"),
            Token::End => "the end".to_owned(),
        }
    }
}

/// Longer ones first.
const SIGNS: [&str; 22] = [
    "&&", "||", "==", "!=", "<=", ">=", "!~", "..", "<", ">", "!", "~", "(", ")", ",", "&", "+", "-", "*", "%", "/",
    "=",
];

/// Units of time, in ns.
const UNITS: [(&str, u64); 4] = [("ns", 1), ("us", 1000), ("ms", 1_000_000), ("s", 1_000_000_000)];

/// Splits an expression. The last token is [`Token::End`].
pub(crate) fn tokens(text: &str) -> Result<Vec<(Token, Span)>, Wrong> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        if first.is_whitespace() {
            at += first.len_utf8();
            continue;
        }
        let (token, len) = one(text, at, first)?;
        tokens.push((token, Span { start: at, end: at + len }));
        at += len;
    }
    tokens.push((Token::End, Span { start: text.len(), end: text.len() }));
    Ok(tokens)
}

fn one(text: &str, at: usize, first: char) -> Result<(Token, usize), Wrong> {
    let rest = &text[at..];
    if first.is_ascii_digit() {
        return number(rest, at);
    }
    if first == '"' || first == '\'' {
        return quoted(rest, at, first);
    }
    if first.is_ascii_alphabetic() || first == '_' {
        let word = word(rest);
        return Ok((Token::Word(word.to_owned()), word.len()));
    }
    if let Some(sign) = SIGNS.into_iter().find(|sign| rest.starts_with(sign)) {
        return match sign {
            "=" => Err(syntax(Span { start: at, end: at + 1 }, "`=` is no comparison").hint("equal is ==")),
            _ => Ok((Token::Sign(sign), sign.len())),
        };
    }
    let here = Span { start: at, end: at + first.len_utf8() };
    let wrong = syntax(here, format!("`{}` has no meaning here", first.escape_debug()));
    Err(match first {
        '|' => wrong.hint("or is ||"),
        '“' | '”' | '„' | '‘' | '’' => wrong.hint("texts stand in \" or '"),
        _ => wrong,
    })
}

fn word(text: &str) -> &str {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(text.len());
    &text[..end]
}

fn number(text: &str, at: usize) -> Result<(Token, usize), Wrong> {
    let word = word(text);
    let span = Span { start: at, end: at + word.len() };
    let wrong = |what: &str| syntax(span, format!("`{word}` {what}"));
    if let Some(hex) = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        let digits = hex.replace('_', "");
        let value = u64::from_str_radix(&digits, 16).map_err(|_| wrong("is no number of up to 64 bits"))?;
        return Ok((Token::Number(value), word.len()));
    }
    if text[word.len()..].starts_with('.') && !text[word.len()..].starts_with("..") {
        return Err(wrong("is followed by a point: numbers have no fractions").hint("1500us for 1.5ms"));
    }
    let digits = word.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &word[digits.len()..] {
        "" => 1,
        unit => UNITS.iter().find(|(name, _)| *name == unit).map(|(_, ns)| *ns).ok_or_else(|| {
            wrong("is no number").hint("numbers are decimal or begin with 0x; times end in ns, us, ms or s")
        })?,
    };
    let value = digits.replace('_', "").parse::<u64>().ok().and_then(|value| value.checked_mul(unit));
    Ok((Token::Number(value.ok_or_else(|| wrong("is no number of up to 64 bits"))?), word.len()))
}

fn quoted(text: &str, at: usize, quote: char) -> Result<(Token, usize), Wrong> {
    let mut value = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((offset, c)) = chars.next() {
        match c {
            _ if c == quote => return Ok((Token::Text(value.into_bytes()), offset + 1)),
            '\\' => match chars.next() {
                Some((_, c @ ('\\' | '"' | '\''))) => value.push(c),
                Some((next, c)) => {
                    let span = Span { start: at + offset, end: at + next + c.len_utf8() };
                    return Err(syntax(span, "a backslash takes a quote or another backslash"));
                }
                None => break,
            },
            _ => value.push(c),
        }
    }
    Err(syntax(Span { start: at, end: at + text.len() }, "a text that does not end"))
}
