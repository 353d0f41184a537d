//! What is compiled for tests once, and found by all of them.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs, io};

/// The folder of the running test binary.
pub(crate) fn beside_this_binary() -> io::Result<PathBuf> {
    Ok(env::current_exe()?.parent().unwrap_or(Path::new(".")).to_path_buf())
}

/// Gives `dir`, a folder in `parent` that is named after what it is made of; fills it by `compile` if it is not there.
///
/// # Errors
/// Those of `compile`, or when the folder can't be written.
pub(crate) fn once(parent: &Path, dir: &Path, compile: fn(&Path) -> io::Result<()>) -> io::Result<PathBuf> {
    static TURN: AtomicU32 = AtomicU32::new(0);
    if dir.exists() {
        return Ok(dir.to_path_buf());
    }
    // Tests run side by side, so build elsewhere and put the whole folder in place by a rename: one of them wins.
    let turn = TURN.fetch_add(1, Ordering::Relaxed);
    let building = parent.join(format!("building-{}-{turn}", std::process::id()));
    fs::create_dir_all(&building)?;
    let built = compile(&building);
    if built.is_err() || fs::rename(&building, dir).is_err() {
        fs::remove_dir_all(&building)?;
    }
    built.map(|()| dir.to_path_buf())
}
