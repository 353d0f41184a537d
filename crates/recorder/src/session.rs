//! The live session: what is open while a recording runs, in the order in which it was opened.
//!
//! ```text
//! sampling events (disabled) ─ stubs ─ handler rings ─ capture of text ─ sideband (enabled) ─ file ─ scan ─ enable ─ passes ─ disable ─ last pass
//! ```
//! The sideband listens before anything is scanned, so that nothing falls between scan and record.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use afterimage_handler::by::{self, has_address};
use afterimage_handler::gate::Expression;
use afterimage_handler::object::LoadedObject;
use afterimage_handler::{Builtin, EventConfig, Handlers, Options as HandlerOptions};
use afterimage_perf_data::tally::Audit as AuditTally;
use afterimage_perf_data::{AttrFlags, Endian, Layout, SampleType};
use afterimage_perf_event::caps::{Cap, Caps};
use afterimage_perf_event::config::{Config, Rate};
use afterimage_perf_event::facts::Facts;
use afterimage_perf_event::open::{self, Event, Opened, Options, Target};
use afterimage_perf_event::ring::Ring;
use afterimage_perf_event::sideband::{self, Sideband};
use afterimage_perf_event::spec::{EventClass, EventSpec};
use afterimage_perf_event::sys::Kernel;

use crate::audit::{self, Audit};
use crate::book::{Book, Place, RingOwner};
use crate::by::By;
use crate::off_cpu::Waiting;
use crate::synth::procfs;
use crate::text::Texts;
use crate::{Destination, Plan, RecordError, gate};

/// For how long every recording of whole CPUs is audited.
const FIRST_SECONDS: Duration = Duration::from_secs(2);

/// How often the events of a target that keeps growing are opened.
const OPENINGS: usize = 10;

/// Data pages of each sideband ring: 1 MiB holds some thousand maps, or what loading programs as fast as they load tells in a
/// tenth of a second.
const SIDEBAND_PAGES: usize = 256;

