//! A text: one span of kernel code with a name and a lifetime.

use std::fmt;

/// Number of a text within its [`Timeline`](crate::Timeline); never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TextId(pub(crate) u32);

impl TextId {
    /// The number, counted from 0 in the order in which texts became known.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What kind of code a text is, by the record's type and the kernel's own naming.
#[doc(alias = "PERF_RECORD_KSYMBOL_TYPE_BPF")]
#[doc(alias = "PERF_RECORD_KSYMBOL_TYPE_OOL")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TextKind {
    /// A BPF program or one of its subprograms, `bpf_prog_<tag>_<name>`.
    Program,
    /// A BPF trampoline, `bpf_trampoline_<key>`. Its reported length is always a page.
    Trampoline,
    /// A BPF dispatcher, `bpf_dispatcher_<name>`. Its reported length is always a page.
    Dispatcher,
    /// A struct_ops trampoline, `bpf__<ops>_<member>`. Its reported length is always a page.
    StructOps,
    /// BPF text of another name.
    OtherBpf,
    /// An ftrace trampoline.
    Ftrace,
    /// A page of kprobe instruction slots.
    KprobeSlots,
    /// A page of optimised kprobe slots.
    OptprobeSlots,
    /// Other code out of line.
    OutOfLine,
    /// A record of a type that this crate does not know.
    Unknown,
}

/// `PERF_RECORD_KSYMBOL_TYPE_BPF` (linux/perf_event.h).
pub const KSYMBOL_BPF: u16 = 1;
/// `PERF_RECORD_KSYMBOL_TYPE_OOL` (linux/perf_event.h).
pub const KSYMBOL_OUT_OF_LINE: u16 = 2;

impl TextKind {
    /// The kind of a text from its record's `ksym_type` and name.
    pub fn of(ksym_type: u16, name: &[u8]) -> TextKind {
        match ksym_type {
            KSYMBOL_BPF if name.starts_with(b"bpf_prog_") => TextKind::Program,
            KSYMBOL_BPF if name.starts_with(b"bpf_trampoline_") => TextKind::Trampoline,
            KSYMBOL_BPF if name.starts_with(b"bpf_dispatcher_") => TextKind::Dispatcher,
            KSYMBOL_BPF if name.starts_with(b"bpf__") => TextKind::StructOps,
            KSYMBOL_BPF => TextKind::OtherBpf,
            KSYMBOL_OUT_OF_LINE => match name {
                b"ftrace_trampoline" => TextKind::Ftrace,
                b"kprobe_insn_page" => TextKind::KprobeSlots,
                b"kprobe_optinsn_page" => TextKind::OptprobeSlots,
                _ => TextKind::OutOfLine,
            },
            _ => TextKind::Unknown,
        }
    }

    /// Whether the length in the record is the text's own. The kernel reports a page for the others, however short
    /// they are, so their ranges lie over their neighbours'.
    pub fn length_is_exact(self) -> bool {
        !matches!(self, TextKind::Trampoline | TextKind::Dispatcher | TextKind::StructOps)
    }

    /// Whether BPF put it there.
    pub fn is_bpf(self) -> bool {
        matches!(
            self,
            TextKind::Program | TextKind::Trampoline | TextKind::Dispatcher | TextKind::StructOps | TextKind::OtherBpf
        )
    }

    /// A short stable word, for JSON.
    pub fn key(self) -> &'static str {
        match self {
            TextKind::Program => "program",
            TextKind::Trampoline => "trampoline",
            TextKind::Dispatcher => "dispatcher",
            TextKind::StructOps => "struct_ops",
            TextKind::OtherBpf => "bpf",
            TextKind::Ftrace => "ftrace",
            TextKind::KprobeSlots => "kprobe",
            TextKind::OptprobeSlots => "optprobe",
            TextKind::OutOfLine => "out_of_line",
            TextKind::Unknown => "unknown",
        }
    }
}

impl fmt::Display for TextKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.key())
    }
}

/// The BPF program that a text belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BpfProgram {
    /// The kernel's id of the program. Not reused within a boot until 2³¹ loads have gone by.
    pub id: u32,
    /// The program's tag: a hash of its instructions. Not unique.
    pub tag: [u8; 8],
}

/// One span of kernel code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// The kernel's symbol. Not unique.
    pub name: Box<str>,
    /// What kind of code it is.
    pub kind: TextKind,
    /// Kernel address of the first byte.
    pub addr: u64,
    /// Length in bytes as the kernel reported it; see [`TextKind::length_is_exact`].
    pub len: u32,
    /// When it was registered, in nanoseconds of the recording's clock. 0: before the recording began, or its
    /// registration was lost.
    pub born: u64,
    /// When it was unregistered, or when another text was registered in its place; `None` while it lives.
    pub gone: Option<u64>,
    /// The BPF program that it belongs to, once its load was seen.
    pub program: Option<BpfProgram>,
}
