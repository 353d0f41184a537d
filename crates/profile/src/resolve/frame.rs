//! The answer for an address.

use std::borrow::Cow;
use std::sync::Arc;

use afterimage_kernel_text::TextId;
use afterimage_perf_data::BuildId;
use afterimage_symbols::Reason;

use crate::loc::CpuMode;

/// Equal for frames of one symbol of one object; an address without a name is one of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SymId(pub(crate) u32);

/// What kind of code a frame is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FrameKind {
    /// The kernel's own text, or text of it that came and went and is not BPF's.
    Kernel,
    /// A kernel module.
    Module,
    /// A BPF program, trampoline or dispatcher.
    Bpf,
    /// A program or a library.
    User,
    /// The kernel's page of user code.
    Vdso,
    /// Code that a compiler made at run time.
    Jit,
    /// A hypervisor.
    Hypervisor,
    /// A guest's kernel.
    GuestKernel,
    /// A guest's process.
    GuestUser,
    /// Nothing is known of the address.
    Unknown,
}

impl FrameKind {
    /// perf's letter for it, as in `[k]`.
    pub fn level(self) -> char {
        match self {
            FrameKind::Kernel | FrameKind::Module | FrameKind::Bpf => CpuMode::Kernel.level(),
            FrameKind::Hypervisor => CpuMode::Hypervisor.level(),
            FrameKind::GuestKernel => CpuMode::GuestKernel.level(),
            FrameKind::GuestUser => CpuMode::GuestUser.level(),
            FrameKind::User | FrameKind::Vdso | FrameKind::Jit | FrameKind::Unknown => CpuMode::User.level(),
        }
    }

    /// Whether it is kernel code of this machine.
    pub fn is_kernel(self) -> bool {
        matches!(self, FrameKind::Kernel | FrameKind::Module | FrameKind::Bpf)
    }
}

/// Where code comes from: a file, the kernel, a BPF program, memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Dso {
    /// As perf's report prints it: `libc.so.6`, `[kernel.kallsyms]`, `[unknown]`.
    pub short: String,
    /// With the whole path, where there is one.
    pub long: String,
    /// The build ID, if known.
    pub build_id: Option<BuildId>,
}

/// An address with its name, or with the reason why it has none.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The symbol's name, demangled, without offset.
    pub symbol: Result<Arc<str>, Reason>,
    /// Bytes from the symbol's start; 0 without a symbol.
    pub offset: u64,
    /// The address inside the object (a file offset, or absolute in the kernel and in memory).
    pub addr: u64,
    /// Where the code comes from.
    pub dso: Arc<Dso>,
    /// What kind of code it is.
    pub kind: FrameKind,
    /// What to compare to see whether two frames are of one symbol.
    pub sym: SymId,
    /// The text of the kernel's timeline that it is in, if it is in one.
    pub text: Option<TextId>,
    /// Whether the function was inlined: then it has no start of its own, and no offset.
    pub inlined: bool,
    pub(crate) dso_id: u32,
    /// Number of the line of source code, see [`Profile::source_line`](crate::Profile::source_line); 0 for none.
    pub(crate) line: u32,
    /// Number of how long the symbol and its mapping are, see [`Sizes`](crate::aggregate::Sizes); 0 for none.
    pub(crate) sizes: u32,
}

impl Frame {
    /// The symbol's name, or the address as perf prints it: 16 digits with `0x` and zeros before them.
    pub fn name(&self) -> Cow<'_, str> {
        match &self.symbol {
            Ok(name) => Cow::Borrowed(name),
            Err(_) => Cow::Owned(format!("{:#018x}", self.addr)),
        }
    }

    /// The object that data at this place are in. Addresses of the kernel where it has no symbol are mostly memory that it
    /// gave out, and belong to none.
    pub fn data_object(&self) -> &str {
        match (&self.symbol, self.kind) {
            (Err(_), kind) if kind.is_kernel() => "[unknown]",
            (Err(_), FrameKind::Jit) => "anon",
            _ => &self.dso.short,
        }
    }

    /// perf's letter for the kind of code, as in `[k]`.
    pub fn level(&self) -> char {
        self.kind.level()
    }
}
