//! Our own kernel modules, built for a guest's kernel from its headers.

use super::child::bound;
use super::kernel::Kernel;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// Folders with modules: some that are there to be used by tests, and the one that users get.
const SOURCES: [&str; 2] = ["xtask/guest/module", "kernel/kcore_qc"];

/// Builds our modules below `folder`; gives the files. None for a kernel without headers. One of our own needs no
/// kcore_qc.
pub(crate) fn build(kernel: &Kernel, folder: &Path) -> Result<Vec<PathBuf>> {
    let Some(tree) = kernel.tree()? else { return Ok(Vec::new()) };
    let mut all = Vec::new();
    for source in SOURCES.into_iter().take(if kernel.is_own() { 1 } else { SOURCES.len() }) {
        let from = crate::root().join(source);
        let place = folder.join(&kernel.name).join(from.file_name().unwrap_or_default());
        all.extend(build_folder(kernel, &tree, &from, &place)?);
    }
    Ok(all)
}

fn build_folder(kernel: &Kernel, tree: &Path, from: &Path, place: &Path) -> Result<Vec<PathBuf>> {
    fs::create_dir_all(place)?;
    let changed = copy_changed(from, place)?;
    let built = modules_in(place)?;
    if !changed && !built.is_empty() {
        return Ok(built);
    }
    let mut make = bound("make");
    make.arg("-s").arg("-C").arg(tree).arg(format!("M={}", place.display())).arg("modules");
    // Type information for modules would take pahole, and nobody looks at it.
    make.arg("CONFIG_DEBUG_INFO_BTF_MODULES=").env_remove("MAKEFLAGS").stdin(Stdio::null());
    let output = make.output().context("make")?;
    if !output.status.success() {
        // So that the next try does not take old modules for current ones.
        let _ = fs::remove_dir_all(place);
    }
    ensure!(
        output.status.success(),
        "building modules for {}: {}{}",
        kernel.name,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    modules_in(place)
}

/// Copies files that differ, not those in folders below; says whether there were any.
fn copy_changed(from: &Path, to: &Path) -> Result<bool> {
    let mut changed = false;
    for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            continue;
        }
        let target = to.join(path.file_name().unwrap_or_default());
        let content = fs::read(&path)?;
        if fs::read(&target).ok().as_ref() != Some(&content) {
            fs::write(&target, content)?;
            changed = true;
        }
    }
    Ok(changed)
}

fn modules_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "ko") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
