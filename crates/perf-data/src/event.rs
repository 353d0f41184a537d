//! Events as a recording describes them, and the names that perf gives them.

use crate::{Attr, AttrFlags};

/// One event of a recording: what was asked for, under which ids its records come, and how it is called.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct EventDesc {
    /// What was asked for.
    pub attr: Attr,
    /// The ids of the opened events, one a CPU or task.
    pub ids: Vec<u64>,
    /// The name as the user gave it, or one made from the attr.
    pub name: String,
}

impl EventDesc {
    /// An event named after its attr.
    pub fn named_by_attr(attr: Attr, ids: Vec<u64>) -> Self {
        let name = default_name(&attr);
        Self { attr, ids, name }
    }
}

const HARDWARE: [&str; 10] = [
    "cycles",
    "instructions",
    "cache-references",
    "cache-misses",
    "branches",
    "branch-misses",
    "bus-cycles",
    "stalled-cycles-frontend",
    "stalled-cycles-backend",
    "ref-cycles",
];

const SOFTWARE: [&str; 12] = [
    "cpu-clock",
    "task-clock",
    "page-faults",
    "context-switches",
    "cpu-migrations",
    "minor-faults",
    "major-faults",
    "alignment-faults",
    "emulation-faults",
    "dummy",
    "bpf-output",
    "cgroup-switches",
];

const CACHES: [&str; 7] = ["L1-dcache", "L1-icache", "LLC", "dTLB", "iTLB", "branch", "node"];
const CACHE_OPS: [(&str, &str); 3] =
    [("loads", "load-misses"), ("stores", "store-misses"), ("prefetches", "prefetch-misses")];

/// The name that perf gives an event which has none of its own, with its modifiers.
pub fn default_name(attr: &Attr) -> String {
    let mut name = bare_name(attr);
    let letters = modifiers(attr);
    if !letters.is_empty() {
        name.push(':');
        name.push_str(&letters);
    }
    name
}

/// The same as perf gives it when it has but the attr to go by: it tells then also whether host and guests were counted, if
/// that is not what its own option for such an event would have set (`evsel__add_modifiers`, tools/perf/util/evsel.c).
pub(crate) fn name_of_attr_alone(attr: &Attr) -> String {
    let has = |f| attr.flags.contains(f);
    let narrowed = [AttrFlags::EXCLUDE_KERNEL, AttrFlags::EXCLUDE_USER, AttrFlags::EXCLUDE_HV].into_iter().any(has)
        || attr.precise_ip() > 0;
    let mut letters = modifiers(attr);
    if has(AttrFlags::EXCLUDE_HOST) || has(AttrFlags::EXCLUDE_GUEST) == narrowed {
        let modes = [(AttrFlags::EXCLUDE_HOST, 'H'), (AttrFlags::EXCLUDE_GUEST, 'G')];
        letters.extend(modes.into_iter().filter(|(f, _)| !has(*f)).map(|(_, c)| c));
    }
    let name = bare_name(attr);
    if letters.is_empty() { name } else { format!("{name}:{letters}") }
}

fn bare_name(attr: &Attr) -> String {
    let config = attr.config as usize;
    let base = match attr.kind {
        0 => HARDWARE.get(config & 0xffff_ffff).map(|s| (*s).to_owned()),
        1 => SOFTWARE.get(config).map(|s| (*s).to_owned()),
        2 => Some(format!("tracepoint:{}", attr.config)),
        3 => cache_name(attr.config),
        5 => Some(breakpoint_name(attr)),
        _ => None,
    };
    base.unwrap_or_else(|| match attr.kind {
        4 => format!("raw 0x{:x}", attr.config),
        kind => format!("event {kind}/0x{:x}", attr.config),
    })
}

fn cache_name(config: u64) -> Option<String> {
    let part = |shift: u32| ((config >> shift) & 0xff) as usize;
    let (hit, miss) = CACHE_OPS.get(part(8))?;
    let what = match part(16) {
        0 => hit,
        1 => miss,
        _ => return None,
    };
    Some(format!("{}-{what}", CACHES.get(part(0))?))
}

fn breakpoint_name(attr: &Attr) -> String {
    let mut name = format!("mem:0x{:x}:", attr.config1);
    for (bit, letter) in [(1, 'r'), (2, 'w'), (4, 'x')] {
        if attr.bp_type & bit != 0 {
            name.push(letter);
        }
    }
    name
}

/// The modifiers as perf writes them: which modes are counted when not all are, then one `p` a level of precision.
fn modifiers(attr: &Attr) -> String {
    let excluded = |f| attr.flags.contains(f);
    let mut letters = String::new();
    let modes = [(AttrFlags::EXCLUDE_KERNEL, 'k'), (AttrFlags::EXCLUDE_USER, 'u'), (AttrFlags::EXCLUDE_HV, 'h')];
    if excluded(AttrFlags::EXCLUDE_KERNEL) || excluded(AttrFlags::EXCLUDE_USER) {
        letters.extend(modes.iter().filter(|(f, _)| !excluded(*f)).map(|(_, c)| *c));
    }
    letters.extend((0..attr.precise_ip()).map(|_| 'p'));
    letters
}
