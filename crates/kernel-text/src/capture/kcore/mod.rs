//! Kernel text through /proc/kcore, while it stands and, where the kernel holds freed text back (`KCORE_QC`), after its end.
//!
//! The file is opened before any ring and stays open. With the calls the recorder promises to say when a pass over all
//! rings has ended, and the kernel frees nothing that a ring may still speak of: the copy that is made when the end of a
//! text is read is of that text, and of no other. `afterimage-quiesce` has the argument.
//!
//! Nothing is copied in advance. What stands can be read when it is asked for, and what goes can still be read when its end
//! is: so a copy of all text at the start would hold nothing that is not had later, with its changes.
//!
//! No address is read that is not known to be mapped. Of what is not any more Linux 6.1 tells what was read before, which is
//! noticed (`read`), and later kernels zeros.

mod hold;
mod layout;
mod read;

use std::fmt;
use std::os::fd::AsFd;

use afterimage_perf_event::sys::kcore::{self, Query};

pub use hold::Heard;

use super::captured::Stats;
use super::error::{CaptureError, CaptureErrorKind, ReadError};
use hold::{Questions, is_due};
use read::{Memory, PAGE};

/// BPF's text is handed out in pieces of so many bytes.
const GRAIN: usize = 64;
/// What fills a piece behind its text.
const FILL: u8 = 0xcc;
/// The longest text that is copied.
const LONGEST: usize = 4 << 20;

/// How much of a text is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// So many bytes.
    Exact(u32),
    /// At most so many: the kernel reports a page, and the text ends where the fill of its piece begins.
    AtMost(u32),
}

/// The open file. What was held for it is let go when it is dropped.
#[derive(Debug)]
pub(super) struct Kcore {
    memory: Memory,
    questions: Questions,
    held: bool,
    stats: KcoreStats,
}

/// What was done. The fields of [`Stats`] of the same names.
#[derive(Clone, Copy, Debug, Default)]
struct KcoreStats {
    copied: u64,
    gone: u64,
    unproven: u64,
    calls: u64,
    held_items: u64,
    held_bytes: u64,
}

impl Kcore {
    /// Opens the file.
    ///
    /// # Errors
    /// Where there is none, without CAP_SYS_RAWIO and under lockdown for confidentiality.
    pub(super) fn open() -> Result<Kcore, CaptureError> {
        let (memory, questions) = (Memory::open()?, Questions::default());
        Ok(Kcore { memory, questions, held: false, stats: KcoreStats::default() })
    }

    /// Asks the kernel to hold freed text from now on.
    ///
    /// # Errors
    /// `Unsupported` where the kernel has no such call; where as many readers are held for as can be.
    pub(super) fn hold(&mut self) -> Result<(), CaptureError> {
        const WHAT: &str = "KCORE_QC on /proc/kcore";
        let fail = |kind, cause: &dyn fmt::Display| CaptureError::new(kind, WHAT, cause);
        kcore::qc(self.memory.file.as_fd()).map_err(|error| match error.raw_os_error() {
            Some(libc::ENOTTY) => fail(
                CaptureErrorKind::Unsupported,
                &"this kernel holds no freed text; the module kcore_qc makes it do so",
            ),
            Some(libc::EBUSY) => fail(CaptureErrorKind::System, &"it holds text for as many readers as it can"),
            _ => fail(CaptureErrorKind::System, &error),
        })?;
        let query = self.query();
        if !query.is_some_and(|query| hold::is_kept(&query, &query)) {
            return Err(fail(CaptureErrorKind::Unsupported, &"its calls are of a version that is not known here"));
        }
        self.questions = Questions::joined(query);
        self.held = true;
        Ok(())
    }

    /// Whether freed text is held for us.
    pub(super) fn holds(&self) -> bool {
        self.held
    }

    fn query(&self) -> Option<Query> {
        kcore::query(self.memory.file.as_fd()).ok()
    }

    /// A pass begins: no ring has been looked at yet.
    pub(super) fn begin_pass(&mut self) {
        self.memory.refresh();
        if !self.held {
            return;
        }
        let query = self.query();
        self.questions.begin(query);
        let query = query.unwrap_or_default();
        self.stats.held_items = self.stats.held_items.max(query.items);
        self.stats.held_bytes = self.stats.held_bytes.max(query.bytes);
    }

    /// Texts that waited for us when the pass began.
    pub(super) fn waiting(&self) -> u64 {
        self.questions.waiting()
    }

    /// Reads what stands, anew where memory was added or removed meanwhile.
    ///
    /// # Errors
    /// When it is not mapped.
    pub(super) fn read(&mut self, addr: u64, into: &mut [u8]) -> Result<(), ReadError> {
        for _ in 0..3 {
            self.memory.read(addr, into)?;
            if self.memory.refresh() {
                return Ok(());
            }
        }
        // Memory comes and goes all the time.
        Err(ReadError::Failed(libc::EAGAIN))
    }

    /// Whether a range is of the kernel's own text, which one call reads.
    pub(super) fn is_own_text(&self, addr: u64, len: usize) -> bool {
        self.memory.is_own_text(addr, len)
    }

