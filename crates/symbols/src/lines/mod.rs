//! Source lines for addresses: of BPF code from BTF line info, of all other code from DWARF.
//!
//! Both answer from bytes that belong to somebody else, so that both promise the same: no panic, no memory by a length
//! that was not checked, and an answer for what can be read.
#![forbid(unsafe_code)]

mod btf;
mod dwarf;

pub use btf::{BpfLine, BpfLines, BpfParts};
pub(crate) use dwarf::has_lines;
pub use dwarf::{DwarfLines, SourceFrame};
