//! The tally: what became of every overflow. The equations hold per event and CPU, and for every sum of them.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::OffCpuTally;

/// What reached an output, and what did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Flow {
    /// Arrived.
    pub delivered: u64,
    /// Found no room, or were not written.
    pub lost: u64,
    /// Of those lost, the ones that were read and are not in the recording: its recorder was killed, or the disk was
    /// full.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unwritten: u64,
}

impl Flow {
    /// What arrived and what did not, with all that arrived in the recording.
    pub fn new(delivered: u64, lost: u64) -> Flow {
        Flow { delivered, lost, unwritten: 0 }
    }

    /// Counts all but `written` of what was delivered as lost.
    pub(crate) fn keep(&mut self, written: u64) {
        let missing = self.delivered.saturating_sub(written);
        self.delivered -= missing;
        self.lost = self.lost.saturating_add(missing);
        self.unwritten = self.unwritten.saturating_add(missing);
    }

    fn add(&mut self, other: Flow) {
        self.delivered = self.delivered.saturating_add(other.delivered);
        self.lost = self.lost.saturating_add(other.lost);
        self.unwritten = self.unwritten.saturating_add(other.unwritten);
    }

    fn causes(&self, full: &'static str) -> Vec<(&'static str, u64)> {
        vec![(full, self.lost.saturating_sub(self.unwritten)), ("not written", self.unwritten)]
    }
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// Why a count table could not store a sample.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MapLost {
    /// No place was left for another key.
    pub full: u64,
    /// Another key with the same hash stood there.
    pub collision: u64,
    /// Causes that came later, by name.
    #[serde(flatten)]
    pub other: BTreeMap<String, u64>,
}

impl MapLost {
    /// The cause of [`Flow::unwritten`] among the others.
    pub const UNWRITTEN: &'static str = "unwritten";

    /// All causes together.
    pub fn total(&self) -> u64 {
        self.other.values().fold(self.full.saturating_add(self.collision), |a, b| a.saturating_add(*b))
    }
}

/// What reached the count table, and what did not.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MapFlow {
    /// Counted in an entry.
    pub stored: u64,
    /// Not counted, by cause.
    pub lost: MapLost,
}

/// How often the kernel held an event back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ThrottleTally {
    /// How many times.
    pub episodes: u64,
    /// For how long in all, ns.
    pub ns: u64,
}

/// What became of the overflows of one event on one CPU, or of a sum of such. `None` is what could not be known.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tally {
    /// Overflows that happened; known only by an audit.
    pub overflows: Option<u64>,
    /// Overflows that the kernel skipped because a BPF program or map call was under way.
    pub busy: Option<u64>,
    /// Overflows that ran the program.
    pub handled: Option<u64>,
    /// Of them, those that the gate turned away.
    pub filtered: Option<u64>,
    /// Those that the handler dropped.
    pub dropped: Option<u64>,
    /// Those that went on to at least one output.
    pub passed: Option<u64>,
    /// Samples handed to the sampling ring.
    pub chained: u64,
    /// Records handed to the handler ring; a sample may make several.
    pub emitted: u64,
    /// Samples handed to the count table.
    pub counted: u64,
    /// The sampling ring.
    pub ring: Flow,
    /// The handler ring.
    pub handler_ring: Flow,
    /// The count table.
    pub map: MapFlow,
    /// Samples whose stack could not be had.
    pub stack_failed: u64,
    /// Lost records that were no samples.
    pub nonsample_lost: u64,
    /// How often the kernel held the event back.
    pub throttle: ThrottleTally,
}

