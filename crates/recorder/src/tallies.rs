//! From the books, the programs' counters and the kernel's own count of losses to the tally.

use afterimage_handler::Counters;
use afterimage_perf_data::tally::{EventTally, Flow, MapFlow, MapLost, RecordingTally, Tally, ThrottleTally};

use crate::book::Row;
use crate::session::Session;

/// What the kernel counted as lost, by event and CPU: the sum over the tasks that were sampled there.
#[derive(Clone, Debug, Default)]
pub(crate) struct KernelLost {
    rows: Vec<(usize, u32, u64)>,
}

impl KernelLost {
    /// Reads every sampling event. Final once they are disabled.
    pub(crate) fn read(session: &Session) -> KernelLost {
        let rows = session.sampling.events.iter().filter_map(|event| {
            let lost = event.read().ok()?.lost?;
            Some((event.spec, u32::try_from(event.cpu).ok()?, lost))
        });
        KernelLost { rows: rows.collect() }
    }

    /// `None` where the kernel does not count (before Linux 6.0).
    fn of(&self, event: usize, cpu: u32) -> Option<u64> {
        let mut found = self.rows.iter().filter(|(e, c, _)| (*e, *c) == (event, cpu)).peekable();
        found.peek()?;
        Some(found.map(|(_, _, lost)| lost).sum())
    }
}

/// The tally to the last pass, while sampling goes on: what is still in the rings is in no line of it.
pub(crate) fn so_far(session: &Session) -> RecordingTally {
    build(session, false, |row, _, _| row.lost_records)
}

/// The tally of a recording that has ended, and what in it does not add up.
pub(crate) fn complete(session: &Session, lost: &KernelLost) -> (RecordingTally, Vec<String>) {
    let tally = build(session, true, |row, event, cpu| lost.of(event, cpu).unwrap_or(row.lost_records));
    let mut problems: Vec<String> = tally.events.iter().filter_map(|event| event.check().err()).collect();
    problems.extend(tally.off_cpu.as_ref().and_then(|off_cpu| off_cpu.check().err()));
    for (index, event) in tally.events.iter().enumerate() {
        for (cpu, row) in &event.per_cpu {
            if let Some(lost) = lost.of(index, *cpu).filter(|lost| *lost < row.ring.lost) {
                let (name, missing) = (&event.name, row.ring.lost);
                problems
                    .push(format!("{name}, CPU {cpu}: {missing} samples did not arrive, the kernel lost only {lost}"));
            }
        }
    }
    let problems = problems.into_iter().map(|p| format!("the tally does not add up: {p}")).collect();
    (tally, problems)
}

fn build(session: &Session, complete: bool, lost: impl Fn(&Row, usize, u32) -> u64) -> RecordingTally {
    let events = session.sampling.specs.iter().enumerate().map(|(event, spec)| {
        let rows = session.cpus.iter().map(|&cpu| {
            let row = session.book.row(event, cpu);
            let lost = lost(&row, event, cpu);
            let stub = session.stubs.get(event).copied().flatten();
            let tally = match session.handlers.as_ref().zip(stub) {
                Some((handlers, stub)) => {
                    let progress = match (complete, session.changes) {
                        (true, _) => Progress::Complete,
                        (false, 0) if session.objects.is_empty() => Progress::OneWay,
                        (false, _) => Progress::SeveralWays,
                    };
                    let mut counters = handlers.counters(stub, cpu);
                    if session.some_without_program {
                        admit(&mut counters, &row);
                    }
                    let mut tally = with_program(&row, lost, &counters, progress);
                    if complete {
                        audited(&mut tally, session.overflows(event, cpu));
                    }
                    tally
                }
                None => without_program(&row, lost),
            };
            (cpu, tally)
        });
        let mut tally = EventTally::new(spec.name.clone(), rows.collect());
        tally.audit = session.first_seconds.filter(|(of, _)| *of == event).map(|(_, audit)| audit);
        tally
    });
    let off_cpu = session.off_cpu.as_ref().map(|waiting| waiting.tally(complete));
    RecordingTally { events: events.collect(), complete, off_cpu }
}

fn throttle(row: &Row) -> ThrottleTally {
    ThrottleTally { episodes: row.throttles, ns: row.throttled_ns }
}

/// What the control event saw beyond the program is what the kernel skipped. Two timers may differ by an overflow or two; that
/// the program ran at all is beyond doubt.
fn audited(tally: &mut Tally, control: Option<u64>) {
    if let (Some(control), Some(handled)) = (control, tally.handled) {
        let overflows = control.max(handled);
        tally.overflows = Some(overflows);
        tally.busy = Some(overflows - handled);
    }
}

/// Without a program only the ring is known.
fn without_program(row: &Row, lost: u64) -> Tally {
    Tally {
        chained: row.delivered + lost,
        ring: Flow::new(row.delivered, lost),
        throttle: throttle(row),
        ..Tally::default()
    }
}

/// Samples of tasks that have no program went the way that `none` sends them: they were handled by nobody and arrived.
fn admit(counters: &mut Counters, row: &Row) {
    let past = row.delivered.saturating_sub(counters.chained);
    counters.handled += past;
    counters.passed += past;
    counters.chained += past;
}

