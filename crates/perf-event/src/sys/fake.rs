//! A kernel that answers as a test tells it, and rings in ordinary memory.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::collections::{HashMap, VecDeque};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use afterimage_perf_data::Attr;

use super::{Kernel, Mapping};

/// Page size of rings in memory.
pub const PAGE: usize = 4096;

/// Memory laid out like a ring, and the kernel's side of it: what `push` writes, a [`Mapping`] of it reads.
#[derive(Debug)]
pub struct Memory {
    base: NonNull<u8>,
    layout: Layout,
    size: usize,
}

// SAFETY: the memory is owned by this value; positions are atomic, and data bytes are written only outside what the
// reader may read (`push`), by one thread at a time (`&self` of push takes the turn through `data_head`).
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// A ring of `size` bytes (a power of two, at least 8), both positions at `start`.
    ///
    /// # Panics
    /// When `size` is not usable.
    pub fn new(size: usize, start: u64) -> Arc<Memory> {
        assert!(size.is_power_of_two() && (8..1 << 30).contains(&size), "ring size {size}");
        let Ok(layout) = Layout::from_size_align(PAGE + size, PAGE) else { panic!("ring size {size}") };
        // SAFETY: the layout's size is not zero.
        let base = unsafe { alloc_zeroed(layout) };
        let base = NonNull::new(base).unwrap_or_else(|| handle_alloc_error(layout));
        let memory = Memory { base, layout, size };
        memory.word(1024).store(start, Ordering::Relaxed);
        memory.word(1032).store(start, Ordering::Relaxed);
        memory.word(1040).store(PAGE as u64, Ordering::Relaxed);
        memory.word(1048).store(size as u64, Ordering::Relaxed);
        Arc::new(memory)
    }

    /// A mapping of it.
    pub fn mapping(self: &Arc<Memory>) -> Option<Mapping> {
        Mapping::from_memory(Arc::clone(self), PAGE)
    }

    pub(super) fn span(&self) -> (NonNull<u8>, usize) {
        (self.base, self.layout.size())
    }

    /// A word of the control page, by its byte offset.
    pub fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset % 8 == 0 && offset < PAGE);
        // SAFETY: inside the control page, aligned, lives as long as `self`, accessed atomically by both sides.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    /// Writes `bytes` as the kernel would: false when there is no room, and published as a whole. One writer only.
    pub fn push(&self, bytes: &[u8]) -> bool {
        let head = self.word(1024).load(Ordering::Relaxed);
        let tail = self.word(1032).load(Ordering::Acquire);
        if head.wrapping_sub(tail) + bytes.len() as u64 > self.size as u64 {
            return false;
        }
        for (i, byte) in bytes.iter().enumerate() {
            let at = (head.wrapping_add(i as u64) & (self.size as u64 - 1)) as usize;
            // SAFETY: `at` is inside the data area; the reader does not read outside [tail, head), which this is.
            unsafe { self.base.as_ptr().add(PAGE + at).write(*byte) };
        }
        self.word(1024).store(head.wrapping_add(bytes.len() as u64), Ordering::Release);
        true
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout in `new`; mappings hold a reference count, so none is left.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}

/// The calls that can be told to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "named after the methods of Kernel")]
pub enum Call {
    Open,
    Enable,
    Disable,
    Reset,
    Refresh,
    Period,
    Id,
    SetOutput,
    SetFilter,
    PauseOutput,
    Read,
    Map,
    RaiseNofile,
}

/// One `perf_event_open` that the fake saw.
#[derive(Clone, Debug)]
pub struct Opened {
    /// As given.
    pub attr: Attr,
    /// As given.
    pub pid: i32,
    /// As given.
    pub cpu: i32,
    /// The leader's id.
    pub group: Option<u64>,
    /// The id given to the event, `None` when the open was refused.
    pub id: Option<u64>,
}

/// Decides about one open: `Some(errno)` refuses it.
pub type Rule = Box<dyn Fn(&Attr, i32, i32) -> Option<i32> + Send>;

#[derive(Default)]
struct State {
    next_id: u64,
    ids: HashMap<i32, u64>,
    opened: Vec<Opened>,
    outputs: Vec<(u64, Option<u64>)>,
    enabled: Vec<u64>,
    maps: Vec<(u64, usize)>,
    fail_next: HashMap<Call, VecDeque<i32>>,
    rules: Vec<Rule>,
    max_pages: Option<usize>,
    max_fds: Option<usize>,
    live: usize,
    raises: u32,
}

/// A kernel for tests. Every call succeeds unless told otherwise; descriptors are those of /dev/null.
#[derive(Default)]
pub struct Fake {
    state: Mutex<State>,
}

impl std::fmt::Debug for Fake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Fake")
    }
}

