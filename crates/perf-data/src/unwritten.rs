//! The tally of a recording that was not finished, held against the samples that are in it.
//!
//! Within a pass the journal is written before the records. A recorder that was killed in between, or whose disk was
//! full, leaves a tally that knows of samples which the file does not hold: they count as lost.

use std::collections::HashMap;

use crate::off_cpu::Waits;
use crate::record::{Record, kind};
use crate::tally::MapLost;
use crate::{CountedSamples, EventTally, FileReader, Private, RawRecord};

/// How many samples of an event in the file there are on each CPU: ordinary ones, and those that entries of a count table
/// stand for.
type Written = HashMap<(usize, u32), [u64; 2]>;

/// Where the handlers of an event left their output.
#[derive(Default)]
struct Outputs {
    /// Records of a handler ring.
    ring: Option<usize>,
    /// Entries of a count table.
    entries: Option<usize>,
}

impl Outputs {
    fn of(private: &Private, event: usize) -> Outputs {
        let mut outputs = Outputs::default();
        for handler in private.handlers.iter().filter(|handler| handler.event == event) {
            // A program of an object may be called like a built-in handler.
            match (handler.name.as_str(), handler.output_event) {
                (_, output) if !handler.is_built_in() => outputs.ring = output.or(outputs.ring),
                ("count", output) => outputs.entries = Some(output.unwrap_or(event)),
                ("none", _) | (_, None) => (),
                (_, output) => outputs.ring = output,
            }
        }
        outputs
    }
}

/// Moves what the file does not hold from delivered to lost.
pub(crate) fn settle(private: &mut Private, file: &FileReader<'_>) {
    let Some(mut tally) = private.tally.take() else { return };
    let off_cpu = tally.off_cpu.as_ref().map(|off_cpu| off_cpu.event);
    let (written, waits) = count(private, off_cpu, file);
    tally.off_cpu.iter_mut().for_each(|off_cpu| off_cpu.keep(waits));
    for (event, tally) in tally.events.iter_mut().enumerate() {
        let outputs = Outputs::of(private, event);
        for (cpu, tally) in &mut tally.per_cpu {
            let of = |event: usize| written.get(&(event, *cpu)).copied().unwrap_or_default();
            if let Some(output) = outputs.entries {
                let stored = tally.map.stored.min(of(output)[1]);
                let missing = tally.map.stored - stored;
                tally.map.stored = stored;
                if missing > 0 {
                    let lost = tally.map.lost.other.entry(MapLost::UNWRITTEN.to_owned()).or_default();
                    *lost = lost.saturating_add(missing);
                }
            }
            if let Some(output) = outputs.ring {
                tally.handler_ring.keep(of(output)[0]);
            }
            tally.ring.keep(of(event)[0]);
        }
        let audit = tally.audit.take();
        let settled = EventTally::new(std::mem::take(&mut tally.name), std::mem::take(&mut tally.per_cpu));
        *tally = EventTally { audit, ..settled };
    }
    private.tally = Some(tally);
}

/// And what the samples of `off_cpu`, the event of time off CPU, stand for.
fn count(private: &Private, off_cpu: Option<usize>, file: &FileReader<'_>) -> (Written, Waits) {
    let entries_of = |event: usize| {
        let mut counts = private.handlers.iter().filter(|handler| handler.is_built_in() && handler.name == "count");
        counts.any(|handler| handler.output_event.unwrap_or(handler.event) == event)
    };
    let holds_entries: Vec<bool> = (0..file.events().len()).map(entries_of).collect();
    let ids: Vec<Option<u64>> = (0..file.events().len()).map(|event| private.entries_id(event)).collect();
    let mut counted = CountedSamples::new(private);
    if !counted.is_empty() {
        let fits = |raw: crate::Result<RawRecord<'_>>| {
            raw.is_ok_and(|raw| raw.header.kind != kind::SAMPLE || counted.note(file, &raw))
        };
        if !file.records().all(fits) {
            counted.settle(file);
        }
    }
    let (mut written, mut waits) = (Written::new(), Waits::default());
    // What is damaged is in the file for no reader.
    for raw in file.records().filter_map(Result::ok).filter(|raw| raw.header.kind == kind::SAMPLE) {
        let Some(event) = file.event_for(&raw) else { continue };
        let own_id = ids.get(event).copied().flatten();
        let is_entry = holds_entries.get(event) == Some(&true) && own_id.is_none_or(|id| file.id_of(&raw) == Some(id));
        // What damage made unknown is one at least.
        let is_wait = off_cpu == Some(event);
        let stands_for = if is_entry || is_wait { counted.count(event, raw.offset).unwrap_or(1) } else { 1 };
        if let Ok(Record::Sample(sample)) = file.decode(&raw) {
            let there = written.entry((event, sample.cpu.unwrap_or(0))).or_default();
            let there = &mut there[usize::from(is_entry)];
            *there = there.saturating_add(stands_for);
            if is_wait {
                waits.add(Waits { waits: stands_for, ns: sample.period.unwrap_or(0) });
            }
        }
    }
    (written, waits)
}