/// Everything that is open.
pub(crate) struct Session {
    pub(crate) sampling: Opened,
    pub(crate) outputs: Option<Opened>,
    pub(crate) sideband: Sideband,
    pub(crate) texts: Texts,
    pub(crate) handlers: Option<Handlers>,
    /// Objects that handlers came from.
    pub(crate) objects: Vec<LoadedObject>,
    /// Per sampling event, its index among the events that carry a stub.
    pub(crate) stubs: Vec<Option<usize>>,
    pub(crate) owners: Owners,
    pub(crate) book: Book,
    pub(crate) cpus: Vec<u32>,
    /// Some tasks have events without a program, since they were started while programs were attached.
    pub(crate) some_without_program: bool,
    /// Control events, while they run.
    pub(crate) audit: Option<Audit>,
    /// What those of the first seconds saw, and of which event.
    pub(crate) first_seconds: Option<(usize, AuditTally)>,
    /// They run to the end.
    whole_audit: bool,
    /// What measures time off CPU, where that is wanted.
    pub(crate) off_cpu: Option<Waiting>,
    /// What is recorded: names in a gate are looked up for it.
    pub(crate) target: Target,
    /// The expression of the gate in force.
    pub(crate) gate: Option<String>,
    /// How often another handler or gate was put in force.
    pub(crate) changes: u64,
    /// When that was last, ns on the recording's clock.
    pub(crate) changed_ns: Option<u64>,
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
    /// Opens everything on the target that `find` gives, and gives that too: a process may grow between two calls.
    /// Notes for the user are appended to `notes`.
    ///
    /// # Errors
    /// When a part that was asked for cannot be had; nothing stays open then.
    pub(crate) fn open(
        kernel: &Arc<dyn Kernel>,
        facts: &Facts,
        plan: &Plan,
        find: &dyn Fn() -> Result<Target, RecordError>,
        notes: &mut Vec<String>,
    ) -> Result<(Session, Target), RecordError> {
        let online = facts.online_cpus().map_err(RecordError::system("list of online CPUs"))?;
        let mut specs = plan.events.clone();
        let max_stack = || match plan.object() {
            Some(object) => object.max_stack(),
            None => match &plan.by {
                // It reads chains as `count` does.
                Some(by) => {
                    let label = by.options.label.as_ref().and_then(|given| given.object.max_stack());
                    label.into_iter().chain(Builtin::Count.max_stack(false)).min()
                }
                None => plan.builtin().max_stack(plan.chain),
            },
        };
        let stacks = plan.callchain || plan.by.as_ref().is_some_and(By::wants_stacks);
        let max_stack = stacks.then(max_stack).flatten();
        if let Some(frames) = max_stack {
            notes.push(format!("call chains have at most {frames} frames, which the handler leaves whole"));
        }
        let (rate, callchain, stack_copy) = (plan.rate, plan.callchain, plan.stack_copy);
        let mut config = Config { rate, callchain, stack_copy, max_stack, ..Config::default() };
        if plan.cgroups {
            config.sample_type |= SampleType::CGROUP;
        }
        if let Some(by) = &plan.by {
            by.fill_in(&mut config);
        }
        specs.iter_mut().for_each(|spec| config.apply(spec));
        if let Some(by) = &plan.by {
            specs.iter_mut().for_each(|spec| by.take_only_what_is_asked(spec));
        }
        let needs = plan.gate.as_ref().map_or(SampleType::empty(), Expression::needs);
        specs.iter_mut().for_each(|spec| spec.attr.sample_type |= needs);
        let mut sampled = Sampled::open(kernel, facts, plan, find, specs, &online, notes)?;
        let outputs = match plan.writes() {
            true => open_outputs(kernel, facts, plan, &mut sampled, &online)?,
            false => None,
        };
        let Sampled { sampling, stubs, programs, target, born } = sampled;
        let (handlers, objects) = programs.map_or((None, Vec::new()), |p| (Some(p.handlers), p.objects));
        let audit = match handlers {
            Some(_) => open_audit(kernel, facts, plan, &sampling, &stubs, &target, notes)?,
            None => None,
        };
        let off_cpu = Waiting::open(plan, facts, &target, &online)?;
        // A stream has no place for text.
        let mut texts = Texts::start(plan.text.as_ref().filter(|_| plan.destination != Destination::Pipe));
        let mut wanted = AttrFlags::KSYMBOL | AttrFlags::BPF_EVENT | AttrFlags::BUILD_ID;
        if texts.is_on() {
            wanted |= AttrFlags::TEXT_POKE;
        }
        wanted.set(AttrFlags::CGROUP, plan.cgroups);
        wanted.set(AttrFlags::NAMESPACES, plan.namespaces);
        if let Some(absent) = texts.absent().filter(|_| may_use_bpf()) {
            notes.push(format!("kernel text that goes is not kept: {absent}"));
        }
        // Of the ways that the user named; which ways there are at all is for `doctor` to tell.
        if plan.text.as_ref().is_some_and(|text| text.ways.is_some()) {
            notes.extend(texts.missing_ways());
        }
        let pages = plan.text.as_ref().and_then(|text| text.record_pages);
        let options = Options { pages: pages.unwrap_or(SIDEBAND_PAGES) };
        let sideband = match &plan.by {
            // Nobody will ask what processes have mapped.
            Some(by) if !by.wants_maps() => {
                let opened = sideband::open_bpf_text(kernel, facts, options)?;
                Sideband { opened, missing: Vec::new(), all_cpus: true }
            }
            _ => sideband::open(kernel, facts, &target, wanted, options)?,
        };
        notes.extend(sideband.opened.notes.iter().map(ToString::to_string));

        if sideband.all_cpus {
            notes.extend(sideband.missing.iter().map(|(_, what)| format!("not recorded on this kernel: {what}")));
        }

        texts.listen(Layout::new(sideband.attr(), Endian::NATIVE));
        let mut book = Book::new(sampling.specs.len(), &online);
        let owners = owners(&sampling, outputs.as_ref(), &stubs, &mut book);
        let stubs = if handlers.is_some() { stubs } else { vec![None; stubs.len()] };
        let some_without_program = born > 0;
        let session = Session {
            sampling,
            outputs,
            sideband,
            texts,
            handlers,
            objects,
            stubs,
            owners,
            book,
            cpus: online,
            some_without_program,
            audit,
            first_seconds: None,
            whole_audit: plan.audit,
            off_cpu,
            target: target.clone(),
            gate: plan.gate.as_ref().map(|gate| gate.text().to_owned()),
            changes: 0,
            changed_ns: None,
        };
        Ok((session, target))
    }

