//! Time off CPU: what became of every interval in which a thread was on no CPU, and in what the weight of an event is counted.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::{EventDesc, Private};

/// Intervals, and how long they were together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Waits {
    /// How many.
    pub waits: u64,
    /// ns.
    pub ns: u64,
}

impl Waits {
    /// Adds others. Sums saturate.
    pub fn add(&mut self, other: Waits) {
        self.waits = self.waits.saturating_add(other.waits);
        self.ns = self.ns.saturating_add(other.ns);
    }

    fn is_zero(&self) -> bool {
        *self == Waits::default()
    }
}

/// Intervals that are in no sample, by cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct OffCpuLost {
    /// No place was left for another stack.
    pub full: Waits,
    /// Another one with the same hash stood there.
    pub collision: Waits,
    /// There was no room for the thread: nobody knows how long it waited.
    pub threads: u64,
    /// They are not in the recording: its recorder was killed, or the disk was full.
    #[serde(default, skip_serializing_if = "Waits::is_zero")]
    pub unwritten: Waits,
}

/// What became of every interval in which a thread was on no CPU.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct OffCpuTally {
    /// Index of the event in the file whose samples they are.
    pub event: usize,
    /// Its name.
    pub name: String,
    /// Shorter ones are in no sample, ns.
    pub min_ns: u64,
    /// All of them; of those whose thread found no room only the number is known.
    pub total: Waits,
    /// Those in samples.
    pub delivered: Waits,
    /// Those shorter than was wanted.
    pub below_min: Waits,
    /// Those in none of them.
    pub lost: OffCpuLost,
    /// Of those delivered, the ones that had begun before the recording. Their time is counted from its beginning.
    pub cut_at_start: Waits,
    /// Of those delivered, the ones that had not ended with the recording. Their time is counted up to its end.
    pub cut_at_end: Waits,
    /// Of those delivered, how many have no stack.
    pub no_stack: u64,
    /// Who ended the waits that are delivered, where that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wakers: Option<WakersTally>,
}

/// What became of those who ended waits.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WakersTally {
    /// Index of the event in the file whose samples they are.
    pub event: usize,
    /// Its name.
    pub name: String,
    /// Waits whose waker is in a sample.
    pub delivered: Waits,
    /// Waits whose waker found no room in the kernel's table.
    pub lost: Waits,
    /// Waits that nobody was seen to end: threads that could run, and those that wait at the end.
    pub by_nobody: Waits,
}

impl WakersTally {
    /// One line for people.
    pub fn human(&self) -> String {
        let of = |waits: Waits| format!("{} ({})", grouped(waits.waits), duration(waits.ns));
        let mut line = format!("who ended {} waits", of(self.delivered));
        for (waits, what) in [(self.lost, "lost: table full"), (self.by_nobody, "ended by nobody who was seen")] {
            if waits.waits > 0 {
                let _ = write!(line, ", {} {what}", of(waits));
            }
        }
        line
    }
}

impl OffCpuTally {
    /// Everything but what is delivered.
    fn rest(&self) -> Waits {
        let mut rest = self.below_min;
        rest.add(self.lost.full);
        rest.add(self.lost.collision);
        rest.add(self.lost.unwritten);
        rest.add(Waits { waits: self.lost.threads, ns: 0 });
        rest
    }

    /// The same with a total that is what its parts come to: what is on its way belongs to the next pass.
    pub fn of_parts(self) -> OffCpuTally {
        let mut total = self.rest();
        total.add(self.delivered);
        OffCpuTally { total, ..self }
    }

    /// The events in the file whose samples are times off CPU: that of waits, and that of who ended them.
    pub fn events(&self) -> impl Iterator<Item = usize> {
        std::iter::once(self.event).chain(self.wakers.as_ref().map(|wakers| wakers.event))
    }

    /// Checks that number and time of all intervals are those of the parts.
    ///
    /// # Errors
    /// What does not hold, with both sides.
    pub fn check(&self) -> Result<(), String> {
        let mut parts = self.rest();
        parts.add(self.delivered);
        let name = &self.name;
        if parts.waits != self.total.waits {
            return Err(format!(
                "{name}: waits = delivered + below_min + lost: {} is not {}",
                self.total.waits, parts.waits
            ));
        }
        if parts.ns != self.total.ns {
            let (left, right) = (self.total.ns, parts.ns);
            return Err(format!("{name}: ns = delivered + below_min + lost: {left} is not {right}"));
        }
        let Some(wakers) = self.wakers.as_ref().filter(|_| self.lost.unwritten.is_zero()) else { return Ok(()) };
        let mut parts = wakers.delivered;
        parts.add(wakers.lost);
        parts.add(wakers.by_nobody);
        if parts != self.delivered {
            let (left, right, name) = (self.delivered, parts, &wakers.name);
            return Err(format!(
                "{name}: delivered waits = those of wakers, lost, and of nobody: {left:?} is not {right:?}"
            ));
        }
        Ok(())
    }

    /// Counts all but `written` of what was delivered as lost.
    pub(crate) fn keep(&mut self, written: Waits) {
        let missing = Waits {
            waits: self.delivered.waits.saturating_sub(written.waits),
            ns: self.delivered.ns.saturating_sub(written.ns),
        };
        self.delivered.waits -= missing.waits;
        self.delivered.ns -= missing.ns;
        self.lost.unwritten.add(missing);
    }

