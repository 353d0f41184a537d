//! Context markers: values in a callchain that say what kind of address follows them
//! (`enum perf_callchain_context`, linux/perf_event.h).

/// Hypervisor addresses follow.
pub const HV: u64 = -32_i64 as u64;
/// Kernel addresses follow.
pub const KERNEL: u64 = -128_i64 as u64;
/// User addresses follow.
pub const USER: u64 = -512_i64 as u64;
/// The user part comes later, in a CALLCHAIN_DEFERRED record whose cookie follows (Linux 6.19).
pub const USER_DEFERRED: u64 = -640_i64 as u64;
/// Addresses of a guest follow.
pub const GUEST: u64 = -2048_i64 as u64;
/// Kernel addresses of a guest follow.
pub const GUEST_KERNEL: u64 = -2176_i64 as u64;
/// User addresses of a guest follow.
pub const GUEST_USER: u64 = -2560_i64 as u64;
/// User addresses follow that are places of frames, not addresses that calls return to. Only in chains that were unwound from
/// a copy of a stack: no recorder writes it.
pub const UNWOUND: u64 = -3072_i64 as u64;
/// The smallest value that is a marker and no address.
pub const MAX: u64 = -4095_i64 as u64;

/// Whether a value of a callchain is a marker and no address.
#[inline]
pub fn is_marker(value: u64) -> bool {
    value >= MAX
}
