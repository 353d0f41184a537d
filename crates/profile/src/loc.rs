//! Where an address lay when it was sampled.

use afterimage_kernel_text::TextId;
use afterimage_perf_data::context;
use afterimage_perf_data::record::cpumode;

use crate::state::ObjectId;

/// What ran: the low bits of a record's `misc`, or what a marker in a callchain says.
#[doc(alias = "PERF_RECORD_MISC_CPUMODE_MASK")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CpuMode {
    /// Not said.
    Unknown,
    /// The kernel.
    Kernel,
    /// A process.
    User,
    /// A hypervisor.
    Hypervisor,
    /// The kernel of a guest.
    GuestKernel,
    /// A process of a guest.
    GuestUser,
}

impl CpuMode {
    /// The mode in a record's `misc`.
    pub fn of_misc(misc: u16) -> CpuMode {
        match misc & cpumode::MASK {
            cpumode::KERNEL => CpuMode::Kernel,
            cpumode::USER => CpuMode::User,
            cpumode::HYPERVISOR => CpuMode::Hypervisor,
            cpumode::GUEST_KERNEL => CpuMode::GuestKernel,
            cpumode::GUEST_USER => CpuMode::GuestUser,
            _ => CpuMode::Unknown,
        }
    }

    /// The mode of the addresses behind a marker of a callchain; `None` for a marker that starts no addresses.
    pub fn of_marker(marker: u64) -> Option<CpuMode> {
        match marker {
            context::KERNEL => Some(CpuMode::Kernel),
            context::USER | context::UNWOUND => Some(CpuMode::User),
            context::HV => Some(CpuMode::Hypervisor),
            context::GUEST | context::GUEST_KERNEL => Some(CpuMode::GuestKernel),
            context::GUEST_USER => Some(CpuMode::GuestUser),
            _ => None,
        }
    }

    /// perf's letter for it: `k`, `.`, `H`, `g`, `u`.
    pub fn level(self) -> char {
        match self {
            CpuMode::Kernel => 'k',
            CpuMode::User | CpuMode::Unknown => '.',
            CpuMode::Hypervisor => 'H',
            CpuMode::GuestKernel => 'g',
            CpuMode::GuestUser => 'u',
        }
    }
}

/// What an address belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// The kernel's own text or a module; the address is absolute.
    Kernel,
    /// A text of the timeline, alive when the sample was taken; the address is absolute.
    Text(TextId),
    /// Something that a process had mapped. The address is the offset in the file, or absolute where there is no file.
    Object(ObjectId),
    /// A process had nothing mapped there; the address is absolute.
    Unmapped,
    /// A hypervisor's, or not said; the address is absolute.
    Elsewhere(CpuMode),
}

/// An address with all that naming it needs: it stays right however maps and kernel text change later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Loc {
    /// What it belongs to.
    pub place: Place,
    /// The address, in the terms of `place`.
    pub addr: u64,
}
