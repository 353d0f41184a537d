//! Files that were there and were not used, because they are not of the recorded build.

use std::path::{Path, PathBuf};

/// A file that was found where names were looked for, and that gave none.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Refused {
    /// Where it was found, in the root that was looked through.
    pub file: PathBuf,
    /// The build id that was wanted; empty where none was known.
    pub recorded: Vec<u8>,
    /// What it has.
    pub why: Mismatch,
}

/// What a file has in place of what was wanted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Mismatch {
    /// Another build id; empty where it has none.
    BuildId(Vec<u8>),
    /// Another checksum than its object's `.gnu_debuglink` has.
    Checksum,
}

/// The most that are remembered one by one. A session that runs for days may meet many.
const MOST: usize = 1 << 12;

/// Each file once for each build id that was wanted of it.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    all: Vec<Refused>,
}

impl Refusals {
    pub(super) fn add(&mut self, more: impl IntoIterator<Item = Refused>) {
        for refused in more {
            if self.all.len() < MOST && !self.all.contains(&refused) {
                self.all.push(refused);
            }
        }
    }

    pub(super) fn all(&self) -> &[Refused] {
        &self.all
    }
}

/// What was refused while one object was looked for.
#[derive(Debug, Default)]
pub(super) struct Tried {
    /// Files that would have been the object itself.
    pub(super) objects: Vec<Refused>,
    /// Files that would have been its debug file.
    pub(super) debug: Vec<Refused>,
}

impl Tried {
    pub(super) fn object(&mut self, file: &Path, recorded: &[u8], own: Vec<u8>) {
        self.objects.push(Refused { file: file.into(), recorded: recorded.into(), why: Mismatch::BuildId(own) });
    }

    pub(super) fn debug_file(&mut self, file: &Path, recorded: &[u8], why: Mismatch) {
        self.debug.push(Refused { file: file.into(), recorded: recorded.into(), why });
    }
}
