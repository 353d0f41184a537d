//! An open /proc/kcore: what is at an address, and the calls of kcore_qc.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

use crate::sys;

/// `struct kcore_qc_query`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Query {
    pub(crate) version: u32,
    pub(crate) guaranteed: u32,
    pub(crate) waiting: u64,
    pub(crate) broken: u64,
    pub(crate) items: u64,
    pub(crate) bytes: u64,
    pub(crate) freed: u64,
    pub(crate) missed: u64,
}

pub(crate) struct Kcore(File);

/// A segment of kernel memory: address, size, and where it is in the file.
#[derive(Clone, Copy)]
struct Segment {
    address: u64,
    size: u64,
    at: u64,
}

/// Where the kernel's own text begins, which is always mapped.
fn stext() -> u64 {
    static STEXT: OnceLock<u64> = OnceLock::new();
    *STEXT.get_or_init(|| {
        let symbols = std::fs::read_to_string("/proc/kallsyms").unwrap();
        let line = symbols.lines().find(|line| line.ends_with(" _stext")).unwrap();
        u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap()
    })
}

impl Kcore {
    pub(crate) fn open() -> Kcore {
        Kcore(File::open("/proc/kcore").unwrap())
    }

    /// The same open file by another descriptor.
    pub(crate) fn duplicate(&self) -> Kcore {
        Kcore(self.0.try_clone().unwrap())
    }

    pub(crate) fn file(&self) -> &File {
        &self.0
    }

    pub(crate) fn qc(&self) -> io::Result<()> {
        sys::qc(&self.0)
    }

    pub(crate) fn query(&self) -> io::Result<Query> {
        sys::query(&self.0)
    }

    /// The bytes at an address.
    pub(crate) fn read(&self, address: u64, len: usize) -> Vec<u8> {
        let segments = self.segments();
        // Linux 6.1 answers a read of what is not mapped with the bytes of the read before: something else is read first.
        let _ = self.read_at(&segments, stext(), 4096);
        self.read_at(&segments, address, len)
    }

    fn read_at(&self, segments: &[Segment], address: u64, len: usize) -> Vec<u8> {
        let within = |segment: &&Segment| (segment.address..segment.address + segment.size).contains(&address);
        let segment = segments.iter().find(within).expect("a segment that holds the address");
        let mut bytes = vec![0; len];
        self.0.read_exact_at(&mut bytes, segment.at + (address - segment.address)).unwrap();
        bytes
    }

    fn segments(&self) -> Vec<Segment> {
        let mut head = vec![0; 1 << 13];
        let read = self.0.read_at(&mut head, 0).unwrap();
        head.truncate(read);
        let number = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().unwrap());
        let half = |at: usize| usize::from(u16::from_le_bytes([head[at], head[at + 1]]));
        // Offset, size and number of the program headers in an ELF header.
        let (start, size, count) = (number(32) as usize, half(54), half(56));
        let entries = (0..count).map(|n| start + n * size);
        let loads = entries.filter(|at| head[*at] == 1);
        loads.map(|at| Segment { at: number(at + 8), address: number(at + 16), size: number(at + 40) }).collect()
    }
}