impl Tally {
    /// The sum of some tallies; what one of them does not know, the sum does not know.
    pub fn sum<'a>(tallies: impl IntoIterator<Item = &'a Tally>) -> Tally {
        let mut tallies = tallies.into_iter();
        let mut sum = tallies.next().cloned().unwrap_or_default();
        tallies.for_each(|t| sum.add(t));
        sum
    }

    /// Adds another tally. To sum from nothing, use [`Tally::sum`]: the default knows nothing of six of its lines.
    pub fn add(&mut self, other: &Tally) {
        fn maybe(a: &mut Option<u64>, b: Option<u64>) {
            *a = a.zip(b).map(|(a, b)| a.saturating_add(b));
        }
        fn sum(a: &mut u64, b: u64) {
            *a = a.saturating_add(b);
        }
        maybe(&mut self.overflows, other.overflows);
        maybe(&mut self.busy, other.busy);
        maybe(&mut self.handled, other.handled);
        maybe(&mut self.filtered, other.filtered);
        maybe(&mut self.dropped, other.dropped);
        maybe(&mut self.passed, other.passed);
        sum(&mut self.chained, other.chained);
        sum(&mut self.emitted, other.emitted);
        sum(&mut self.counted, other.counted);
        self.ring.add(other.ring);
        self.handler_ring.add(other.handler_ring);
        sum(&mut self.map.stored, other.map.stored);
        sum(&mut self.map.lost.full, other.map.lost.full);
        sum(&mut self.map.lost.collision, other.map.lost.collision);
        for (cause, n) in &other.map.lost.other {
            sum(self.map.lost.other.entry(cause.clone()).or_default(), *n);
        }
        sum(&mut self.stack_failed, other.stack_failed);
        sum(&mut self.nonsample_lost, other.nonsample_lost);
        sum(&mut self.throttle.episodes, other.throttle.episodes);
        sum(&mut self.throttle.ns, other.throttle.ns);
    }

    /// Checks every equation that has no unknown in it.
    ///
    /// # Errors
    /// The first equation that does not hold, with both sides.
    pub fn check(&self) -> Result<(), String> {
        fn all<const N: usize>(parts: [Option<u64>; N]) -> Option<u64> {
            parts.into_iter().try_fold(0_u64, |a, b| Some(a.saturating_add(b?)))
        }
        let lines = [
            ("overflows = handled + busy", self.overflows, all([self.handled, self.busy])),
            ("handled = filtered + dropped + passed", self.handled, all([self.filtered, self.dropped, self.passed])),
            (
                "chained = ring.delivered + ring.lost",
                Some(self.chained),
                all([Some(self.ring.delivered), Some(self.ring.lost)]),
            ),
            (
                "emitted = handler_ring.delivered + handler_ring.lost",
                Some(self.emitted),
                all([Some(self.handler_ring.delivered), Some(self.handler_ring.lost)]),
            ),
            (
                "counted = map.stored + map.lost",
                Some(self.counted),
                all([Some(self.map.stored), Some(self.map.lost.total())]),
            ),
        ];
        for (equation, left, right) in lines {
            if let (Some(left), Some(right)) = (left, right) {
                if left != right {
                    return Err(format!("{equation}: {left} is not {right}"));
                }
            }
        }
        Ok(())
    }

    /// One line for people: `12,034 samples: 11,980 kept, 40 filtered, 14 lost (ring full)`.
    ///
    /// Where samples went to more than one output, how many of them were kept is not known, so each output's loss is
    /// told apart.
    pub fn human(&self) -> String {
        let total = self.overflows.or(self.handled).unwrap_or(self.chained);
        let passed = self.passed.unwrap_or(self.chained);
        let outputs = self.outputs();
        let mut line = format!("{} {}: ", number(total), if total == 1 { "sample" } else { "samples" });
        let one = match outputs.as_slice() {
            [] => true,
            [only] => only.given == passed,
            _ => false,
        };
        let lost = if one { outputs.iter().map(Output::lost).fold(0, u64::saturating_add) } else { 0 };
        let _ = write!(line, "{} {}", number(passed.saturating_sub(lost)), if one { "kept" } else { "passed" });
        let mut more = |n: u64, what: &str| {
            if n > 0 {
                let _ = write!(line, ", {} {what}", number(n));
            }
        };
        more(self.filtered.unwrap_or(0), "filtered");
        more(self.dropped.unwrap_or(0), "dropped by the handler");
        more(self.busy.unwrap_or(0), "skipped by the kernel (BPF busy)");
        for output in &outputs {
            for (cause, n) in output.causes.iter().filter(|(_, n)| *n > 0) {
                if one {
                    more(*n, &format!("lost ({cause})"));
                } else {
                    more(*n, &format!("of {} {} lost ({cause})", number(output.given), output.what));
                }
            }
        }
        more(self.stack_failed, "without a stack");
        if self.throttle.episodes > 0 {
            let times = if self.throttle.episodes == 1 { "time" } else { "times" };
            let ms = self.throttle.ns / 1_000_000;
            let _ = write!(line, "; throttled {} {times} ({} ms)", number(self.throttle.episodes), number(ms));
        }
        line
    }

    /// The outputs in use.
    fn outputs(&self) -> Vec<Output<'_>> {
        let mut table = vec![("table full", self.map.lost.full), ("table collision", self.map.lost.collision)];
        table.extend(self.map.lost.other.iter().map(|(cause, n)| match cause.as_str() {
            MapLost::UNWRITTEN => ("not written", *n),
            cause => (cause, *n),
        }));
        let all = [
            Output { what: "chained samples", given: self.chained, causes: self.ring.causes("ring full") },
            Output {
                what: "handler records",
                given: self.emitted,
                causes: self.handler_ring.causes("handler ring full"),
            },
            Output { what: "counted samples", given: self.counted, causes: table },
        ];
        all.into_iter().filter(|o| o.given > 0 || o.lost() > 0).collect()
    }
}