    /// Every ring with the owner of its records, and what learns from them beside it: handler rings first, then sampling,
    /// then sideband.
    pub(crate) fn rings(&mut self) -> (impl Iterator<Item = (&mut Ring, RingOwner)>, &mut Book, &mut Texts) {
        let outputs = self.outputs.iter_mut().flat_map(|o| o.rings.iter_mut()).zip(self.owners.outputs.iter().copied());
        let sampling = self.sampling.rings.iter_mut().zip(self.owners.sampling.iter().copied());
        let sideband = self.sideband.opened.rings.iter_mut().map(|r| (r, RingOwner::Sideband));
        (outputs.chain(sampling).chain(sideband), &mut self.book, &mut self.texts)
    }

    /// Starts sampling at once.
    pub(crate) fn enable(&mut self) -> Result<(), RecordError> {
        self.enable_outputs()?;
        self.start_off_cpu();
        let started = match &mut self.audit {
            None => self.sampling.enable(),
            // CPU by CPU, so that both events of one start as close to each other as can be.
            Some(audit) => {
                let sampling = &self.sampling;
                let mut cpus = cpus_of(sampling).into_iter();
                cpus.try_for_each(|cpu| audit.enable_on(cpu).and_then(|()| sampling.enable_on(cpu)))
            }
        };
        started.map_err(RecordError::system("start of sampling"))
    }

    /// Measures time off CPU from now on, if that is wanted.
    pub(crate) fn start_off_cpu(&mut self) {
        self.off_cpu.iter_mut().for_each(Waiting::start);
    }

    /// Opens the handler rings for what the programs write.
    pub(crate) fn enable_outputs(&self) -> Result<(), RecordError> {
        match &self.outputs {
            Some(outputs) => outputs.enable().map_err(RecordError::system("start of the handler rings")),
            None => Ok(()),
        }
    }

    /// Ends the audit of the first seconds once these are over, or now.
    pub(crate) fn end_first_audit(&mut self, now: bool) {
        let over = |audit: &Audit| audit.started().is_some_and(|started| now || started.elapsed() >= FIRST_SECONDS);
        if self.whole_audit || !self.audit.as_ref().is_some_and(over) {
            return;
        }
        if let (Some(audit), Some(handlers)) = (self.audit.take(), &self.handlers) {
            self.first_seconds = audit.finish(handlers, &self.stubs, &self.cpus);
        }
    }

    /// How often a sampling event overflowed on a CPU, where an audit has seen all of it.
    pub(crate) fn overflows(&self, event: usize, cpu: u32) -> Option<u64> {
        self.audit.as_ref().filter(|_| self.whole_audit)?.overflows(event, cpu)
    }

    /// Stops sampling; counters are final after it. The handler rings stop last.
    pub(crate) fn disable(&mut self) -> Result<(), RecordError> {
        self.off_cpu.iter_mut().for_each(Waiting::stop);
        let stopped = match &self.audit {
            None => self.sampling.disable(),
            Some(audit) => {
                let stop = |cpu| self.sampling.disable_on(cpu).and(audit.disable_on(cpu));
                cpus_of(&self.sampling).into_iter().map(stop).fold(Ok(()), Result::and)
            }
        };
        // Before a command that is ended takes its threads with it.
        self.off_cpu.iter_mut().for_each(Waiting::look);
        stopped.map_err(RecordError::system("end of sampling"))?;
        match &self.outputs {
            Some(outputs) => outputs.disable().map_err(RecordError::system("end of the handler rings")),
            None => Ok(()),
        }
    }
}

