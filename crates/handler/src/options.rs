//! What a set of handlers is loaded for.

use std::fmt;
use std::str::FromStr;

use afterimage_perf_data::attr::{Attr, AttrFlags, SampleType};

use crate::{Error, ErrorKind, Result};

/// A handler that comes with the profiler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Builtin {
    /// No handler: every sample chains to the sampling ring.
    #[default]
    None,
    /// A compact record of each sample into the handler ring.
    Emit,
    /// Samples are counted in the kernel, by stack and task.
    Count,
}

impl Builtin {
    /// Its name on the command line and in recordings.
    pub fn name(self) -> &'static str {
        match self {
            Builtin::None => "none",
            Builtin::Emit => "emit",
            Builtin::Count => "count",
        }
    }
}

impl Builtin {
    /// The most frames that call chains may have beside this handler (`sample_max_stack`), so that the kernel leaves them
    /// whole; `None`: as many as the system allows. Where a kernel shows programs no sample (6.1), one that lets samples
    /// chain walks the user's stack too, and the kernel then cuts the chain of the sample. Where the system allows more than
    /// programs read of a chain, stacks that differ beyond that would be counted as one: then the event has no more.
    pub fn max_stack(self, chain: bool) -> Option<u16> {
        let reads = self != Builtin::None;
        let walks = chain && reads && !crate::probe::shows_samples();
        let whole = walks.then(crate::cpus::whole_stack);
        whole.into_iter().chain(crate::cpus::readable_stack().filter(|_| reads)).min()
    }
}

impl fmt::Display for Builtin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Builtin {
    type Err = Error;

    fn from_str(name: &str) -> Result<Builtin> {
        [Builtin::None, Builtin::Emit, Builtin::Count]
            .into_iter()
            .find(|b| b.name() == name)
            .ok_or_else(|| Error::new(ErrorKind::Options, format!("handler {name:?}"), "not one of none, emit, count"))
    }
}

/// How programs get at the sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// The kernel's own context, by `bpf_cast_to_kern_ctx` (6.2 and later): every value is that of the ring's record.
    Kfuncs,
    /// Helpers alone: the stack comes by `bpf_get_stack`, ids are those of the initial pid namespace, `count` takes the
    /// time itself and `emit` carries none.
    Plain,
}

impl Mechanism {
    /// Its name in recordings and in `doctor`.
    pub fn name(self) -> &'static str {
        match self {
            Mechanism::Kfuncs => "kfuncs",
            Mechanism::Plain => "plain",
        }
    }
}

/// What the loader must know of a sampling event. Build it from the event's attr, or by hand for tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventConfig {
    /// `PERF_SAMPLE_CALLCHAIN` is asked for: handlers take stacks.
    pub callchain: bool,
    /// `precise_ip`, 0 to 3.
    pub precise_ip: u8,
    /// `exclude_callchain_kernel`: the stack has no kernel part.
    pub exclude_callchain_kernel: bool,
    /// `exclude_callchain_user`: the stack has no user part.
    pub exclude_callchain_user: bool,
    /// `sample_max_stack`: the most frames of a stack; 0 for what the system allows.
    pub max_stack: u16,
}

impl EventConfig {
    /// What `attr` asks for.
    ///
    /// # Errors
    /// For tracepoint events: they take programs of another type, and dropping there would take samples from others.
    pub fn from_attr(attr: &Attr) -> Result<EventConfig> {
        /// `PERF_TYPE_TRACEPOINT`.
        const TRACEPOINT: u32 = 2;
        if attr.kind == TRACEPOINT {
            return Err(Error::new(ErrorKind::Unsupported, "a program on a tracepoint event", "it carries no stub"));
        }
        Ok(EventConfig {
            callchain: attr.sample_type.contains(SampleType::CALLCHAIN),
            precise_ip: attr.precise_ip(),
            exclude_callchain_kernel: attr.flags.contains(AttrFlags::EXCLUDE_CALLCHAIN_KERNEL),
            exclude_callchain_user: attr.flags.contains(AttrFlags::EXCLUDE_CALLCHAIN_USER),
            max_stack: attr.sample_max_stack,
        })
    }

    /// Whether bpf_get_stack may be called on such an event. The kernel refuses to attach a program that calls it where
    /// this says no, because a precise sample's registers cannot be unwound; a tail-called program it cannot see.
    pub(crate) fn may_unwind(&self) -> bool {
        self.precise_ip == 0 || (self.callchain && !self.exclude_callchain_kernel && !self.exclude_callchain_user)
    }
}

/// What to load.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The handler to begin with.
    pub builtin: Builtin,
    /// Other handlers that [`crate::Handlers::swap`] may be asked for. What is not named here or above is not loaded.
    pub also: Vec<Builtin>,
    /// Whether `emit` and `count` let the sample go on to the sampling ring as well.
    pub chain: bool,
    /// The events that will carry a stub; their index is their position here.
    pub events: Vec<EventConfig>,
    /// CPUs that are sampled, each of which gets count tables; empty: those online. Samples of any other CPU are counted
    /// as lost, table full.
    pub cpus: Vec<u32>,
    /// Force a mechanism; `None` takes the best that loads.
    pub mechanism: Option<Mechanism>,
    /// Entries of each half of a count table; `None` chooses by the number of tables. Rounded up to a power of two,
    /// within 64 and 32,768.
    pub count_slots: Option<u32>,
}

impl Options {
    /// Whether `builtin` is to be loaded.
    pub fn wants(&self, builtin: Builtin) -> bool {
        self.builtin == builtin || self.also.contains(&builtin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_builtins_read_back() {
        for builtin in [Builtin::None, Builtin::Emit, Builtin::Count] {
            assert_eq!(builtin.to_string().parse::<Builtin>().map_err(|e| e.to_string()), Ok(builtin));
        }
        let refused = "counts".parse::<Builtin>().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Options);
        assert_eq!(refused.to_string(), "handler \"counts\": not one of none, emit, count");
    }

    #[test]
    fn precise_events_are_unwound_only_from_a_whole_chain() {
        let whole = EventConfig { callchain: true, precise_ip: 2, ..EventConfig::default() };
        assert!(whole.may_unwind());
        assert!(EventConfig::default().may_unwind());
        assert!(!EventConfig { callchain: false, ..whole }.may_unwind());
        assert!(!EventConfig { exclude_callchain_kernel: true, ..whole }.may_unwind());
        assert!(!EventConfig { exclude_callchain_user: true, ..whole }.may_unwind());
    }
}
