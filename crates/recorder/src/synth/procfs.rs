//! What `/proc` says of running processes: threads, names, parents and executable mappings.
//!
//! Everything here may vanish between two reads; what is gone is left out, never an error.

use std::fs;
use std::path::Path;

/// One thread of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Thread {
    /// Thread id in the recorder's pid namespace.
    pub(crate) tid: u32,
    /// The thread's name, at most 15 bytes, as `/proc/PID/task/TID/comm` has it.
    pub(crate) comm: Vec<u8>,
}

/// One mapping, a line of `/proc/PID/maps` (proc_pid_maps(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// First address.
    pub(crate) start: u64,
    /// First address behind the mapping.
    pub(crate) end: u64,
    /// PROT_* bits as mmap(2) has them.
    pub(crate) prot: u32,
    /// MAP_SHARED (1) or MAP_PRIVATE (2).
    pub(crate) flags: u32,
    /// Offset into the file, bytes.
    pub(crate) pgoff: u64,
    /// Device numbers.
    pub(crate) dev: (u32, u32),
    /// Inode, 0 for memory that no file backs.
    pub(crate) inode: u64,
    /// The path as the kernel prints it; empty for anonymous memory.
    pub(crate) path: Vec<u8>,
}

/// One process at the time of the scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    /// Process id.
    pub(crate) pid: u32,
    /// Parent's process id.
    pub(crate) ppid: u32,
    /// All threads, the leader included.
    pub(crate) threads: Vec<Thread>,
    /// Executable mappings.
    pub(crate) mappings: Vec<Mapping>,
    /// The mappings may not be read: the process is somebody else's.
    pub(crate) refused: bool,
}

/// PROT_EXEC of mmap(2).
pub(crate) const PROT_EXEC: u32 = 4;

/// The process ids that `proc` lists, ascending.
pub(crate) fn pids(proc: &Path) -> Vec<u32> {
    numbers(proc)
}

fn numbers(dir: &Path) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let mut found: Vec<u32> = entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
    found.sort_unstable();
    found
}

/// Reads one process, or `None` when it is gone.
pub(crate) fn process(proc: &Path, pid: u32) -> Option<Process> {
    let dir = proc.join(pid.to_string());
    let ppid = parent(&fs::read(dir.join("stat")).ok()?)?;
    let threads: Vec<Thread> = numbers(&dir.join("task"))
        .into_iter()
        .filter_map(|tid| {
            let mut comm = fs::read(dir.join("task").join(tid.to_string()).join("comm")).ok()?;
            if comm.last() == Some(&b'\n') {
                comm.pop();
            }
            Some(Thread { tid, comm })
        })
        .collect();
    if threads.is_empty() {
        return None;
    }
    // A kernel thread has an empty table; a process of somebody else may refuse it.
    let maps = fs::read(dir.join("maps"));
    let refused = maps.as_ref().is_err_and(|e| e.kind() == std::io::ErrorKind::PermissionDenied);
    let maps = maps.unwrap_or_default();
    let mappings = maps.split(|&b| b == b'\n').filter_map(mapping).filter(|m| m.prot & PROT_EXEC != 0).collect();
    Some(Process { pid, ppid, threads, mappings, refused })
}

/// The parent in a `/proc/PID/stat` line; the name in it may hold spaces and brackets.
fn parent(stat: &[u8]) -> Option<u32> {
    let close = stat.iter().rposition(|&b| b == b')')?;
    let rest = std::str::from_utf8(stat.get(close + 1..)?).ok()?;
    rest.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Parses one line of a maps file.
pub(crate) fn mapping(line: &[u8]) -> Option<Mapping> {
    let mut rest = line;
    let range = word(&mut rest)?;
    let perms = word(&mut rest)?.as_bytes();
    let pgoff = u64::from_str_radix(word(&mut rest)?, 16).ok()?;
    let (major, minor) = word(&mut rest)?.split_once(':')?;
    let inode = word(&mut rest)?.parse().ok()?;
    let (start, end) = range.split_once('-')?;
    let bit = |at: usize, letter: u8, value: u32| if perms.get(at) == Some(&letter) { value } else { 0 };
    Some(Mapping {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        prot: bit(0, b'r', 1) | bit(1, b'w', 2) | bit(2, b'x', PROT_EXEC),
        flags: if perms.get(3) == Some(&b's') { 1 } else { 2 },
        pgoff,
        dev: (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?),
        inode,
        path: unescape(rest.trim_ascii_start()),
    })
}

/// The kernel writes a line feed in a path as `\012`.
fn unescape(path: &[u8]) -> Vec<u8> {
    let text = path.to_vec();
    match path.windows(4).any(|w| w == b"\\012") {
        true => String::from_utf8_lossy(&text).replace("\\012", "\n").into_bytes(),
        false => text,
    }
}

fn word<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    let text = rest.trim_ascii_start();
    let end = text.iter().position(|b| b.is_ascii_whitespace()).unwrap_or(text.len());
    let (head, tail) = text.split_at(end);
    *rest = tail;
    (!head.is_empty()).then(|| std::str::from_utf8(head).ok()).flatten()
}

