//! The tally of a recording that was not finished, held against the samples that are in it.
//!
//! Within a pass the journal is written before the records. A recorder that was killed in between, or whose disk was
//! full, leaves a tally that knows of samples which the file does not hold: they count as lost.

use std::collections::HashMap;

use crate::record::{Record, kind};
use crate::tally::MapLost;
use crate::{EventTally, FileReader, Private};

/// How many samples of an event in the file there are on each CPU, each as many as it stands for.
type Written = HashMap<(usize, u32), u64>;

/// Moves what the file does not hold from delivered to lost.
pub(crate) fn settle(private: &mut Private, file: &FileReader<'_>) {
    let Some(mut tally) = private.tally.take() else { return };
    let written = count(private, file);
    for (event, tally) in tally.events.iter_mut().enumerate() {
        let of_event = || private.handlers_of(event);
        let table = of_event().find(|handler| handler.name == "count").map(|h| h.output_event.unwrap_or(event));
        let output = of_event().filter(|handler| handler.name != "count").find_map(|handler| handler.output_event);
        for (cpu, tally) in &mut tally.per_cpu {
            let of = |event: usize| written.get(&(event, *cpu)).copied().unwrap_or(0);
            if let Some(table) = table {
                let stored = tally.map.stored.min(of(table));
                let missing = tally.map.stored - stored;
                tally.map.stored = stored;
                if missing > 0 {
                    let lost = tally.map.lost.other.entry(MapLost::UNWRITTEN.to_owned()).or_default();
                    *lost = lost.saturating_add(missing);
                }
            }
            if let Some(output) = output {
                tally.handler_ring.keep(of(output));
            }
            if table != Some(event) {
                tally.ring.keep(of(event));
            }
        }
        let audit = tally.audit.take();
        let settled = EventTally::new(std::mem::take(&mut tally.name), std::mem::take(&mut tally.per_cpu));
        *tally = EventTally { audit, ..settled };
    }
    private.tally = Some(tally);
}

fn count(private: &Private, file: &FileReader<'_>) -> Written {
    let mut counts: HashMap<usize, std::slice::Iter<'_, u64>> =
        private.true_counts.iter().map(|of| (of.event, of.counts.iter())).collect();
    let mut written = Written::new();
    // An error of the records ends them, here as for every other reader.
    for raw in file.records().map_while(Result::ok).filter(|raw| raw.header.kind == kind::SAMPLE) {
        let Some(event) = file.event_for(&raw) else { continue };
        let stands_for = counts.get_mut(&event).and_then(Iterator::next).copied().unwrap_or(1);
        if let Ok(Record::Sample(sample)) = file.decode(&raw) {
            let there = written.entry((event, sample.cpu.unwrap_or(0))).or_default();
            *there = there.saturating_add(stands_for);
        }
    }
    written
}
