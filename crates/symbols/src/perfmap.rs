//! Maps of JIT compilers: `/tmp/perf-PID.map`, one symbol a line, `start size name`, numbers in hexadecimal.
//!
//! The file stands in the process's own `/tmp` under the process's own number for itself, both of which differ from
//! ours in a container. A compiler appends, and code that replaces other code comes later: of two lines that cover an
//! address the later one is right.

use std::path::{Path, PathBuf};

use crate::elf::{Origin, Segment};
use crate::names::{Hit, NameMap, Range, Span};
use crate::source::{Files, Place, read_all};
use crate::{Reason, SymbolTable};

/// Largest map that is read. Long-running compilers leave some tens of megabytes.
const MAX_MAP: usize = 256 << 20;
const MAX_STATUS: usize = 64 << 10;

/// Names for the code of a JIT compiler.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PerfMap {
    names: NameMap,
}

impl PerfMap {
    /// Reads the text of a map. Lines of another form are skipped.
    pub fn parse(text: &[u8]) -> PerfMap {
        let mut ranges = Vec::new();
        let mut names = String::new();
        for (rank, line) in (0..).zip(text.split(|&b| b == b'\n')) {
            let Some((start, end, name)) = read_line(line) else { continue };
            let name = String::from_utf8_lossy(name);
            let (Ok(at), Ok(len)) = (u32::try_from(names.len()), u32::try_from(name.len())) else { break };
            names.push_str(&name);
            ranges.push(Range { start, end, rank, name: Span { at, len } });
        }
        ranges.sort_by_key(|r| r.start);
        PerfMap { names: NameMap::build(&ranges, names) }
    }

    /// The map that a process keeps, if it is the process's own or root's.
    ///
    /// # Errors
    /// [`Reason::Anonymous`] when there is none, [`Reason::MapNotOwned`] when somebody else wrote it,
    /// [`Reason::Unreadable`] when it may not be read.
    pub fn of_process(files: &dyn Files, pid: u32) -> Result<PerfMap, Reason> {
        let status = PathBuf::from(format!("/proc/{pid}/status"));
        let status = files.open(&Place::own(&status)).and_then(|s| read_all(&*s, MAX_STATUS)).unwrap_or_default();
        let (own_pid, uid) = identity(&status).ok_or(Reason::Anonymous)?;
        let root = PathBuf::from(format!("/proc/{pid}/root"));
        let path = PathBuf::from(format!("/tmp/perf-{own_pid}.map"));
        read_map(files, &Place { root: Some(&root), path: &path, follow: false }, uid)
    }

    /// The map that a process left behind in our own `/tmp`, if it is the given user's or root's.
    ///
    /// # Errors
    /// As for [`of_process`](PerfMap::of_process).
    pub fn left_behind(files: &dyn Files, pid: u32, uid: u32) -> Result<PerfMap, Reason> {
        let path = PathBuf::from(format!("/tmp/perf-{pid}.map"));
        read_map(files, &Place { root: None, path: Path::new(&path), follow: false }, uid)
    }

    /// The symbol at an address of the process.
    pub fn lookup(&self, addr: u64) -> Option<Hit<'_>> {
        self.names.lookup(addr)
    }

    /// The symbols of these addresses of the process as a table. Its file offsets are `addr + delta`, wrapping.
    pub(crate) fn excerpt(&self, addrs: impl IntoIterator<Item = u64>, delta: u64) -> SymbolTable {
        let ids = addrs.into_iter().filter_map(|addr| self.names.id_at(addr)).collect();
        let vaddr = 0u64.wrapping_sub(delta);
        let all = Segment { offset: 0, file_size: u64::MAX, vaddr, executable: true };
        let (build_id, origin) = (Vec::new(), Origin::Symtab);
        SymbolTable { build_id, segments: vec![all], origin, names: self.names.excerpt(&ids) }
    }

    /// How many symbols there are, replaced ones too.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there are no symbols.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn read_map(files: &dyn Files, place: &Place<'_>, uid: u32) -> Result<PerfMap, Reason> {
    let source = files.open(place).map_err(|error| match error.kind() {
        std::io::ErrorKind::PermissionDenied => Reason::Unreadable,
        _ => Reason::Anonymous,
    })?;
    // Anybody may create the file of a process that has not yet done so.
    if source.owner() != uid && source.owner() != 0 {
        return Err(Reason::MapNotOwned);
    }
    let text = read_all(&*source, MAX_MAP).map_err(|_| Reason::Unreadable)?;
    Ok(PerfMap::parse(&text))
}

