//! The live session: what is open while a recording runs, in the order in which it was opened.
//!
//! ```text
//! sampling events (disabled) ─ stubs ─ handler rings ─ sideband (enabled) ─ file ─ scan ─ enable ─ passes ─ disable ─ last pass
//! ```
//! The sideband listens before anything is scanned, so that nothing falls between scan and record.

use std::sync::Arc;

use afterimage_handler::{Builtin, EventConfig, Handlers, Options as HandlerOptions};
use afterimage_perf_data::{AttrFlags, SampleType};
use afterimage_perf_event::caps::{Cap, Caps};
use afterimage_perf_event::config::{Config, Rate};
use afterimage_perf_event::facts::Facts;
use afterimage_perf_event::open::{self, Event, Opened, Options, Target};
use afterimage_perf_event::ring::Ring;
use afterimage_perf_event::sideband::{self, Sideband};
use afterimage_perf_event::spec::{EventClass, EventSpec};
use afterimage_perf_event::sys::Kernel;

use crate::book::{Book, Place, RingOwner};
use crate::{Plan, RecordError};

/// Data pages of each sideband ring: 256 KiB hold some thousand maps.
const SIDEBAND_PAGES: usize = 64;

/// Everything that is open.
pub(crate) struct Session {
    pub(crate) sampling: Opened,
    pub(crate) outputs: Option<Opened>,
    pub(crate) sideband: Sideband,
    pub(crate) handlers: Option<Handlers>,
    /// Per sampling event, its index among the events that carry a stub.
    pub(crate) stubs: Vec<Option<usize>>,
    pub(crate) owners: Owners,
    pub(crate) book: Book,
    pub(crate) cpus: Vec<u32>,
}

/// Whose records each ring holds, ring by ring.
pub(crate) struct Owners {
    pub(crate) sampling: Vec<RingOwner>,
    pub(crate) outputs: Vec<RingOwner>,
}

/// Whether programs may be loaded and attached to events.
pub(crate) fn may_use_bpf() -> bool {
    let caps = Caps::effective();
    caps.allows(Cap::Bpf) && caps.allows(Cap::Perfmon)
}

impl Session {
    /// Opens everything. Notes for the user are appended to `notes`.
    ///
    /// # Errors
    /// When a part that was asked for cannot be had; nothing stays open then.
    pub(crate) fn open(
        kernel: &Arc<dyn Kernel>,
        facts: &Facts,
        plan: &Plan,
        target: &Target,
        notes: &mut Vec<String>,
    ) -> Result<Session, RecordError> {
        let online = facts.online_cpus().map_err(RecordError::system("list of online CPUs"))?;
        let mut specs = plan.events.clone();
        let config = Config { rate: plan.rate, callchain: plan.callchain, ..Config::default() };
        specs.iter_mut().for_each(|spec| config.apply(spec));
        let sampling = open::open(kernel, facts, specs, target, Options { pages: plan.pages })?;
        notes.extend(sampling.notes.iter().map(ToString::to_string));

        let stubs = stub_indices(&sampling.specs);
        let (handlers, outputs) = programs(kernel, facts, plan, &sampling, &stubs, &online, notes)?;
        let wanted = AttrFlags::KSYMBOL | AttrFlags::BPF_EVENT | AttrFlags::BUILD_ID;
        let sideband = sideband::open(kernel, facts, target, wanted, Options { pages: SIDEBAND_PAGES })?;
        notes.extend(sideband.opened.notes.iter().map(ToString::to_string));

        if sideband.all_cpus {
            notes.extend(sideband.missing.iter().map(|(_, what)| format!("not recorded on this kernel: {what}")));
        }

        let mut book = Book::new(sampling.specs.len(), &online);
        let owners = owners(&sampling, outputs.as_ref(), &stubs, &mut book);
        let stubs = if handlers.is_some() { stubs } else { vec![None; stubs.len()] };
        Ok(Session { sampling, outputs, sideband, handlers, stubs, owners, book, cpus: online })
    }

    /// Every ring with the owner of its records, and the books beside them: handler rings first, then sampling, then
    /// sideband.
    pub(crate) fn rings(&mut self) -> (impl Iterator<Item = (&mut Ring, RingOwner)>, &mut Book) {
        let outputs = self.outputs.iter_mut().flat_map(|o| o.rings.iter_mut()).zip(self.owners.outputs.iter().copied());
        let sampling = self.sampling.rings.iter_mut().zip(self.owners.sampling.iter().copied());
        let sideband = self.sideband.opened.rings.iter_mut().map(|r| (r, RingOwner::Sideband));
        (outputs.chain(sampling).chain(sideband), &mut self.book)
    }

    /// Starts sampling at once.
    pub(crate) fn enable(&self) -> Result<(), RecordError> {
        self.enable_outputs()?;
        self.sampling.enable().map_err(RecordError::system("start of sampling"))
    }

    /// Opens the handler rings for what the programs write.
    pub(crate) fn enable_outputs(&self) -> Result<(), RecordError> {
        match &self.outputs {
            Some(outputs) => outputs.enable().map_err(RecordError::system("start of the handler rings")),
            None => Ok(()),
        }
    }

    /// Stops sampling; counters are final after it. The handler rings stop last.
    pub(crate) fn disable(&self) -> Result<(), RecordError> {
        self.sampling.disable().map_err(RecordError::system("end of sampling"))?;
        match &self.outputs {
            Some(outputs) => outputs.disable().map_err(RecordError::system("end of the handler rings")),
            None => Ok(()),
        }
    }
}

