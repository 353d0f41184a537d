//! Control events: of the kind of a sampling event, without a program, to see how many overflows never reached the program.
//!
//! While the kernel works for somebody's bpf(2) map call, or runs another program of a tracing kind, it skips the program of
//! an overflow that comes on the same CPU, and drops its sample, and counts that nowhere. An event without a program has
//! every overflow. Its samples carry nothing: they are counted and thrown away.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use afterimage_handler::Handlers;
use afterimage_perf_data::record::kind;
use afterimage_perf_data::tally::Audit as AuditTally;
use afterimage_perf_data::{AttrFlags, ReadFormat, SampleType};
use afterimage_perf_event::facts::Facts;
use afterimage_perf_event::open::{self, OpenError, Opened, Options, Target};
use afterimage_perf_event::spec::{EventClass, EventSpec};
use afterimage_perf_event::sys::Kernel;

/// Data pages of each control ring: samples of 8 bytes, some thousand of them between two passes. What finds no room is
/// counted by the kernel.
const PAGES: usize = 16;

/// The control events of a recording.
#[derive(Debug)]
pub(crate) struct Audit {
    controls: Vec<Control>,
    started: Option<Instant>,
}

/// The control events of one sampling event.
#[derive(Debug)]
struct Control {
    /// The sampling event.
    event: usize,
    opened: Opened,
    /// Samples by ring.
    samples: Vec<u64>,
}

impl Audit {
    /// Opens control events for some of the sampling events, disabled.
    ///
    /// # Errors
    /// Of the first that cannot be opened.
    pub(crate) fn open(
        kernel: &Arc<dyn Kernel>,
        facts: &Facts,
        specs: &[EventSpec],
        events: impl IntoIterator<Item = usize>,
        target: &Target,
    ) -> Result<Audit, OpenError> {
        let open = |event: usize| {
            let spec = specs.get(event).map(control_of);
            let opened = open::open(kernel, facts, spec.into_iter().collect(), target, Options { pages: PAGES })?;
            let samples = vec![0; opened.rings.len()];
            Ok(Control { event, opened, samples })
        };
        Ok(Audit { controls: events.into_iter().map(open).collect::<Result<_, _>>()?, started: None })
    }

    /// Starts the control events of a CPU, right before its sampling events. Those that wait for a command's exec start with it.
    pub(crate) fn enable_on(&mut self, cpu: i32) -> io::Result<()> {
        self.started.get_or_insert_with(Instant::now);
        self.controls.iter().try_for_each(|control| control.opened.enable_on(cpu))
    }

    /// Stops those of a CPU.
    pub(crate) fn disable_on(&self, cpu: i32) -> io::Result<()> {
        self.controls.iter().try_for_each(|control| control.opened.disable_on(cpu))
    }

    /// When sampling began; `None`: it has not.
    pub(crate) fn started(&self) -> Option<Instant> {
        self.started
    }

    /// Counts what is in the rings and throws it away.
    pub(crate) fn drain(&mut self) {
        for control in &mut self.controls {
            for (ring, samples) in control.opened.rings.iter_mut().zip(&mut control.samples) {
                let until = ring.head();
                // A ring that makes no sense leaves a count that is too small, and the tally never counts below the program.
                let _ = ring.drain(until, &mut |record| {
                    *samples += u64::from(record.first_chunk() == Some(&kind::SAMPLE.to_ne_bytes()));
                });
            }
        }
    }

    /// How often the control event of a sampling event overflowed on a CPU, to the last [`Audit::drain`]; `None` for one that
    /// has no control event. Final once it is disabled.
    pub(crate) fn overflows(&self, event: usize, cpu: u32) -> Option<u64> {
        let control = self.controls.iter().find(|control| control.event == event)?;
        let here = control.opened.events.iter().filter(|event| u32::try_from(event.cpu) == Ok(cpu));
        let lost: u64 = here.clone().filter_map(|event| event.read().ok()?.lost).sum();
        // A ring is that of one CPU, whichever tasks it is shared by.
        let mut rings: Vec<usize> = here.map(|event| event.ring).collect();
        rings.sort_unstable();
        rings.dedup();
        Some(rings.into_iter().filter_map(|ring| control.samples.get(ring)).sum::<u64>() + lost)
    }

    /// Ends an audit of the first seconds and gives what it saw of the one event that it was for.
    pub(crate) fn finish(
        mut self,
        handlers: &Handlers,
        stubs: &[Option<usize>],
        cpus: &[u32],
    ) -> Option<(usize, AuditTally)> {
        let started = self.started?;
        let event = self.controls.first()?.event;
        let stub = stubs.get(event).copied().flatten()?;
        let mut handled = 0;
        for &cpu in cpus {
            // The program's count is read as soon as the control event of its CPU stands still.
            self.disable_on(i32::try_from(cpu).ok()?).ok()?;
            handled += handlers.counters(stub, cpu).handled;
        }
        let ns = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.drain();
        let control = cpus.iter().filter_map(|&cpu| self.overflows(event, cpu)).sum();
        Some((event, AuditTally { ns, control, handled }))
    }
}

/// Whether a control event overflows as often as the event itself. The kernel adapts the period of an event with a frequency to
/// what it counts, each for itself; only a clock ticks alike for all.
pub(crate) fn can_be_compared(spec: &EventSpec) -> bool {
    spec.class == EventClass::Clock || !spec.attr.flags.contains(AttrFlags::FREQ)
}

/// The same event with nothing in its samples.
fn control_of(spec: &EventSpec) -> EventSpec {
    let mut control = EventSpec { group: None, ..spec.clone() };
    control.attr.sample_type = SampleType::empty();
    control.attr.read_format = ReadFormat::ID | ReadFormat::LOST;
    control.attr.sample_max_stack = 0;
    control.attr.flags -=
        AttrFlags::SAMPLE_ID_ALL | AttrFlags::EXCLUDE_CALLCHAIN_KERNEL | AttrFlags::EXCLUDE_CALLCHAIN_USER;
    control
}
