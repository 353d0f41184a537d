//! A value as text for people and as JSON.

use std::fmt::{self, Write};

use serde_json::{Map, Number, Value as Json};

use super::Value;

/// Most elements of an array that stand in a text; JSON has all.
const ELEMENTS: usize = 32;

/// `{pid=12, state=RUNNING, path="/x", ids=[1, 2]}`: of long arrays the first elements, then how many more there are.
impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Signed(number) => write!(f, "{number}"),
            Value::Unsigned(number) => write!(f, "{number}"),
            Value::Bool(truth) => write!(f, "{truth}"),
            Value::Char(byte) if (b' '..=b'~').contains(byte) => write!(f, "'{}'", char::from(*byte)),
            Value::Char(byte) => write!(f, "{byte}"),
            Value::Enum(Some(name), _) => f.write_str(name),
            Value::Enum(None, number) => write!(f, "{number}"),
            Value::Pointer(address) => write!(f, "{address:#x}"),
            Value::Float(number) => write!(f, "{number}"),
            Value::Text(text) => quoted(f, text),
            Value::List(items) => {
                f.write_char('[')?;
                for (nth, item) in items.iter().take(ELEMENTS).enumerate() {
                    write!(f, "{}{item}", if nth == 0 { "" } else { ", " })?;
                }
                if let Some(more) = items.len().checked_sub(ELEMENTS).filter(|more| *more > 0) {
                    write!(f, ", … {more} more")?;
                }
                f.write_char(']')
            }
            Value::Fields(fields) => {
                f.write_char('{')?;
                for (nth, (name, value)) in fields.iter().enumerate() {
                    write!(f, "{}{name}={value}", if nth == 0 { "" } else { ", " })?;
                }
                f.write_char('}')
            }
            Value::Absent(reason) => write!(f, "<{reason}>"),
        }
    }
}

fn quoted(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_char('"')?;
    for c in text.chars() {
        match c {
            '"' | '\\' => write!(f, "\\{c}")?,
            '\n' => f.write_str("\\n")?,
            '\t' => f.write_str("\\t")?,
            c if c.is_control() => write!(f, "\\x{:02x}", u32::from(c))?,
            c => f.write_char(c)?,
        }
    }
    f.write_char('"')
}

impl Value<'_> {
    /// As [`fmt::Display`], but that a text stands without quotes.
    pub fn bare(&self) -> String {
        match self {
            Value::Text(text) => text.clone(),
            value => value.to_string(),
        }
    }

    /// The member of this name, of a struct or union.
    pub fn field(&self, name: &str) -> Option<&Self> {
        let Value::Fields(fields) = self else { return None };
        fields.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// The value as JSON: structs are objects, arrays are arrays, texts and enumerators are strings, pointers are strings
    /// like `"0x1f"`, integers and single characters are numbers (exact up to 64 bits, which readers that keep numbers as
    /// doubles do not see; longer ones are strings), what cannot be said is null.
    pub fn to_json(&self) -> Json {
        match self {
            Value::Signed(number) => integer(*number),
            Value::Unsigned(number) => match (i128::try_from(*number), u64::try_from(*number)) {
                (_, Ok(number)) => number.into(),
                (Ok(number), _) => integer(number),
                _ => number.to_string().into(),
            },
            Value::Bool(truth) => (*truth).into(),
            Value::Char(byte) => (*byte).into(),
            Value::Enum(Some(name), _) => name.as_ref().into(),
            Value::Enum(None, number) => integer(*number),
            Value::Pointer(address) => format!("{address:#x}").into(),
            Value::Float(number) => Number::from_f64(*number).map_or_else(|| number.to_string().into(), Json::Number),
            Value::Text(text) => text.as_str().into(),
            Value::List(items) => items.iter().map(Value::to_json).collect(),
            Value::Fields(fields) => {
                let mut object = Map::new();
                for (name, value) in fields {
                    object.entry(name.as_ref()).or_insert_with(|| value.to_json());
                }
                Json::Object(object)
            }
            Value::Absent(_) => Json::Null,
        }
    }
}

fn integer(number: i128) -> Json {
    match (i64::try_from(number), u64::try_from(number)) {
        (Ok(number), _) => number.into(),
        (_, Ok(number)) => number.into(),
        _ => number.to_string().into(),
    }
}