/// The file behind a mapping, opened through `map_files`, which works for deleted files and other mount namespaces.
pub(crate) fn open_mapped(proc: &Path, pid: u32, start: u64, end: u64) -> Option<fs::File> {
    fs::File::open(proc.join(format!("{pid}/map_files/{start:x}-{end:x}"))).ok()
}

/// Whether a thread or process runs: one that has ended and was not waited for does not.
pub(crate) fn is_alive(proc: &Path, tid: u32) -> bool {
    let Ok(stat) = fs::read(proc.join(tid.to_string()).join("stat")) else { return false };
    let state = stat.iter().rposition(|&b| b == b')').and_then(|close| stat.get(close + 2));
    state.is_some_and(|state| !matches!(state, b'Z' | b'X'))
}

/// The processes that these threads belong to, each once.
pub(crate) fn processes_of(tids: &[u32]) -> Vec<u32> {
    let of = |tid: &u32| {
        let status = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok())
    };
    let mut pids: Vec<u32> = tids.iter().filter_map(of).collect();
    pids.sort_unstable();
    pids.dedup();
    pids
}

/// The threads of these processes and of all that descend from them, ascending.
pub(crate) fn family(proc: &Path, pids: &[u32]) -> Vec<u32> {
    let parent_of = |pid: u32| Some((pid, parent(&fs::read(proc.join(pid.to_string()).join("stat")).ok()?)?));
    let parents: Vec<(u32, u32)> = numbers(proc).into_iter().filter_map(parent_of).collect();
    let mut members = pids.to_vec();
    let mut at = 0;
    while let Some(&member) = members.get(at) {
        let children = parents.iter().filter(|(pid, ppid)| *ppid == member && !members.contains(pid));
        let children: Vec<u32> = children.map(|(pid, _)| *pid).collect();
        members.extend(children);
        at += 1;
    }
    let threads = members.iter().flat_map(|pid| numbers(&proc.join(pid.to_string()).join("task")));
    let mut threads: Vec<u32> = threads.collect();
    threads.sort_unstable();
    threads.dedup();
    threads
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_grows_by_threads_and_children() {
        let (proc, me) = (Path::new("/proc"), std::process::id());
        let before = family(proc, &[me]);
        assert!(before.contains(&me));
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let (tell, told) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || told.recv().is_err());
        let after = family(proc, &[me]);
        assert!(after.contains(&child.id()) && !before.contains(&child.id()));
        // Other tests' threads come and go meanwhile.
        assert!(after.iter().filter(|tid| !before.contains(tid)).count() >= 2, "{before:?} {after:?}");
        drop(tell);
        assert!(thread.join().unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_line_with_everything() {
        let line = b"7f0c12a00000-7f0c12a28000 r-xp 00026000 fe:01 1234   /usr/lib/a b.so (deleted)";
        let m = mapping(line).unwrap();
        assert_eq!((m.start, m.end, m.prot, m.flags), (0x7f0c_12a0_0000, 0x7f0c_12a2_8000, 5, 2));
        assert_eq!((m.pgoff, m.dev, m.inode), (0x26000, (0xfe, 1), 1234));
        assert_eq!(m.path, b"/usr/lib/a b.so (deleted)");
    }

    #[test]
    fn anonymous_and_shared() {
        let m = mapping(b"5600-5700 rwxs 00000000 00:00 0 ").unwrap();
        assert_eq!((m.prot, m.flags, m.path.len()), (7, 1, 0));
        assert!(mapping(b"").is_none());
        assert!(mapping(b"zz-5700 rwxs 0 00:00 0").is_none());
    }

    #[test]
    fn a_name_with_brackets() {
        assert_eq!(parent(b"42 (a) b) (c) S 7 42 42 0"), Some(7));
        assert_eq!(parent(b"42 no"), None);
    }

    #[test]
    fn this_process_is_there() {
        let me = process(Path::new("/proc"), std::process::id()).unwrap();
        assert!(me.threads.iter().any(|t| t.tid == me.pid));
        assert!(me.mappings.iter().any(|m| !m.path.is_empty()));
    }
}
