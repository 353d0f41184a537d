//! What a capture brings.

use afterimage_perf_data::features::{BpfBtf, BpfProgInfo};

use crate::{TextKind, Way};

/// One copy of a text, or the failure to make one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    /// When it was made, nanoseconds of CLOCK_MONOTONIC.
    pub time: u64,
    /// Kernel address of the first byte.
    pub addr: u64,
    /// Length of the text in bytes. Where [`derived`](Captured::derived) is set, up to where the fill of its page begins.
    pub len: u32,
    /// The kernel's symbol; empty where it has none, as classic filters do.
    pub name: Vec<u8>,
    /// Of a program, its tag; of a subprogram, the subprogram's own.
    pub tag: Option<[u8; 8]>,
    /// Of the main function of several, the tag of its own instructions, where the way knows it: kernels name the function by
    /// one or by the other.
    pub own_tag: Option<[u8; 8]>,
    /// The program's id, where the way knows it. At its free the kernel has forgotten it.
    pub id: Option<u32>,
    /// Which function of its program it is, the main one being 0.
    pub function: Option<u32>,
    /// What kind of text it is.
    pub kind: TextKind,
    /// How the copy was made.
    pub way: Way,
    /// Whether it is known to be of this very text: made while the text could not go.
    pub proven: bool,
    /// The copy; empty where it failed, and where no more is told than that the text came or goes.
    pub bytes: Vec<u8>,
    /// Seen at its free: the text is gone from then on.
    pub freed: bool,
    /// Seen coming, where no KSYMBOL record tells of it.
    pub came: bool,
    /// Why there is no copy.
    pub failed: Option<Box<str>>,
    /// Address of the kernel's object that the text goes with; 0 where the way does not know it. Two ways that see one free
    /// tell of the same object.
    pub owner: u64,
    /// Texts of one program share it, when they were copied together.
    pub group: u64,
    /// How many functions the program has.
    pub functions: u32,
    /// `enum bpf_prog_type` of the program.
    pub program_type: u32,
    /// The kernel knows only the page, not the length.
    pub derived: bool,
}

/// What the kernel told of one program while it was loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturedProgram {
    /// When, nanoseconds of CLOCK_MONOTONIC.
    pub time: u64,
    /// Its code, addresses, lines and tags.
    pub info: BpfProgInfo,
    /// Its types, with the first program that refers to them.
    pub types: Option<BpfBtf>,
}

/// What one pass over everything that was captured brought.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pass {
    /// Copies in the order in which they were made, of each way by itself.
    pub texts: Vec<Captured>,
    /// What was read of programs by their ids.
    pub programs: Vec<CapturedProgram>,
}

impl Pass {
    /// Whether it brought nothing.
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty() && self.programs.is_empty()
    }

    /// Adds what came later.
    pub(super) fn append(&mut self, later: &mut Pass) {
        self.texts.append(&mut later.texts);
        self.programs.append(&mut later.programs);
    }

    /// Bytes that it holds.
    pub(super) fn bytes(&self) -> usize {
        let programs = self.programs.iter().map(|p| p.info.data.len() + p.types.as_ref().map_or(0, |t| t.data.len()));
        self.texts.iter().map(|text| text.bytes.len()).sum::<usize>() + programs.sum::<usize>()
    }
}

/// What the captures did since they began. Everything that was not kept is counted under its reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Programs, filters, trampolines and modules seen at their free, and modules seen coming.
    pub freed: u64,
    /// Texts of these.
    pub freed_texts: u64,
    /// Of these, lost because the ring was full: their copies, or where others copy the news of them.
    pub ring_full: u64,
    /// Of these, not readable.
    pub unreadable: u64,
    /// Of these, longer than is copied.
    pub cut: u64,
    /// Runs of the programs at the frees that the kernel skipped, since the program was running on the same CPU already.
    /// Which texts were behind them, if any, is not known.
    pub skipped: u64,
    /// Texts copied at their registration.
    pub window_copied: u64,
    /// Texts that were not to be read any more then.
    pub window_failed: u64,
    /// Programs read by id.
    pub by_id: u64,
    /// Programs that had gone before they could be read by id.
    pub by_id_gone: u64,
    /// Programs that were not read by id, because more came than are read in a second.
    pub by_id_skipped: u64,
    /// Texts dropped since more waited for a pass than is kept.
    pub dropped: u64,
    /// Texts copied through /proc/kcore at their end.
    pub kcore_copied: u64,
    /// Texts that were not to be read there any more.
    pub kcore_gone: u64,
    /// Of those copied, not proven since the kernel held less than it promised.
    pub kcore_unproven: u64,
    /// Passes that ended with a `KCORE_QC`.
    pub kcore_calls: u64,
    /// The most texts that the kernel held for anyone when a pass began, and their bytes.
    pub held_items: u64,
    /// The most bytes of such texts.
    pub held_bytes: u64,
    /// Records of loads that were lost.
    pub records_lost: u64,
}

impl Stats {
    /// Texts of which nothing was kept, by the ways that would have had them.
    pub fn lost(&self) -> u64 {
        self.ring_full + self.unreadable + self.dropped
    }
}
