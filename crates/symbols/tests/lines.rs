//! Code and source lines of objects: beside addr2line and objdump, with debug information inside and in a file apart.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod made;

use std::path::{Path, PathBuf};
use std::process::Command;

use afterimage_symbols::lines::SourceFrame;
use afterimage_symbols::source::RealFiles;
use afterimage_symbols::{Finder, Machine, ObjectFile, Reason, Request, SymbolTable};
use afterimage_testkit::{Need, has};
use made::run;

/// A function with another one inlined into it, on lines that are known.
const SOURCE: &str = "\
static inline __attribute__((always_inline)) unsigned inner(unsigned x)
{
    for (int i = 0; i < 100; i++)
        x = x * 1664525u + 1013904223u;
    return x;
}

__attribute__((noinline)) unsigned outer(unsigned x)
{
    x = inner(x) ^ 5;
    __asm__ volatile(\"\" : \"+r\"(x));
    return inner(x + 3);
}

int main(int argc, char **argv)
{
    return outer(argc) & 1;
}
";

struct Made {
    dir: tempfile::TempDir,
    program: PathBuf,
}

fn made() -> Made {
    let dir = tempfile::tempdir().unwrap();
    let program = made::compile(dir.path(), "program", SOURCE, &["-g", "-O2"]);
    Made { dir, program }
}

fn file(path: &Path, build_id: Option<&[u8]>, debug: &Path) -> Result<ObjectFile, Reason> {
    let mut finder = Finder::with(Box::new(RealFiles), None).debug_dir(debug);
    finder.file(&Request { path: path.as_os_str().as_encoded_bytes(), build_id, live: None })
}

/// Start and length of `outer`.
fn outer(program: &Path) -> (u64, u64) {
    let table = SymbolTable::from_elf(&std::fs::read(program).unwrap()).unwrap();
    let hit = table.iter().find(|symbol| symbol.name == "outer").unwrap();
    let extent = table.extent(hit.id).unwrap();
    assert_eq!(extent.start, hit.start);
    (extent.start, extent.end - extent.start)
}

/// Functions and lines at an address by addr2line, innermost first.
fn by_addr2line(program: &Path, vaddr: u64) -> Vec<(String, String, u32)> {
    let output =
        Command::new("addr2line").args(["-i", "-f", "-e"]).arg(program).arg(format!("{vaddr:#x}")).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let pair = |pair: &[&str]| {
        let (file, line) = pair[1].rsplit_once(':').unwrap();
        let line = line.split(' ').next().unwrap().parse().unwrap_or(0);
        (pair[0].to_owned(), file.to_owned(), line)
    };
    lines.chunks_exact(2).map(pair).collect()
}

fn as_tuples(frames: &[SourceFrame]) -> Vec<(String, String, u32)> {
    let one = |f: &SourceFrame| (f.function.clone().unwrap(), f.file.clone().unwrap(), f.line);
    frames.iter().map(one).collect()
}

#[test]
fn lines_and_inlined_functions_are_those_of_addr2line() {
    if !has("lines_and_inlined_functions_are_those_of_addr2line", &[Need::Cc]) {
        return;
    }
    let made = made();
    let object = file(&made.program, None, made.dir.path()).unwrap();
    assert_eq!(object.machine(), Machine::of_uname(std::env::consts::ARCH));
    let lines = object.lines().unwrap();
    let (start, len) = outer(&made.program);
    let mut deepest = 0;
    for vaddr in start..start + len {
        let frames = lines.frames(vaddr);
        assert_eq!(as_tuples(&frames), by_addr2line(&made.program, vaddr), "{vaddr:#x}");
        deepest = deepest.max(frames.len());
    }
    assert_eq!(deepest, 2);
    assert!(lines.frames(0).is_empty());
}

#[test]
fn code_is_that_of_the_file() {
    if !has("code_is_that_of_the_file", &[Need::Cc]) {
        return;
    }
    let made = made();
    let (start, len) = outer(&made.program);
    let object = file(&made.program, None, made.dir.path()).unwrap();
    let code = object.code(start, len).unwrap();
    assert_eq!(code.len() as u64, len);
    let text = made.dir.path().join("text");
    let only = ["-O", "binary", "--only-section=.text"];
    run(Command::new("objcopy").args(only).arg(&made.program).arg(&text));
    let text = std::fs::read(text).unwrap();
    assert!(text.windows(code.len()).any(|window| window == code));
    assert_eq!(object.symbol_address("outer"), Some(start));
    // No further than the bytes of the segment go, whatever is asked for.
    let rest = object.code(start, u64::MAX).unwrap();
    assert!(rest.starts_with(&code) && rest.len() < 1 << 16, "{} bytes", rest.len());
    assert_eq!(object.code(u64::MAX - 5, 4), None);
}

#[test]
fn lines_may_stand_in_a_file_apart() {
    if !has("lines_may_stand_in_a_file_apart", &[Need::Cc]) {
        return;
    }
    let made = made();
    let (start, _) = outer(&made.program);
    let whole = file(&made.program, None, made.dir.path()).unwrap().lines().unwrap().frames(start + 4);
    let id = SymbolTable::from_elf(&std::fs::read(&made.program).unwrap()).unwrap().build_id().unwrap().to_vec();
    let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let filed = made.dir.path().join(".build-id").join(&hex[..2]);
    std::fs::create_dir_all(&filed).unwrap();
    let debug = filed.join(format!("{}.debug", &hex[2..]));
    let stripped = made.dir.path().join("stripped");
    run(Command::new("objcopy")
        .args(["--only-keep-debug", "--compress-debug-sections"])
        .arg(&made.program)
        .arg(&debug));
    run(Command::new("strip").arg("-o").arg(&stripped).arg(&made.program));
    let object = file(&stripped, Some(&id), made.dir.path()).unwrap();
    assert_eq!(object.lines().unwrap().frames(start + 4), whole);
    std::fs::remove_file(&debug).unwrap();
    let bare = file(&stripped, Some(&id), made.dir.path()).unwrap();
    assert_eq!(bare.lines().unwrap_err().to_string(), "no debug information");
    // A file of another build has neither code nor lines for us.
    let other = file(&made.program, Some(&[7; 20]), made.dir.path());
    assert_eq!(other.unwrap_err(), Reason::BuildIdDiffers);
}

#[test]
fn damaged_debug_information_is_no_end() {
    if !has("damaged_debug_information_is_no_end", &[Need::Cc]) {
        return;
    }
    let made = made();
    let (start, len) = outer(&made.program);
    let whole = std::fs::read(&made.program).unwrap();
    let path = made.dir.path().join("damaged");
    // Cut short, and with bytes turned over all through the file.
    let cut = (1..20).map(|part| whole[..whole.len() * part / 20].to_vec());
    let flipped = (0..200).map(|at| {
        let mut bytes = whole.clone();
        let at = whole.len() * at / 200;
        bytes[at] ^= 0xff;
        bytes
    });
    for bytes in cut.chain(flipped) {
        std::fs::write(&path, bytes).unwrap();
        let Ok(object) = file(&path, None, made.dir.path()) else { continue };
        let _ = object.code(start, len);
        let Ok(lines) = object.lines() else { continue };
        for vaddr in start..start + len {
            let _ = lines.frames(vaddr);
        }
    }
}
