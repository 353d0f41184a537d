//! What the header of a recording says about the machine it was made on.

use std::fs;

use afterimage_perf_event::facts::Facts;

/// Facts about the recording machine, in the form that perf's header features have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Host {
    /// uname's node name.
    pub(crate) hostname: String,
    /// uname's release.
    pub(crate) release: String,
    /// uname's machine, `x86_64`.
    pub(crate) arch: String,
    /// Processors configured and processors online.
    pub(crate) cpus: (u32, u32),
    /// Model name of the first processor.
    pub(crate) cpu_description: Option<String>,
    /// `vendor,family,model,stepping`, as perf writes it on x86.
    pub(crate) cpuid: Option<String>,
    /// Memory in kB.
    pub(crate) memory_kb: Option<u64>,
}

impl Host {
    /// Reads the facts of the running machine.
    pub(crate) fn read(facts: &Facts) -> Host {
        let names = rustix::system::uname();
        let text = |c: &std::ffi::CStr| c.to_string_lossy().into_owned();
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        Host {
            hostname: text(names.nodename()),
            release: text(names.release()),
            arch: text(names.machine()),
            cpus: (count(facts.possible_cpus()), count(facts.online_cpus())),
            cpu_description: field(&cpuinfo, "model name").map(str::to_owned),
            cpuid: cpuid(&cpuinfo),
            memory_kb: field(&meminfo, "MemTotal").and_then(|v| v.split(' ').next()?.parse().ok()),
        }
    }
}

fn count<E>(cpus: Result<Vec<u32>, E>) -> u32 {
    cpus.map_or(0, |c| u32::try_from(c.len()).unwrap_or(u32::MAX))
}

/// The value of the first line `name : value`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

fn cpuid(cpuinfo: &str) -> Option<String> {
    let parts = ["vendor_id", "cpu family", "model", "stepping"].map(|name| field(cpuinfo, name));
    let [Some(vendor), Some(family), Some(model), Some(stepping)] = parts else { return None };
    Some(format!("{vendor},{family},{model},{stepping}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CPUINFO: &str = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\n\
                           model name\t: A CPU @ 2 GHz\nstepping\t: 7\n\nprocessor\t: 1\nvendor_id\t: Other\n";

    #[test]
    fn as_perf_writes_it() {
        assert_eq!(cpuid(CPUINFO).as_deref(), Some("GenuineIntel,6,85,7"));
        assert_eq!(field(CPUINFO, "model name"), Some("A CPU @ 2 GHz"));
        assert_eq!(cpuid("processor : 0\n"), None);
    }
}
