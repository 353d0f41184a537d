//! A BPF array that user space sees as memory.

use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};

use memmap2::{MmapOptions, MmapRaw};

use crate::{Error, Result};

/// The values of an mmapable array map, `stride` bytes apart. Values are shared with programs of the kernel, so they are
/// only handed out as pointers.
#[derive(Debug)]
pub(crate) struct Mapping<T> {
    memory: MmapRaw,
    stride: usize,
    values: usize,
    of: PhantomData<*mut T>,
}

// SAFETY: the pointer in the marker is never used; the memory is shared with the kernel whichever thread looks at it, and
// what may be read or written when is the business of those who turn its pointers into values.
unsafe impl<T> Send for Mapping<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Mapping<T> {}

impl<T> Mapping<T> {
    /// Maps the array `fd` of `values` values, `stride` bytes each as the map was created with. `stride` holds one or
    /// more `T`.
    pub(crate) fn new(name: &str, fd: BorrowedFd<'_>, stride: usize, values: usize) -> Result<Mapping<T>> {
        debug_assert!(stride % 8 == 0 && stride >= size_of::<T>());
        let bytes = stride * values;
        let memory = MmapOptions::new()
            .len(bytes)
            .map_raw(fd.as_raw_fd())
            .map_err(|e| Error::io(format!("mapping {name}"), &e))?;
        Ok(Mapping { memory, stride, values, of: PhantomData })
    }

    /// Points at the value of a key. It is valid for `stride` bytes, as long as `self` lives, and aligned to 8.
    pub(crate) fn get(&self, key: usize) -> Option<*mut T> {
        // SAFETY: key * stride lies within the mapped bytes, see `new`.
        (key < self.values).then(|| unsafe { self.memory.as_mut_ptr().add(key * self.stride) }.cast())
    }

    /// How many `T` the value of one key holds.
    pub(crate) fn len_of_value(&self) -> usize {
        self.stride / size_of::<T>()
    }
}
