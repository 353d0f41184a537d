//! Stacks of code without frame pointers: from the registers of a sample and the copy of its stack, by the tables that
//! compilers leave for exceptions and debuggers (`.eh_frame`, `.debug_frame`).
//!
//! ```text
//!   Registers, StackCopy ──▶ Walker::walk ──▶ addresses, innermost first, and a StackEnd: why there are no more
//!                              │    ▲
//!               address ──▶ Modules │ the Table of the file that is mapped there, the address inside of it
//!                              ▼    │
//!                            Table: address ──▶ rule (found once per address, then remembered) ──▶ the caller's registers
//! ```
//!
//! Nothing here reads files or knows processes: who calls finds the file of an address. What is given is not trusted:
//! tables and stacks of any bytes end a walk with a reason, within a bounded time.
//!
//! All registers are followed, and expressions can read the copied stack: code that realigns its stack, the dynamic
//! linker's resolver and signal frames keep their frames in other registers than the two that most code uses.
#![forbid(unsafe_code)]

mod arch;
mod end;
mod expression;
#[doc(hidden)]
pub mod fuzzing;
mod index;
mod rule;
mod signal;
mod stack;
mod table;
mod walk;

pub use arch::{Arch, Registers};
pub use end::StackEnd;
pub use signal::return_code;
pub use stack::StackCopy;
pub use table::{Code, Section, Sections, Table};
pub use walk::{DEEPEST, Modules, Walker};
