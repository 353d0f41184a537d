//! Asks perf for the names of chosen addresses, through a recording made up for it.

use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

/// A mapping of the made-up process.
pub(crate) struct Map<'a> {
    pub(crate) start: u64,
    pub(crate) len: u64,
    pub(crate) offset: u64,
    pub(crate) path: &'a Path,
}

const PID: u32 = 4_000_000;
const KERNEL: u16 = 1;
const USER: u16 = 2;

/// The name that `perf script` prints for each address, `[unknown]` where it has none.
pub(crate) fn perf_names(addresses: &[u64], maps: &[Map<'_>], kernel: Option<Range<u64>>) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("perf.data");
    std::fs::write(&file, recording(addresses, maps, kernel)).unwrap();
    let out = Command::new("perf")
        .args(["script", "-F", "ip,sym", "-i"])
        .arg(&file)
        .env("HOME", dir.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    let names = text.lines().map(|line| line.trim().split_once(' ').map_or("", |(_, name)| name).to_string());
    let names: Vec<String> = names.collect();
    assert_eq!(names.len(), addresses.len(), "{}", String::from_utf8_lossy(&out.stderr));
    names
}

fn recording(addresses: &[u64], maps: &[Map<'_>], kernel: Option<Range<u64>>) -> Vec<u8> {
    let mut data = Vec::new();
    if let Some(text) = kernel {
        let body = words64(&[text.start, text.end - text.start, text.start]);
        record(&mut data, 1, KERNEL, &[words32(&[u32::MAX, 0]), body, padded(b"[kernel.kallsyms]_stext")]);
    }
    record(&mut data, 3, 0, &[words32(&[PID, PID]), padded(b"made-up")]);
    for map in maps {
        let inode = std::fs::metadata(map.path).unwrap().ino();
        let place = words64(&[map.start, map.len, map.offset]);
        let file = [words32(&[8, 1]), words64(&[inode, 0]), words32(&[5, 2])].concat();
        record(
            &mut data,
            10,
            USER,
            &[words32(&[PID, PID]), place, file, padded(map.path.as_os_str().as_encoded_bytes())],
        );
    }
    for &ip in addresses {
        let mode = if ip >> 63 == 1 { KERNEL } else { USER };
        record(&mut data, 9, mode, &[words64(&[ip]), words32(&[PID, PID])]);
    }
    let (header, attr) = (104u64, 128u64 + 16);
    let mut file = b"PERFILE2".to_vec();
    file.extend(words64(&[header, attr, header, attr, header + attr, data.len() as u64, 0, 0, 0, 0, 0, 0]));
    // A software cpu-clock event: IP and TID in each sample, mmap and mmap2 records asked for.
    let mut event = words32(&[1, 128]);
    event.extend(words64(&[0, 1000, 1 | 2, 0, 1 << 8 | 1 << 23]));
    event.resize(128, 0);
    file.extend(event);
    file.extend(words64(&[0, 0]));
    file.extend(data);
    file
}

fn record(out: &mut Vec<u8>, kind: u32, misc: u16, parts: &[Vec<u8>]) {
    let body = parts.concat();
    out.extend(kind.to_le_bytes());
    out.extend(misc.to_le_bytes());
    out.extend((body.len() as u16 + 8).to_le_bytes());
    out.extend(body);
}

fn words32(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

fn words64(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

fn padded(text: &[u8]) -> Vec<u8> {
    let mut out = text.to_vec();
    out.resize((text.len() + 1).next_multiple_of(8), 0);
    out
}
