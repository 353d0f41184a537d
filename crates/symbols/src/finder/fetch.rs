//! Objects that are not on this machine, from somewhere else by their build id.

use std::fs::File;
use std::io;

use crate::source::{Identity, Source};

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

/// A file that came from elsewhere. It is in our own cache, but nobody here has written it.
pub(super) struct Fetched(pub(super) File);

impl Source for Fetched {
    fn len(&self) -> u64 {
        Source::len(&self.0)
    }

    fn owner(&self) -> u32 {
        u32::MAX
    }

    fn identity(&self) -> Option<Identity> {
        self.0.identity()
    }

    fn read_at(&self, to: &mut [u8], offset: u64) -> io::Result<usize> {
        Source::read_at(&self.0, to, offset)
    }
}
