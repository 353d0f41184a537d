//! One opened event.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use afterimage_perf_data::ReadFormat;

use super::{OpenError, Place};
use crate::spec::EventSpec;
use crate::sys::Kernel;

/// One event on one CPU, one thread, or both.
#[derive(Debug)]
pub struct Event {
    /// The event. Its ring holds it too.
    pub fd: Arc<OwnedFd>,
    /// Its id, which PERF_SAMPLE_IDENTIFIER gives.
    pub id: u64,
    /// Its CPU, -1 for any.
    pub cpu: i32,
    /// Its thread, -1 for any.
    pub tid: i32,
    /// Index of its spec.
    pub spec: usize,
    /// Index of the ring that it writes to.
    pub ring: usize,
    kernel: Arc<dyn Kernel>,
    read_format: ReadFormat,
}

/// What a read of an event gives. What its read_format did not ask for is 0; `lost` is `None` before Linux 6.0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// The count, of inherited children too.
    pub value: u64,
    /// ns that it was enabled.
    pub enabled: u64,
    /// ns that it counted.
    pub running: u64,
    /// Its id.
    pub id: u64,
    /// Records that found no room in the ring, of inherited children too.
    #[doc(alias = "PERF_FORMAT_LOST")]
    pub lost: Option<u64>,
}

/// Asks for the id and sets the filter.
pub(super) fn finish(
    kernel: &Arc<dyn Kernel>,
    spec: &EventSpec,
    place: Place,
    ring: usize,
) -> Result<Event, OpenError> {
    let Place { fd, spec: index, cpu, tid } = place;
    let id = kernel.id(fd.as_fd()).map_err(|cause| OpenError::other(spec, cause))?;
    if let Some(filter) = &spec.filter {
        let text =
            CString::new(filter.as_str()).map_err(|_| OpenError::filter(spec, io::ErrorKind::InvalidInput.into()))?;
        kernel.set_filter(fd.as_fd(), &text).map_err(|cause| OpenError::filter(spec, cause))?;
    }
    let read_format = spec.attr.read_format;
    Ok(Event { fd, id, cpu, tid, spec: index, ring, kernel: Arc::clone(kernel), read_format })
}

impl Event {
    /// The descriptor, for attaching programs and polling.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Starts it.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn enable(&self) -> io::Result<()> {
        self.kernel.enable(self.fd.as_fd(), false)
    }

    /// Stops it; inherited children too.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn disable(&self) -> io::Result<()> {
        self.kernel.disable(self.fd.as_fd(), false)
    }

    /// Reads its counts. They are final once it is disabled.
    ///
    /// # Errors
    /// What the kernel says, or InvalidData when it gives less than was asked for.
    pub fn read(&self) -> io::Result<Count> {
        let mut buf = [0u8; 64];
        let len = self.kernel.read(self.fd.as_fd(), &mut buf)?;
        let mut words = buf[..len.min(buf.len())].chunks_exact(8).map(word);
        let mut next = || words.next().ok_or(io::Error::from(io::ErrorKind::InvalidData));
        let has = |bit| self.read_format.contains(bit);
        let mut count = Count { value: next()?, id: self.id, ..Count::default() };
        if has(ReadFormat::TOTAL_TIME_ENABLED) {
            count.enabled = next()?;
        }
        if has(ReadFormat::TOTAL_TIME_RUNNING) {
            count.running = next()?;
        }
        if has(ReadFormat::ID) {
            count.id = next()?;
        }
        if has(ReadFormat::LOST) {
            count.lost = Some(next()?);
        }
        Ok(count)
    }
}

fn word(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_ne_bytes)
}
