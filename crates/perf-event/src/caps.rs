//! Capabilities of this process.
//!
//! In a user namespace these are not those that perf and BPF ask for; only trying tells there.

/// A set of capabilities, one bit each (uapi/linux/capability.h).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caps(u64);

/// One capability by its number (uapi/linux/capability.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Cap {
    /// Read any file.
    DacReadSearch = 2,
    /// Lock memory beyond the limit.
    IpcLock = 14,
    /// Read /proc/kcore.
    SysRawio = 17,
    /// Trace processes of other users.
    SysPtrace = 19,
    /// Everything below, on kernels before 5.8 and since.
    SysAdmin = 21,
    /// Raise resource limits.
    SysResource = 24,
    /// See kernel addresses where kptr_restrict is 1.
    Syslog = 34,
    /// Open any perf event (Linux 5.8).
    Perfmon = 38,
    /// Load BPF programs (Linux 5.8).
    Bpf = 39,
}

impl Cap {
    /// The name as setcap writes it, in capitals.
    pub fn name(self) -> &'static str {
        match self {
            Cap::DacReadSearch => "CAP_DAC_READ_SEARCH",
            Cap::IpcLock => "CAP_IPC_LOCK",
            Cap::SysRawio => "CAP_SYS_RAWIO",
            Cap::SysPtrace => "CAP_SYS_PTRACE",
            Cap::SysAdmin => "CAP_SYS_ADMIN",
            Cap::SysResource => "CAP_SYS_RESOURCE",
            Cap::Syslog => "CAP_SYSLOG",
            Cap::Perfmon => "CAP_PERFMON",
            Cap::Bpf => "CAP_BPF",
        }
    }
}

impl Caps {
    /// The effective capabilities of this process; none where /proc cannot be read.
    pub fn effective() -> Caps {
        std::fs::read_to_string("/proc/self/status").map_or(Caps(0), |text| Caps::from_status(&text))
    }

    /// From the text of a /proc/PID/status.
    pub fn from_status(text: &str) -> Caps {
        let line = text.lines().find_map(|line| line.strip_prefix("CapEff:"));
        Caps(line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0))
    }

    /// Whether the capability itself is there.
    pub fn has(self, cap: Cap) -> bool {
        self.0 >> (cap as u8) & 1 == 1
    }

    /// Whether what the capability allows is allowed: CAP_SYS_ADMIN stands for the newer two.
    pub fn allows(self, cap: Cap) -> bool {
        let admin = matches!(cap, Cap::Perfmon | Cap::Bpf | Cap::Syslog) && self.has(Cap::SysAdmin);
        admin || self.has(cap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_is_read() {
        let caps = Caps::from_status("Name:\tx\nCapEff:\t000000c000000000\nCapBnd:\t0\n");
        assert!(caps.has(Cap::Perfmon) && caps.has(Cap::Bpf) && !caps.has(Cap::SysAdmin));
        assert!(Caps::from_status("CapEff:\t0000000000200000").allows(Cap::Perfmon));
        assert!(!Caps::from_status("CapEff:\t0000000000200000").allows(Cap::SysPtrace));
        assert_eq!(Caps::from_status("CapEff: nonsense"), Caps::default());
    }
}
