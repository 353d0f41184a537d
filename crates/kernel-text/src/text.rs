//! A text: one span of kernel code with a name, a lifetime and its bytes.

use std::fmt;
use std::num::NonZeroU32;

use afterimage_perf_data::ImageId;

/// Number of a text within its [`Timeline`](crate::Timeline); never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TextId(pub(crate) NonZeroU32);

impl TextId {
    /// The number, counted from 0 in the order in which texts became known.
    pub fn index(self) -> usize {
        self.0.get() as usize - 1
    }

    /// The text of a number that [`TextId::index`] gave.
    pub fn from_index(index: usize) -> Option<TextId> {
        NonZeroU32::new(u32::try_from(index).ok()?.checked_add(1)?).map(TextId)
    }
}

/// What kind of code a text is, by the record's type and the kernel's own naming, or as it was seen being freed.
#[doc(alias = "PERF_RECORD_KSYMBOL_TYPE_BPF")]
#[doc(alias = "PERF_RECORD_KSYMBOL_TYPE_OOL")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TextKind {
    /// A function of the kernel's own text.
    Kernel,
    /// The text of a kernel module.
    Module,
    /// A module's text that runs once, at its start.
    ModuleInit,
    /// The main function of a BPF program, `bpf_prog_<tag>_<name>`; also a subprogram while its program is not known.
    Program,
    /// A subprogram of a BPF program, `bpf_prog_<tag>_<name>`.
    Subprogram,
    /// A BPF trampoline, `bpf_trampoline_<key>`. Its reported length is always a page.
    Trampoline,
    /// A BPF dispatcher, `bpf_dispatcher_<name>`. Its reported length is always a page.
    Dispatcher,
    /// A struct_ops trampoline, `bpf__<ops>_<member>`. Its reported length is always a page.
    StructOps,
    /// A classic BPF program: a socket filter, seccomp. No record tells of it.
    Cbpf,
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
    /// All kinds.
    pub const ALL: [TextKind; 15] = [
        TextKind::Kernel,
        TextKind::Module,
        TextKind::ModuleInit,
        TextKind::Program,
        TextKind::Subprogram,
        TextKind::Trampoline,
        TextKind::Dispatcher,
        TextKind::StructOps,
        TextKind::Cbpf,
        TextKind::OtherBpf,
        TextKind::Ftrace,
        TextKind::KprobeSlots,
        TextKind::OptprobeSlots,
        TextKind::OutOfLine,
        TextKind::Unknown,
    ];

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
        use TextKind as K;
        matches!(
            self,
            K::Program | K::Subprogram | K::Trampoline | K::Dispatcher | K::StructOps | K::Cbpf | K::OtherBpf
        )
    }

    /// A short stable word, for JSON and files.
    pub fn key(self) -> &'static str {
        match self {
            TextKind::Kernel => "kernel",
            TextKind::Module => "module",
            TextKind::ModuleInit => "module_init",
            TextKind::Program => "program",
            TextKind::Subprogram => "subprogram",
            TextKind::Trampoline => "trampoline",
            TextKind::Dispatcher => "dispatcher",
            TextKind::StructOps => "struct_ops",
            TextKind::Cbpf => "cbpf",
            TextKind::OtherBpf => "bpf",
            TextKind::Ftrace => "ftrace",
            TextKind::KprobeSlots => "kprobe",
            TextKind::OptprobeSlots => "optprobe",
            TextKind::OutOfLine => "out_of_line",
            TextKind::Unknown => "unknown",
        }
    }

    /// The kind with this word.
    pub fn from_key(key: &str) -> Option<TextKind> {
        TextKind::ALL.into_iter().find(|kind| kind.key() == key)
    }
}

impl fmt::Display for TextKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.key())
    }
}

/// How the bytes of a text were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Way {
    /// Just before the kernel destroyed it, by a program on the tracepoint of the work that frees it.
    FreeTime,
    /// By a program at the entry of the kernel's function that frees or registers it.
    Fentry,
    /// Through /proc/kcore while the kernel held the freed text back.
    KcoreQc,
    /// By address, after its record and hopefully before it was freed.
    RcuWindow,
    /// By the program's id, while it lived.
    ById,
    /// From the record that tells of a change of text.
    TextPoke,
    /// From the kernel's memory, through a program, of text that stays.
    Memory,
    /// Through /proc/kcore, of text that stays, or that hopefully was not freed yet.
    Kcore,
}

impl Way {
    /// All ways.
    pub const ALL: [Way; 8] =
        [Way::FreeTime, Way::Fentry, Way::KcoreQc, Way::RcuWindow, Way::ById, Way::TextPoke, Way::Memory, Way::Kcore];

    /// A short stable word, for JSON and files.
    pub fn key(self) -> &'static str {
        match self {
            Way::FreeTime => "free-time",
            Way::Fentry => "fentry",
            Way::KcoreQc => "kcore-qc",
            Way::RcuWindow => "rcu-window",
            Way::ById => "by-id",
            Way::TextPoke => "text-poke",
            Way::Memory => "memory",
            Way::Kcore => "kcore",
        }
    }

    /// The way with this word.
    pub fn from_key(key: &str) -> Option<Way> {
        Way::ALL.into_iter().find(|way| way.key() == key)
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.key())
    }
}

/// The BPF program that a text belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BpfProgram {
    /// The kernel's id of the program; 0 where it is not known. Not reused within a boot until 2³¹ loads have gone by.
    pub id: u32,
    /// The program's tag: a hash of its instructions. Not unique.
    pub tag: [u8; 8],
}

/// Who loaded a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Loader<'a> {
    /// The process.
    pub pid: u32,
    /// The thread's name.
    pub comm: &'a str,
}

/// Bytes of a text at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Image {
    /// Which bytes, see [`Images`](crate::Images).
    pub id: ImageId,
    /// When they were read, ns on the recording's clock.
    pub at: u64,
    /// How.
    pub way: Way,
    /// Whether nothing else can have been at the address while they were read.
    pub proven: bool,
}

/// One span of kernel code, as the timeline knows it now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text<'a> {
    /// The kernel's symbol; empty where the text has none. Not unique.
    pub name: &'a str,
    /// What kind of code it is.
    pub kind: TextKind,
    /// Kernel address of the first byte.
    pub addr: u64,
    /// Length in bytes as the kernel reported it, see [`TextKind::length_is_exact`]; the true length where it reported
    /// none.
    pub len: u32,
    /// True length in bytes, where it is known.
    pub length: Option<u32>,
    /// When it was registered, in nanoseconds of the recording's clock. 0: before the recording began, or its
    /// registration was lost, or no record tells of texts of its kind.
    pub born: u64,
    /// When it was unregistered or freed, or when another text was registered in its place; `None` while it lives.
    pub gone: Option<u64>,
    /// The BPF program that it belongs to, once that is known.
    pub program: Option<BpfProgram>,
    /// Which of the program's functions it is, 0 the main one.
    pub function: Option<u32>,
    /// Who loaded it, where that is known.
    pub loader: Option<Loader<'a>>,
    /// Its bytes, in the order in which they were read.
    pub images: &'a [Image],
    /// Why there is no image, where somebody tried.
    pub missing: Option<&'a str>,
    /// Records were lost while it lived, or contradict each other: its name or its times may be wrong.
    pub uncertain: bool,
}
