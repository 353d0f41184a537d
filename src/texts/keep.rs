//! Where `text watch` keeps code: one ELF file a text, in a folder.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use afterimage_perf_data::{Endian, TextDesc};
use anyhow::Context;

use super::dwarf::Line;
use super::elf::Object;

/// The folder. Names of files are those of the texts, so far as they are fit for that.
pub(super) struct Folder {
    path: PathBuf,
}

/// Longest part of a file's name that a text's name gives.
const LONGEST: usize = 180;
/// Files of one name: a storm of one program may load it many times, but each time under another id.
const SAME_NAME: u32 = 100_000;

impl Folder {
    /// The folder, made where it is not there.
    ///
    /// # Errors
    /// When it is not there and cannot be made.
    pub(super) fn at(path: &Path) -> anyhow::Result<Folder> {
        if !path.is_dir() {
            // Code of the kernel tells where it lies: for the owner's eyes, as recordings are.
            let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
            made.with_context(|| path.display().to_string())?;
        }
        Ok(Folder { path: path.to_owned() })
    }

    /// Writes the code of a text into a file of its own, and gives its path.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn keep(&self, text: &TextDesc, code: &[u8], lines: &[Line]) -> anyhow::Result<PathBuf> {
        let object = Object {
            name: text.name.as_deref().unwrap_or(&text.kind),
            address: text.address,
            code,
            lines,
            arch: std::env::consts::ARCH,
            endian: if cfg!(target_endian = "little") { Endian::Little } else { Endian::Big },
        };
        let bytes = object.to_elf()?;
        let (path, mut file) = self.create(&file_name(text)).with_context(|| self.path.display().to_string())?;
        file.write_all(&bytes).with_context(|| path.display().to_string())?;
        Ok(path)
    }

    /// Makes a new file: what is there is never written over, nor is a link followed.
    fn create(&self, name: &str) -> io::Result<(PathBuf, fs::File)> {
        let mut last = io::Error::from(io::ErrorKind::AlreadyExists);
        for again in 1..=SAME_NAME {
            let name = if again == 1 { format!("{name}.elf") } else { format!("{name}.{again}.elf") };
            let path = self.path.join(name);
            match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
                Ok(file) => return Ok((path, file)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }
}

/// `NAME@ID`, or `NAME@0xADDRESS` where there is no id; a text without a name goes by its kind.
fn file_name(text: &TextDesc) -> String {
    let fit = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    let name = text.name.as_deref().unwrap_or(&text.kind);
    let name: String = name.chars().map(fit).take(LONGEST).collect();
    // A name of dots alone, or one that begins with a dot, is not what anybody looks for.
    let name = name.trim_start_matches('.');
    match text.id {
        Some(id) => format!("{name}@{id}"),
        None => format!("{name}@{:#x}", text.address),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_are_fit_for_files() {
        let text = |name: Option<&str>, id| TextDesc {
            name: name.map(str::to_owned),
            id,
            kind: "cbpf".into(),
            address: 0x1000,
            ..TextDesc::default()
        };
        assert_eq!(file_name(&text(Some("bpf_prog_6d_hot"), Some(7))), "bpf_prog_6d_hot@7");
        assert_eq!(file_name(&text(Some("../../etc/passwd\0"), None)), "_.._etc_passwd_@0x1000");
        assert_eq!(file_name(&text(None, None)), "cbpf@0x1000");
        assert!(file_name(&text(Some(&"x".repeat(1000)), Some(1))).len() < 200);
    }

    #[test]
    fn what_is_there_stays() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Folder::at(&folder.path().join("new/er")).unwrap();
        let text = TextDesc { kind: "cbpf".into(), address: 0x1000, ..TextDesc::default() };
        let first = kept.keep(&text, &[0xc3], &[]).unwrap();
        let before = fs::read(&first).unwrap();
        let second = kept.keep(&text, &[0x90, 0xc3], &[]).unwrap();
        assert_ne!(first, second);
        assert_eq!(fs::read(&first).unwrap(), before);
        assert!(before.starts_with(b"\x7fELF"));
    }
}
