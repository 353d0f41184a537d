//! PMUs in sysfs: their number, the formats of their terms, the events they name.
//!
//! Source: Documentation/ABI/testing/sysfs-bus-event_source-devices-format and -events.

use std::fs;
use std::path::{Path, PathBuf};

/// One PMU's folder.
#[derive(Clone, Debug)]
pub struct Pmu {
    /// Its name in sysfs.
    pub name: String,
    /// Its number, the `type` of its attrs.
    pub kind: u32,
    dir: PathBuf,
}

/// Where a term's value goes: a field of the attr and ranges of its bits, the value's lowest bits first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    /// 0 is `config`, then `config1` to `config3`.
    pub field: u8,
    /// First and last bit of each range.
    pub ranges: Vec<(u8, u8)>,
}

impl Pmu {
    pub(super) fn find(sysfs: &Path, name: &str) -> Option<Pmu> {
        if name.is_empty() || name.starts_with('.') || name.contains('/') {
            return None;
        }
        let dir = sysfs.join("bus/event_source/devices").join(name);
        let kind = fs::read_to_string(dir.join("type")).ok()?.trim().parse().ok()?;
        Some(Pmu { name: name.to_owned(), kind, dir })
    }

    pub(super) fn all(sysfs: &Path) -> Vec<(String, u32)> {
        let entries = fs::read_dir(sysfs.join("bus/event_source/devices"));
        let names = entries.into_iter().flatten().flatten().filter_map(|e| e.file_name().into_string().ok());
        let mut all: Vec<_> = names.filter_map(|n| Pmu::find(sysfs, &n)).map(|p| (p.name, p.kind)).collect();
        all.sort();
        all
    }

    /// The format of a term.
    pub fn format(&self, term: &str) -> Option<Format> {
        Format::parse(&self.read("format", term)?)
    }

    /// The terms that an event of this name stands for, like `event=0x3c,umask=0x01`.
    pub fn event(&self, name: &str) -> Option<String> {
        Some(self.read("events", name)?.trim().to_owned())
    }

    /// Names of its formats, sorted.
    pub fn formats(&self) -> Vec<String> {
        self.list("format")
    }

    /// Names of its events, sorted.
    pub fn events(&self) -> Vec<String> {
        self.list("events")
    }

    /// The highest `precise_ip` it can give, where it says.
    pub fn max_precise(&self) -> Option<u8> {
        self.read("caps", "max_precise")?.trim().parse().ok()
    }

    fn read(&self, folder: &str, name: &str) -> Option<String> {
        if name.is_empty() || name.starts_with('.') || name.contains('/') {
            return None;
        }
        fs::read_to_string(self.dir.join(folder).join(name)).ok()
    }

    fn list(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.dir.join(folder));
        let mut names: Vec<_> =
            entries.into_iter().flatten().flatten().filter_map(|e| e.file_name().into_string().ok()).collect();
        names.sort();
        names
    }
}

impl Format {
    /// Reads a text like `config1:0-7,21`.
    pub fn parse(text: &str) -> Option<Format> {
        let (field, bits) = text.trim().split_once(':')?;
        let field = match field {
            "config" => 0,
            "config1" => 1,
            "config2" => 2,
            "config3" => 3,
            _ => return None,
        };
        let mut ranges = Vec::new();
        for part in bits.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (first.parse::<u8>().ok()?, last.parse::<u8>().ok()?);
            if first > last || last > 63 {
                return None;
            }
            ranges.push((first, last));
        }
        Some(Format { field, ranges })
    }

    /// Bits that a value may have.
    pub fn width(&self) -> u32 {
        self.ranges.iter().map(|&(first, last)| u32::from(last - first) + 1).sum()
    }

    /// The field's bits for `value`; bits of `value` beyond the width are left out.
    pub fn place(&self, mut value: u64) -> u64 {
        let mut word = 0;
        for &(first, last) in &self.ranges {
            let width = u32::from(last - first) + 1;
            let mask = u64::MAX >> (64 - width);
            word |= (value & mask) << first;
            value = value.checked_shr(width).unwrap_or(0);
        }
        word
    }
}
