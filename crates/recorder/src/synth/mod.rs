//! Records for what was there before the recording began: the kernel's map, loaded BPF programs, other text that came, processes.
//!
//! They carry time 0, so that readers apply them first. The sideband events are already open when these are made:
//! what changes during the scan is in both, and nothing falls between.

pub(crate) mod bpf;
pub(crate) mod groups;
pub(crate) mod images;
pub(crate) mod kernel;
mod processes;
pub(crate) mod procfs;

pub(crate) use processes::Scanner;
