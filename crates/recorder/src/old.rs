//! What stood in the place of a recording before: kept as `FILE.old`, or put back when the new one never begins.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use afterimage_perf_data::journal;

/// Recordings that made room for a new one.
#[derive(Debug)]
pub(crate) struct Old {
    path: PathBuf,
    /// A recording stood there, and is `FILE.old` now.
    moved: bool,
    /// Where the `FILE.old` before it waits until the new recording has begun.
    older: Option<PathBuf>,
}

impl Old {
    /// Makes room at `path`: a recording that is there gets the name that perf gives it, with its journal if it has one.
    pub(crate) fn keep(path: &Path) -> io::Result<Old> {
        let mut old = Old { path: path.to_owned(), moved: false, older: None };
        if !fs::symlink_metadata(path).is_ok_and(|m| m.is_file()) {
            return Ok(old);
        }
        let kept = with_suffix(path, ".old");
        if fs::symlink_metadata(&kept).is_ok_and(|m| m.is_file()) {
            let aside = with_suffix(path, &format!(".old.{}", std::process::id()));
            move_both(&kept, &aside)?;
            old.older = Some(aside);
        }
        match move_both(path, &kept) {
            Ok(()) => old.moved = true,
            Err(error) => {
                old.put_back();
                return Err(error);
            }
        }
        Ok(old)
    }

    /// The new recording has begun: the one before the old one is not needed any more.
    pub(crate) fn begun(&mut self) {
        // A name that stays behind is no reason to end a recording.
        if let Some(older) = self.older.take() {
            let _ = fs::remove_file(journal::path_of(&older));
            let _ = fs::remove_file(older);
        }
    }

    /// The new recording never began and is taken away: everything gets its name back.
    pub(crate) fn put_back(mut self) {
        // There is nobody to tell but the user, who is about to hear of the cause.
        let kept = with_suffix(&self.path, ".old");
        if self.moved {
            let _ = move_both(&kept, &self.path);
        }
        if let Some(older) = self.older.take() {
            let _ = move_both(&older, &kept);
        }
    }
}

/// Gives a recording and its journal another name. Without a journal of its own it must not be read with one of an
/// earlier namesake.
fn move_both(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    match fs::rename(journal::path_of(from), journal::path_of(to)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => match fs::remove_file(journal::path_of(to)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        },
        other => other,
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder_with(names: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        names.iter().for_each(|name| fs::write(dir.path().join(name), name).unwrap());
        dir
    }

    /// Name and content of every file.
    fn files(dir: &tempfile::TempDir) -> Vec<(String, String)> {
        let entries = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap());
        let mut files: Vec<_> =
            entries.map(|e| (e.file_name().into_string().unwrap(), fs::read_to_string(e.path()).unwrap())).collect();
        files.sort();
        files
    }

    fn named(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, content)| ((*name).to_owned(), (*content).to_owned())).collect()
    }

    #[test]
    fn an_old_recording_is_kept_with_its_journal() {
        let dir = folder_with(&["a", "a.journal", "a.old"]);
        let mut old = Old::keep(&dir.path().join("a")).unwrap();
        old.begun();
        assert_eq!(files(&dir), named(&[("a.old", "a"), ("a.old.journal", "a.journal")]));
        fs::write(dir.path().join("a"), "two").unwrap();
        Old::keep(&dir.path().join("a")).unwrap().begun();
        assert_eq!(files(&dir), named(&[("a.old", "two")]));
    }

    #[test]
    fn everything_gets_its_name_back() {
        for names in [&["a", "a.journal", "a.old"][..], &["a", "a.old", "a.old.journal"], &["a"], &["a.old"], &[]] {
            let dir = folder_with(names);
            let before = files(&dir);
            Old::keep(&dir.path().join("a")).unwrap().put_back();
            assert_eq!(files(&dir), before, "{names:?}");
        }
    }
}
