//! Finding tracefs. Where nobody has mounted it, a mount that only this process holds does, and leaves no trace.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

/// Where it is usually mounted.
const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// A tracefs, looked for when first asked for.
#[derive(Debug)]
pub(super) struct Tracefs {
    found: OnceLock<Option<PathBuf>>,
    /// Keeps a private mount alive.
    mount: OnceLock<OwnedFd>,
}

impl Tracefs {
    pub(super) fn system() -> Tracefs {
        Tracefs { found: OnceLock::new(), mount: OnceLock::new() }
    }

    pub(super) fn at(path: Option<PathBuf>) -> Tracefs {
        Tracefs { found: OnceLock::from(path), mount: OnceLock::new() }
    }

    pub(super) fn path(&self) -> Option<&Path> {
        self.found.get_or_init(|| self.look()).as_deref()
    }

    fn look(&self) -> Option<PathBuf> {
        // One that may not be looked into is there all the same: reading from it then says why it fails.
        let is_there = |dir: &&Path| match dir.join("events").try_exists() {
            Ok(there) => there,
            Err(e) => e.kind() == std::io::ErrorKind::PermissionDenied,
        };
        let mounted = PLACES.iter().map(Path::new).find(is_there);
        if let Some(dir) = mounted {
            return Some(dir.to_path_buf());
        }
        let fd = private_mount().ok()?;
        let dir = PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()));
        let _ = self.mount.set(fd);
        dir.join("events").exists().then_some(dir)
    }
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
