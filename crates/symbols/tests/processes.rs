//! Names for files of live and dead processes: deleted, replaced, in another root, in memory.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod made;

use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;

use afterimage_symbols::cache::{Cache, DEFAULT_LIMIT};
use afterimage_symbols::source::RealFiles;
use afterimage_symbols::{Finder, Live, Reason, Request, SymbolTable};
use afterimage_testkit::{Need, has};
use made::Running;

fn build_id(path: &Path) -> Vec<u8> {
    let table = SymbolTable::from_elf(&std::fs::read(path).unwrap()).unwrap();
    table.build_id().unwrap().to_vec()
}

fn finder(cache: Option<&Path>) -> Finder {
    Finder::with(Box::new(RealFiles), cache.map(|dir| Cache::at(dir, DEFAULT_LIMIT)))
}

fn names(table: &SymbolTable) -> Vec<&str> {
    table.iter().map(|s| s.name).collect()
}

#[test]
fn a_deleted_program_while_it_runs_and_after() {
    if !has("a_deleted_program_while_it_runs_and_after", &[Need::Root, Need::Cc]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let cache = dir.path().join("cache");
    let program = made::freestanding(dir.path(), "short-lived", "");
    let id = build_id(&program);
    let process = Running::start(&mut Command::new(&program));
    let _ = process.mapping("short-lived");
    std::fs::remove_file(&program).unwrap();
    let (start, end, offset, path) = process.mapping("short-lived");
    assert!(path.ends_with(" (deleted)"), "{path}");
    let live = Some(Live { pid: process.pid(), start, end });

    let without_id = Request { path: path.as_bytes(), build_id: None, live };
    let table = finder(None).find(&without_id).unwrap();
    let spin = table.iter().find(|s| s.name == "spin").unwrap().start;
    let segment = table.segments().iter().find(|s| s.executable).unwrap();
    let ip = start + (spin - segment.vaddr + segment.offset - offset);
    assert_eq!(table.lookup_offset(ip - start + offset).unwrap().name, "spin");
    assert_eq!(finder(None).build_id_of(&without_id), Some(id.clone()));

    // A mapping that was split meanwhile is found by its start.
    let split = Request { live: Some(Live { pid: process.pid(), start, end: end + 4096 }), ..without_id };
    assert_eq!(*finder(None).find(&split).unwrap(), *table);

    let with_id = Request { path: path.as_bytes(), build_id: Some(&id), live };
    assert_eq!(*finder(Some(&cache)).find(&with_id).unwrap(), *table);
    drop(process);
    let dead = Request { live: None, ..with_id };
    assert_eq!(finder(None).find(&dead).unwrap_err(), Reason::Deleted);
    assert_eq!(*finder(Some(&cache)).find(&dead).unwrap(), *table, "kept by build id");
    assert_eq!(finder(Some(&cache)).find(&Request { build_id: None, ..dead }).unwrap_err(), Reason::Deleted);
}

#[test]
fn names_of_another_build_are_never_given() {
    if !has("names_of_another_build_are_never_given", &[Need::Cc]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let old = made::freestanding(dir.path(), "program", "old build");
    let old_id = build_id(&old);
    let request = Request { path: old.as_os_str().as_encoded_bytes(), build_id: Some(&old_id), live: None };
    assert!(names(&finder(None).find(&request).unwrap()).contains(&"spin"));
    let new = made::freestanding(dir.path(), "program", "new build");
    assert_eq!(old, new);
    assert_ne!(build_id(&new), old_id);
    assert_eq!(finder(None).find(&request).unwrap_err(), Reason::BuildIdDiffers);
    // The refusal is the request's: the file still serves those who ask for it.
    let mut finder = finder(None);
    assert_eq!(finder.find(&request).unwrap_err(), Reason::BuildIdDiffers);
    assert!(finder.find(&Request { build_id: None, ..request }).is_ok());
    assert_eq!(finder.find(&request).unwrap_err(), Reason::BuildIdDiffers);
    // A file that has no build id is not the one that had one.
    std::fs::write(&new, b"\x7fELF is not all there is to it").unwrap();
    let mut later = Finder::with(Box::new(RealFiles), None);
    assert_eq!(later.find(&request).unwrap_err(), Reason::Damaged);
    std::fs::remove_file(&new).unwrap();
    assert_eq!(Finder::with(Box::new(RealFiles), None).find(&request).unwrap_err(), Reason::NoFile);
}

#[test]
fn a_program_inside_another_root() {
    if !has("a_program_inside_another_root", &[Need::Root, Need::Cc]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    std::fs::create_dir_all(root.join("bin")).unwrap();
    let program = made::freestanding(&root.join("bin"), "contained", "");
    let id = build_id(&program);
    let process = Running::start(Command::new("chroot").arg(&root).arg("/bin/contained"));
    let _ = process.mapping("contained");
    // The mapping itself is not there, so only the path inside the root is left.
    let live = Some(Live { pid: process.pid(), start: 0x10, end: 0x20 });
    let request = Request { path: b"/bin/contained", build_id: Some(&id), live };
    assert!(names(&finder(None).find(&request).unwrap()).contains(&"spin"));
    assert_eq!(finder(None).find(&Request { live: None, ..request }).unwrap_err(), Reason::NoFile);
}

#[test]
fn a_program_that_was_never_on_disk() {
    if !has("a_program_that_was_never_on_disk", &[Need::Root, Need::Cc]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let program = std::fs::read(made::freestanding(dir.path(), "program", "")).unwrap();
    let fd = rustix::fs::memfd_create("in-memory", rustix::fs::MemfdFlags::empty()).unwrap();
    let mut memory = std::fs::File::from(fd);
    memory.write_all(&program).unwrap();
    let process = Running::start(&mut Command::new(format!("/proc/self/fd/{}", memory.as_raw_fd())));
    let (start, end, _, path) = process.mapping("memfd:in-memory");
    let request =
        Request { path: path.as_bytes(), build_id: None, live: Some(Live { pid: process.pid(), start, end }) };
    assert!(names(&finder(None).find(&request).unwrap()).contains(&"spin"));
    assert_eq!(finder(None).find(&Request { live: None, ..request }).unwrap_err(), Reason::Memory);
}

#[test]
fn what_is_no_file_has_a_reason() {
    let mut finder = finder(None);
    let cases: [(&[u8], Reason); 7] = [
        (b"//anon", Reason::Anonymous),
        (b"[heap]", Reason::Special),
        (b"[vdso]", Reason::NoVdso),
        (b"/memfd:x (deleted)", Reason::Memory),
        (b"/no/such/file", Reason::NoFile),
        (b"/no/such/file (deleted)", Reason::Deleted),
        (b"/proc/version", Reason::Damaged),
    ];
    for (path, reason) in cases {
        let request = Request { path, build_id: None, live: None };
        assert_eq!(finder.find(&request).unwrap_err(), reason, "{}", String::from_utf8_lossy(path));
    }
}
