//! Why an address has no name.

use std::fmt;

/// Why a name could not be had. A value that stands where the name would: naming never fails a whole batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Reason {
    /// The object holds no symbols at all: stripped, and no debug file was found.
    NoSymbols,
    /// The object has symbols, but the address is inside none of them.
    NotInSymbol,
    /// No file of that path could be found.
    NoFile,
    /// The file was deleted and no copy of its symbols was kept.
    Deleted,
    /// There is a file of that path, but of another build than the recorded one.
    BuildIdDiffers,
    /// Its build ID is not known yet: the stream may still tell it, and a file of that path may be of another build.
    BuildIdToCome,
    /// The file exists and may not be read.
    Unreadable,
    /// The file is not an ELF object, or a damaged one.
    Damaged,
    /// What names it passes a limit of what is read: packed too tightly to be true, or too long.
    TooLarge,
    /// The file lives in memory (memfd) and is gone with its process.
    Memory,
    /// Anonymous memory, and no map of a JIT compiler names it.
    Anonymous,
    /// The map of a JIT compiler belongs to another user than the process.
    MapNotOwned,
    /// A stack, a heap, a device: not code of a file.
    Special,
    /// The process had nothing mapped at the address.
    NoMapping,
    /// A vDSO of another kernel, or one that could not be read.
    NoVdso,
    /// `kptr_restrict` hides kernel addresses.
    KernelHidden,
    /// The recording was made on another kernel.
    OtherKernel,
    /// No kernel text was known at that address and time.
    NoKernelText,
}

impl Reason {
    /// All of them.
    const ALL: [Reason; 18] = [
        Reason::NoSymbols,
        Reason::NotInSymbol,
        Reason::NoFile,
        Reason::Deleted,
        Reason::BuildIdDiffers,
        Reason::BuildIdToCome,
        Reason::Unreadable,
        Reason::Damaged,
        Reason::TooLarge,
        Reason::Memory,
        Reason::Anonymous,
        Reason::MapNotOwned,
        Reason::Special,
        Reason::NoMapping,
        Reason::NoVdso,
        Reason::KernelHidden,
        Reason::OtherKernel,
        Reason::NoKernelText,
    ];

    /// The reason of a [key](Reason::key).
    pub fn of_key(key: &str) -> Option<Reason> {
        Reason::ALL.into_iter().find(|reason| reason.key() == key)
    }

    /// A stable word for machine-readable output.
    pub fn key(self) -> &'static str {
        match self {
            Reason::NoSymbols => "no-symbols",
            Reason::NotInSymbol => "not-in-symbol",
            Reason::NoFile => "no-file",
            Reason::Deleted => "deleted",
            Reason::BuildIdDiffers => "build-id-differs",
            Reason::BuildIdToCome => "build-id-to-come",
            Reason::Unreadable => "unreadable",
            Reason::Damaged => "damaged",
            Reason::TooLarge => "too-large",
            Reason::Memory => "memory",
            Reason::Anonymous => "anonymous",
            Reason::MapNotOwned => "map-not-owned",
            Reason::Special => "special",
            Reason::NoMapping => "no-mapping",
            Reason::NoVdso => "no-vdso",
            Reason::KernelHidden => "kernel-hidden",
            Reason::OtherKernel => "other-kernel",
            Reason::NoKernelText => "no-kernel-text",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::NoSymbols => "the file has no symbols",
            Reason::NotInSymbol => "no symbol covers the address",
            Reason::NoFile => "the file was not found",
            Reason::Deleted => "the file was deleted",
            Reason::BuildIdDiffers => "the file is of another build than the recorded one",
            Reason::BuildIdToCome => "the stream had not told the build ID of the file yet",
            Reason::Unreadable => "the file may not be read",
            Reason::Damaged => "the file is damaged or no ELF object",
            Reason::TooLarge => "what the file has is more than is read of one",
            Reason::Memory => "the file was in memory and is gone",
            Reason::Anonymous => "anonymous memory without a JIT map",
            Reason::MapNotOwned => "the JIT map belongs to another user",
            Reason::Special => "not code of a file",
            Reason::NoMapping => "nothing was mapped there",
            Reason::NoVdso => "no vDSO of that kernel at hand",
            Reason::KernelHidden => "kernel addresses are hidden (kptr_restrict)",
            Reason::OtherKernel => "recorded on another kernel",
            Reason::NoKernelText => "no kernel text known there at that time",
        })
    }
}
