//! Programs on perf events: stub, slots, built-in handlers, counters.
//!
//! A perf event takes one BPF program, and the program cannot be exchanged while the event samples. So each event gets a
//! small *stub* for good, which runs the current *pair of slots* (a gate, then a handler) by tail calls and counts what
//! became of the sample. [`Handlers::swap`] fills a spare pair and then moves one number; no sample falls between.
//!
//! The life of it: [`Handlers::load`] before the events are enabled, [`Handlers::set_output`] for each handler ring,
//! [`Handlers::attach`] for each event; then, while sampling, [`Handlers::counters`] and [`Handlers::drain_counts`]
//! read shared memory only. Any other bpf(2) map call would make the kernel skip samples on the CPU it runs on.
//! Dropping [`Handlers`] takes the programs off the events, which then sample on without them: disable them first.
//!
//! A program that wants samples of its own threads need not do any of this: [`Sampler`] does. One that opens its events itself
//! does it like this:
//!
//! ```no_run
//! use std::os::fd::AsFd;
//! use afterimage_handler::object::Object;
//! use afterimage_handler::{EventConfig, Handlers, Options};
//!
//! # fn attach(events: &[std::os::fd::OwnedFd]) -> Result<(), Box<dyn std::error::Error>> {
//! let mut handlers = Handlers::load(&Options { events: vec![EventConfig::default()], ..Options::default() })?;
//! for event in events {
//!     handlers.attach(0, event.as_fd())?;
//! }
//! let mine = Object::open(std::fs::read("my.bpf.o")?, None, &["least=10".parse()?])?;
//! let loaded = handlers.load_object(&mine)?; // keep it: its maps and probes live as long
//! handlers.swap(loaded.id)?;
//! println!("{} samples so far", handlers.totals(0).handled);
//! # Ok(())
//! # }
//! ```

pub mod by;
mod cpus;
mod error;
pub mod gate;
mod handlers;
mod libbpf_log;
mod load;
mod mapping;
pub mod object;
pub mod off_cpu;
mod options;
pub mod probe;
mod program;
pub mod sampler;
mod settled;
mod slots;
mod table;

pub use error::{Error, ErrorKind, Result};
pub use handlers::{Counters, Handlers};
pub use options::{Builtin, EventConfig, Mechanism, Options};
pub use program::{HandlerId, LoadedBuiltin, Shared};
pub use sampler::{Item, Sampler};
pub use table::{CountEntry, DrainStats};

/// The generated skeletons of our own objects. Their `types` are the C structures, laid out by the compiler.
mod skeleton {
    #![allow(
        clippy::all,
        clippy::allow_attributes_without_reason,
        clippy::expect_used,
        clippy::undocumented_unsafe_blocks,
        clippy::unwrap_used,
        missing_docs,
        unreachable_pub,
        unsafe_op_in_unsafe_fn,
        reason = "generated code"
    )]

    pub(crate) mod common {
        include!(concat!(env!("OUT_DIR"), "/common.skel.rs"));
    }

    pub(crate) mod stub {
        include!(concat!(env!("OUT_DIR"), "/stub.skel.rs"));
    }

    pub(crate) mod stub_plain {
        include!(concat!(env!("OUT_DIR"), "/stub_plain.skel.rs"));
    }

    pub(crate) mod by {
        include!(concat!(env!("OUT_DIR"), "/by.skel.rs"));
    }

    pub(crate) mod off_cpu {
        include!(concat!(env!("OUT_DIR"), "/off_cpu.skel.rs"));
    }

    pub(crate) mod builtins {
        include!(concat!(env!("OUT_DIR"), "/builtins.skel.rs"));
    }
}
