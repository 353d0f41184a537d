//! perf events that are opened for their side effects: on CPU 0, for all tasks.

use std::os::fd::OwnedFd;

use afterimage_perf_data::Attr;
use afterimage_perf_event::sys::{Kernel, Real};

/// Opens an event that counts on the first CPU until it is closed.
pub(crate) fn open(attr: &Attr) -> std::io::Result<OwnedFd> {
    Real.perf_event_open(attr, -1, 0, None)
}
