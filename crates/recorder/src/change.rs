//! What a controller may see and change of a recording that runs.

use std::fs::File;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use afterimage_handler::gate::{Expression, GateError};
use afterimage_handler::object::{LoadedObject, Object, Setting};
use afterimage_handler::{Builtin, EventConfig, Handlers};
use afterimage_perf_data::HandlerDesc;
use rustix::fs::SealFlags;

use crate::Handler;
use crate::control::{self, Changed, EventStats, Refusal, RefusalKind, Request, Stats, Subject, Wanted};
use crate::finish::{self, Places};
use crate::plan::{Destination, Plan};
use crate::run::Live;
use crate::session::Session;
use crate::{RecordError, gate, tallies};

const NO_RING: &str = "this recording has no handler ring: start it with --handler emit or with an object that writes";

/// The most bytes of an object file.
const OBJECT_MAX: u64 = 64 << 20;

/// The most lines of explanation that a refusal carries, the last ones.
const DETAILS_MAX: usize = 4000;

/// A recording, as its control socket sees it.
pub(crate) struct Running<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) session: &'a mut Session,
    pub(crate) live: &'a mut Live,
}

impl Subject for Running<'_> {
    fn stats(&self) -> Stats {
        let Session { handlers, changes, changed_ns, .. } = &*self.session;
        let events = tallies::so_far(self.session).events.into_iter();
        let mut stats = Stats {
            session: std::process::id(),
            command: self.plan.command_line.clone(),
            started_ns: self.live.started_ns,
            now_ns: control::now_ns(),
            programs: handlers.is_some(),
            handler: Builtin::None.name().to_owned(),
            changes: *changes,
            changed_ns: *changed_ns,
            gate: self.session.gate.clone(),
            events: events.map(|event| EventStats { name: event.name, tally: event.sum }).collect(),
            ..Stats::default()
        };
        if let Some(handlers) = handlers {
            stats.handler = handlers.name(handlers.current()).unwrap_or_default().to_owned();
            stats.handler_id = handlers.current().0;
            stats.generation = handlers.generation();
        }
        stats
    }

    fn change(&mut self, request: Request, descriptor: Option<OwnedFd>) -> Result<Changed, Refusal> {
        match request {
            Request::Stats {} => Err(refuse(RefusalKind::BadRequest, "stats change nothing")),
            Request::Clear {} => self.swap_builtin(Builtin::None),
            Request::Where { expression } => self.put_gate(expression),
            Request::Swap { handler: Wanted::Builtin(name) } => match name.parse() {
                Ok(builtin) => self.swap_builtin(builtin),
                Err(_) => {
                    let text = format!("{name}: no such handler; built in are none, emit and count");
                    Err(refuse(RefusalKind::BadRequest, text))
                }
            },
            Request::Swap { handler: Wanted::Object { path, program, set, keep_maps } } => {
                let lacks = || refuse(RefusalKind::BadRequest, "the descriptor of the object is missing");
                let bytes = sealed(descriptor.ok_or_else(lacks)?)?;
                let set = set.iter().map(|text| text.parse()).collect::<Result<Vec<Setting>, _>>().map_err(failed)?;
                let object = Object::open(bytes, program.as_deref(), &set).map_err(failed)?;
                self.swap_object(path.into(), object, &keep_maps)
            }
        }
    }
}

