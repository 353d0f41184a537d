//! The timeline of kernel text: which code was at an address at a time.
//!
//! BPF programs, trampolines, ftrace and kprobe pages come and go while a machine runs, and their addresses are used
//! again at once. So an address alone names nothing: [`Timeline`] answers for an address *at a time*.
#![forbid(unsafe_code)]

#[cfg(feature = "capture")]
pub mod capture;
mod text;
mod timeline;

pub use text::{BpfProgram, KSYMBOL_BPF, KSYMBOL_OUT_OF_LINE, Text, TextId, TextKind};
pub use timeline::{KsymChange, TextHit, Timeline};
