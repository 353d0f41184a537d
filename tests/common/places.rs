//! What stands at an address by the words of others: binutils for files, the kernel's own list for the kernel, found
//! through the maps that a recording holds.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use afterimage_perf_data::{FileReader, Record};

/// Names of functions by their place.
type Names = Vec<(Range<u64>, String)>;

/// A file of code.
struct File {
    /// Bytes of the file that are loaded: their place in it, and the first one's address.
    segments: Vec<(Range<u64>, u64)>,
    names: Names,
}

/// The places of one recording.
pub(crate) struct Places {
    /// Addresses, the place of the first one in the file, and the file, in the order in which they were mapped.
    maps: Vec<(Range<u64>, u64, PathBuf)>,
    files: RefCell<HashMap<PathBuf, File>>,
    kernel: Names,
}

impl Places {
    pub(crate) fn of(recording: &Path) -> Places {
        let bytes = std::fs::read(recording).unwrap();
        let reader = FileReader::open(&bytes).unwrap();
        let mut maps = Vec::new();
        for raw in reader.records() {
            if let Record::Mmap2(map) = reader.decode(&raw.unwrap()).unwrap() {
                let path = PathBuf::from(String::from_utf8_lossy(map.filename).into_owned());
                maps.push((map.addr..map.addr + map.len, map.pgoff, path));
            }
        }
        Places { maps, files: RefCell::default(), kernel: kernel() }
    }

    /// The names of the function at an address; none where nobody knows one.
    pub(crate) fn names(&self, address: u64) -> BTreeSet<String> {
        if address >> 63 == 1 {
            return at(&self.kernel, address);
        }
        // What was mapped last is what is there.
        let map = self.maps.iter().rev().find(|(range, ..)| range.contains(&address));
        map.map(|(range, offset, path)| self.names_in(path, address - range.start + offset)).unwrap_or_default()
    }

    /// The names of the function at a place in one of the mapped files, or in any of them where `object` is not told.
    pub(crate) fn names_at(&self, object: Option<&Path>, offset: u64) -> BTreeSet<String> {
        let paths: BTreeSet<&Path> = self.maps.iter().map(|(.., path)| path.as_path()).collect();
        let meant = paths.into_iter().filter(|path| object.is_none_or(|object| object == *path));
        meant.flat_map(|path| self.names_in(path, offset)).collect()
    }

    fn names_in(&self, path: &Path, offset: u64) -> BTreeSet<String> {
        if !path.is_file() {
            return BTreeSet::new();
        }
        let mut files = self.files.borrow_mut();
        let file = files.entry(path.to_owned()).or_insert_with(|| file(path));
        let segment = file.segments.iter().find(|(bytes, _)| bytes.contains(&offset));
        segment.map(|(bytes, first)| at(&file.names, offset - bytes.start + first)).unwrap_or_default()
    }
}

fn at(names: &Names, place: u64) -> BTreeSet<String> {
    names.iter().filter(|(range, _)| range.contains(&place)).map(|(_, name)| name.clone()).collect()
}

fn said(command: &str, words: &[&str], path: &Path) -> String {
    // nm complains of a table that is not there, objdump of sections that are not: then there are no such names.
    let output = Command::new(command).args(words).arg(path).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn hex(word: &str) -> Option<u64> {
    u64::from_str_radix(word.trim_start_matches("0x"), 16).ok()
}

fn file(path: &Path) -> File {
    let mut symbols = BTreeSet::new();
    let debug = debug_file(path);
    let tables = [(path, &["-S"][..]), (path, &["-S", "-D"])].into_iter();
    for (path, words) in tables.chain(debug.as_deref().map(|path| (path, &["-S"][..]))) {
        symbols.extend(said("nm", words, path).lines().filter_map(symbol));
    }
    // A symbol without a size goes on to the next one.
    let next = |start: u64| symbols.iter().map(|(s, ..)| *s).find(|s| *s > start).unwrap_or(start);
    let range = |start: u64, size: u64| start..if size == 0 { next(start) } else { start + size };
    let mut names: Names = symbols.iter().map(|(start, size, name)| (range(*start, *size), name.clone())).collect();
    names.extend(linkage(path));
    let segments = said("readelf", &["-lW"], path);
    let segment = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["LOAD", offset, address, _, size, ..] = words[..] else { return None };
        Some((hex(offset)?..hex(offset)? + hex(size)?, hex(address)?))
    };
    File { segments: segments.lines().filter_map(segment).collect(), names }
}

/// Address, size and name out of a line of nm, when it is a function's.
fn symbol(line: &str) -> Option<(u64, u64, String)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (start, size, kind, name) = match words[..] {
        [start, size, kind, name] => (start, hex(size)?, kind, name),
        [start, kind, name] => (start, 0, kind, name),
        _ => return None,
    };
    let name = name.split('@').next()?;
    matches!(kind, "T" | "t" | "W" | "w" | "i").then_some((hex(start)?, size, name.to_owned()))
}

/// Where Debian has the names of an object that was stripped, by its build ID.
fn debug_file(path: &Path) -> Option<PathBuf> {
    let notes = said("readelf", &["-n"], path);
    let id = notes.lines().find_map(|line| line.trim().strip_prefix("Build ID: "))?;
    let (first, rest) = id.split_at_checked(2)?;
    Some(PathBuf::from(format!("/usr/lib/debug/.build-id/{first}/{rest}.debug"))).filter(|path| path.is_file())
}

/// The entries of the linkage tables, as `0000000000001030 <puts@plt>:` and the instructions below it.
fn linkage(path: &Path) -> Names {
    let words = ["-d", "-j", ".plt", "-j", ".plt.sec", "-j", ".plt.got"];
    let mut names = Names::new();
    for line in said("objdump", &words, path).lines() {
        if let Some((start, name)) = line.strip_suffix(">:").and_then(|line| line.split_once(" <")) {
            let start = hex(start).unwrap();
            names.push((start..start, name.to_owned()));
        } else if let (Some(entry), Some((place, bytes))) = (names.last_mut(), line.split_once(":\t")) {
            let bytes = bytes.split('\t').next().unwrap().split_whitespace().count() as u64;
            entry.0.end = hex(place.trim()).unwrap() + bytes;
        }
    }
    names
}

/// Each symbol of the kernel goes on to the next one's start.
fn kernel() -> Names {
    let text = std::fs::read_to_string("/proc/kallsyms").unwrap();
    let mut symbols: Vec<(u64, &str)> = text
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let (start, kind, name) = (hex(words.next()?)?, words.next()?, words.next()?);
            matches!(kind, "T" | "t" | "W" | "w").then_some((start, name))
        })
        .collect();
    symbols.sort_unstable();
    let next = |start: u64| symbols[symbols.partition_point(|(s, _)| *s <= start)..].first().map_or(u64::MAX, |s| s.0);
    symbols.iter().map(|&(start, name)| (start..next(start), name.to_owned())).collect()
}