/// First address, address behind, and name of a line.
pub(crate) fn read_line(line: &[u8]) -> Option<(u64, u64, &[u8])> {
    let (start, rest) = hex_field(line)?;
    let (size, rest) = hex_field(rest)?;
    let name = rest.trim_ascii();
    (!name.is_empty() && size != 0).then(|| (start, start.saturating_add(size), name))
}

/// The number at the front, with or without `0x`, and what follows the space behind it.
fn hex_field(line: &[u8]) -> Option<(u64, &[u8])> {
    let line = line.trim_ascii_start();
    let end = line.iter().position(|&b| b == b' ')?;
    let digits = std::str::from_utf8(line.get(..end)?).ok()?;
    let digits = digits.strip_prefix("0x").unwrap_or(digits);
    let value = if digits.starts_with('+') { None } else { u64::from_str_radix(digits, 16).ok() };
    Some((value?, line.get(end..)?))
}

/// The process's number in its own namespace (the last of `NSpid`) and its effective user (the second of `Uid`), from
/// `/proc/PID/status` (proc(5)).
pub fn identity(status: &[u8]) -> Option<(u32, u32)> {
    let status = std::str::from_utf8(status).ok()?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let own_pid = field("NSpid").or_else(|| field("Pid"))?.split_whitespace().next_back()?;
    let uid = field("Uid")?.split_whitespace().nth(1)?;
    Some((own_pid.parse().ok()?, uid.parse().ok()?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::source::fake::FakeFiles;
    use proptest::prelude::*;

    #[test]
    fn later_lines_win_and_names_may_hold_spaces() {
        let map =
            PerfMap::parse(b"1000 100 LazyCompile:*old one\n1080 40 new\n0x2000 0x10 hex\nbroken\n3000 0 empty\n");
        let at = |addr| map.lookup(addr).map(|h| (h.name, h.offset));
        assert_eq!(at(0x1000), Some(("LazyCompile:*old one", 0)));
        assert_eq!(at(0x1080), Some(("new", 0)));
        assert_eq!(at(0x10c0), Some(("LazyCompile:*old one", 0xc0)));
        assert_eq!(at(0x1100), None);
        assert_eq!(at(0x200f), Some(("hex", 15)));
        assert_eq!(map.len(), 3);
        let replaced = PerfMap::parse(b"1000 10 first\n1000 10 second\nf00 200 third\n");
        assert_eq!(replaced.lookup(0x1004).unwrap().name, "third");
    }

    const STATUS: &str = "Name:\tx\nPid:\t77\nNSpid:\t77\t5\nUid:\t1000\t1001\t1000\t1000\n";

    #[test]
    fn found_in_the_namespace_of_the_process() {
        let files = FakeFiles::default().with("/proc/77/status", STATUS);
        assert_eq!(PerfMap::of_process(&files, 77), Err(Reason::Anonymous));
        let map = "1000 10 jit\n";
        let own = files.clone().owned("/proc/77/root/tmp/perf-5.map", map, 1001);
        assert_eq!(PerfMap::of_process(&own, 77).unwrap().lookup(0x1001).unwrap().name, "jit");
        let roots = files.clone().owned("/proc/77/root/tmp/perf-5.map", map, 0);
        assert!(PerfMap::of_process(&roots, 77).is_ok());
        let foreign = files.clone().owned("/proc/77/root/tmp/perf-5.map", map, 1002);
        assert_eq!(PerfMap::of_process(&foreign, 77), Err(Reason::MapNotOwned));
        let refused = files.refuse("/proc/77/root/tmp/perf-5.map");
        assert_eq!(PerfMap::of_process(&refused, 77), Err(Reason::Unreadable));
    }

    #[test]
    fn our_own_process() {
        let pid = std::process::id();
        let path = format!("/tmp/perf-{pid}.map");
        std::fs::write(&path, b"1000 10 mine\n").unwrap();
        let map = PerfMap::of_process(&crate::source::RealFiles, pid);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(map.unwrap().lookup(0x1000).unwrap().name, "mine");
    }

    proptest! {
        #[test]
        fn any_text_is_safe(text in "[0-9a-f x+\n\u{0}]{0,300}") {
            let map = PerfMap::parse(text.as_bytes());
            prop_assert!(map.len() <= text.len());
        }
    }
}
