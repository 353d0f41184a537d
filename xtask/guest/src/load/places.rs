//! Kernel functions to hook, that a harmless system call enters, and how to call them.

use std::fs::File;
use std::io::{Seek, SeekFrom};

use rustix::fs::{fstat, fstatfs};
use rustix::thread::sched_getaffinity;

/// One function and what calls it once, on any file.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    /// The kernel's symbol.
    pub(crate) function: &'static str,
    call: fn(&File),
}

/// Where we hook. All are global functions, so that the kernel has them under these names.
pub(crate) const PLACES: [Place; 4] = [
    Place { function: "vfs_llseek", call: |mut file| _ = file.seek(SeekFrom::Start(0)) },
    Place { function: "sched_getaffinity", call: |_| _ = sched_getaffinity(None) },
    Place { function: "vfs_getattr", call: |file| _ = fstat(file) },
    Place { function: "vfs_statfs", call: |file| _ = fstatfs(file) },
];

impl Place {
    /// Calls the function a hundred times. Returns how often.
    pub(crate) fn visit(&self, file: &File) -> u64 {
        const TIMES: u64 = 100;
        (0..TIMES).for_each(|_| (self.call)(file));
        TIMES
    }
}

/// A file to visit places with: this program's own.
pub(crate) fn file() -> std::io::Result<File> {
    File::open("/proc/self/exe")
}
