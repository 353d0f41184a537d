//! One open, tried again where that can help.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use afterimage_perf_data::Attr;

use crate::cgroup::Cgroup;
use crate::sys::Kernel;

/// Opens one event. An interrupted call is repeated; when descriptors run out, the limit is raised once.
pub(super) fn open(
    kernel: &dyn Kernel,
    attr: &Attr,
    cgroup: Option<&Cgroup>,
    tid: i32,
    cpu: i32,
    group: Option<BorrowedFd<'_>>,
) -> io::Result<OwnedFd> {
    let mut raised = false;
    loop {
        let opened = match cgroup {
            Some(cgroup) => kernel.perf_event_open_in(attr, cgroup.fd(), cpu, group),
            None => kernel.perf_event_open(attr, tid, cpu, group),
        };
        match opened {
            Err(e) if e.raw_os_error() == Some(libc::EINTR) => {}
            Err(e) if e.raw_os_error() == Some(libc::EMFILE) && !raised => {
                raised = true;
                if !kernel.raise_nofile().unwrap_or(false) {
                    return Err(e);
                }
            }
            result => return result,
        }
    }
}
