//! Which samples a view looks at: filters as perf's, each decided in one place for all views.
//!
//! Of a sample the first filter in the order of [`FilterKind`] that does not let it through is the one that leaves it out,
//! so that what all leave out and what remains add up.

mod names;
mod numbers;
mod time;

pub use names::{BadPattern, Names, Pattern};
pub use numbers::{BadNumbers, Numbers};
pub use time::{BadTimes, Times};

use crate::replay::Sink;
use crate::resolve::Frame;
use crate::said::Said;
use crate::sample::TimedSample;
use crate::state::State;

/// What leaves a sample out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FilterKind {
    /// Its time.
    Time,
    /// Its CPU.
    Cpu,
    /// Its process.
    Pid,
    /// Its thread.
    Tid,
    /// The name that the thread had.
    Comm,
    /// Its own address has no name ([`Filters::hide_unresolved`]).
    Unresolved,
    /// The object that its own address is in.
    Dso,
    /// The symbol there.
    Symbol,
    /// What the symbol's name has in it.
    SymbolPart,
    /// Nothing on its stack is a parent ([`Filters::exclude_other`]).
    Parent,
}

impl FilterKind {
    /// All of them, in the order in which they are asked.
    pub const ALL: [FilterKind; 10] = [
        FilterKind::Time,
        FilterKind::Cpu,
        FilterKind::Pid,
        FilterKind::Tid,
        FilterKind::Comm,
        FilterKind::Unresolved,
        FilterKind::Dso,
        FilterKind::Symbol,
        FilterKind::SymbolPart,
        FilterKind::Parent,
    ];

    /// The name of perf's option for it, without the dashes.
    pub fn option(self) -> &'static str {
        match self {
            FilterKind::Time => "time",
            FilterKind::Cpu => "cpu",
            FilterKind::Pid => "pid",
            FilterKind::Tid => "tid",
            FilterKind::Comm => "comms",
            FilterKind::Unresolved => "hide-unresolved",
            FilterKind::Dso => "dsos",
            FilterKind::Symbol => "symbols",
            FilterKind::SymbolPart => "symbol-filter",
            FilterKind::Parent => "exclude-other",
        }
    }

    /// Whether samples that it leaves out still count in what percentages are of, unless percentages are to be of what is
    /// left: as in perf, which never looks at those of other times and CPUs.
    pub fn counts_in_percentages(self) -> bool {
        !matches!(self, FilterKind::Time | FilterKind::Cpu | FilterKind::Unresolved)
    }
}

/// What is asked of samples. `None` asks nothing.
#[derive(Clone, Debug, Default)]
pub struct Filters {
    /// When. Samples without a time pass, as in perf.
    pub times: Option<Times>,
    /// On which CPU. Samples that do not say are left out.
    pub cpus: Option<Numbers>,
    /// The process.
    pub pids: Option<Numbers>,
    /// The thread.
    pub tids: Option<Numbers>,
    /// The thread's name at that time.
    pub comms: Option<Names>,
    /// Whether samples at addresses without a name are left out.
    pub hide_unresolved: bool,
    /// The object that the sample's own address is in, by its short or its long name.
    pub dsos: Option<Names>,
    /// The symbol there; an address without a name goes by its digits.
    pub symbols: Option<Names>,
    /// What the symbol's name has in it.
    pub symbol_part: Option<String>,
    /// Which symbols are parents, for [`SortKey::Parent`](crate::SortKey::Parent).
    pub parents: Option<Pattern>,
    /// Whether samples are left out that have no parent on their stack.
    pub exclude_other: bool,
}

impl Filters {
    /// Whether any asks something that is known before anything is named.
    pub fn ask_samples(&self) -> bool {
        self.times.is_some()
            || self.cpus.is_some()
            || self.pids.is_some()
            || self.tids.is_some()
            || self.comms.is_some()
    }

    /// Whether any asks something of names.
    pub fn ask_places(&self) -> bool {
        self.ask_own_place() || self.exclude_other
    }

    /// Whether any asks something of the name of the sample's own address.
    pub(crate) fn ask_own_place(&self) -> bool {
        self.hide_unresolved || self.dsos.is_some() || self.symbols.is_some() || self.symbol_part.is_some()
    }

