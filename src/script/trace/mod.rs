//! The text of tracepoint samples, from the formats that a recording carries.
//!
//! A format's `print fmt` is a C expression list over the record's fields. What it uses beyond what is read here (a
//! helper of one subsystem, an enum without values) leads to the fields as `name=value`, never to nothing.

mod container;
mod expr;
mod format;
mod print;

use rustc_hash::FxHashMap;

use format::Format;

/// The formats of all tracepoints in a recording.
#[derive(Debug, Default)]
pub(crate) struct Formats {
    by_id: FxHashMap<u64, Format>,
}

impl Formats {
    /// Reads the TRACING_DATA section of a recording; what is damaged in it is left out.
    pub(crate) fn parse(section: &[u8]) -> Self {
        let mut by_id = FxHashMap::default();
        for text in container::formats(section) {
            if let Some(format) = Format::parse(text) {
                by_id.insert(format.id, format);
            }
        }
        Formats { by_id }
    }

    /// Appends the text of a record of the tracepoint `id` (`perf_event_attr.config`).
    pub(crate) fn print(&self, out: &mut Vec<u8>, id: u64, raw: &[u8]) {
        if let Some(format) = self.by_id.get(&id) {
            print::write(out, format, raw);
        }
    }
}

#[cfg(test)]
mod tests;
