//! Handlers to load: their C is in `tests/objects`, and of those that users may learn from in `examples`. `clang`
//! compiles them on first use, as a user would do it, beside the running binary, in a folder named after their content.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use crate::built;

const HEADER: (&str, &str) = ("afterimage.bpf.h", include_str!("../../handler/src/bpf/include/afterimage.bpf.h"));

const SOURCES: &[(&str, &str)] = &[
    ("slow.bpf.c", include_str!("../../../tests/objects/slow.bpf.c")),
    ("whole.bpf.c", include_str!("../../../tests/objects/whole.bpf.c")),
    ("plain.bpf.c", include_str!("../../../tests/objects/plain.bpf.c")),
    ("bare.bpf.c", include_str!("../../../tests/objects/bare.bpf.c")),
    ("hits.bpf.c", include_str!("../../../tests/objects/hits.bpf.c")),
    ("keyed.bpf.c", include_str!("../../../tests/objects/keyed.bpf.c")),
    ("reach.bpf.c", include_str!("../../../tests/objects/reach.bpf.c")),
    ("refused.bpf.c", include_str!("../../../tests/objects/refused.bpf.c")),
    ("seen.bpf.c", include_str!("../../../examples/service/seen.bpf.c")),
    ("cgroup_time.bpf.c", include_str!("../../../examples/handlers/cgroup_time.bpf.c")),
    ("fault_map.bpf.c", include_str!("../../../examples/handlers/fault_map.bpf.c")),
    ("writers.bpf.c", include_str!("../../../examples/handlers/writers.bpf.c")),
    ("flight_recorder.bpf.c", include_str!("../../../examples/handlers/flight_recorder.bpf.c")),
    ("slow_requests.bpf.c", include_str!("../../../examples/handlers/slow_requests.bpf.c")),
    ("user_label.bpf.c", include_str!("../../../examples/handlers/user_label.bpf.c")),
];

/// What README.md tells users to type, with warnings.
const FLAGS: &[&str] = &["-O2", "-g", "-Wall", "-Werror", "-target", "bpf", "-c"];

/// The folder with `NAME.bpf.o` for each of them, and their sources. Needs `clang` ([`crate::Need::Clang`]).
///
/// # Panics
/// When they can't be built.
pub fn build() -> PathBuf {
    match built::beside_this_binary().and_then(|parent| build_in(&parent)) {
        Ok(folder) => folder,
        Err(error) => panic!("the objects could not be built: {error}"),
    }
}

/// The number of the only line of a source in `tests/objects` that has this text.
///
/// # Panics
/// When there is none, or several.
pub fn line_of(source: &str, text: &str) -> usize {
    let found = SOURCES.iter().find(|(name, _)| *name == source);
    let lines = found.map(|(_, code)| code.lines().enumerate()).into_iter().flatten();
    let numbers: Vec<usize> = lines.filter(|(_, line)| line.contains(text)).map(|(number, _)| number + 1).collect();
    match numbers.as_slice() {
        [one] => *one,
        _ => panic!("{text:?} stands {} times in {source}", numbers.len()),
    }
}

/// Whether they stand built beside the running binary, so that no compiler is needed.
pub(crate) fn is_built() -> bool {
    built::beside_this_binary().is_ok_and(|folder| folder_in(&folder).exists())
}

fn folder_in(parent: &Path) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    (HEADER, SOURCES, FLAGS).hash(&mut hasher);
    parent.join(format!("objects-{:016x}", hasher.finish()))
}

/// Builds them in a folder below `parent`, or finds them there: the folder that tests whose binary is in `parent` look
/// into.
///
/// # Errors
/// When the compiler is missing or fails, or the folder can't be written.
pub fn build_in(parent: &Path) -> io::Result<PathBuf> {
    built::once(parent, &folder_in(parent), compile_in)
}

fn compile_in(dir: &Path) -> io::Result<()> {
    fs::write(dir.join(HEADER.0), HEADER.1)?;
    for (name, text) in SOURCES {
        fs::write(dir.join(name), text)?;
        compile(dir, name)?;
    }
    Ok(())
}

/// Compiles one source of a folder to an object beside it.
///
/// # Errors
/// What the compiler says.
fn compile(dir: &Path, source: &str) -> io::Result<()> {
    compile_with(&dir.join(source), dir, &[])
}

/// Compiles one of the sources to an object in `dir`, with more words for the compiler.
///
/// # Errors
/// What the compiler says.
pub fn compile_with(source: &Path, dir: &Path, words: &[&str]) -> io::Result<()> {
    let output = Command::new("clang").current_dir(dir).args(FLAGS).args(words).arg(source).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("{}: {}", source.display(), String::from_utf8_lossy(&output.stderr))))
}
