//! The text of tracepoint samples, from the formats that a recording carries.
//!
//! A format's `print fmt` is a C expression list over the record's fields. What it uses beyond what is read here (a
//! helper of one subsystem, an enum without values) leads to the fields as `name=value`, never to nothing.

mod container;
mod expr;
mod format;
mod print;
mod spec;

use rustc_hash::FxHashMap;

use format::Format;
pub(crate) use print::Value;

/// Finds the function that a kernel address is in, and how far from its start.
pub(crate) type Names<'n> = &'n mut dyn FnMut(u64) -> Option<(String, u64)>;

/// The formats of all tracepoints in a recording.
#[derive(Debug, Default)]
pub(crate) struct Formats {
    by_id: FxHashMap<u64, Format>,
    /// Texts of the kernel by their addresses.
    strings: FxHashMap<u64, String>,
}

impl Formats {
    /// Reads the TRACING_DATA section of a recording; what is damaged in it is left out.
    pub(crate) fn parse(section: &[u8]) -> Self {
        let mut by_id = FxHashMap::default();
        let contents = container::read(section);
        for text in contents.formats {
            if let Some(format) = Format::parse(text) {
                by_id.insert(format.id, Format { little: contents.little, ..format });
            }
        }
        Formats { by_id, strings: contents.strings.lines().filter_map(string).collect() }
    }

    /// Appends the text of a record of the tracepoint `id` (`perf_event_attr.config`).
    pub(crate) fn print(&self, out: &mut Vec<u8>, id: u64, raw: &[u8], names: Names<'_>) {
        if let Some(format) = self.by_id.get(&id) {
            print::write(out, format, raw, &self.strings, names);
        }
    }

    /// The text of a record; functions of the kernel in it stand as addresses.
    pub(crate) fn text(&self, id: u64, raw: &[u8]) -> String {
        let mut out = Vec::new();
        self.print(&mut out, id, raw, &mut |_| None);
        String::from_utf8_lossy(&out).into_owned()
    }

    /// Whether such records have a field of this name.
    pub(crate) fn has_field(&self, id: u64, name: &str) -> bool {
        self.by_id.get(&id).is_some_and(|format| format.field(name).is_some())
    }

    /// The bytes of a field, as far as they are in the record.
    pub(crate) fn field_bytes<'r>(&self, id: u64, name: &str, raw: &'r [u8]) -> Option<&'r [u8]> {
        print::field_bytes(self.by_id.get(&id)?, name, raw)
    }

    /// A field as perf's columns show it: what stands behind `name=` in the record's text, or else the value itself. `raw`
    /// asks for that in any case.
    pub(crate) fn field_text(&self, id: u64, name: &str, record: &[u8], raw: bool) -> Option<String> {
        let text = if raw { String::new() } else { self.text(id, record) };
        let word = text.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        match word {
            Some(word) => Some(word.to_owned()),
            None => print::field_text(self.by_id.get(&id)?, name, record),
        }
    }

    /// The fields of such a record, those that all tracepoints have among them, as far as they fit into it; none where there
    /// is no format.
    pub(crate) fn fields<'r>(&'r self, id: u64, raw: &'r [u8]) -> Vec<(&'r str, Value<'r>)> {
        self.by_id.get(&id).map_or(Vec::new(), |format| print::fields(format, raw))
    }
}

/// One line of `printk_formats`.
fn string(line: &str) -> Option<(u64, String)> {
    let (address, text) = line.split_once(" : ")?;
    let address = u64::from_str_radix(address.trim().trim_start_matches("0x"), 16).ok()?;
    let text = text.trim().strip_prefix('"')?.strip_suffix('"')?;
    Some((address, text.strip_suffix("\\n").unwrap_or(text).to_owned()))
}

#[cfg(test)]
mod tests;
