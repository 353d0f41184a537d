//! The one place where this crate calls perf system calls, so that tests can put a fake in its stead; and what bpf(2) tells
//! of programs, /proc/kcore of freed text.

pub mod bpf;
pub mod kcore;
mod mapping;
mod real;

#[cfg(any(test, feature = "fake"))]
pub mod fake;

pub use mapping::Mapping;
pub use real::Real;

use std::ffi::CStr;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use afterimage_perf_data::Attr;

/// The perf calls of the kernel. `Real` makes them; `fake::Fake` (feature `fake`) answers as a test tells it.
///
/// Source of every call: perf_event_open(2).
pub trait Kernel: Send + Sync + std::fmt::Debug {
    /// Opens one event, close-on-exec. `pid` and `cpu` are -1 for any, `group` the leader.
    ///
    /// With E2BIG the kernel does not know the attr's size and has a non-zero field beyond what it knows.
    fn perf_event_open(&self, attr: &Attr, pid: i32, cpu: i32, group: Option<BorrowedFd<'_>>) -> io::Result<OwnedFd>;

    /// Opens one event for the tasks of a cgroup, whose folder is given, while they are on one CPU.
    #[doc(alias = "PERF_FLAG_PID_CGROUP")]
    fn perf_event_open_in(
        &self,
        attr: &Attr,
        cgroup: BorrowedFd<'_>,
        cpu: i32,
        group: Option<BorrowedFd<'_>>,
    ) -> io::Result<OwnedFd>;

    /// Starts counting; with `group`, for the whole group of a leader.
    #[doc(alias = "PERF_EVENT_IOC_ENABLE")]
    fn enable(&self, fd: BorrowedFd<'_>, group: bool) -> io::Result<()>;

    /// Stops counting; with `group`, for the whole group of a leader.
    #[doc(alias = "PERF_EVENT_IOC_DISABLE")]
    fn disable(&self, fd: BorrowedFd<'_>, group: bool) -> io::Result<()>;

    /// Sets the count to zero.
    #[doc(alias = "PERF_EVENT_IOC_RESET")]
    fn reset(&self, fd: BorrowedFd<'_>) -> io::Result<()>;

    /// Enables the event for `overflows` more overflows.
    #[doc(alias = "PERF_EVENT_IOC_REFRESH")]
    fn refresh(&self, fd: BorrowedFd<'_>, overflows: i32) -> io::Result<()>;

    /// Sets the sample period (or the frequency of an event opened with one).
    #[doc(alias = "PERF_EVENT_IOC_PERIOD")]
    fn period(&self, fd: BorrowedFd<'_>, period: u64) -> io::Result<()>;

    /// The event's id, as PERF_SAMPLE_IDENTIFIER gives it.
    #[doc(alias = "PERF_EVENT_IOC_ID")]
    fn id(&self, fd: BorrowedFd<'_>) -> io::Result<u64>;

    /// Sends the event's records to the ring of `target`, or nowhere.
    #[doc(alias = "PERF_EVENT_IOC_SET_OUTPUT")]
    fn set_output(&self, fd: BorrowedFd<'_>, target: Option<BorrowedFd<'_>>) -> io::Result<()>;

    /// Sets a tracepoint's filter.
    #[doc(alias = "PERF_EVENT_IOC_SET_FILTER")]
    fn set_filter(&self, fd: BorrowedFd<'_>, filter: &CStr) -> io::Result<()>;

    /// Pauses or resumes every event that writes to the ring of `fd`.
    #[doc(alias = "PERF_EVENT_IOC_PAUSE_OUTPUT")]
    fn pause_output(&self, fd: BorrowedFd<'_>, pause: bool) -> io::Result<()>;

    /// Reads the event's counts, laid out by its read_format.
    fn read(&self, fd: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<usize>;

    /// Maps a ring of `pages` data pages (a power of two) and its control page.
    fn map(&self, fd: BorrowedFd<'_>, pages: usize) -> io::Result<Mapping>;

    /// Raises the soft limit of open files to the hard one, the hard one too where that is allowed.
    /// Returns whether it rose.
    fn raise_nofile(&self) -> io::Result<bool>;
}
