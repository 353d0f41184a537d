//! The live session: opens events, runs passes, writes the recording; owns the order of these and the tally.
//!
//! A *pass* is one drain of all rings, each past its head at the start of the pass. What a pass brought is written as a
//! whole and ended by FINISHED_ROUND: readers put records in order by that boundary.
//!
//! A program that wants a recording says what it wants in a [`Plan`]:
//!
//! ```no_run
//! use std::sync::atomic::AtomicBool;
//! use std::time::Duration;
//!
//! use afterimage_recorder::{Destination, Plan, Subject, record};
//!
//! # fn main() -> Result<(), afterimage_recorder::RecordError> {
//! let plan = Plan {
//!     subject: Subject::Processes(vec![std::process::id()]),
//!     destination: Destination::File("mine.data".into()),
//!     duration: Some(Duration::from_secs(2)),
//!     callchain: true,
//!     ..Plan::default()
//! };
//! // Another thread may set it; `()` wants to hear nothing while it goes on.
//! let stop = AtomicBool::new(false);
//! let outcome = record(&plan, &stop, &mut ())?;
//! println!("{}", outcome.tally.total().human());
//! # Ok(())
//! # }
//! ```

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
mod jit;
mod kernel_names;
mod loading;
mod nested;
mod off_cpu;
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

pub use afterimage_handler::Builtin;
pub use afterimage_handler::gate::Expression;
pub use afterimage_handler::object::Object;
pub use afterimage_kernel_text::capture::{Options as TextOptions, Stats as TextStats};
pub use afterimage_perf_data::RecordingTally;
pub use afterimage_perf_event::child::Ended;
pub use afterimage_perf_event::config::Rate;
pub use afterimage_perf_event::spec::EventSpec;
pub use error::RecordError;
pub use off_cpu::OffCpuPlan;
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

/// Nobody: notes and progress go nowhere.
impl Observer for () {
    fn note(&mut self, _line: &str) {}

    fn progress(&mut self, _progress: &Progress) {}

    fn is_watched(&self) -> bool {
        false
    }
}
