//! Names that only the running system knows.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A stretch of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The process that has it there; `None` when it is there for all, as the kernel's is.
    pub process: Option<u32>,
    /// The first address.
    pub start: u64,
    /// The address behind the last one.
    pub end: u64,
}

/// A cgroup of version 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cgroup {
    /// Its id, as samples and `bpf_get_current_cgroup_id` have it: the inode of its directory.
    pub id: u64,
    /// How many cgroups are above it. `None` where that cannot be known.
    pub level: Option<u32>,
}

/// Looks up what expressions name. An error is the reason, a sentence's end after the name.
pub trait Resolver {
    /// Where a symbol's code is.
    ///
    /// # Errors
    /// When there is none of that name, or none may be looked up.
    fn symbol(&self, name: &str) -> Result<Vec<Place>, String>;

    /// Where the code of a program or library is mapped.
    ///
    /// # Errors
    /// When it is mapped nowhere, or nobody can say where.
    fn dso(&self, name: &str) -> Result<Vec<Place>, String>;

    /// The cgroup of a path.
    ///
    /// # Errors
    /// When there is none.
    fn cgroup(&self, path: &str) -> Result<Cgroup, String> {
        cgroup(Path::new("/proc"), path)
    }
}

/// Knows cgroups alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoNames;

impl Resolver for NoNames {
    fn symbol(&self, _name: &str) -> Result<Vec<Place>, String> {
        Err("symbols are not looked up here".to_owned())
    }

    fn dso(&self, _name: &str) -> Result<Vec<Place>, String> {
        Err("mappings are not looked up here".to_owned())
    }
}

/// Takes every name, for a check of all the rest.
pub(crate) struct AnyName;

impl Resolver for AnyName {
    fn symbol(&self, _name: &str) -> Result<Vec<Place>, String> {
        Ok(vec![Place { process: Some(1), start: 1, end: 2 }])
    }

    fn dso(&self, _name: &str) -> Result<Vec<Place>, String> {
        Ok(vec![Place { process: Some(1), start: 1, end: 2 }])
    }

    fn cgroup(&self, _path: &str) -> Result<Cgroup, String> {
        Ok(Cgroup { id: 1, level: Some(1) })
    }
}

/// The inode of the first cgroup namespace (PROC_CGROUP_INIT_INO, include/linux/proc_ns.h).
const FIRST_CGROUP_NAMESPACE: u64 = 0xefff_fffb;
/// The inode of the first pid namespace (PROC_PID_INIT_INO).
const FIRST_PID_NAMESPACE: u64 = 0xefff_fffc;

/// The cgroup of version 2 at a path below the hierarchy's root, as /proc/PID/cgroup writes it.
fn cgroup(proc: &Path, path: &str) -> Result<Cgroup, String> {
    let mounts = fs::read_to_string(proc.join("self/mountinfo")).map_err(|e| format!("/proc/self/mountinfo: {e}"))?;
    let (root, mount) = mount_of(&mounts).ok_or("no hierarchy of cgroups of version 2 is mounted")?;
    let components: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    if !path.starts_with('/') || components.iter().any(|part| matches!(*part, "." | "..")) {
        return Err("a path from the root is expected, as /proc/PID/cgroup has it".to_owned());
    }
    let folder = components.iter().fold(mount.clone(), |path, part| path.join(part));
    let there = fs::metadata(&folder).map_err(|_| format!("there is no such cgroup in {}", mount.display()))?;
    let whole = root == "/" && namespace(proc, "cgroup") == Some(FIRST_CGROUP_NAMESPACE);
    Ok(Cgroup { id: there.ino(), level: whole.then_some(components.len() as u32) })
}

/// Root and place of the first mount of the version 2 hierarchy.
fn mount_of(mounts: &str) -> Option<(String, PathBuf)> {
    mounts.lines().find_map(|line| {
        let (front, back) = line.split_once(" - ")?;
        let mut fields = front.split(' ').skip(3);
        let (root, place) = (fields.next()?, fields.next()?);
        back.starts_with("cgroup2 ").then(|| (root.to_owned(), PathBuf::from(place.replace("\\040", " "))))
    })
}

fn namespace(proc: &Path, kind: &str) -> Option<u64> {
    fs::metadata(proc.join("self/ns").join(kind)).ok().map(|there| there.ino())
}

/// Whether process ids are here what the kernel itself has for them.
pub(crate) fn in_first_pid_namespace() -> bool {
    namespace(Path::new("/proc"), "pid") == Some(FIRST_PID_NAMESPACE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found() {
        let text = "22 1 0:20 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
                    31 22 0:29 /../x /sys/fs/cg\\040two rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
        assert_eq!(mount_of(text), Some(("/../x".to_owned(), PathBuf::from("/sys/fs/cg two"))));
        assert_eq!(mount_of("22 1 0:20 / /sys - sysfs sysfs rw\nbroken - \n"), None);
    }

    #[test]
    fn odd_paths_are_no_cgroups() {
        for path in ["", "system.slice", "/a/../b", "/."] {
            assert!(cgroup(Path::new("/proc"), path).is_err(), "{path}");
        }
        assert!(cgroup(Path::new("/nowhere"), "/").unwrap_err().starts_with("/proc/self/mountinfo"));
    }
}
