//! Objects that are not on this machine, from somewhere else by their build id.

use std::fs::File;

/// Which file of a build is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wanted {
    /// The object that ran.
    Executable,
    /// Its separate debug file.
    DebugInfo,
}

/// Gets files of a build from elsewhere. What it gives is held against the build id again before it names anything.
pub trait Fetch: Send {
    /// The file of this build, if it can be had. Why it cannot is for the implementor to tell.
    fn fetch(&self, build_id: &[u8], wanted: Wanted) -> Option<File>;
}
