//! The live session: opens events, runs passes, writes the recording; owns the order of these and the tally.
//!
//! A *pass* is one drain of all rings, each past its head at the start of the pass. What a pass brought is written as a
//! whole and ended by FINISHED_ROUND: readers put records in order by that boundary.

mod audit;
mod book;
pub mod by;
mod change;
pub mod control;
mod error;
mod files;
mod finish;
mod gate;
mod host;
mod kernel_names;
mod old;
mod output;
mod pass;
mod plan;
mod queue;
mod run;
mod session;
mod synth;
mod tallies;
mod text;
mod tracing_data;
mod wait;

use afterimage_perf_data::RecordingTally;

pub use afterimage_kernel_text::capture::Options as TextOptions;
pub use error::RecordError;
pub use plan::{Destination, Handler, Plan, Progress, Subject};
pub use run::{Outcome, record};
pub use text::{News, Watch};

/// Somebody who is told how a recording goes.
pub trait Observer {
    /// Something differs from what was asked for: one line.
    fn note(&mut self, line: &str);
    /// A pass is done.
    fn progress(&mut self, progress: &Progress);
    /// Whether somebody sees [`Observer::progress`]: then it is told each second, and otherwise not at all.
    fn is_watched(&self) -> bool;
    /// What was counted by keys is to be shown. With the last one comes the final tally.
    ///
    /// # Errors
    /// When it cannot be written; the session ends then.
    fn read_out(&mut self, readout: &by::Readout, tally: Option<&RecordingTally>) -> std::io::Result<()> {
        let _ = (readout, tally);
        Ok(())
    }
}