/// How far a recording is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Complete,
    /// Sampling goes on, and what passes goes the same ways: one built-in handler has been in force.
    OneWay,
    /// Sampling goes on, and some samples went one way and some another: handlers followed each other, or one of an object's
    /// decides for each sample.
    SeveralWays,
}

/// With a program its counters say what should have arrived; what did not is lost.
///
/// While sampling goes on, samples that the program has seen may still be in the ring: then what arrived and what LOST
/// records said is all that can be claimed of the outputs.
fn with_program(row: &Row, kernel_lost: u64, c: &Counters, progress: Progress) -> Tally {
    let complete = progress == Progress::Complete;
    let table_lost = c.lost_full + c.lost_collision;
    let (chained, emitted, counted) = if complete {
        (c.chained, c.emitted, c.stored + table_lost)
    } else {
        (row.delivered + kernel_lost, row.handler_delivered + c.emit_lost, row.stored + table_lost)
    };
    let ring_lost = chained.saturating_sub(row.delivered);
    // What is still in a ring has been handled and is in no output yet: it belongs to the next pass.
    let passed = match progress {
        Progress::Complete => c.passed,
        // Each sample that passed went the same ways.
        Progress::OneWay => c.passed.min(chained.max(emitted).max(counted)),
        Progress::SeveralWays => c.passed.min(chained.saturating_add(emitted).saturating_add(counted)),
    };
    Tally {
        handled: Some(if complete { c.handled } else { c.filtered + c.dropped + passed }),
        filtered: Some(c.filtered),
        dropped: Some(c.dropped),
        passed: Some(passed),
        chained,
        emitted,
        counted,
        ring: Flow::new(row.delivered, ring_lost),
        handler_ring: Flow::new(row.handler_delivered, c.emit_lost),
        map: MapFlow {
            stored: row.stored,
            lost: MapLost { full: c.lost_full, collision: c.lost_collision, ..MapLost::default() },
        },
        stack_failed: c.stack_failed,
        nonsample_lost: kernel_lost.saturating_sub(ring_lost),
        throttle: throttle(row),
        ..Tally::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters() -> Counters {
        Counters { handled: 100, filtered: 10, dropped: 5, passed: 85, chained: 85, ..Counters::default() }
    }

    #[test]
    fn what_did_not_arrive_is_lost() {
        let row = Row { delivered: 80, ..Row::default() };
        let tally = with_program(&row, 6, &counters(), Progress::Complete);
        assert_eq!((tally.ring.lost, tally.nonsample_lost), (5, 1));
        assert_eq!(tally.check(), Ok(()));
    }

    #[test]
    fn too_many_delivered_does_not_add_up() {
        let row = Row { delivered: 86, ..Row::default() };
        assert!(with_program(&row, 0, &counters(), Progress::Complete).check().is_err());
    }

    #[test]
    fn samples_past_the_program_are_admitted_where_that_can_be() {
        let row = Row { delivered: 90, ..Row::default() };
        let mut counters = counters();
        admit(&mut counters, &row);
        let tally = with_program(&row, 0, &counters, Progress::Complete);
        assert_eq!((tally.handled, tally.chained, tally.ring.lost), (Some(105), 90, 0));
        assert_eq!(tally.check(), Ok(()));
    }

    #[test]
    fn in_flight_is_not_lost() {
        let row = Row { delivered: 70, lost_records: 2, ..Row::default() };
        let tally = with_program(&row, 2, &counters(), Progress::OneWay);
        assert_eq!((tally.ring.lost, tally.chained, tally.passed), (2, 72, Some(72)));
        assert_eq!(tally.check(), Ok(()));
    }

    #[test]
    fn handlers_one_after_the_other_share_the_samples() {
        let row = Row { delivered: 50, stored: 30, ..Row::default() };
        let counters =
            Counters { handled: 95, filtered: 10, dropped: 5, passed: 80, stored: 30, ..Counters::default() };
        let tally = with_program(&row, 0, &counters, Progress::SeveralWays);
        assert_eq!((tally.passed, tally.handled), (Some(80), Some(95)));
        assert_eq!(tally.check(), Ok(()));
    }

    #[test]
    fn an_audit_never_knows_less_than_the_program() {
        let tally = |control| {
            let mut tally = with_program(&Row { delivered: 85, ..Row::default() }, 0, &counters(), Progress::Complete);
            audited(&mut tally, control);
            assert_eq!(tally.check(), Ok(()));
            (tally.overflows, tally.busy)
        };
        assert_eq!(tally(Some(130)), (Some(130), Some(30)));
        assert_eq!(tally(Some(99)), (Some(100), Some(0)));
        assert_eq!(tally(None), (None, None));
    }

    #[test]
    fn without_a_program_only_the_ring_is_known() {
        let tally = without_program(&Row { delivered: 7, ..Row::default() }, 3);
        assert_eq!((tally.handled, tally.chained, tally.ring.lost), (None, 10, 3));
        assert_eq!(tally.check(), Ok(()));
    }
}
