//! The file system that a guest starts with, as an archive that the kernel unpacks.

use anyhow::{Context, Result, ensure};
use guest::cpio::Writer;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::BufWriter;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Fills the archive. Everything is packed once, however often it is asked for.
pub(crate) struct Pack {
    writer: Writer<BufWriter<File>>,
    packed: BTreeSet<PathBuf>,
}

impl Pack {
    /// A file system with what every Linux has.
    pub(crate) fn create(path: &Path) -> Result<Pack> {
        let file = File::create(path).with_context(|| path.display().to_string())?;
        let mut writer = Writer::new(BufWriter::with_capacity(1 << 20, file));
        // The kernel opens it for the first process.
        writer.characters("dev/console", 0o600, 5, 1)?;
        for (folder, mode) in [("proc", 0o555), ("sys", 0o555), ("root", 0o700), ("tmp", 0o1777), ("out", 0o755)] {
            writer.folder(folder, mode)?;
        }
        let mut pack = Pack { writer, packed: BTreeSet::new() };
        pack.text("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n")?;
        pack.text("etc/group", "root:x:0:\nnogroup:x:65534:\n")?;
        pack.text("etc/hosts", "127.0.0.1 localhost\n")?;
        Ok(pack)
    }

    /// A small text, readable by all.
    pub(crate) fn text(&mut self, path: &str, text: &str) -> Result<()> {
        self.bytes(path, text.as_bytes())
    }

    /// A file with these bytes, readable by all.
    pub(crate) fn bytes(&mut self, path: &str, bytes: &[u8]) -> Result<()> {
        Ok(self.writer.file(path, 0o644, bytes.len() as u64, bytes)?)
    }

    pub(crate) fn link(&mut self, path: &str, to: &str) -> Result<()> {
        Ok(self.writer.link(path, to)?)
    }

    /// A file of this machine under another name.
    pub(crate) fn file_as(&mut self, from: &Path, path: &str) -> Result<()> {
        let file = File::open(from).with_context(|| from.display().to_string())?;
        let metadata = file.metadata()?;
        ensure!(metadata.is_file(), "{}: not a file", from.display());
        let mode = metadata.permissions().mode();
        Ok(self.writer.file(path, mode, metadata.len(), file)?)
    }

    /// A file or program at the path that it has here, with the shared libraries that it needs.
    pub(crate) fn same(&mut self, path: &Path) -> Result<()> {
        if self.packed.insert(path.to_owned()) {
            self.file_as(path, &path.to_string_lossy())?;
            self.libraries(path)?;
        }
        Ok(())
    }

    /// The shared libraries that a program is loaded with, where they are here.
    pub(crate) fn libraries(&mut self, path: &Path) -> Result<()> {
        for library in libraries(path)? {
            self.same(&library)?;
        }
        Ok(())
    }

    /// A folder at the path that it has here, with everything below it.
    pub(crate) fn same_folder(&mut self, folder: &Path) -> Result<()> {
        for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            if path.is_dir() { self.same_folder(&path)? } else { self.same(&path)? }
        }
        Ok(())
    }

    /// Busybox, and a link for each of its commands, but for those that stand in `own`.
    pub(crate) fn busybox(&mut self, busybox: &Path, own: &[&str]) -> Result<()> {
        self.file_as(busybox, "bin/busybox")?;
        let output = Command::new(busybox).arg("--list").output().context("busybox --list")?;
        let names = String::from_utf8(output.stdout)?;
        for name in names.lines().filter(|name| *name != "busybox" && !own.contains(name)) {
            self.link(&format!("bin/{name}"), "busybox")?;
        }
        for folder in ["usr/bin", "sbin", "usr/sbin"] {
            self.link(folder, "/bin")?;
        }
        Ok(())
    }

    /// Ends the archive.
    pub(crate) fn finish(self) -> Result<()> {
        self.writer.finish()?;
        Ok(())
    }
}

/// The shared libraries that a program or library is loaded with: none for a static one and for other files.
fn libraries(path: &Path) -> Result<Vec<PathBuf>> {
    if !is_elf(path) {
        return Ok(Vec::new());
    }
    // Fails for static programs, in words that differ.
    let output = Command::new("ldd").arg(path).output().context("ldd")?;
    Ok(paths(&String::from_utf8_lossy(&output.stdout)))
}

fn is_elf(path: &Path) -> bool {
    use std::io::Read;
    let mut magic = [0; 4];
    File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && &magic == b"\x7fELF"
}

/// The paths in what `ldd` prints: `NAME => PATH (ADDRESS)` and `PATH (ADDRESS)`.
fn paths(said: &str) -> Vec<PathBuf> {
    let path = |line: &str| {
        let word = line.split_once(" => ").map_or(line, |(_, path)| path).trim();
        let path = word.split(" (").next()?;
        path.starts_with('/').then(|| PathBuf::from(path))
    };
    said.lines().filter_map(path).collect()
}

#[cfg(test)]
mod tests {
    use super::paths;
    use std::path::Path;

    #[test]
    fn paths_of_libraries_are_read() {
        let said = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\
            \tlibgone.so => not found\n\t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let expected = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"];
        assert_eq!(paths(said), expected.map(Path::new));
        assert!(paths("\tstatically linked\n").is_empty());
        assert!(paths("\tnot a dynamic executable\n").is_empty());
    }
}
