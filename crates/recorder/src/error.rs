//! What can go wrong with a recording.

use std::io;
use std::path::PathBuf;

use afterimage_perf_event::child::StartError;
use afterimage_perf_event::open::OpenError;

/// Why a recording could not be made, or ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// What was asked for contradicts itself or cannot be had anywhere. Nothing was created.
    #[error("{0}")]
    Usage(String),
    /// A capability is missing. Nothing was created.
    #[error("{what}: needs {capability}")]
    Capability {
        /// What was asked for.
        what: String,
        /// The capabilities, as capabilities(7) names them.
        capability: &'static str,
    },
    /// The target does not exist.
    #[error("{0}")]
    NoTarget(String),
    /// An event could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A program could not be loaded or attached.
    #[error(transparent)]
    Handler(#[from] afterimage_handler::Error),
    /// The expression of the gate cannot be had here.
    #[error("--where: {0}")]
    Gate(#[from] afterimage_handler::gate::GateError),
    /// The command did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The recording could not be created or written.
    #[error("{}: {source}", path.display())]
    Output {
        /// Where the recording goes.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A record that we made ourselves does not fit the format.
    #[error("cannot encode a record: {0}")]
    Encode(#[from] afterimage_perf_data::Error),
    /// Any other answer of the operating system.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl RecordError {
    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> RecordError {
        move |source| RecordError::System { what, source }
    }
}
