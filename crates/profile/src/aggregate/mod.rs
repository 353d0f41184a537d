//! The aggregated profile: rows, call trees, folded stacks.

mod collect;
mod history;
mod inline;
mod labels;
mod more;
mod name;
mod paths;
mod places;
mod profile;
mod recent;
mod rows;
mod shared;
mod sizes;
mod sort;
mod stacks;
mod tree;
mod trie;
mod user_part;
mod weight;

use afterimage_perf_data::{AnySource, FileReader};

use crate::filter::Filters;
use crate::replay::ReplayOptions;
use crate::resolve::Resolver;
use crate::unwinding::replay_unwinding;
use collect::Collector;
pub(crate) use collect::EventSums;
pub use labels::{Label, SaidSum};
pub use more::Columns;
use more::NoColumns;
pub(crate) use profile::events;
pub use profile::{EventProfile, Profile, TallySource};
pub use rows::{Key, Modes, Row};
pub(crate) use sizes::Sizes;
pub use sort::{SortKey, UnknownSortKey};
pub use stacks::Stack;
pub use tree::{ChainKey, Node, Order, Tree, Trees};
pub use weight::Weight;

/// What is asked of a profile.
#[derive(Clone, Debug)]
pub struct AggregateOptions {
    /// What tells rows apart, in the order of the columns. The fewer keys, the less is kept.
    pub sort: Vec<SortKey>,
    /// The names of the labels that [`SortKey::Label`] speaks of, by its number.
    pub labels: Vec<String>,
    /// Whether stacks are kept: for [`Profile::tree`] and [`Profile::stacks`].
    pub chains: bool,
    /// What tells the frames of a chain apart beside that.
    pub chain_key: ChainKey,
    /// Whether a row also gets what its callees took (`--children`): then symbols that were only callers have rows too.
    pub children: bool,
    /// Whether functions that were inlined have frames of their own in stacks, where debug information tells of them.
    pub inline: bool,
    /// Whether each branch of a sample is looked at in place of the sample, also without a key that speaks of branches.
    pub branches: bool,
    /// Whether stacks begin with the branches that led to the sample (perf's `--branch-history`).
    pub branch_history: bool,
    /// Whether periods are the weights of the samples (perf's `--mem-mode`).
    pub by_weight: bool,
    /// Steps in which [`SortKey::Time`] goes, ns; 0 tells all times apart.
    pub time_quantum: u64,
    /// Which samples are looked at.
    pub filters: Filters,
    /// How to replay.
    pub replay: ReplayOptions,
}

impl Default for AggregateOptions {
    /// perf's default: by name of the thread, object and symbol, no stacks.
    fn default() -> Self {
        AggregateOptions {
            sort: vec![SortKey::Comm, SortKey::Dso, SortKey::Sym],
            labels: Vec::new(),
            chains: false,
            chain_key: ChainKey::Function,
            children: false,
            inline: false,
            branches: false,
            branch_history: false,
            by_weight: false,
            time_quantum: 100_000_000,
            filters: Filters::default(),
            replay: ReplayOptions::default(),
        }
    }
}

impl AggregateOptions {
    /// Whether branches are looked at.
    pub(crate) fn branches(&self) -> bool {
        self.branches || self.sort.iter().any(|key| key.is_of_branches())
    }

    /// Whether something is asked of whole stacks beside rows and trees.
    pub(crate) fn takes_stacks(&self) -> bool {
        self.sort.contains(&SortKey::Parent) || self.filters.exclude_other
    }
}

/// Replays a recording in memory into a profile and names everything in it.
pub fn aggregate(reader: &FileReader<'_>, options: &AggregateOptions, resolver: &mut Resolver) -> Profile {
    aggregate_from(reader, &mut AnySource::File(reader.source()), options, resolver)
}

/// The same of a recording whose records come from `source`.
pub fn aggregate_from(
    reader: &FileReader<'_>,
    source: &mut AnySource<'_>,
    options: &AggregateOptions,
    resolver: &mut Resolver,
) -> Profile {
    aggregate_with(reader, source, options, resolver, &mut NoColumns)
}

/// The same with columns that the caller reads out of samples.
pub fn aggregate_with(
    reader: &FileReader<'_>,
    source: &mut AnySource<'_>,
    options: &AggregateOptions,
    resolver: &mut Resolver,
    columns: &mut dyn Columns,
) -> Profile {
    let mut collector = Collector::new(reader, options, columns, resolver);
    let replayed = replay_unwinding(reader, source, &options.replay, &mut collector);
    collector.resolver.learn(source);
    Profile::new(reader, options, collector, replayed)
}
