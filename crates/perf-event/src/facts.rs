//! What sysfs, procfs and tracefs say about this machine. Nothing here changes it.

mod pmu;
mod tracefs;

use std::path::{Path, PathBuf};
use std::{fs, io};

pub use pmu::{Format, Pmu};

/// Where facts are read from. Tests put folders of their own in place of the roots.
#[derive(Debug)]
pub struct Facts {
    sysfs: PathBuf,
    proc: PathBuf,
    tracefs: tracefs::Tracefs,
}

impl Default for Facts {
    fn default() -> Facts {
        Facts::system()
    }
}

impl Facts {
    /// This machine: /sys, /proc, and tracefs where it is mounted or may be mounted privately.
    pub fn system() -> Facts {
        Facts { sysfs: "/sys".into(), proc: "/proc".into(), tracefs: tracefs::Tracefs::system() }
    }

    /// Folders in place of /sys, /proc and a tracefs.
    pub fn at(sysfs: impl Into<PathBuf>, proc: impl Into<PathBuf>, tracefs: Option<PathBuf>) -> Facts {
        Facts { sysfs: sysfs.into(), proc: proc.into(), tracefs: tracefs::Tracefs::at(tracefs) }
    }

    /// The root of sysfs.
    pub fn sysfs(&self) -> &Path {
        &self.sysfs
    }

    /// The root of procfs.
    pub fn proc(&self) -> &Path {
        &self.proc
    }

    /// A folder with tracefs' `events`, mounted where others see it or, with CAP_SYS_ADMIN, for us alone.
    pub fn tracefs(&self) -> Option<&Path> {
        self.tracefs.path()
    }

    /// CPUs that run, ascending.
    ///
    /// # Errors
    /// When sysfs cannot be read or holds no list.
    pub fn online_cpus(&self) -> io::Result<Vec<u32>> {
        self.cpus("online")
    }

    /// CPUs that could ever run, ascending.
    ///
    /// # Errors
    /// As for [`Facts::online_cpus`].
    pub fn possible_cpus(&self) -> io::Result<Vec<u32>> {
        self.cpus("possible")
    }

    fn cpus(&self, which: &str) -> io::Result<Vec<u32>> {
        let path = self.sysfs.join("devices/system/cpu").join(which);
        parse_cpu_list(&fs::read_to_string(path)?).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// `perf_event_paranoid`: -1 everything to everybody, 0 no raw tracepoints, 1 no CPU-wide events, 2 no kernel, more
    /// nothing at all (on kernels that know such a level).
    pub fn paranoid(&self) -> Option<i32> {
        self.sysctl("perf_event_paranoid")
    }

    /// `kptr_restrict`: 0 addresses are shown, 1 to CAP_SYSLOG, 2 to nobody.
    pub fn kptr_restrict(&self) -> Option<i32> {
        self.sysctl("kptr_restrict")
    }

    /// `perf_event_mlock_kb`: ring memory per online CPU and user that counts against no limit, KiB.
    pub fn mlock_kb(&self) -> Option<u64> {
        self.sysctl("perf_event_mlock_kb")
    }

    /// `perf_event_max_stack`: most addresses in a callchain.
    pub fn max_stack(&self) -> Option<u32> {
        self.sysctl("perf_event_max_stack")
    }

    /// `perf_event_max_sample_rate`: samples a second and CPU above which opening fails.
    pub fn max_sample_rate(&self) -> Option<u64> {
        self.sysctl("perf_event_max_sample_rate")
    }

    fn sysctl<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        let path = self.proc.join("sys/kernel").join(name);
        fs::read_to_string(path).ok()?.trim().parse().ok()
    }

    /// The kernel's release, as `uname -r`.
    pub fn release(&self) -> Option<String> {
        Some(fs::read_to_string(self.proc.join("sys/kernel/osrelease")).ok()?.trim().to_owned())
    }

    /// The number and files of a PMU in /sys/bus/event_source/devices.
    pub fn pmu(&self, name: &str) -> Option<Pmu> {
        Pmu::find(&self.sysfs, name)
    }

    /// Every PMU's name and number, sorted by name.
    pub fn pmus(&self) -> Vec<(String, u32)> {
        Pmu::all(&self.sysfs)
    }

    /// The id of a tracepoint, which is the `config` of its event.
    ///
    /// # Errors
    /// NotFound without tracefs or without such a tracepoint, PermissionDenied where only root may read it.
    pub fn tracepoint_id(&self, system: &str, name: &str) -> io::Result<u64> {
        let events = self.tracefs().ok_or(io::ErrorKind::NotFound)?.join("events");
        if [system, name].iter().any(|part| part.is_empty() || part.starts_with('.') || part.contains('/')) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let text = fs::read_to_string(events.join(system).join(name).join("id"))?;
        text.trim().parse().map_err(|_| io::ErrorKind::InvalidData.into())
    }

    /// Every tracepoint as (system, name), sorted.
    ///
    /// # Errors
    /// As for [`Facts::tracepoint_id`].
    pub fn tracepoints(&self) -> io::Result<Vec<(String, String)>> {
        let events = self.tracefs().ok_or(io::ErrorKind::NotFound)?.join("events");
        let mut all = Vec::new();
        for system in folders(&events)? {
            for name in folders(&events.join(&system)).unwrap_or_default() {
                if events.join(&system).join(&name).join("id").exists() {
                    all.push((system.clone(), name));
                }
            }
        }
        all.sort();
        Ok(all)
    }

    /// The threads of a process, ascending.
    ///
    /// # Errors
    /// NotFound when there is no such process.
    pub fn threads(&self, pid: u32) -> io::Result<Vec<u32>> {
        let mut tids = Vec::new();
        for entry in fs::read_dir(self.proc.join(pid.to_string()).join("task"))? {
            tids.extend(entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
        }
        tids.sort_unstable();
        Ok(tids)
    }
}

/// Names of the folders in `dir`.
fn folders(dir: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            names.extend(entry.file_name().into_string());
        }
    }
    Ok(names)
}

/// Most CPUs that a list may name; more is no list of CPUs.
const MAX_CPUS: u32 = 1 << 16;

/// CPUs of a list like `0-3,5`, ascending, each once. `None` when it is no such list.
pub fn parse_cpu_list(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.trim().parse::<u32>().ok()?, last.trim().parse::<u32>().ok()?);
        if first > last || last >= MAX_CPUS {
            return None;
        }
        cpus.extend(first..=last);
    }
    cpus.sort_unstable();
    cpus.dedup();
    (!cpus.is_empty()).then_some(cpus)
}

#[cfg(test)]
mod tests;
