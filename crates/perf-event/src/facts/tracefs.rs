//! Finding tracefs. Where nobody has mounted it, a mount that only this process holds does, and leaves no trace.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

/// Where it is usually mounted.
const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// A tracefs, looked for when asked for, until there is one: it may be mounted later, or what a mount takes may be lacking.
#[derive(Debug)]
pub(super) struct Tracefs {
    found: OnceLock<Found>,
    /// Whether it is looked for.
    looks: bool,
}

#[derive(Debug)]
struct Found {
    path: PathBuf,
    /// Keeps a private mount alive, which the path leads to.
    _mount: Option<OwnedFd>,
}

impl Tracefs {
    pub(super) fn system() -> Tracefs {
        Tracefs { found: OnceLock::new(), looks: true }
    }

    pub(super) fn at(path: Option<PathBuf>) -> Tracefs {
        let found = OnceLock::new();
        if let Some(path) = path {
            let _ = found.set(Found { path, _mount: None });
        }
        Tracefs { found, looks: false }
    }

    pub(super) fn path(&self) -> Option<&Path> {
        self.path_or(look)
    }

    fn path_or(&self, look: impl FnOnce() -> Option<Found>) -> Option<&Path> {
        if self.found.get().is_none() && self.looks {
            if let Some(found) = look() {
                // Somebody else may have found it meanwhile; one of the two is kept.
                let _ = self.found.set(found);
            }
        }
        self.found.get().map(|found| &*found.path)
    }
}

fn look() -> Option<Found> {
    // One that may not be looked into is there all the same: reading from it then says why it fails.
    let is_there = |dir: &&Path| match dir.join("events").try_exists() {
        Ok(there) => there,
        Err(e) => e.kind() == std::io::ErrorKind::PermissionDenied,
    };
    let mounted = PLACES.iter().map(Path::new).find(is_there);
    if let Some(dir) = mounted {
        return Some(Found { path: dir.to_path_buf(), _mount: None });
    }
    let fd = private_mount().ok()?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()));
    path.join("events").exists().then_some(Found { path, _mount: Some(fd) })
}

/// A mount of tracefs that is attached nowhere (Linux 5.2, CAP_SYS_ADMIN).
fn private_mount() -> rustix::io::Result<OwnedFd> {
    let fs = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&fs)?;
    fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
}

/// A private mount and where it is reached.
#[cfg(test)]
pub(super) fn private_mount_for_test() -> rustix::io::Result<(PathBuf, OwnedFd)> {
    let fd = private_mount()?;
    Ok((PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd())), fd))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_there_is_looked_for_again() {
        let tracefs = Tracefs::system();
        assert_eq!(tracefs.path_or(|| None), None);
        let there = || Some(Found { path: "/there".into(), _mount: None });
        assert_eq!(tracefs.path_or(there), Some(Path::new("/there")));
        assert_eq!(tracefs.path_or(|| unreachable!("it was found")), Some(Path::new("/there")));
        // Where it was said to be there is none.
        assert_eq!(Tracefs::at(None).path_or(there), None);
        assert_eq!(Tracefs::at(Some("/given".into())).path_or(there), Some(Path::new("/given")));
    }
}