    /// Copies a text at its end.
    ///
    /// # Errors
    /// When it is not mapped any more, or its place holds nothing but fill.
    pub(super) fn copy(&mut self, addr: u64, extent: Extent) -> Result<Vec<u8>, ReadError> {
        let copied = match extent {
            Extent::Exact(len) => self.exactly(addr, len as usize),
            Extent::AtMost(len) => self.up_to_fill(addr, len as usize),
        };
        // What fills the place of a text that is gone can only tell that it is.
        let fill = |bytes: &[u8], fill: u8| bytes.iter().all(|byte| *byte == fill);
        let copied = copied.and_then(|bytes| match fill(&bytes, FILL) || fill(&bytes, 0) {
            true => Err(ReadError::NotMapped(addr)),
            false => Ok(bytes),
        });
        match &copied {
            Ok(_) => self.stats.copied += 1,
            Err(_) => self.stats.gone += 1,
        }
        copied
    }

    fn exactly(&mut self, addr: u64, len: usize) -> Result<Vec<u8>, ReadError> {
        if len > LONGEST {
            return Err(ReadError::Failed(libc::E2BIG));
        }
        let mut bytes = vec![0; len];
        self.memory.read(addr, &mut bytes)?;
        Ok(bytes)
    }

    /// Page by page: the next one is known to be mapped when the text did not end on this one.
    fn up_to_fill(&mut self, addr: u64, most: usize) -> Result<Vec<u8>, ReadError> {
        let mut bytes = Vec::new();
        while bytes.len() < most {
            let from = addr + bytes.len() as u64;
            let room = PAGE - (from % PAGE as u64) as usize;
            bytes.append(&mut self.exactly(from, room.min(most - bytes.len()))?);
            if let Some(end) = end_of_text(&bytes, addr) {
                bytes.truncate(end);
                break;
            }
        }
        Ok(bytes)
    }

    /// The copies of a pass have been made: whether they are proven. `copies` is how many there are.
    pub(super) fn check(&mut self, copies: usize) -> bool {
        let kept = self.held && self.memory.refresh() && self.questions.all_kept(self.query());
        if self.held && !kept {
            self.stats.unproven += copies as u64;
        }
        kept
    }

    /// The pass has ended, and everything in it is written; `complete` when every reader answered.
    pub(super) fn end_pass(&mut self, complete: bool, heard: Heard) {
        if self.held && is_due(complete, heard, self.questions.waiting()) {
            // If there is no such call any more, the next question will tell.
            let called = kcore::qc(self.memory.file.as_fd());
            self.stats.calls += u64::from(called.is_ok());
        }
    }

    /// Adds what was done.
    pub(super) fn stats(&self, stats: &mut Stats) {
        let own = &self.stats;
        stats.kcore_copied = own.copied;
        stats.kcore_gone = own.gone;
        stats.kcore_unproven = own.unproven;
        stats.kcore_calls = own.calls;
        stats.held_items = own.held_items;
        stats.held_bytes = own.held_bytes;
    }
}

/// Where a text ends in bytes that begin with it: behind an instruction that leaves it, where nothing but fill is left of a
/// piece, or zeros of a page.
fn end_of_text(bytes: &[u8], addr: u64) -> Option<usize> {
    let first = GRAIN - (addr % GRAIN as u64) as usize;
    // A return, or a jump to one with its distance behind.
    let leaves = |end: usize| {
        let at = |back: usize| end.checked_sub(back).and_then(|at| bytes.get(at)).copied();
        end > 0 && (at(1) == Some(0xc3) || at(5) == Some(0xe9))
    };
    let ends = (first..=bytes.len()).step_by(GRAIN);
    let filled = ends.filter_map(|end| {
        let piece = bytes.get(..end)?;
        let text = piece.iter().rposition(|byte| *byte != FILL).map_or(0, |last| last + 1);
        (text < end && leaves(text)).then_some(text)
    });
    filled.min().or_else(|| {
        let text = super::assemble::before_fill_at_end(bytes);
        (text < bytes.len() && leaves(text)).then_some(text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_ends_where_its_piece_is_filled() {
        let page = |text: &[u8], fill: u8| {
            let mut page = vec![fill; 256];
            page[..text.len()].copy_from_slice(text);
            page
        };
        let long = [&[0x90; 70][..], &[0xe8, 0xcc, 0xcc, 0xcc, 0xcc, 0xc3]].concat();
        assert_eq!(end_of_text(&page(&long, FILL), 0x1000), Some(76));
        assert_eq!(end_of_text(&page(&long, 0), 0x1000), Some(76), "a page of its own, with zeros behind");
        let jumps = [&[0x55; 20][..], &[0xe9, 1, 2, 0xcc, 4]].concat();
        assert_eq!(end_of_text(&page(&jumps, FILL), 0x1000), Some(25));
        // The next text begins behind the fill of this one.
        let mut two = page(&jumps, FILL);
        two[64..128].fill(0x90);
        assert_eq!(end_of_text(&two, 0x1000), Some(25));
        // Its number ends a piece in the middle of the text.
        let mut number = page(&long, FILL);
        number[..64].copy_from_slice(&[&[0x90; 59][..], &[0xb8, 1, 2, 3, 0xcc]].concat());
        assert_eq!(end_of_text(&number, 0x1000), Some(76));
        assert_eq!(end_of_text(&[0x90; 200], 0x1000), None);
        assert_eq!(end_of_text(&[], 0x1000), None);
        assert_eq!(end_of_text(&[0xcc; 4], 0x103c), None);
    }
}
