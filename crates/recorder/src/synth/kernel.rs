//! The kernel's own map and its modules, as MMAP records.

use std::fs;

use afterimage_perf_data::record::{FileId, Mmap, Mmap2, cpumode};
use afterimage_perf_data::{BuildId, Layout, Record, Result};

/// The name that perf gives the kernel's map; the part behind the bracket is the reference symbol.
pub(crate) const KERNEL_MAP: &str = "[kernel.kallsyms]_text";

/// The pid that stands for the kernel.
pub(crate) const KERNEL_PID: u32 = u32::MAX;

/// Where the kernel's text is, as `/proc/kallsyms` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KernelText {
    /// `_text`, or `_stext` where that is missing.
    pub(crate) start: u64,
    /// `_etext`.
    pub(crate) end: u64,
}

impl KernelText {
    /// Finds the bounds in the text of `/proc/kallsyms`; `None` when addresses are hidden.
    pub(crate) fn find(kallsyms: &str) -> Option<KernelText> {
        let mut start = None;
        let mut first = None;
        let mut end = None;
        for line in kallsyms.lines() {
            let mut words = line.split_ascii_whitespace();
            let (Some(address), Some(_), Some(name)) = (words.next(), words.next(), words.next()) else { continue };
            let slot = match name {
                "_text" => &mut start,
                "_stext" => &mut first,
                "_etext" => &mut end,
                _ => continue,
            };
            *slot = u64::from_str_radix(address, 16).ok().filter(|&a| a != 0);
            if start.is_some() && end.is_some() {
                break;
            }
        }
        let text = KernelText { start: start.or(first)?, end: end? };
        (text.start < text.end).then_some(text)
    }
}

/// Appends the kernel's map and one map a module. Where addresses are hidden, nothing is known and nothing written.
///
/// # Errors
/// Only when a name does not fit into a record.
pub(crate) fn append(layout: &Layout, text: Option<KernelText>, out: &mut Vec<u8>) -> Result<()> {
    let Some(text) = text else { return Ok(()) };
    let filename = KERNEL_MAP.as_bytes();
    let (addr, len) = (text.start, text.end - text.start);
    // With its build ID the map alone says whose names are right: a recorder that is killed writes no other place for it.
    let map = match build_id() {
        Some(id) => {
            let file = FileId::BuildId(id);
            let map = Mmap2 { pid: KERNEL_PID, addr, len, pgoff: addr, file, filename, ..Mmap2::default() };
            Record::Mmap2(Mmap2 { misc: cpumode::KERNEL, ..map })
        }
        None => {
            let map = Mmap { pid: KERNEL_PID, addr, len, pgoff: addr, filename, ..Mmap::default() };
            Record::Mmap(Mmap { misc: cpumode::KERNEL, ..map })
        }
    };
    map.encode(layout, out)?;
    let modules = fs::read_to_string("/proc/modules").unwrap_or_default();
    for (name, address, length) in modules.lines().filter_map(module) {
        let filename = format!("[{name}]");
        let map = Mmap {
            pid: KERNEL_PID,
            addr: address,
            len: length,
            filename: filename.as_bytes(),
            misc: cpumode::KERNEL,
            ..Mmap::default()
        };
        Record::Mmap(map).encode(layout, out)?;
    }
    Ok(())
}

/// The running kernel's build ID.
pub(crate) fn build_id() -> Option<BuildId> {
    let notes = fs::read("/sys/kernel/notes").ok()?;
    afterimage_symbols::build_id_of_notes(&notes).map(BuildId::new)
}

/// Name, address and length of a `/proc/modules` line: `name size refs users state address`.
fn module(line: &str) -> Option<(&str, u64, u64)> {
    let mut words = line.split_ascii_whitespace();
    let name = words.next()?;
    let length = words.next()?.parse().ok()?;
    let address = words.nth(3)?.strip_prefix("0x")?;
    let address = u64::from_str_radix(address, 16).ok().filter(|&a| a != 0)?;
    Some((name, address, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_of_the_text() {
        let text = "ffffffff81000000 T _stext\nffffffff81000000 T _text\nffffffff82000000 T _etext\n";
        assert_eq!(
            KernelText::find(text),
            Some(KernelText { start: 0xffff_ffff_8100_0000, end: 0xffff_ffff_8200_0000 })
        );
    }

    #[test]
    fn hidden_addresses_are_no_bounds() {
        assert_eq!(KernelText::find("0000000000000000 T _text\n0000000000000000 T _etext\n"), None);
    }

    #[test]
    fn a_module_line() {
        let line = "virtio_blk 32768 2 - Live 0xffffffffc0123000";
        assert_eq!(module(line), Some(("virtio_blk", 0xffff_ffff_c012_3000, 32768)));
        assert_eq!(module("virtio_blk 32768 2 - Live 0x0000000000000000"), None);
    }
}