impl Running<'_> {
    fn swap_builtin(&mut self, builtin: Builtin) -> Result<Changed, Refusal> {
        programs(&mut self.session.handlers)?;
        self.has_place_for(builtin)?;
        let handlers = programs(&mut self.session.handlers)?;
        let before = Instant::now();
        handlers.load_builtin(builtin).map_err(failed)?;
        let load_ns = ns_since(before);
        let before = Instant::now();
        let generation = handlers.swap(builtin).map_err(failed)?;
        let swap_ns = ns_since(before);
        let handler_id = handlers.current().0;
        self.changed(&Handler::Builtin(builtin));
        self.retire();
        let gate = self.session.gate.clone();
        let handler = builtin.name().to_owned();
        Ok(Changed { handler, handler_id, generation, swap_ns, load_ns, gate, notes: Vec::new() })
    }

    fn swap_object(&mut self, path: PathBuf, object: Object, keep_maps: &[String]) -> Result<Changed, Refusal> {
        let Session { handlers, objects, outputs, sampling, stubs, gate, .. } = &mut *self.session;
        let handlers = programs(handlers)?;
        if object.writes() && outputs.is_none() {
            return Err(refuse(RefusalKind::Impossible, NO_RING));
        }
        let with_stub = sampling.specs.iter().zip(&*stubs).filter(|(_, stub)| stub.is_some());
        let events = with_stub.map(|(spec, _)| EventConfig::from_attr(&spec.attr)).collect::<Result<Vec<_>, _>>();
        let events = events.map_err(failed)?;
        let kept = kept(objects, handlers, keep_maps)?;
        if handlers.next_id().0 == u16::MAX {
            return Err(refuse(RefusalKind::Impossible, "this recording has had all handlers that can be numbered"));
        }
        let before = Instant::now();
        let loaded = object.load(&handlers.shared(), &events, handlers.next_id(), &kept).map_err(failed)?;
        let id = handlers.add(loaded.name.clone(), loaded.program().map_err(failed)?);
        let load_ns = ns_since(before);
        let before = Instant::now();
        let generation = handlers.swap(id).map_err(|error| {
            handlers.forget(id);
            failed(error)
        })?;
        let swap_ns = ns_since(before);
        let (handler, gate) = (loaded.name.clone(), gate.clone());
        let changed = Changed { handler, handler_id: id.0, generation, swap_ns, load_ns, gate, notes: Vec::new() };
        let types = finish::types(&loaded);
        // As with the descriptions: a disk that does not take this takes no pass either.
        let _ = self.live.output.handler_types(std::slice::from_ref(&types));
        self.live.types.push(types);
        objects.push(loaded);
        self.changed(&Handler::Object { path, object: Arc::new(object) });
        self.retire();
        Ok(changed)
    }

    fn put_gate(&mut self, text: Option<String>) -> Result<Changed, Refusal> {
        let Session { handlers, sampling, stubs, target, .. } = &mut *self.session;
        let handlers = programs(handlers)?;
        let before = Instant::now();
        let notes = match &text {
            None => handlers.set_gate(None).map(|_| Vec::new()).map_err(failed)?,
            Some(text) => {
                let expression = Expression::parse(text).map_err(|error| no_gate(&error))?;
                gate::install(&expression, handlers, &sampling.specs, stubs, target).map_err(|error| match error {
                    RecordError::Gate(error) => no_gate(&error),
                    RecordError::Handler(error) => failed(error),
                    error => refuse(RefusalKind::Failed, error.to_string()),
                })?
            }
        };
        let load_ns = ns_since(before);
        let (id, generation) = (handlers.current(), handlers.generation());
        let handler = handlers.name(id).unwrap_or_default().to_owned();
        self.session.gate.clone_from(&text);
        self.changed_gate();
        Ok(Changed { handler, handler_id: id.0, generation, swap_ns: 0, load_ns, gate: text, notes })
    }

    /// Enters the handler in force once more, with the gate that is before it now.
    fn changed_gate(&mut self) {
        self.session.changes += 1;
        self.session.changed_ns = Some(control::now_ns());
        let Some(handlers) = &self.session.handlers else { return };
        let (id, generation) = (handlers.current().0, handlers.generation());
        let gate = &self.session.gate;
        let mut same: Vec<HandlerDesc> = self.live.handlers.iter().filter(|known| known.id == id).cloned().collect();
        if same.iter().any(|known| known.gate == *gate) {
            return;
        }
        // One of each event, with all that is said of it.
        let mut events = Vec::new();
        same.retain(|known| {
            !events.contains(&known.event) && {
                events.push(known.event);
                true
            }
        });
        let more = same.into_iter().map(|known| HandlerDesc { generation, gate: gate.clone(), ..known });
        self.live.handlers.extend(more);
        // As with a new handler: a disk that does not take this takes no pass either.
        let _ = self.live.output.handlers(&self.live.handlers);
    }

    /// Lets go of objects that are not in force any more, and of what they have attached elsewhere.
    fn retire(&mut self) {
        let Session { handlers: Some(handlers), objects, .. } = &mut *self.session else { return };
        let current = handlers.current();
        objects.iter().filter(|object| object.id != current).for_each(|object| handlers.forget(object.id));
        objects.retain(|object| object.id == current);
    }

    /// Whether what the handler leaves can be written: what a file holds is fixed when it begins.
    fn has_place_for(&self, builtin: Builtin) -> Result<(), Refusal> {
        let lacks = match builtin {
            Builtin::Emit if self.session.outputs.is_none() => NO_RING,
            Builtin::Count if self.plan.destination == Destination::Pipe => {
                "this recording is a stream, which has no place for counts"
            }
            Builtin::Count if self.live.passes.count_targets().iter().all(Option::is_none) => {
                "this recording has no event for counts beside samples: start it with --handler count --chain"
            }
            _ => return Ok(()),
        };
        Err(refuse(RefusalKind::Impossible, lacks))
    }

    /// Enters the handler that is in force now, so that readers know who wrote what.
    fn changed(&mut self, handler: &Handler) {
        let Running { plan, session, live } = self;
        session.changes += 1;
        session.changed_ns = Some(control::now_ns());
        let Some(handlers) = &session.handlers else { return };
        let object = session.objects.iter().find(|object| object.id == handlers.current());
        let known = live.handlers.len();
        for (event, stub) in session.stubs.iter().enumerate() {
            let Some(stub) = stub else { continue };
            let entries = live.passes.count_targets().get(event).and_then(Option::as_ref);
            let ring = session.outputs.as_ref().map(|_| live.first_output + stub);
            let gate = session.gate.as_deref();
            let desc = Places { event, ring, entries, gate }.describe(handler, object, plan, handlers);
            let same = |known: &HandlerDesc| (known.event, known.id, &known.gate) == (event, desc.id, &desc.gate);
            if !live.handlers[..known].iter().any(same) {
                live.handlers.push(desc);
            }
        }
        if live.handlers.len() > known {
            // The handler runs already. A disk that does not take this takes no pass either, which then tells of it.
            let _ = live.output.handlers(&live.handlers);
        }
    }
}

