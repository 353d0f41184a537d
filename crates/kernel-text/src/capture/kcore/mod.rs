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
use super::end::{self, FILL};
use super::error::{CaptureError, CaptureErrorKind, ReadError};
use super::reader::Reader;
use hold::{Questions, is_due};
use read::{Memory, PAGE};

/// The longest text that is copied.
const LONGEST: usize = 4 << 20;

/// How much of a text is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// So many bytes.
    Exact(u32),
    /// At most so many: the kernel reports a page, and the text ends where its bytes show it.
    AtMost {
        /// Bytes up to the end of that page, or to the next text.
        len: u32,
        /// Another text begins behind them.
        next: bool,
    },
}

/// A copy of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Whether they are known to end where the text does.
    pub whole: bool,
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
    /// Opens the file. Where the kernel's own text is, a reader is asked, if there is one.
    ///
    /// # Errors
    /// Where there is none, without CAP_SYS_RAWIO and under lockdown for confidentiality.
    pub(super) fn open(reader: Option<&Reader>) -> Result<Kcore, CaptureError> {
        Memory::open(reader).map(Kcore::of)
    }

    fn of(memory: Memory) -> Kcore {
        Kcore { memory, questions: Questions::default(), held: false, stats: KcoreStats::default() }
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

    /// A pass begins at this time: no ring has been looked at yet.
    pub(super) fn begin_pass(&mut self, time: u64) {
        self.memory.begin();
        if !self.held {
            return;
        }
        let query = self.query();
        self.questions.begin(time, query);
        let query = query.unwrap_or_default();
        self.stats.held_items = self.stats.held_items.max(query.items);
        self.stats.held_bytes = self.stats.held_bytes.max(query.bytes);
    }

    /// Texts that waited for us when the pass began.
    pub(super) fn waiting(&self) -> u64 {
        self.questions.waiting()
    }

    /// From when on what was freed is held in this pass; 0 where nothing is.
    pub(super) fn held_since(&self) -> u64 {
        self.questions.since()
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
    pub(super) fn copy(&mut self, addr: u64, extent: Extent) -> Result<Copied, ReadError> {
        let copied = match extent {
            Extent::Exact(len) => self.exactly(addr, len as usize).map(|bytes| Copied { bytes, whole: true }),
            Extent::AtMost { len, next } => self.up_to_its_end(addr, len as usize, next),
        };
        // What fills the place of a text that is gone can only tell that it is.
        let fill = |bytes: &[u8], fill: u8| bytes.iter().all(|byte| *byte == fill);
        let copied = copied.and_then(|copied| match fill(&copied.bytes, FILL) || fill(&copied.bytes, 0) {
            true => Err(ReadError::NotMapped(addr)),
            false => Ok(copied),
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

    /// Page by page: the next one need not be there, where the text ended on this one.
    fn up_to_its_end(&mut self, addr: u64, most: usize, mut next: bool) -> Result<Copied, ReadError> {
        let mut bytes = Vec::new();
        while bytes.len() < most && end::known_end(addr, &bytes, false).is_none() {
            let from = addr + bytes.len() as u64;
            let room = PAGE - (from % PAGE as u64) as usize;
            match self.exactly(from, room.min(most - bytes.len())) {
                Ok(mut page) => bytes.append(&mut page),
                Err(error) if bytes.is_empty() => return Err(error),
                Err(error) => {
                    next = matches!(error, ReadError::NotMapped(_));
                    break;
                }
            }
        }
        let (end, whole) = end::end_of_text(addr, &bytes, next);
        bytes.truncate(end);
        Ok(Copied { bytes, whole })
    }

    /// The copies of a pass have been made: whether they are proven, as far as that is for the kernel to keep. `copies` is
    /// how many there are.
    pub(super) fn check(&mut self, copies: usize) -> bool {
        let kept = self.held && self.memory.stands() && self.questions.all_kept(self.query());
        if self.held && !kept {
            self.stats.unproven += copies as u64;
        }
        kept
    }

    /// The pass has ended, and everything in it is written; `complete` when every reader answered.
    pub(super) fn end_pass(&mut self, complete: bool, heard: Heard) {
        if self.held && is_due(complete, heard, self.questions.waiting()) {
            if self.query().is_none_or(|query| query.guaranteed == 0) {
                self.questions.broken();
            }
            // If there is no such call any more, the next question will tell.
            let called = kcore::qc(self.memory.file.as_fd());
            self.stats.calls += u64::from(called.is_ok());
        }
        self.questions.end(complete);
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

#[cfg(test)]
mod tests {
    use super::read::tests::{BEHIND, made_up};
    use super::*;

    /// A text that leaves some bytes of its pieces to fill.
    fn text(len: usize, byte: u8) -> Vec<u8> {
        let mut text = vec![byte; len];
        text[len - 1] = 0xc3;
        text.resize(len.next_multiple_of(64), FILL);
        text
    }

    #[test]
    fn a_copy_ends_where_its_text_does_not_where_its_page_does() {
        let (_file, memory) = made_up(&[text(100, 0x90), text(70, 0x55), vec![FILL; PAGE]].concat());
        let mut kcore = Kcore::of(memory);
        let reported = Extent::AtMost { len: PAGE as u32, next: false };
        let copied = kcore.copy(BEHIND, reported).unwrap();
        assert_eq!((copied.bytes, copied.whole), (text(100, 0x90)[..100].to_vec(), true));
        let copied = kcore.copy(BEHIND, Extent::Exact(60)).unwrap();
        assert_eq!((copied.bytes, copied.whole), (vec![0x90; 60], true));
        assert_eq!((kcore.stats.copied, kcore.stats.gone), (2, 0));
    }

    #[test]
    fn where_the_next_text_begins_this_one_has_ended() {
        // It leaves nothing to fill.
        let (_file, memory) = made_up(&[text(128, 0x90), text(70, 0x55), vec![FILL; PAGE]].concat());
        let mut kcore = Kcore::of(memory);
        let copied = kcore.copy(BEHIND, Extent::AtMost { len: 128, next: true }).unwrap();
        assert_eq!((copied.bytes, copied.whole), (text(128, 0x90), true));
        let copied = kcore.copy(BEHIND, Extent::AtMost { len: 4096, next: false }).unwrap();
        assert_eq!((copied.bytes.len(), copied.whole), (128 + 70, false), "nobody told of the next one");
        let copied = kcore.copy(BEHIND, Extent::AtMost { len: 100, next: true }).unwrap();
        assert_eq!((copied.bytes.len(), copied.whole), (100, false), "it does not end there");
    }

    #[test]
    fn a_page_that_is_not_there_ends_the_copy_and_not_the_attempt() {
        let (_file, memory) = made_up(&[vec![0x90; PAGE - 64], text(64, 0x90)].concat());
        let mut kcore = Kcore::of(memory);
        let half = PAGE as u64 / 2;
        let copied = kcore.copy(BEHIND + half, Extent::AtMost { len: PAGE as u32, next: false }).unwrap();
        assert_eq!((copied.bytes.len(), copied.whole), (PAGE / 2, true));
        let gone = kcore.copy(BEHIND + PAGE as u64, Extent::AtMost { len: PAGE as u32, next: false });
        assert_eq!(gone, Err(ReadError::NotMapped(BEHIND + PAGE as u64)));
        assert!(kcore.copy(BEHIND, Extent::Exact(2 * PAGE as u32)).is_err(), "it has to be there as a whole");
        assert_eq!((kcore.stats.copied, kcore.stats.gone), (1, 2));
    }
}
