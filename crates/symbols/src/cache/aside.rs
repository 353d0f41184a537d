//! Files that are not whole yet: written beside the entries under names of their own, and locked (flock(2)) as long as
//! somebody writes them. A lock goes with the process that has it, however that ends, so that a file without one was left
//! behind; its age is asked too, for a lock comes a moment after the file, and some file systems have none.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

/// How long nothing was written to a file that was left behind: without a lock, and where there are no locks. The first is
/// longer than any time between two system calls, the second than any server may take.
const LEFT: Duration = Duration::from_secs(60);
const LEFT_WITHOUT_LOCKS: Duration = Duration::from_secs(24 * 60 * 60);

/// Names that are tried. Another container may have processes of the same numbers in the same folder.
const TRIES: u32 = 1000;

/// Whether a name is of a file that is not whole. No entry begins like this.
pub(super) fn is_aside(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b".")
}

/// A new file to be written, for its owner alone, and locked.
pub(super) fn create(dir: &Path, name: &str) -> io::Result<(PathBuf, File)> {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    let mut tries = 0;
    loop {
        let unique = COUNTER.fetch_add(1, Ordering::Relaxed);
        let path = dir.join(format!(".{name}.{}.{unique}", std::process::id()));
        match OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tries < TRIES => tries += 1,
            opened => {
                let file = opened?;
                file.set_permissions(fs::Permissions::from_mode(0o600))?;
                // Where there are no locks its age has to do.
                let _ = flock(&file, FlockOperation::NonBlockingLockExclusive);
                return Ok((path, file));
            }
        }
    }
}

/// Removes what was left behind. What cannot be removed stays: there is a next time.
pub(super) fn remove_left(dir: &Path) {
    let Ok(list) = fs::read_dir(dir) else { return };
    for entry in list.flatten().filter(|entry| is_aside(&entry.file_name())) {
        let path = entry.path();
        if is_left(&path).unwrap_or(false) {
            let _ = fs::remove_file(path);
        }
    }
}

fn is_left(path: &Path) -> io::Result<bool> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let meta = file.metadata()?;
    if !meta.is_file() || meta.uid() != super::effective_uid() {
        return Ok(false);
    }
    // One of the future was written by a clock that was wrong, and is not told from a new one.
    let age = SystemTime::now().duration_since(meta.modified()?).unwrap_or_default();
    Ok(match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => age > LEFT,
        Err(Errno::WOULDBLOCK) => false,
        Err(_) => age > LEFT_WITHOUT_LOCKS,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn old(file: &File) {
        file.set_modified(SystemTime::now() - 2 * LEFT_WITHOUT_LOCKS).unwrap();
    }

    #[test]
    fn what_is_written_stays_and_what_was_left_goes() {
        let dir = tempfile::tempdir().unwrap();
        let (path, file) = create(dir.path(), "x").unwrap();
        assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o600);
        // However long it takes.
        old(&file);
        remove_left(dir.path());
        assert!(path.exists());
        drop(file);
        remove_left(dir.path());
        assert!(!path.exists());
        // One that was made a moment ago may not have its lock yet.
        let fresh = dir.path().join(".fresh.1.1");
        let file = File::create(&fresh).unwrap();
        remove_left(dir.path());
        assert!(fresh.exists());
        old(&file);
        remove_left(dir.path());
        assert!(!fresh.exists());
        // Links and folders are none of ours.
        let link = dir.path().join(".link.1.1");
        std::os::unix::fs::symlink("/proc/self/exe", &link).unwrap();
        fs::create_dir(dir.path().join(".folder")).unwrap();
        remove_left(dir.path());
        assert!(fs::symlink_metadata(link).is_ok() && dir.path().join(".folder").is_dir());
    }

    #[test]
    fn nobodys_file_is_taken_for_ours() {
        let dir = tempfile::tempdir().unwrap();
        let (first, file) = create(dir.path(), "x").unwrap();
        drop(file);
        // Those of a process of our number elsewhere.
        let number: u32 = first.to_str().unwrap().rsplit('.').next().unwrap().parse().unwrap();
        for next in number..number + 100 {
            fs::write(dir.path().join(format!(".x.{}.{next}", std::process::id())), b"theirs").unwrap();
        }
        let (second, file) = create(dir.path(), "x").unwrap();
        assert_eq!(file.metadata().unwrap().len(), 0);
        assert!(fs::read(&first).unwrap() == b"theirs" && fs::read(second).unwrap().is_empty());
    }
}
