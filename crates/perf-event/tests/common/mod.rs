//! What the tests against the running kernel share.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::sync::Arc;

use afterimage_perf_data::{Endian, Layout, RawRecord, Record, decode};
use afterimage_perf_event::config::{Config, Rate};
use afterimage_perf_event::facts::Facts;
use afterimage_perf_event::open::{Opened, Options, Target, open};
use afterimage_perf_event::spec::{EventSpec, parse};
use afterimage_perf_event::sys::{Kernel, Real};

pub(crate) fn kernel() -> Arc<dyn Kernel> {
    Arc::new(Real)
}

pub(crate) fn specs(list: &str, rate: Option<Rate>) -> Vec<EventSpec> {
    let facts = Facts::system();
    let mut specs = parse(list, &facts).unwrap();
    let config = Config { rate, sample_type: afterimage_perf_data::SampleType::ADDR, ..Config::default() };
    specs.iter_mut().for_each(|spec| config.apply(spec));
    specs
}

pub(crate) fn open_events(list: &str, rate: Option<Rate>, target: &Target, pages: usize) -> Opened {
    open(&kernel(), &Facts::system(), specs(list, rate), target, Options { pages }).unwrap_or_else(|e| panic!("{e}"))
}

/// Drains every ring past its head now and gives each record, decoded, with the ring that it came from. The first spec
/// that writes to a ring gives its layout; in these tests all specs have the same.
pub(crate) fn drain(opened: &mut Opened, f: &mut dyn FnMut(usize, &Record<'_>)) {
    let layout = Layout::new(&opened.specs[0].attr, Endian::Little);
    let heads: Vec<u64> = opened.rings.iter().map(|ring| ring.head()).collect();
    for (index, (ring, head)) in opened.rings.iter_mut().zip(heads).enumerate() {
        ring.drain(head, &mut |bytes| {
            let raw = RawRecord::parse(bytes, 0, Endian::Little).unwrap();
            f(index, &decode(&raw, &layout).unwrap());
        })
        .unwrap();
    }
}

pub(crate) fn online() -> Vec<u32> {
    Facts::system().online_cpus().unwrap()
}

/// Counts something while it keeps a CPU busy.
pub(crate) fn spin(rounds: u64) -> u64 {
    let mut sum = 0u64;
    for i in 0..rounds {
        sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(i));
    }
    sum
}

/// This thread's id.
pub(crate) fn gettid() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get() as u32
}

/// Fresh pages of memory, without huge ones.
pub(crate) struct Pages {
    base: *mut std::ffi::c_void,
    len: usize,
}

impl Pages {
    pub(crate) const SIZE: usize = 4096;

    pub(crate) fn new(count: usize) -> Pages {
        use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
        let len = count * Self::SIZE;
        // SAFETY: a fresh private mapping that nothing else knows; huge pages are turned off for it.
        let base = unsafe {
            let flags = MapFlags::PRIVATE;
            let base = mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags).unwrap();
            let _ = madvise(base, len, Advice::LinuxNoHugepage);
            base
        };
        Pages { base, len }
    }

    pub(crate) fn touch(&self) {
        for at in (0..self.len).step_by(Self::SIZE) {
            // SAFETY: inside the mapping, which lives as long as `self` and which no reference points into.
            unsafe { self.base.cast::<u8>().add(at).write_volatile(1) };
        }
    }

    pub(crate) fn contains(&self, addr: u64) -> bool {
        (self.base as u64..self.base as u64 + self.len as u64).contains(&addr)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`.
        let _ = unsafe { rustix::mm::munmap(self.base, self.len) };
    }
}
