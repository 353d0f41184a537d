//! The profile in the formats of other tools: each one file over the same stacks.
//!
//! Every format takes weighted stacks through [`Stacks`], so that none of them knows how a profile is kept. Names come
//! from files that nobody vouches for; [`name::clean`] makes them safe for a line format, for XML and for a terminal.
#![forbid(unsafe_code)]

pub mod folded;
pub mod name;
pub mod profile;
pub mod stacks;
pub mod svg;

pub use stacks::Stacks;

/// Why an export could not be written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The output could not be written.
    #[error("cannot write: {0}")]
    Write(#[from] std::io::Error),
    /// No sample of the event has a stack or an address: there is nothing to draw.
    #[error("nothing to draw: the event has no samples")]
    NoSamples,
    /// The weights add up to more than can be drawn: a period in the recording is damaged.
    #[error("the weights of the samples add up to more than can be drawn")]
    TooHeavy,
}
