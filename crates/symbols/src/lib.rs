//! Names for addresses: the kernel's own text, modules, programs and libraries, the vDSO, JIT maps.
//!
//! Two rules hold everywhere in this crate. A name is given only inside the bounds of its symbol, never "the nearest
//! one below". And a file's names are given only when its build id is the one that was recorded, wherever one is known.
//! What cannot be named has a [`Reason`], which is a value and not an error.
//!
//! * [`KernelTable`]: `/proc/kallsyms`, indexed once per boot. Text that comes and goes (BPF programs, trampolines)
//!   is left out: naming it needs a time.
//! * [`SymbolTable`]: the symbols of one ELF object, from `.symtab`, `.dynsym`, `.gnu_debugdata` and the PLT.
//! * [`Finder`]: the table for a mapping, from the live process, the file system, debug files, or the [`cache`].
//! * [`perfmap`]: what JIT compilers leave in `/tmp/perf-PID.map`; [`jitdump`]: what they leave in `jit-PID.dump`;
//!   [`jit`]: both through time. [`vdso`]: the kernel's page of user code.
//! * [`lines`]: source lines, of BPF code from BTF line info, of other code from DWARF. [`ObjectFile`]: the code itself.
//! * [`kept`]: what an archive holds of an object, so that it answers elsewhere.
//! * [`container`]: what the path of a cgroup says of a container.
//! * [`demangle()`]: the form of a C++ or Rust name that people read.

pub mod build_id;
mod bytes;
pub mod cache;
pub mod container;
mod demangle;
mod elf;
mod error;
pub mod file;
mod finder;
#[doc(hidden)]
pub mod fuzzing;
pub mod jit;
pub mod jitdump;
pub mod kept;
mod kernel;
pub mod lines;
mod names;
mod notes;
mod packed;
pub mod perfmap;
mod reason;
pub mod source;
mod unwind;
pub mod vdso;

pub use demangle::demangle;
pub use elf::{Origin, Segment, SymbolTable};
pub use error::{Error, ErrorKind};
pub use finder::{Fetch, Finder, Live, Machine, Mismatch, ObjectFile, Refused, Request, Wanted};
pub use kernel::{KernelHit, KernelTable, kernel_build_id};
pub use names::Hit;
pub use notes::build_id_of_notes;
pub use reason::Reason;
pub use source::{PathKind, classify};
pub use unwind::{Placed, UnwindSections};
