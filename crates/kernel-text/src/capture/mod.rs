//! Ways to read kernel text from the running kernel.
//!
//! [`Capturer`] keeps the text that goes: copied by programs of ours at its free, read as it comes, and read after its end
//! where the kernel holds it. [`Reader`] reads any kernel memory, [`by_id`] the programs that are loaded now.

mod assemble;
pub mod by_id;
mod captured;
mod capturer;
mod end;
mod error;
mod freed;
mod kcore;
mod loads;
mod object;
pub mod probe;
mod reader;
mod symbols;
mod wire;
mod worker;

pub use captured::{Captured, CapturedProgram, Pass, Stats};
pub use capturer::{Capturer, Options, WayState};
pub use end::end_of_text;
pub use error::{CaptureError, CaptureErrorKind, ReadError};
pub use kcore::{Copied, Extent, Heard};
pub use reader::Reader;