    /// One line for people: `1,234 waits, 5.6 s: 1,200 kept (5.5 s), 30 shorter than 1 ms (0.1 s), 4 lost (table full)`.
    pub fn human(&self) -> String {
        let mut line = format!(
            "{} {}, {}: {} kept ({})",
            grouped(self.total.waits),
            if self.total.waits == 1 { "wait" } else { "waits" },
            duration(self.total.ns),
            grouped(self.delivered.waits),
            duration(self.delivered.ns)
        );
        let mut more = |waits: Waits, what: &str| {
            if waits.waits > 0 {
                let time = if waits.ns > 0 { format!(" ({})", duration(waits.ns)) } else { String::new() };
                let _ = write!(line, ", {} {what}{time}", grouped(waits.waits));
            }
        };
        more(self.below_min, &format!("shorter than {}", duration(self.min_ns)));
        more(self.lost.full, "lost: table full");
        more(self.lost.collision, "lost: table collision");
        more(Waits { waits: self.lost.threads, ns: 0 }, "lost: no room for the thread, nobody knows how long");
        more(self.lost.unwritten, "lost: not written");
        more(self.cut_at_start, "of those kept begun before the recording");
        more(self.cut_at_end, "of those kept not ended with it");
        more(Waits { waits: self.no_stack, ns: 0 }, "without a stack");
        line
    }
}

/// A duration for people, with three or four digits that say something: `1.234 s`, `56.70 ms`, `890 ns`.
pub fn duration(ns: u64) -> String {
    let as_f64 = ns as f64;
    match ns {
        0..=999 => format!("{ns} ns"),
        1_000..=999_999 => format!("{:.2} us", as_f64 / 1e3),
        1_000_000..=999_999_999 => format!("{:.2} ms", as_f64 / 1e6),
        _ => format!("{:.3} s", as_f64 / 1e9),
    }
}

/// Digits in groups of three.
fn grouped(n: u64) -> String {
    crate::tally::number(n)
}

/// `PERF_TYPE_SOFTWARE`.
const SOFTWARE: u32 = 1;

/// In what the weights of an event's samples, their periods, are counted. Weights of different units are never added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
pub enum Unit {
    /// What the event counts: hits, cycles, bytes.
    #[default]
    Counts,
    /// Time.
    Nanoseconds,
}

impl Unit {
    /// The unit of an event of a recording, by its index.
    pub fn of(event: &EventDesc, index: usize, private: Option<&Private>) -> Unit {
        // PERF_COUNT_SW_CPU_CLOCK, PERF_COUNT_SW_TASK_CLOCK.
        let is_clock = event.attr.kind == SOFTWARE && event.attr.config <= 1;
        match is_clock || Unit::is_off_cpu(event, index, private) {
            true => Unit::Nanoseconds,
            false => Unit::Counts,
        }
    }

    /// Whether the samples of an event are times in which threads were on no CPU.
    pub fn is_off_cpu(event: &EventDesc, index: usize, private: Option<&Private>) -> bool {
        // What perf's own `record --off-cpu` writes: a BPF_OUTPUT event of this name.
        let is_of_perf = (event.attr.kind, event.attr.config) == (SOFTWARE, 10) && event.name == "offcpu-time";
        let off_cpu = private.and_then(|private| private.tally.as_ref()?.off_cpu.as_ref());
        is_of_perf || off_cpu.is_some_and(|off_cpu| off_cpu.events().any(|event| event == index))
    }

    /// How it is written; `None` for counts.
    pub fn symbol(self) -> Option<&'static str> {
        match self {
            Unit::Counts => None,
            Unit::Nanoseconds => Some("ns"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(waits: u64, ns: u64) -> Waits {
        Waits { waits, ns }
    }

    fn tally() -> OffCpuTally {
        OffCpuTally {
            name: "off-cpu".into(),
            min_ns: 1_000_000,
            total: waits(20, 2_000_000_000),
            delivered: waits(10, 1_500_000_000),
            below_min: waits(5, 200_000_000),
            lost: OffCpuLost { full: waits(2, 300_000_000), threads: 3, ..OffCpuLost::default() },
            cut_at_end: waits(1, 70_000),
            ..OffCpuTally::default()
        }
    }

    #[test]
    fn parts_come_to_the_total() {
        assert_eq!(tally().check(), Ok(()));
        for wrong in [waits(21, 2_000_000_000), waits(20, 1_999_999_999)] {
            assert!(OffCpuTally { total: wrong, ..tally() }.check().is_err());
            assert_eq!(OffCpuTally { total: wrong, ..tally() }.of_parts(), tally());
        }
    }

    #[test]
    fn what_is_not_in_the_file_is_lost() {
        let mut tally = tally();
        tally.keep(waits(9, 1_400_000_000));
        assert_eq!((tally.delivered, tally.lost.unwritten), (waits(9, 1_400_000_000), waits(1, 100_000_000)));
        assert_eq!(tally.check(), Ok(()));
    }

    #[test]
    fn people_read_it() {
        assert_eq!(
            tally().human(),
            "20 waits, 2.000 s: 10 kept (1.500 s), 5 shorter than 1.00 ms (200.00 ms), 2 lost: table full (300.00 ms), \
             3 lost: no room for the thread, nobody knows how long, 1 of those kept not ended with it (70.00 us)"
        );
    }

    #[test]
    fn it_is_json_and_back() {
        let text = serde_json::to_string(&tally()).unwrap_or_default();
        assert!(text.contains("\"delivered\":{\"waits\":10,\"ns\":1500000000}"), "{text}");
        assert_eq!(serde_json::from_str::<OffCpuTally>(&text).ok(), Some(tally()));
    }
}