    /// Whether none asks anything.
    pub fn is_empty(&self) -> bool {
        !self.ask_samples() && !self.ask_places()
    }

    /// What leaves out samples at a place.
    pub fn left_out_at(&self, frame: &Frame) -> Option<FilterKind> {
        if self.hide_unresolved && frame.symbol.is_err() {
            return Some(FilterKind::Unresolved);
        }
        let not = |names: &Option<Names>, has: &dyn Fn(&Names) -> bool| names.as_ref().is_some_and(|names| !has(names));
        if not(&self.dsos, &|names| names.has(&frame.dso.short) || names.has(&frame.dso.long)) {
            return Some(FilterKind::Dso);
        }
        if not(&self.symbols, &|names| names.has(&frame.name())) {
            return Some(FilterKind::Symbol);
        }
        let lacks = |part: &String| !frame.symbol.as_ref().is_ok_and(|name| name.contains(part.as_str()));
        self.symbol_part.as_ref().is_some_and(lacks).then_some(FilterKind::SymbolPart)
    }
}

/// The filters that need no names, at work in one replay.
#[derive(Debug)]
pub struct SampleFilter {
    filters: Filters,
    asks: bool,
    /// By the number of a thread's name: whether it is one that is wanted, once that was found out.
    comms: Vec<Option<bool>>,
}

impl SampleFilter {
    /// For one replay: names of threads have numbers of their own in each.
    pub fn new(filters: &Filters) -> SampleFilter {
        SampleFilter { filters: filters.clone(), asks: filters.ask_samples(), comms: Vec::new() }
    }

    /// What leaves a sample out, if anything that needs no names does.
    #[inline]
    pub fn left_out(&mut self, state: &State, sample: &TimedSample<'_>) -> Option<FilterKind> {
        if self.asks { self.asked(state, sample) } else { None }
    }

    fn asked(&mut self, state: &State, sample: &TimedSample<'_>) -> Option<FilterKind> {
        let filters = &self.filters;
        if filters.times.as_ref().is_some_and(|times| sample.time.is_some_and(|time| !times.has(time))) {
            return Some(FilterKind::Time);
        }
        if filters.cpus.as_ref().is_some_and(|cpus| !sample.cpu.is_some_and(|cpu| cpus.has(cpu))) {
            return Some(FilterKind::Cpu);
        }
        if filters.pids.as_ref().is_some_and(|pids| !pids.has(sample.pid)) {
            return Some(FilterKind::Pid);
        }
        if filters.tids.as_ref().is_some_and(|tids| !tids.has(sample.tid)) {
            return Some(FilterKind::Tid);
        }
        filters.comms.is_some().then(|| self.lacks_comm(state, sample)).filter(|lacks| *lacks).map(|_| FilterKind::Comm)
    }

    fn lacks_comm(&mut self, state: &State, sample: &TimedSample<'_>) -> bool {
        let at = sample.comm.0 as usize;
        if let Some(Some(wanted)) = self.comms.get(at) {
            return !wanted;
        }
        let wanted = self.filters.comms.as_ref().is_none_or(|names| names.has(state.comm(sample.comm)));
        // Numbers of names are given out one after the other.
        if self.comms.len() <= at {
            self.comms.resize(at + 1, None);
        }
        if let Some(known) = self.comms.get_mut(at) {
            *known = Some(wanted);
        }
        !wanted
    }
}

/// Finds nothing but when samples were taken.
struct Nothing;

impl Sink for Nothing {
    fn sample(&mut self, _: &State, _: &TimedSample<'_>) {}

    fn said(&mut self, _: &State, _: &TimedSample<'_>, _: &[Said<'_>]) {}
}

/// When the first and the last sample of a recording were taken, ns: as it says itself, or by going through all of it.
/// `None` where no sample has a time.
pub fn sample_times(
    reader: &afterimage_perf_data::FileReader<'_>,
    source: &mut afterimage_perf_data::AnySource<'_>,
) -> Option<(u64, u64)> {
    let stats = crate::replay_from(reader, source, &crate::ReplayOptions::default(), &mut Nothing).stats;
    stats.first_time.zip(stats.last_time)
}
