//! The timeline of kernel text: which code was at an address at a time.
//!
//! BPF programs, trampolines, ftrace and kprobe pages come and go while a machine runs, and their addresses are used
//! again at once. So an address alone names nothing: [`Timeline`] answers for an address *at a time*, with the text that
//! was there and with its bytes ([`Timeline::bytes`], from [`Images`]).
//!
//! Records tell of texts ([`Timeline::apply`], [`Timeline::program_loaded`], [`Timeline::poke`]), those who watch the
//! kernel free or load them do ([`Timeline::freed`], [`Timeline::came`]), and a recording does ([`Timeline::adopt`]). They
//! may tell of the same text in any order.
#![forbid(unsafe_code)]

mod bytes;
#[cfg(feature = "capture")]
pub mod capture;
mod change;
mod chunk;
mod desc;
#[doc(hidden)]
pub mod fuzzing;
mod images;
#[cfg(feature = "capture")]
mod live;
mod lives;
mod loads;
mod poke;
mod retire;
mod rows;
mod scan;
mod starts;
mod text;
mod timeline;

pub use bytes::{Missing, Why};
pub use images::Images;
#[cfg(feature = "capture")]
pub use live::{Live, Passed};
pub use text::{BpfProgram, Image, KSYMBOL_BPF, KSYMBOL_OUT_OF_LINE, Loader, Text, TextId, TextKind, Way};
pub use timeline::{KsymChange, Seen, TextHit, Timeline};
