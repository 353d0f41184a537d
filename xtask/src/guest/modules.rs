//! Our own kernel modules, built for a guest's kernel from its headers.

use super::kernel::Kernel;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Folders with modules: some that are there to be used by tests, and the one that users get.
const SOURCES: [&str; 2] = ["xtask/guest/module", "kernel/kcore_qc"];

/// Builds our modules below `folder`; gives the files. None for a kernel without headers.
pub(crate) fn build(kernel: &Kernel, folder: &Path) -> Result<Vec<PathBuf>> {
    let Some(headers) = kernel.headers()? else { return Ok(Vec::new()) };
    let mut all = Vec::new();
    for source in SOURCES {
        let from = crate::root().join(source);
        let place = folder.join(&kernel.name).join(from.file_name().unwrap_or_default());
        all.extend(build_folder(kernel, &headers, &from, &place)?);
    }
    Ok(all)
}

fn build_folder(kernel: &Kernel, headers: &Path, from: &Path, place: &Path) -> Result<Vec<PathBuf>> {
    fs::create_dir_all(place)?;
    let changed = copy_changed(from, place)?;
    let built = modules_in(place)?;
    if !changed && !built.is_empty() {
        return Ok(built);
    }
    let tree = headers.join("usr/src").join(format!("linux-headers-{}", kernel.name));
    point_at(headers, &tree.join("Makefile"))?;
    let mut make = Command::new("make");
    make.arg("-s").arg("-C").arg(&tree).arg(format!("M={}", place.display())).arg("modules");
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

/// Headers are meant to be unpacked at the root: their Makefile includes another one by its whole path.
fn point_at(headers: &Path, makefile: &Path) -> Result<()> {
    let text = fs::read_to_string(makefile).with_context(|| makefile.display().to_string())?;
    let inside = format!("include {}/usr/src/", headers.display());
    if !text.contains(&inside) {
        fs::write(makefile, text.replace("include /usr/src/", &inside))?;
    }
    Ok(())
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
