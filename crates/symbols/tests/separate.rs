//! Symbols that stand outside of the object: `.gnu_debugdata`, debug files by build id and by link.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod made;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use afterimage_symbols::source::RealFiles;
use afterimage_symbols::{Finder, Origin, Reason, Request, SymbolTable};
use afterimage_testkit::{Need, has};
use made::run;

struct Made {
    dir: tempfile::TempDir,
    /// With all its symbols.
    full: PathBuf,
    /// The same without them.
    stripped: PathBuf,
}

fn made() -> Made {
    let dir = tempfile::tempdir().unwrap();
    let full = made::freestanding(dir.path(), "full", "");
    let stripped = dir.path().join("stripped");
    run(Command::new("strip").arg("-o").arg(&stripped).arg(&full));
    Made { dir, full, stripped }
}

fn find(path: &Path, debug: &Path) -> Result<Arc<SymbolTable>, Reason> {
    let mut finder = Finder::with(Box::new(RealFiles), None).debug_dir(debug);
    finder.find(&Request { path: path.as_os_str().as_encoded_bytes(), build_id: None, live: None })
}

fn assert_same_names(full: &SymbolTable, other: &SymbolTable) {
    assert!(full.len() >= 8);
    for symbol in full.iter() {
        let at =
            |table: &SymbolTable| table.lookup_vaddr(symbol.start + 1).map(|hit| (hit.name.to_string(), hit.start));
        assert!(at(full).is_some());
        assert_eq!(at(full), at(other), "{}", symbol.name);
    }
}

#[test]
fn a_stripped_object_has_no_names() {
    if !has("a_stripped_object_has_no_names", &[Need::Cc]) {
        return;
    }
    let made = made();
    let table = find(&made.stripped, made.dir.path()).unwrap();
    assert!(table.is_empty());
    assert_eq!(table.origin(), Origin::Nothing);
    assert!(table.build_id().is_some());
}

#[test]
fn compressed_inside_the_object() {
    if !has("compressed_inside_the_object", &[Need::Cc, Need::Xz]) {
        return;
    }
    let made = made();
    let mini = made.dir.path().join("mini");
    run(Command::new("objcopy").arg("--only-keep-debug").arg(&made.full).arg(&mini));
    for options in [&["-9"][..], &["--check=crc32"], &["--x86", "--lzma2"]] {
        run(Command::new("xz").args(["-kf"]).args(options).arg(&mini));
        let with = made.dir.path().join("with");
        let section = format!(".gnu_debugdata={}.xz", mini.display());
        run(Command::new("objcopy").arg("--add-section").arg(section).arg(&made.stripped).arg(&with));
        let table = find(&with, made.dir.path()).unwrap();
        assert_eq!(table.origin(), Origin::DebugData, "{options:?}");
        assert_same_names(&find(&made.full, made.dir.path()).unwrap(), &table);
    }
}

#[test]
fn a_compressed_table_that_is_damaged_is_an_error_or_right() {
    if !has("a_compressed_table_that_is_damaged_is_an_error_or_right", &[Need::Cc, Need::Xz]) {
        return;
    }
    let made = made();
    let mini = made.dir.path().join("mini");
    run(Command::new("objcopy").arg("--only-keep-debug").arg(&made.full).arg(&mini));
    run(Command::new("xz").arg("-k").arg(&mini));
    let with = made.dir.path().join("with");
    let section = format!(".gnu_debugdata={}.xz", mini.display());
    run(Command::new("objcopy").arg("--add-section").arg(section).arg(&made.stripped).arg(&with));
    let whole = std::fs::read(&with).unwrap();
    let packed = std::fs::read(made.dir.path().join("mini.xz")).unwrap();
    let at = whole.windows(packed.len()).position(|w| w == packed).unwrap();
    let mut refused = 0;
    for byte in 0..packed.len() {
        let mut bytes = whole.clone();
        bytes[at + byte] ^= 0x55;
        refused += usize::from(SymbolTable::from_elf(&bytes).is_err());
    }
    // The checks of the format notice all but changes that mean nothing.
    assert!(refused + 4 >= packed.len(), "{refused} of {}", packed.len());
}

