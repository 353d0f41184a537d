//! The memory of one ring: a control page, then a power of two of data pages.
//!
//! Layout and protocol: `struct perf_event_mmap_page` in uapi/linux/perf_event.h. The kernel moves `data_head` and
//! writes only outside `[data_tail, data_head)`; we move `data_tail` and read only inside. Both count bytes since the
//! ring was made and never wrap in practice.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Byte offsets of fields of `struct perf_event_mmap_page`.
mod field {
    pub(super) const DATA_HEAD: usize = 1024;
    pub(super) const DATA_TAIL: usize = 1032;
    pub(super) const DATA_OFFSET: usize = 1040;
    pub(super) const DATA_SIZE: usize = 1048;
    pub(super) const END: usize = 1056;
}

/// Who gives the memory back.
#[derive(Debug)]
enum Owner {
    /// `munmap` when dropped.
    Kernel,
    /// Memory of a test, kept alive by the reference count.
    #[cfg(any(test, feature = "fake"))]
    Memory(
        #[expect(dead_code, reason = "held so that the memory outlives the mapping")]
        std::sync::Arc<super::fake::Memory>,
    ),
}

/// A mapped ring, not yet interpreted: positions and the bytes between them.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
    data_offset: usize,
    data_size: usize,
    /// Our position, also what `data_tail` holds after the last `release`.
    tail: u64,
    /// The `data_head` up to which `bytes` may read.
    seen: u64,
    owner: Owner,
}

// SAFETY: the mapping is owned by this value alone on our side, is not tied to a thread, and all positions that the
// kernel shares are accessed atomically.
unsafe impl Send for Mapping {}
// SAFETY: shared access only loads positions atomically and reads bytes that nobody writes (see `bytes`).
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Takes over a mapping made by `mmap` on a perf event.
    ///
    /// Returns `None`, giving the memory back, when the control page describes no usable data area.
    ///
    /// # Safety
    /// `base..base + len` must be a live mapping of a perf event's ring, readable and writable, page aligned, at offset
    /// 0, that nothing else unmaps or writes.
    pub(super) unsafe fn from_kernel(base: NonNull<u8>, len: usize, page: usize) -> Option<Mapping> {
        Mapping::checked(base, len, page, Owner::Kernel)
    }

    /// A mapping of a test's memory.
    #[cfg(any(test, feature = "fake"))]
    pub(super) fn from_memory(memory: std::sync::Arc<super::fake::Memory>, page: usize) -> Option<Mapping> {
        let (base, len) = memory.span();
        Mapping::checked(base, len, page, Owner::Memory(memory))
    }

    fn checked(base: NonNull<u8>, len: usize, page: usize, owner: Owner) -> Option<Mapping> {
        let mut mapping = Mapping { base, len, data_offset: 0, data_size: 0, tail: 0, seen: 0, owner };
        if len < field::END {
            return None;
        }
        let offset = mapping.word(field::DATA_OFFSET).load(Ordering::Relaxed);
        let size = mapping.word(field::DATA_SIZE).load(Ordering::Relaxed);
        // Kernels before 4.1 left both fields zero; the data area then follows the control page.
        let (offset, size) = match (usize::try_from(offset).ok()?, usize::try_from(size).ok()?) {
            (0, 0) => (page, len.checked_sub(page)?),
            span => span,
        };
        let fits = offset.checked_add(size).is_some_and(|end| end <= len);
        if !fits || offset < field::END || offset % 8 != 0 || size < 8 || !size.is_power_of_two() {
            return None;
        }
        mapping.data_offset = offset;
        mapping.data_size = size;
        mapping.tail = mapping.word(field::DATA_TAIL).load(Ordering::Relaxed);
        mapping.seen = mapping.tail;
        Some(mapping)
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        debug_assert!(offset % 8 == 0 && offset + 8 <= self.len);
        // SAFETY: `offset` is one of the constants of `field`, inside the control page (`checked` refuses less memory),
        // 8-aligned from a page-aligned base; the memory lives as long as `self`; both sides access it atomically.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    /// Bytes of the data area, a power of two.
    pub fn data_size(&self) -> usize {
        self.data_size
    }

    /// Where the kernel has written to. What it wrote before is visible after this load.
    #[doc(alias = "data_head")]
    pub fn head(&self) -> u64 {
        // Pairs with the barrier before the kernel's store of data_head.
        self.word(field::DATA_HEAD).load(Ordering::Acquire)
    }

    /// Where we have read to.
    #[doc(alias = "data_tail")]
    pub fn tail(&self) -> u64 {
        self.tail
    }

    /// Loads the head and makes the bytes up to it readable.
    pub(crate) fn refresh(&mut self) -> u64 {
        self.seen = self.head();
        self.seen
    }

    /// Moves our position to `to` without telling the kernel yet: the bytes before stay untouched until `release`.
    pub(crate) fn advance(&mut self, to: u64) {
        self.tail = to;
    }

    /// Tells the kernel that everything before our position may be overwritten.
    ///
    /// `&mut self` ends every borrow of `bytes` first.
    pub(crate) fn release(&mut self) {
        // All reads of the data must be done before the kernel sees the new tail; it pairs with its full barrier
        // between loading data_tail and writing.
        fence(Ordering::SeqCst);
        self.word(field::DATA_TAIL).store(self.tail, Ordering::Release);
    }

    /// The bytes from position `at` on, `len` of them or fewer where the area wraps.
    ///
    /// `None` unless `[at, at + len)` lies between our position and the head last seen, with at most one area's size
    /// between these two.
    pub(crate) fn bytes(&self, at: u64, len: usize) -> Option<&[u8]> {
        let filled = self.seen.wrapping_sub(self.tail);
        let end = at.wrapping_sub(self.tail).checked_add(len as u64)?;
        if filled > self.data_size as u64 || end > filled {
            return None;
        }
        let start = (at & (self.data_size as u64 - 1)) as usize;
        let len = len.min(self.data_size - start);
        // SAFETY: `start + len <= data_size` and the area lies inside the mapping (`checked`), which lives as long as
        // `self`. The range is inside [released tail, head): the mapping is writable, so the kernel never overwrites
        // what data_tail has not passed, and `release` needs `&mut self`, so no slice outlives that promise.
        Some(unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(self.data_offset + start), len) })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        match self.owner {
            Owner::Kernel => {
                // SAFETY: `base` and `len` are those of the mmap that `from_kernel` took over; no borrow is left.
                let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
            }
            #[cfg(any(test, feature = "fake"))]
            Owner::Memory(_) => {}
        }
    }
}
