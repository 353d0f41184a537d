//! How much memory is left, and how much kernel text there is.

use crate::Result;
use std::fs;

/// Where modules, programs, trampolines and probes are on x86-64: from here to the end of the address space.
const TEXT: u64 = 0xffff_ffff_a000_0000;

/// Bytes that can be had without swapping.
pub(crate) fn available() -> Result<u64> {
    let text = read("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let number = line.and_then(|rest| rest.trim().strip_suffix(" kB")).and_then(|kib| kib.trim().parse::<u64>().ok());
    number.map(|kib| kib << 10).ok_or_else(|| "/proc/meminfo has no MemAvailable".into())
}

/// Bytes of all areas where the kernel keeps text that comes and goes.
pub(crate) fn text() -> Result<u64> {
    // With 1, whoever may see addresses sees them; with 0 nobody does, in this file.
    fs::write("/proc/sys/kernel/kptr_restrict", "1").map_err(|error| format!("kptr_restrict: {error}"))?;
    let text = read("/proc/vmallocinfo")?;
    let sizes: Vec<u64> = text.lines().filter_map(size_of_text).collect();
    if sizes.is_empty() { Err("/proc/vmallocinfo tells of no text".into()) } else { Ok(sizes.iter().sum()) }
}

/// The size in a line `0xADDRESS-0xADDRESS SIZE CALLER …`, if it is an area of text.
fn size_of_text(line: &str) -> Option<u64> {
    let mut words = line.split_whitespace();
    let (start, _) = words.next()?.split_once('-')?;
    let start = u64::from_str_radix(start.trim_start_matches("0x"), 16).ok()?;
    let size = words.next()?.parse().ok()?;
    (start >= TEXT).then_some(size)
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::size_of_text;

    #[test]
    fn text_is_told_by_its_address() {
        let line = "0xffffffffc0201000-0xffffffffc0402000 2101248 bpf_prog_pack_alloc+0x1/0x2 pages=512 vmalloc";
        assert_eq!(size_of_text(line), Some(2_101_248));
        assert_eq!(size_of_text("0xffffc90000000000-0xffffc90000005000   20480 start_kernel+0x1 vmalloc"), None);
        assert_eq!(size_of_text("0x00000000e91d8f0e-0x00000000d0c8f0e1 8192 hashed"), None);
    }
}