/// The names that stand beside it stay; where there are none, the reason is that of the limit.
#[test]
fn a_compressed_table_that_is_too_large_costs_itself() {
    if !has("a_compressed_table_that_is_too_large_costs_itself", &[Need::Cc, Need::Xz]) {
        return;
    }
    let made = made();
    let zeros = made.dir.path().join("zeros");
    std::fs::write(&zeros, vec![0; 60 << 20]).unwrap();
    run(Command::new("xz").arg("-f").arg(&zeros));
    let library =
        made::compile(made.dir.path(), "library.so", "int shown(int x) { return x * 3; }", &["-shared", "-fPIC", "-s"]);
    let section = format!(".gnu_debugdata={}.xz", zeros.display());
    let with = |object: &Path| {
        let with = made.dir.path().join("with");
        run(Command::new("objcopy").arg("--add-section").arg(&section).arg(object).arg(&with));
        find(&with, made.dir.path())
    };
    let names = with(&library).unwrap();
    assert_eq!(names.origin(), Origin::Dynamic);
    assert!(names.iter().any(|symbol| symbol.name == "shown"));
    assert_eq!(with(&made.stripped).unwrap_err(), Reason::TooLarge);
}

#[test]
fn filed_by_build_id() {
    if !has("filed_by_build_id", &[Need::Cc]) {
        return;
    }
    let made = made();
    let full = SymbolTable::from_elf(&std::fs::read(&made.full).unwrap()).unwrap();
    let id: String = full.build_id().unwrap().iter().map(|b| format!("{b:02x}")).collect();
    let debug = made.dir.path().join("debug");
    let folder = debug.join(".build-id").join(&id[..2]);
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join(format!("{}.debug", &id[2..]));
    run(Command::new("objcopy").arg("--only-keep-debug").arg(&made.full).arg(&file));
    let table = find(&made.stripped, &debug).unwrap();
    assert_eq!(table.origin(), Origin::DebugFile);
    assert_same_names(&full, &table);
    assert_eq!(full.segments(), table.segments());
    // A file of another build in that place is not believed.
    let other = made::freestanding(made.dir.path(), "other", "another build");
    run(Command::new("objcopy").arg("--only-keep-debug").arg(&other).arg(&file));
    assert!(find(&made.stripped, &debug).unwrap().is_empty());
}

#[test]
fn named_by_a_link() {
    if !has("named_by_a_link", &[Need::Cc]) {
        return;
    }
    let made = made();
    let nowhere = made.dir.path().join("nowhere");
    let debug = made.dir.path().join("linked.debug");
    run(Command::new("objcopy").arg("--only-keep-debug").arg(&made.full).arg(&debug));
    for remove_id in [false, true] {
        let linked = made.dir.path().join("linked");
        let mut command = Command::new("objcopy");
        if remove_id {
            command.arg("--remove-section=.note.gnu.build-id");
        }
        run(command.arg(format!("--add-gnu-debuglink={}", debug.display())).arg(&made.stripped).arg(&linked));
        let table = find(&linked, &nowhere).unwrap();
        assert_eq!(table.build_id().is_none(), remove_id);
        assert_eq!(table.origin(), Origin::DebugFile, "without a build id: {remove_id}");
        assert_same_names(&find(&made.full, &nowhere).unwrap(), &table);
        let sub = made.dir.path().join(".debug");
        std::fs::create_dir_all(&sub).unwrap();
        std::fs::rename(&debug, sub.join("linked.debug")).unwrap();
        assert_eq!(find(&linked, &nowhere).unwrap().origin(), Origin::DebugFile);
        std::fs::rename(sub.join("linked.debug"), &debug).unwrap();
        // One changed byte changes the checksum; with a build id, that of the file decides.
        if remove_id {
            let whole = std::fs::read(&debug).unwrap();
            let mut changed = whole.clone();
            changed.push(0);
            std::fs::write(&debug, &changed).unwrap();
            assert!(find(&linked, &nowhere).unwrap().is_empty());
            std::fs::write(&debug, &whole).unwrap();
        }
    }
}
