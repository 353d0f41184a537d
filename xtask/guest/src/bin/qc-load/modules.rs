//! The module kcore_qc, loaded and removed, and what it says when it goes.

use crate::Result;
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A module's file.
pub(crate) fn file(name: &str) -> Result<PathBuf> {
    let folder = std::env::var_os("AFTERIMAGE_MODULES").ok_or("AFTERIMAGE_MODULES names no folder")?;
    Ok(Path::new(&folder).join(format!("{name}.ko")))
}

/// Loads kcore_qc with parameters.
pub(crate) fn load(options: &str) -> Result<()> {
    let path = file("kcore_qc")?;
    let module = File::open(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let words = CString::new(options).map_err(|error| error.to_string())?;
    rustix::system::finit_module(&module, &words, 0).map_err(|error| format!("load kcore_qc {options}: {error}"))
}

/// Removes it.
pub(crate) fn remove() -> Result<()> {
    let flags = libc::O_NONBLOCK as _;
    rustix::system::delete_module(c"kcore_qc", flags).map_err(|error| format!("remove kcore_qc: {error}"))
}

/// The kernel's log from when it was opened.
pub(crate) struct KernelLog(File);

/// What the module said of one life: texts that it held, and that it freed of these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) held: u64,
    pub(crate) freed: u64,
}

impl KernelLog {
    pub(crate) fn open() -> Result<KernelLog> {
        let open = || {
            let mut file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open("/dev/kmsg")?;
            file.seek(SeekFrom::End(0))?;
            Ok(KernelLog(file))
        };
        open().map_err(|error: std::io::Error| format!("/dev/kmsg: {error}"))
    }

    /// What the module said since the last time.
    pub(crate) fn lives(&mut self) -> Result<Vec<Life>> {
        let (mut lives, mut record) = (Vec::new(), [0; 8192]);
        loop {
            match self.0.read(&mut record) {
                Ok(0) => return Ok(lives),
                Ok(len) => lives.extend(life(&String::from_utf8_lossy(&record[..len]))),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(lives),
                Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {
                    return Err("the kernel's log was too short for all that came".into());
                }
                Err(error) => return Err(format!("/dev/kmsg: {error}")),
            }
        }
    }
}

fn life(record: &str) -> Option<Life> {
    let (_, rest) = record.split_once("kcore_qc: ")?;
    let (held, rest) = rest.split_once(" texts were held, ")?;
    let (freed, _) = rest.split_once(" of them freed")?;
    Some(Life { held: held.parse().ok()?, freed: freed.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_is_read_from_the_log() {
        let said = "6,701,9302118,-;kcore_qc: 1203 texts were held, 1203 of them freed\n";
        assert_eq!(life(said), Some(Life { held: 1203, freed: 1203 }));
        assert_eq!(life("4,5,6,-;kcore_qc: hook of execmem_free: -16\n"), None);
    }
}