/// Tracepoints carry no stub: a program there would run for everybody.
fn stub_indices(specs: &[EventSpec]) -> Vec<Option<usize>> {
    let mut next = 0;
    specs
        .iter()
        .map(|spec| {
            (spec.class != EventClass::Tracepoint).then(|| {
                next += 1;
                next - 1
            })
        })
        .collect()
}

/// Loads the programs, attaches a stub to every event that takes one, and opens the handler rings.
fn programs(
    kernel: &Arc<dyn Kernel>,
    facts: &Facts,
    plan: &Plan,
    sampling: &Opened,
    stubs: &[Option<usize>],
    cpus: &[u32],
    notes: &mut Vec<String>,
) -> Result<(Option<Handlers>, Option<Opened>), RecordError> {
    if stubs.iter().all(Option::is_none) {
        return Ok((None, None));
    }
    if plan.handler.is_none() && !may_use_bpf() {
        notes.push("samples go without a program: that needs CAP_BPF and CAP_PERFMON".to_owned());
        return Ok((None, None));
    }
    match load(plan, sampling, stubs, cpus) {
        Ok(mut handlers) => {
            notes.extend(handlers.note().map(str::to_owned));
            let outputs = match plan.builtin() {
                Builtin::Emit => Some(open_outputs(kernel, facts, plan, sampling, stubs, cpus, &mut handlers)?),
                _ => None,
            };
            Ok((Some(handlers), outputs))
        }
        Err(error) if plan.handler.is_none() => {
            notes.push(format!("samples go without a program: {error}"));
            Ok((None, None))
        }
        Err(error) => Err(error.into()),
    }
}

fn load(
    plan: &Plan,
    sampling: &Opened,
    stubs: &[Option<usize>],
    cpus: &[u32],
) -> Result<Handlers, afterimage_handler::Error> {
    let with_stub = sampling.specs.iter().zip(stubs).filter(|(_, stub)| stub.is_some());
    let events = with_stub.map(|(spec, _)| EventConfig::from_attr(&spec.attr)).collect::<Result<_, _>>()?;
    let options = HandlerOptions {
        builtin: plan.builtin(),
        chain: plan.chain,
        events,
        cpus: cpus.to_vec(),
        ..HandlerOptions::default()
    };
    let mut handlers = Handlers::load(&options)?;
    for event in &sampling.events {
        if let Some(stub) = stubs.get(event.spec).copied().flatten() {
            handlers.attach(stub, event.as_fd())?;
        }
    }
    Ok(handlers)
}

/// One handler ring per sampling event and CPU. They are CPU-wide also for tasks: the program writes to its CPU's.
fn open_outputs(
    kernel: &Arc<dyn Kernel>,
    facts: &Facts,
    plan: &Plan,
    sampling: &Opened,
    stubs: &[Option<usize>],
    cpus: &[u32],
    handlers: &mut Handlers,
) -> Result<Opened, RecordError> {
    let config = Config { rate: Some(Rate::Period(1)), sample_type: SampleType::RAW, ..Config::default() };
    let specs = sampling.specs.iter().zip(stubs).filter(|(_, stub)| stub.is_some()).map(|(spec, _)| {
        let mut output = EventSpec::bpf_output(&format!("{}/{}", spec.name, plan.builtin()));
        config.apply(&mut output);
        // A program's records have no period; without the field readers weigh each as one.
        output.attr.sample_type -= SampleType::PERIOD;
        output
    });
    let outputs =
        open::open(kernel, facts, specs.collect(), &Target::Cpus(cpus.to_vec()), Options { pages: plan.pages })?;
    for event in &outputs.events {
        if let Ok(cpu) = u32::try_from(event.cpu) {
            handlers.set_output(event.spec, cpu, event.as_fd())?;
        }
    }
    Ok(outputs)
}

/// Enters every id into the books and says whose each ring is.
fn owners(sampling: &Opened, outputs: Option<&Opened>, stubs: &[Option<usize>], book: &mut Book) -> Owners {
    let event_of_stub = |stub: usize| stubs.iter().position(|s| *s == Some(stub)).unwrap_or(0);
    let sampling_owners = of_rings(sampling, book, false, |spec| spec);
    let output_owners = outputs.map_or_else(Vec::new, |o| of_rings(o, book, true, event_of_stub));
    Owners { sampling: sampling_owners, outputs: output_owners }
}

fn of_rings(opened: &Opened, book: &mut Book, handler: bool, event_of: impl Fn(usize) -> usize) -> Vec<RingOwner> {
    let place =
        |event: &Event| Some(Place { event: event_of(event.spec), cpu: u32::try_from(event.cpu).ok()?, handler });
    let mut owners = vec![None; opened.rings.len()];
    for event in &opened.events {
        let Some(place) = place(event) else { continue };
        book.know(event.id, place);
        let Some(owner) = owners.get_mut(event.ring) else { continue };
        *owner = match *owner {
            None => Some(RingOwner::One { place, id: event.id }),
            Some(RingOwner::One { place: first, .. }) if first == place => *owner,
            Some(_) => Some(RingOwner::Shared),
        };
    }
    owners.into_iter().map(|o| o.unwrap_or(RingOwner::Shared)).collect()
}