fn programs(handlers: &mut Option<Handlers>) -> Result<&mut Handlers, Refusal> {
    let none = "this recording runs no programs on samples, so that there is nothing to change";
    handlers.as_mut().ok_or_else(|| refuse(RefusalKind::Impossible, none))
}

fn refuse(kind: RefusalKind, text: impl Into<String>) -> Refusal {
    Refusal::new(kind, text)
}

/// What is wrong with an expression, with the place of it.
fn no_gate(error: &GateError) -> Refusal {
    let details = error.picture().lines().map(str::to_owned).collect();
    Refusal { details, ..refuse(RefusalKind::Failed, error.to_string()) }
}

fn failed(error: afterimage_handler::Error) -> Refusal {
    let log = error.full_log();
    let details = log[log.len().saturating_sub(DETAILS_MAX)..].to_vec();
    Refusal { details, ..refuse(RefusalKind::Failed, error.to_string()) }
}

/// The maps of the handler in force that the next one takes over.
fn kept<'a>(
    objects: &'a [LoadedObject],
    handlers: &Handlers,
    names: &[String],
) -> Result<Vec<(String, BorrowedFd<'a>)>, Refusal> {
    let current = objects.iter().find(|object| object.id == handlers.current());
    let find = |name: &String| match current.and_then(|object| object.map(name)) {
        Some(fd) => Ok((name.clone(), fd)),
        None => {
            let have: Vec<&str> = current.iter().flat_map(|object| object.maps()).map(|(name, _)| name).collect();
            let have = if have.is_empty() { "it has none".to_owned() } else { format!("it has {}", have.join(", ")) };
            let text = format!("the handler in force has no map {name} that could be kept; {have}");
            Err(refuse(RefusalKind::Failed, text))
        }
    };
    names.iter().map(find).collect()
}

/// The bytes of a memory file that nobody can change or cut any more: reading it waits for nobody, and what was read stays
/// so.
fn sealed(descriptor: OwnedFd) -> Result<Vec<u8>, Refusal> {
    let bad = |text: &str| refuse(RefusalKind::BadRequest, text);
    let needed = SealFlags::WRITE | SealFlags::SHRINK;
    if !rustix::fs::fcntl_get_seals(&descriptor).is_ok_and(|seals| seals.contains(needed)) {
        return Err(bad("the object is not in a sealed memory file"));
    }
    let file = File::from(descriptor);
    let length = file.metadata().map(|metadata| metadata.len()).unwrap_or(u64::MAX);
    let length = usize::try_from(length).ok().filter(|_| length <= OBJECT_MAX);
    let mut bytes = vec![0; length.ok_or_else(|| bad("the object is too large"))?];
    file.read_exact_at(&mut bytes, 0).map_err(|error| refuse(RefusalKind::Failed, format!("the object: {error}")))?;
    Ok(bytes)
}

fn ns_since(before: Instant) -> u64 {
    u64::try_from(before.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
