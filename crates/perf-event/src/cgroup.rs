//! Cgroups that events are opened for.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A cgroup whose tasks an event is of, and those of the cgroups below it.
#[derive(Clone, Debug)]
pub struct Cgroup {
    name: String,
    folder: Arc<File>,
}

/// Two are equal that go by the same name.
impl PartialEq for Cgroup {
    fn eq(&self, other: &Cgroup) -> bool {
        self.name == other.name
    }
}

impl Cgroup {
    /// The cgroup of this path below the mount of the hierarchy that events go by.
    ///
    /// # Errors
    /// When no such hierarchy is mounted, or there is no such cgroup in it.
    pub fn open(name: &str) -> io::Result<Cgroup> {
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let mount = mount_of_events(&mounts);
        let mount =
            mount.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no hierarchy of cgroups is mounted"))?;
        Cgroup::open_in(&mount, name)
    }

    fn open_in(mount: &Path, name: &str) -> io::Result<Cgroup> {
        let inside = Path::new(name.trim_start_matches('/'));
        if inside.components().any(|part| !matches!(part, std::path::Component::Normal(_))) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut options = OpenOptions::new();
        let folder = options.read(true).custom_flags(libc::O_DIRECTORY).open(mount.join(inside))?;
        Ok(Cgroup { name: name.to_owned(), folder: Arc::new(folder) })
    }

    /// Its name, as it was given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its folder, which perf_event_open(2) takes in place of a process.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }
}

/// Where the hierarchy is mounted by which events tell cgroups apart: that of the controller `perf_event`, where it has one of
/// its own (version 1), else the unified one.
pub fn mount_of_events(mountinfo: &str) -> Option<PathBuf> {
    let own =
        mounts(mountinfo, |kind, options| kind == "cgroup" && options.split(',').any(|word| word == "perf_event"));
    own.or_else(|| unified_mount(mountinfo))
}

/// The mount of the unified hierarchy (version 2) that shows most of it.
pub fn unified_mount(mountinfo: &str) -> Option<PathBuf> {
    mounts(mountinfo, |kind, _| kind == "cgroup2")
}

/// Of the mounts that fit by type and options of their file system the one that shows most. Fields of a line: id, parent,
/// device, root, mount point, options, then ` - `, type, source and options of the file system (proc_pid_mountinfo(5)).
fn mounts(mountinfo: &str, fits: impl Fn(&str, &str) -> bool) -> Option<PathBuf> {
    let all = mountinfo.lines().filter_map(|line| {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut words = file_system.split(' ');
        let (kind, options) = (words.next()?, words.nth(1).unwrap_or_default());
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        fits(kind, options).then_some((root.len(), PathBuf::from(point)))
    });
    all.min_by_key(|(root, _)| *root).map(|(_, point)| point)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "30 25 0:26 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro\n\
        31 30 0:27 /pod/x /mnt/part rw - cgroup2 cgroup2 rw,nsdelegate\n\
        32 30 0:27 / /sys/fs/cgroup/unified rw,nosuid shared:4 - cgroup2 cgroup2 rw\n\
        33 30 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n";

    #[test]
    fn the_hierarchy_is_found() {
        assert_eq!(unified_mount(HYBRID), Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(mount_of_events(HYBRID), unified_mount(HYBRID));
        let own = format!("{HYBRID}34 30 0:29 / /sys/fs/cgroup/perf_event rw - cgroup cgroup rw,perf_event\n");
        assert_eq!(mount_of_events(&own), Some("/sys/fs/cgroup/perf_event".into()));
        assert_eq!(unified_mount("garbage\n1 2 3 - cgroup2 \n"), None);
    }

    #[test]
    fn names_stay_below_the_mount() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("a/b")).unwrap();
        assert_eq!(Cgroup::open_in(folder.path(), "/a/b").unwrap().name(), "/a/b");
        assert!(Cgroup::open_in(folder.path(), "a/b").is_ok());
        assert!(Cgroup::open_in(folder.path(), "").is_ok());
        for bad in ["a/../../etc", "..", "a/c", "./a"] {
            assert!(Cgroup::open_in(folder.path(), bad).is_err(), "{bad}");
        }
    }
}