impl Fake {
    /// A kernel where everything succeeds.
    pub fn new() -> Arc<Fake> {
        Arc::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next call of this kind that is not yet told to fail fails with `errno`.
    pub fn fail_next(&self, call: Call, errno: i32) {
        self.state().fail_next.entry(call).or_default().push_back(errno);
    }

    /// Adds a rule that every open is asked about.
    pub fn rule(&self, rule: impl Fn(&Attr, i32, i32) -> Option<i32> + Send + 'static) {
        self.state().rules.push(Box::new(rule));
    }

    /// Rings of more data pages than this fail with EPERM.
    pub fn limit_pages(&self, pages: usize) {
        self.state().max_pages = Some(pages);
    }

    /// From `fds` opens on, EMFILE, until the limit is raised (which lifts it).
    pub fn limit_fds(&self, fds: usize) {
        self.state().max_fds = Some(fds);
    }

    /// Every open so far, refused ones too.
    pub fn opened(&self) -> Vec<Opened> {
        self.state().opened.clone()
    }

    /// Every redirection so far: event id, id of the ring's owner.
    pub fn outputs(&self) -> Vec<(u64, Option<u64>)> {
        self.state().outputs.clone()
    }

    /// Ids of the events that were enabled by ioctl, in order.
    pub fn enabled(&self) -> Vec<u64> {
        self.state().enabled.clone()
    }

    /// Every ring mapped so far: event id, data pages.
    pub fn maps(&self) -> Vec<(u64, usize)> {
        self.state().maps.clone()
    }

    /// How often the limit of open files was raised.
    pub fn raises(&self) -> u32 {
        self.state().raises
    }

    fn answer(&self, call: Call) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.state();
        match state.fail_next.get_mut(&call).and_then(VecDeque::pop_front) {
            Some(errno) => Err(io::Error::from_raw_os_error(errno)),
            None => Ok(state),
        }
    }
}

impl State {
    fn id_of(&self, fd: BorrowedFd<'_>) -> io::Result<u64> {
        self.ids.get(&fd.as_raw_fd()).copied().ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))
    }
}

impl Kernel for Fake {
    fn perf_event_open(&self, attr: &Attr, pid: i32, cpu: i32, group: Option<BorrowedFd<'_>>) -> io::Result<OwnedFd> {
        let told = self.answer(Call::Open).err();
        let mut state = self.state();
        let group = group.map(|fd| state.id_of(fd)).transpose()?;
        let mut refusal = told.and_then(|e| e.raw_os_error());
        if refusal.is_none() {
            refusal = state.rules.iter().find_map(|rule| rule(attr, pid, cpu));
        }
        if refusal.is_none() && state.max_fds.is_some_and(|max| state.live >= max) {
            refusal = Some(libc::EMFILE);
        }
        let id = refusal.is_none().then(|| {
            state.next_id += 1;
            state.next_id
        });
        state.opened.push(Opened { attr: attr.clone(), pid, cpu, group, id });
        if let Some(errno) = refusal {
            return Err(io::Error::from_raw_os_error(errno));
        }
        let fd = OwnedFd::from(std::fs::File::open("/dev/null")?);
        state.live += 1;
        if let Some(id) = id {
            state.ids.insert(fd.as_raw_fd(), id);
        }
        Ok(fd)
    }

    /// As for a process whose number is that of the descriptor.
    fn perf_event_open_in(
        &self,
        attr: &Attr,
        cgroup: BorrowedFd<'_>,
        cpu: i32,
        group: Option<BorrowedFd<'_>>,
    ) -> io::Result<OwnedFd> {
        self.perf_event_open(attr, cgroup.as_raw_fd(), cpu, group)
    }

    fn enable(&self, fd: BorrowedFd<'_>, _group: bool) -> io::Result<()> {
        let mut state = self.answer(Call::Enable)?;
        let id = state.id_of(fd)?;
        state.enabled.push(id);
        Ok(())
    }

    fn disable(&self, _fd: BorrowedFd<'_>, _group: bool) -> io::Result<()> {
        self.answer(Call::Disable).map(drop)
    }

    fn reset(&self, _fd: BorrowedFd<'_>) -> io::Result<()> {
        self.answer(Call::Reset).map(drop)
    }

    fn refresh(&self, _fd: BorrowedFd<'_>, _overflows: i32) -> io::Result<()> {
        self.answer(Call::Refresh).map(drop)
    }

    fn period(&self, _fd: BorrowedFd<'_>, _period: u64) -> io::Result<()> {
        self.answer(Call::Period).map(drop)
    }

    fn id(&self, fd: BorrowedFd<'_>) -> io::Result<u64> {
        self.answer(Call::Id)?.id_of(fd)
    }

    fn set_output(&self, fd: BorrowedFd<'_>, target: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let mut state = self.answer(Call::SetOutput)?;
        let pair = (state.id_of(fd)?, target.map(|fd| state.id_of(fd)).transpose()?);
        state.outputs.push(pair);
        Ok(())
    }

    fn set_filter(&self, _fd: BorrowedFd<'_>, _filter: &CStr) -> io::Result<()> {
        self.answer(Call::SetFilter).map(drop)
    }

    fn pause_output(&self, _fd: BorrowedFd<'_>, _pause: bool) -> io::Result<()> {
        self.answer(Call::PauseOutput).map(drop)
    }

    fn read(&self, _fd: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<usize> {
        drop(self.answer(Call::Read)?);
        buf.fill(0);
        Ok(buf.len())
    }

    fn map(&self, fd: BorrowedFd<'_>, pages: usize) -> io::Result<Mapping> {
        let mut state = self.answer(Call::Map)?;
        if state.max_pages.is_some_and(|max| pages > max) {
            return Err(io::Error::from_raw_os_error(libc::EPERM));
        }
        let id = state.id_of(fd)?;
        state.maps.push((id, pages));
        Memory::new(pages * PAGE, 0).mapping().ok_or_else(|| io::ErrorKind::Other.into())
    }

    fn raise_nofile(&self) -> io::Result<bool> {
        let mut state = self.answer(Call::RaiseNofile)?;
        state.raises += 1;
        Ok(state.max_fds.take().is_some())
    }
}
