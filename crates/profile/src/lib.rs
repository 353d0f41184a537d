//! From records to answers: replay in time order, names for addresses, the aggregated profile.
//!
//! ```text
//!   records ──order by rounds──▶ replay ──▶ State: tasks, maps, kernel text *as of now*
//!                                  │ TimedSample (borrowed from the file)
//!                                  ▼
//!                                Sink ──────────────▶ script prints each one
//!                                  │
//!                         aggregate: one entry per distinct (task, stack, …)
//!                                  │ locate: address → Loc, which needs no time any more
//!                                  ▼
//!                         Resolver: Loc → Frame (name, or the reason why there is none), once per Loc
//!                                  ▼
//!                         Profile: rows, call trees, folded stacks
//! ```
//!
//! Nothing is allocated per sample, and no address is named twice. What could not be read or named is a value in the
//! result ([`ReplayStats::error`], [`Reason`]), never a failure of the whole.
#![forbid(unsafe_code)]

mod aggregate;
mod annotate;
mod bpf;
mod filter;
mod lines;
mod loc;
mod parts;
mod replay;
mod resolve;
mod running;
mod said;
mod sample;
mod state;
mod stats;
mod unwinding;

pub use afterimage_symbols::Reason;
pub use afterimage_unwind::StackEnd;
pub use aggregate::{
    AggregateOptions, ChainKey, Columns, EventProfile, Key, Label, Modes, Node, Order, Profile, Row, SaidSum, SortKey,
    Stack, TallySource, Tree, Trees, UnknownSortKey, Weight, aggregate, aggregate_from, aggregate_with,
};
pub use annotate::{Hits, Subject, Thing, Things, annotate, annotate_from};
pub use bpf::{BpfFunction, BpfLines, BpfPrograms};
pub use filter::{
    BadNumbers, BadPattern, BadTimes, FilterKind, Filters, Names, Numbers, Pattern, SampleFilter, Times, sample_times,
};
pub use lines::{Lines, SourceLine};
pub use loc::{CpuMode, Loc, Place};
pub use parts::{KnownParts, PartHash, Split, Under, has_return_addresses};
pub use replay::{ReplayOptions, Replayed, Sink, replay, replay_from};
pub use resolve::{Dso, Frame, FrameKind, Kept, NotUsed, ResolveOptions, Resolver, SymId};
pub use running::Running;
pub use said::{Said, SaidTypes};
pub use sample::TimedSample;
pub use state::{CommId, KernelMap, ObjectId, ProcessId, SpaceId, State, Step, ThreadId};
pub use stats::{EventStats, KindCounts, ReplayStats};
pub use unwinding::{NamingSink, StackEnds, replay_unwinding};
