//! Paths of cgroups by their number, which is the inode of their folder in the unified hierarchy.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use afterimage_perf_event::cgroup::{mount_of_events, unified_mount};

/// Folders that are looked at in one walk.
const MOST: usize = 1 << 16;

/// What is known of cgroups. One that is gone keeps the path that it had.
pub(crate) struct Cgroups {
    /// Where the hierarchy is mounted.
    root: Option<PathBuf>,
    paths: HashMap<u64, String>,
    /// Those that a walk did not find: gone, or outside of what is mounted here. They are not looked for again.
    missing: HashSet<u64>,
}

impl Cgroups {
    pub(crate) fn new() -> Cgroups {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        Cgroups { root: unified_mount(&mounts), paths: HashMap::new(), missing: HashSet::new() }
    }

    /// Looks for the paths of those that are not known. Best done soon: a cgroup goes with its last task.
    pub(crate) fn learn(&mut self, ids: impl IntoIterator<Item = u64>) {
        let is_new = |id: &u64| !self.paths.contains_key(id) && !self.missing.contains(id);
        let new: Vec<u64> = ids.into_iter().filter(is_new).collect();
        if let (false, Some(root)) = (new.is_empty(), &self.root) {
            walk(root, &mut self.paths);
            self.missing.extend(new.into_iter().filter(|id| !self.paths.contains_key(id)));
        }
    }

    /// Its path below the mount, `/` for the root.
    pub(crate) fn path(&self, id: u64) -> Option<&str> {
        self.paths.get(&id).map(String::as_str)
    }
}

/// Number and path of every cgroup that events can tell apart, as of now.
pub(crate) fn all() -> Vec<(u64, String)> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut paths = HashMap::new();
    if let Some(root) = mount_of_events(&mounts) {
        walk(&root, &mut paths);
    }
    let mut all: Vec<(u64, String)> = paths.into_iter().collect();
    all.sort();
    all
}

fn walk(root: &Path, paths: &mut HashMap<u64, String>) {
    let mut left = vec![root.to_path_buf()];
    let mut seen = 0;
    while let Some(folder) = left.pop() {
        seen += 1;
        let Ok(meta) = fs::symlink_metadata(&folder) else { continue };
        let path = folder.strip_prefix(root).unwrap_or(&folder);
        paths.insert(meta.ino(), format!("/{}", path.display()));
        if seen + left.len() > MOST {
            continue;
        }
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        let below = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        left.extend(below.map(|entry| entry.path()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_found_by_their_inode() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("a/b")).unwrap();
        fs::write(root.path().join("a/cgroup.procs"), "").unwrap();
        let mut cgroups =
            Cgroups { root: Some(root.path().to_owned()), paths: HashMap::new(), missing: HashSet::new() };
        let inode = |path: &str| fs::metadata(root.path().join(path)).unwrap().ino();
        cgroups.learn([inode("a/b")]);
        assert_eq!(cgroups.path(inode("a/b")), Some("/a/b"));
        assert_eq!(cgroups.path(inode("")), Some("/"));
        assert_eq!(cgroups.path(inode("a/cgroup.procs")), None);
    }
}