struct Output<'a> {
    what: &'static str,
    given: u64,
    causes: Vec<(&'a str, u64)>,
}

impl Output<'_> {
    fn lost(&self) -> u64 {
        self.causes.iter().fold(0, |a, (_, n)| a.saturating_add(*n))
    }
}

/// Digits in groups of three.
pub(crate) fn number(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// An audit that covered only the first seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Audit {
    /// How long it ran, ns.
    pub ns: u64,
    /// Overflows of the control event.
    pub control: u64,
    /// Overflows that ran the program in that time.
    pub handled: u64,
}

/// The tally of one event.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EventTally {
    /// The event's name.
    pub name: String,
    /// CPU number and what became of its overflows there.
    pub per_cpu: Vec<(u32, Tally)>,
    /// The sum over the CPUs.
    pub sum: Tally,
    /// An audit of the first seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit: Option<Audit>,
}

impl EventTally {
    /// A tally whose sum is worked out.
    pub fn new(name: impl Into<String>, per_cpu: Vec<(u32, Tally)>) -> Self {
        let sum = Tally::sum(per_cpu.iter().map(|(_, t)| t));
        Self { name: name.into(), per_cpu, sum, audit: None }
    }

    /// Checks the equations on every CPU, those of the sum, and that it is the sum.
    ///
    /// # Errors
    /// What does not hold, and where.
    pub fn check(&self) -> Result<(), String> {
        for (cpu, tally) in &self.per_cpu {
            tally.check().map_err(|e| format!("{}, CPU {cpu}: {e}", self.name))?;
        }
        self.sum.check().map_err(|e| format!("{}, all CPUs: {e}", self.name))?;
        if !self.per_cpu.is_empty() && Tally::sum(self.per_cpu.iter().map(|(_, t)| t)) != self.sum {
            return Err(format!("{}: the CPUs do not add up to the sum", self.name));
        }
        Ok(())
    }
}

/// The tally of a recording, as its private section holds it.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RecordingTally {
    /// The sampling events.
    pub events: Vec<EventTally>,
    /// Whether it covers the whole recording; not so in a journal's.
    pub complete: bool,
    /// Of a recording of time off CPU: what became of every interval. Never added to the events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub off_cpu: Option<OffCpuTally>,
}

impl RecordingTally {
    /// All sampling events together.
    pub fn total(&self) -> Tally {
        Tally::sum(self.events.iter().map(|e| &e.sum))
    }

    /// Checks every event's tally.
    ///
    /// # Errors
    /// What does not hold, and where.
    pub fn check(&self) -> Result<(), String> {
        self.events.iter().try_for_each(EventTally::check)?;
        self.off_cpu.as_ref().map_or(Ok(()), OffCpuTally::check)
    }
}
