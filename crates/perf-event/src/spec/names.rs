//! The fixed names of software, hardware and cache events (uapi/linux/perf_event.h).

/// Names of software events and their config; the first name of a config is the common one.
const SOFTWARE: [(&str, u64); 15] = [
    ("cpu-clock", 0),
    ("task-clock", 1),
    ("page-faults", 2),
    ("faults", 2),
    ("context-switches", 3),
    ("cs", 3),
    ("cpu-migrations", 4),
    ("migrations", 4),
    ("minor-faults", 5),
    ("major-faults", 6),
    ("alignment-faults", 7),
    ("emulation-faults", 8),
    ("dummy", 9),
    ("bpf-output", 10),
    ("cgroup-switches", 11),
];

/// Names of generalized hardware events and their config.
const HARDWARE: [(&str, u64); 14] = [
    ("cycles", 0),
    ("cpu-cycles", 0),
    ("instructions", 1),
    ("cache-references", 2),
    ("cache-misses", 3),
    ("branches", 4),
    ("branch-instructions", 4),
    ("branch-misses", 5),
    ("bus-cycles", 6),
    ("stalled-cycles-frontend", 7),
    ("idle-cycles-frontend", 7),
    ("stalled-cycles-backend", 8),
    ("idle-cycles-backend", 8),
    ("ref-cycles", 9),
];

/// Caches: their names, and whether they know reads, writes and prefetches.
const CACHES: [(&[&str], [bool; 3]); 7] = [
    (&["L1-dcache", "l1-d", "l1d", "L1-data"], [true, true, true]),
    (&["L1-icache", "l1-i", "l1i", "L1-instruction"], [true, false, true]),
    (&["LLC", "L2"], [true, true, true]),
    (&["dTLB", "d-tlb", "Data-TLB"], [true, true, true]),
    (&["iTLB", "i-tlb", "Instruction-TLB"], [true, false, false]),
    (&["branch", "branches", "bpu", "btb", "bpc"], [true, false, false]),
    (&["node"], [true, true, true]),
];

/// Names of operations, in the order of their numbers.
const OPERATIONS: [&[&str]; 3] = [
    &["load", "loads", "read"],
    &["store", "stores", "write"],
    &["prefetch", "prefetches", "speculative-read", "speculative-load"],
];

/// Names of results, in the order of their numbers.
const RESULTS: [&[&str]; 2] = [&["refs", "Reference", "ops", "access"], &["misses", "miss"]];

/// Every name of a software event.
pub fn software_events() -> impl Iterator<Item = &'static str> {
    SOFTWARE.iter().map(|(name, _)| *name)
}

/// Every name of a hardware event, those of caches in their common form.
pub fn hardware_events() -> Vec<String> {
    let mut all: Vec<String> = HARDWARE.iter().map(|(name, _)| (*name).to_owned()).collect();
    for (names, knows) in CACHES {
        for (operation, words) in OPERATIONS.iter().enumerate().filter(|(i, _)| knows[*i]) {
            let plural = ["loads", "stores", "prefetches"][operation];
            all.push(format!("{}-{plural}", names[0]));
            all.push(format!("{}-{}-misses", names[0], words[0]));
        }
    }
    all
}

pub(super) fn software(name: &str) -> Option<u64> {
    SOFTWARE.iter().find(|(known, _)| *known == name).map(|(_, config)| *config)
}

pub(super) fn hardware(name: &str) -> Option<u64> {
    HARDWARE.iter().find(|(known, _)| *known == name).map(|(_, config)| *config)
}

/// The config of a cache event: `CACHE[-OPERATION][-RESULT]` in any case, a load and an access where left out.
pub(super) fn cache(name: &str) -> Option<u64> {
    for (cache, (names, knows)) in CACHES.iter().enumerate() {
        for rest in names.iter().filter_map(|known| after(name, known)) {
            if let Some((operation, result)) = cache_rest(rest) {
                return knows[operation].then_some((cache | operation << 8 | result << 16) as u64);
            }
        }
    }
    None
}

/// What follows `known` at the start of `name`.
fn after<'a>(name: &'a str, known: &str) -> Option<&'a str> {
    let (head, rest) = (name.get(..known.len())?, name.get(known.len()..)?);
    (head.eq_ignore_ascii_case(known) && (rest.is_empty() || rest.starts_with('-'))).then_some(rest)
}

fn cache_rest(rest: &str) -> Option<(usize, usize)> {
    let position = |table: &[&[&str]], word: &str| {
        table.iter().position(|names| names.iter().any(|known| known.eq_ignore_ascii_case(word)))
    };
    let Some(rest) = rest.strip_prefix('-') else { return Some((0, 0)) };
    if let Some(operation) = position(&OPERATIONS, rest) {
        return Some((operation, 0));
    }
    if let Some(result) = position(&RESULTS, rest) {
        return Some((0, result));
    }
    let (first, last) = rest.rsplit_once('-')?;
    Some((position(&OPERATIONS, first)?, position(&RESULTS, last)?))
}