/// The CPUs that have events, -1 for those of a task on any.
fn cpus_of(opened: &Opened) -> Vec<i32> {
    let mut cpus: Vec<i32> = opened.events.iter().map(|event| event.cpu).collect();
    cpus.sort_unstable();
    cpus.dedup();
    cpus
}

/// Control events: for all that carry a stub when they were asked for, else for the first where whole CPUs are recorded.
fn open_audit(
    kernel: &Arc<dyn Kernel>,
    facts: &Facts,
    plan: &Plan,
    sampling: &Opened,
    stubs: &[Option<usize>],
    target: &Target,
    notes: &mut Vec<String>,
) -> Result<Option<Audit>, RecordError> {
    let with_stub = || stubs.iter().enumerate().filter_map(|(event, stub)| stub.map(|_| event));
    let compared = |event: &usize| sampling.specs.get(*event).is_some_and(audit::can_be_compared);
    let events = with_stub().filter(compared);
    if plan.audit {
        for event in with_stub().filter(|event| !compared(event)) {
            let name = sampling.specs.get(event).map_or("", |spec| spec.name.as_str());
            notes.push(format!("--audit: {name} has no fixed period, so that no control event overflows as it does: give it one with -c"));
        }
    }
    let most = if plan.audit { usize::MAX } else { 1 };
    if !plan.audit && !matches!(target, Target::Cpus(_)) {
        return Ok(None);
    }
    match Audit::open(kernel, facts, &sampling.specs, events.take(most), target) {
        Ok(audit) => Ok(Some(audit)),
        Err(error) if plan.audit => Err(error.into()),
        Err(error) => {
            notes.push(format!("how many samples the kernel skips is not known: no control event: {error}"));
            Ok(None)
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

/// What is loaded for the sampling events.
struct Programs {
    handlers: Handlers,
    objects: Vec<LoadedObject>,
}

/// The sampling events with their programs.
struct Sampled {
    sampling: Opened,
    /// Per event, its index among those that carry a stub.
    stubs: Vec<Option<usize>>,
    programs: Option<Programs>,
    target: Target,
    /// Tasks that were started while programs were attached.
    born: usize,
}

impl Sampled {
    /// What a task of the target starts between the opening of its events and the attaching of a program inherits events
    /// without one, and what it started just before has none at all. So when the target has grown meanwhile, its events
    /// are opened again.
    fn open(
        kernel: &Arc<dyn Kernel>,
        facts: &Facts,
        plan: &Plan,
        find: &dyn Fn() -> Result<Target, RecordError>,
        specs: Vec<EventSpec>,
        cpus: &[u32],
        notes: &mut Vec<String>,
    ) -> Result<Sampled, RecordError> {
        let options = Options { pages: plan.pages };
        let mut target = find()?;
        let mut sampling = open::open(kernel, facts, specs, &target, options)?;
        notes.extend(sampling.notes.iter().map(ToString::to_string));

        let stubs = stub_indices(&sampling.specs);
        let mut programs = load_programs(plan, &sampling, &stubs, cpus, notes)?;
        let mut born = 0;
        if grows(&target) && programs.is_some() {
            for turn in 0..OPENINGS {
                if turn > 0 {
                    programs = load_programs(plan, &sampling, &stubs, cpus, &mut Vec::new())?;
                }
                target = find()?;
                let before = family(&target);
                let specs = std::mem::take(&mut sampling.specs);
                drop(sampling);
                sampling = open::open(kernel, facts, specs, &target, options)?;
                programs = attached(programs, plan, &sampling, &stubs, notes)?;
                born = family(&target).into_iter().filter(|tid| !before.contains(tid)).count();
                if born == 0 {
                    break;
                }
            }
        } else {
            programs = attached(programs, plan, &sampling, &stubs, notes)?;
        }
        if born > 0 {
            notes.push(format!(
                "{born} tasks were started while programs were attached; they may be sampled without one"
            ));
        }
        if let (Some(expression), Some(programs)) = (&plan.gate, &mut programs) {
            notes.extend(gate::install(expression, &mut programs.handlers, &sampling.specs, &stubs, &target)?);
        }
        Ok(Sampled { sampling, stubs, programs, target, born })
    }
}

/// Whether the events of new tasks come from those of their parents. A command is stopped until it is sampled.
fn grows(target: &Target) -> bool {
    matches!(target, Target::Tasks { inherit: true, .. })
}

/// The threads of a target that may grow by itself.
fn family(target: &Target) -> Vec<u32> {
    match target {
        Target::Tasks { tids, .. } => procfs::family(Path::new("/proc"), &procfs::processes_of(tids)),
        Target::Cpus(_) | Target::Command { .. } => Vec::new(),
    }
}

/// Loads the programs for the events that take one.
fn load_programs(
    plan: &Plan,
    sampling: &Opened,
    stubs: &[Option<usize>],
    cpus: &[u32],
    notes: &mut Vec<String>,
) -> Result<Option<Programs>, RecordError> {
    if stubs.iter().all(Option::is_none) {
        return Ok(None);
    }
    if !plan.needs_program() && !may_use_bpf() {
        notes.push("samples go without a program: that needs CAP_BPF and CAP_PERFMON".to_owned());
        return Ok(None);
    }
    match load(plan, sampling, stubs, cpus) {
        Ok(programs) => {
            notes.extend(programs.handlers.note().map(str::to_owned));
            Ok(Some(programs))
        }
        Err(error) if !plan.needs_program() => {
            notes.push(format!("samples go without a program: {error}"));
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

fn load(
    plan: &Plan,
    sampling: &Opened,
    stubs: &[Option<usize>],
    cpus: &[u32],
) -> Result<Programs, afterimage_handler::Error> {
    let with_stub = sampling.specs.iter().zip(stubs).filter(|(_, stub)| stub.is_some());
    let events = with_stub.map(|(spec, _)| EventConfig::from_attr(&spec.attr)).collect::<Result<Vec<_>, _>>()?;
    let options = HandlerOptions {
        builtin: plan.builtin(),
        chain: plan.chain,
        events,
        cpus: cpus.to_vec(),
        ..HandlerOptions::default()
    };
    let mut handlers = Handlers::load(&options)?;
    if let Some(by) = &plan.by {
        let addressed = sampling.specs.iter().all(|spec| has_address(&spec.attr));
        handlers.load_by(&by::Options { addressed, ..by.options.clone() })?;
    }
    let mut objects = Vec::new();
    if let Some(object) = plan.object() {
        let loaded = handlers.load_object(object)?;
        handlers.swap(loaded.id)?;
        objects.push(loaded);
    }
    Ok(Programs { handlers, objects })
}

/// Attaches a stub to every event that takes one. When that fails and nobody asked for a handler, there is none.
fn attached(
    programs: Option<Programs>,
    plan: &Plan,
    sampling: &Opened,
    stubs: &[Option<usize>],
    notes: &mut Vec<String>,
) -> Result<Option<Programs>, RecordError> {
    let Some(mut programs) = programs else { return Ok(None) };
    let stub_of = |event: &Event| stubs.get(event.spec).copied().flatten();
    for event in &sampling.events {
        match stub_of(event).map_or(Ok(()), |stub| programs.handlers.attach(stub, event.as_fd())) {
            Ok(()) => {}
            Err(error) if !plan.needs_program() => {
                notes.push(format!("samples go without a program: {error}"));
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Some(programs))
}

/// One handler ring per sampling event and CPU. They are CPU-wide also for tasks: the program writes to its CPU's.
fn open_outputs(
    kernel: &Arc<dyn Kernel>,
    facts: &Facts,
    plan: &Plan,
    sampled: &mut Sampled,
    cpus: &[u32],
) -> Result<Option<Opened>, RecordError> {
    let Sampled { sampling, stubs, programs: Some(Programs { handlers, .. }), .. } = sampled else { return Ok(None) };
    let config = Config { rate: Some(Rate::Period(1)), sample_type: SampleType::RAW, ..Config::default() };
    let specs = sampling.specs.iter().zip(&*stubs).filter(|(_, stub)| stub.is_some()).map(|(spec, _)| {
        let mut output = EventSpec::bpf_output(&format!("{}/{}", spec.name, plan.handler_name()));
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
    Ok(Some(outputs))
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
