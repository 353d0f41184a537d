//! Reading a ring: one whole record at a time, in the order written.
//!
//! A pass takes [`Ring::head`] of every ring first and drains each past its own snapshot, so that everything written
//! before the pass began has been seen when it ends.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::{fmt, io};

use crate::sys::{Kernel, Mapping};

/// Size of `struct perf_event_header`, the least a record can have.
const HEADER: usize = 8;

/// One mapped ring and the event that owns it.
pub struct Ring {
    fd: Arc<OwnedFd>,
    map: Mapping,
    /// A record that wraps is put together here; never longer than a record's size field can say.
    scratch: Vec<u8>,
}

/// What one drain handed out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DrainStats {
    /// Records.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A ring whose content made no sense. The ring goes on after the damage.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ring damaged at byte {at}: {kind}; {skipped} bytes skipped")]
pub struct RingError {
    /// What was wrong.
    pub kind: RingErrorKind,
    /// Position of the damage, in bytes since the ring was made.
    pub at: u64,
    /// Bytes that were skipped to go on.
    pub skipped: u64,
    /// What was handed out before the damage.
    pub before: DrainStats,
}

/// What can be wrong in a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingErrorKind {
    /// The head is further from the tail than the ring is long, or moved backwards.
    Overrun {
        /// Head minus tail.
        filled: u64,
        /// The ring's size in bytes.
        size: u64,
    },
    /// A record's size is no multiple of 8, less than a header, or reaches past the head.
    BadSize {
        /// The size field.
        size: u16,
        /// Bytes up to the head.
        left: u64,
    },
}

impl fmt::Display for RingErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RingErrorKind::Overrun { filled, size } => write!(f, "{filled} bytes filled of a ring of {size}"),
            RingErrorKind::BadSize { size, left } => write!(f, "record of {size} bytes where {left} are left"),
        }
    }
}

impl Ring {
    /// Maps a ring of `pages` data pages (a power of two) on an event.
    ///
    /// # Errors
    /// EPERM where the pages exceed what perf_event_mlock_kb and RLIMIT_MEMLOCK allow, EINVAL where the event cannot
    /// have a ring (an inherited one on any CPU), or the ring's control page makes no sense.
    pub fn map(kernel: &dyn Kernel, fd: &Arc<OwnedFd>, pages: usize) -> io::Result<Ring> {
        let map = kernel.map(fd.as_fd(), pages)?;
        Ok(Ring { fd: Arc::clone(fd), map, scratch: Vec::new() })
    }

    /// The event that owns the ring: readable when the watermark is reached, hung up when a task's events are dead.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Size of the data area in bytes.
    pub fn size(&self) -> usize {
        self.map.data_size()
    }

    /// How far the kernel has written: the snapshot that a pass drains past.
    pub fn head(&self) -> u64 {
        self.map.head()
    }

    /// How far we have read.
    pub fn tail(&self) -> u64 {
        self.map.tail()
    }

    /// Whether nothing is waiting.
    pub fn is_empty(&self) -> bool {
        self.head() == self.tail()
    }

    /// Hands out every record before position `until` (a value of [`Ring::head`]), each as one slice, and gives their
    /// room back to the kernel.
    ///
    /// # Errors
    /// When the ring's content makes no sense; what follows in this drain is then skipped and the next one goes on.
    pub fn drain(&mut self, until: u64, f: &mut dyn FnMut(&[u8])) -> Result<DrainStats, RingError> {
        let mut stats = DrainStats::default();
        let head = self.map.refresh();
        let filled = head.wrapping_sub(self.map.tail());
        let size = self.map.data_size() as u64;
        if filled > size {
            return Err(self.skip(head, RingErrorKind::Overrun { filled, size }, stats));
        }
        // A snapshot is at most the head; one that lies behind our own position asks for nothing.
        let wanted = until.wrapping_sub(self.map.tail());
        let until = if wanted <= filled {
            until
        } else if (wanted as i64) < 0 {
            self.map.tail()
        } else {
            head
        };
        let mut kept_back = 0;
        while self.map.tail() != until {
            let at = self.map.tail();
            let left = until.wrapping_sub(at);
            match self.record(at, left) {
                Ok(record) => {
                    let len = record.len() as u64;
                    f(record);
                    stats.records += 1;
                    stats.bytes += len;
                    self.map.advance(at.wrapping_add(len));
                    kept_back += len;
                }
                Err(kind) => return Err(self.skip(until, kind, stats)),
            }
            // Room goes back in quarters, so that a slow reader of a full ring does not lose what it need not.
            if kept_back >= size / 4 {
                self.map.release();
                kept_back = 0;
            }
        }
        if kept_back > 0 {
            self.map.release();
        }
        Ok(stats)
    }

    /// The whole record at `at`, put together when it wraps.
    fn record(&mut self, at: u64, left: u64) -> Result<&[u8], RingErrorKind> {
        let size = self.size_field(at).unwrap_or(0);
        let len = usize::from(size);
        let bad = RingErrorKind::BadSize { size, left };
        if len < HEADER || len % 8 != 0 || len as u64 > left {
            return Err(bad);
        }
        let first = self.map.bytes(at, len).ok_or(bad)?;
        if first.len() == len {
            return Ok(first);
        }
        self.scratch.clear();
        self.scratch.extend_from_slice(first);
        let rest = self.map.bytes(at.wrapping_add(first.len() as u64), len - first.len()).ok_or(bad)?;
        self.scratch.extend_from_slice(rest);
        if self.scratch.len() == len { Ok(&self.scratch) } else { Err(bad) }
    }

    /// `perf_event_header.size`. Headers never wrap, for positions and sizes are multiples of 8.
    fn size_field(&self, at: u64) -> Option<u16> {
        let header = self.map.bytes(at, HEADER)?;
        Some(u16::from_ne_bytes(header.get(6..8)?.try_into().ok()?))
    }

    /// Gives up everything before `to`.
    fn skip(&mut self, to: u64, kind: RingErrorKind, before: DrainStats) -> RingError {
        let at = self.map.tail();
        self.map.advance(to);
        self.map.release();
        RingError { kind, at, skipped: to.wrapping_sub(at), before }
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").field("fd", &self.fd).field("size", &self.size()).field("tail", &self.tail()).finish()
    }
}

#[cfg(test)]
mod tests;
