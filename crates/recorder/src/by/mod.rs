//! Counting by keys: what the kernel's tables hold is gathered at each pass, located as of its time, and read out.
//!
//! No recording is written. Tables of all CPUs are emptied before the rings of a pass are, so that whatever told of a
//! mapping or a text before a sample is there when its addresses are looked up.

pub(crate) mod cgroups;
mod gather;
mod readout;

use std::time::Duration;

use afterimage_perf_data::{AttrFlags, SampleType};
use afterimage_perf_event::config::Config;
use afterimage_perf_event::spec::EventSpec;

pub use afterimage_handler::by::{Field, GivenBy, Key, Options, Value, bucket_range};

pub(crate) use gather::Gather;
pub use readout::{At, EventRows, Labelled, Readout, Row};

/// What samples are counted by, instead of being recorded.
#[derive(Clone, Debug, Default)]
pub struct By {
    /// Keys, value, size of the tables.
    pub options: Options,
    /// How often what was counted is read out; `None`: at the end.
    pub interval: Option<Duration>,
}

impl By {
    /// Whether a stack is a key.
    pub fn wants_stacks(&self) -> bool {
        self.options.keys.iter().any(|key| key.is_stack())
    }

    /// Whether addresses of processes may be in a key, so that their maps have to be known.
    pub(crate) fn wants_maps(&self) -> bool {
        self.options.keys.iter().any(|key| key.has_addresses() && *key != Key::Kstack)
    }

    /// Whether any addresses are in a key.
    pub(crate) fn wants_names(&self) -> bool {
        self.options.keys.iter().any(|key| key.has_addresses())
    }

    /// Asks events for what the keys and the value are made from.
    pub(crate) fn fill_in(&self, config: &mut Config) {
        config.callchain = self.wants_stacks();
        config.sample_type |= match self.options.value.field() {
            Some(Field::Addr) => SampleType::ADDR,
            Some(Field::Weight) => SampleType::WEIGHT,
            Some(Field::Period) | None => SampleType::default(),
        };
    }

    /// A part of the stack that is in no key need not be walked. Precise samples are walked whole or not at all.
    pub(crate) fn take_only_what_is_asked(&self, spec: &mut EventSpec) {
        if !self.wants_stacks() || spec.attr.precise_ip() != 0 {
            return;
        }
        if !self.has_part(Key::Kstack) {
            spec.attr.flags |= AttrFlags::EXCLUDE_CALLCHAIN_KERNEL;
        }
        if !self.has_part(Key::Ustack) {
            spec.attr.flags |= AttrFlags::EXCLUDE_CALLCHAIN_USER;
        }
    }

    /// The keys as they are written.
    pub fn keys(&self) -> Vec<String> {
        let label = self.options.label.as_ref().map_or("", |given| given.name.as_str());
        let written = |key: &Key| if *key == Key::Label { format!("label:{label}") } else { key.to_string() };
        self.options.keys.iter().map(written).collect()
    }

    pub(crate) fn has(&self, key: Key) -> bool {
        self.options.keys.contains(&key)
    }

    /// Whether the part of the stack is in a key.
    pub(crate) fn has_part(&self, part: Key) -> bool {
        self.has(part) || self.has(Key::Stack)
    }
}
