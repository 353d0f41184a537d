//! What a controller may see and change of a recording that runs.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use afterimage_handler::gate::GateError;
use afterimage_handler::object::{LoadedObject, Object};
use afterimage_handler::{Builtin, Handlers};
use afterimage_perf_data::{GateDesc, HandlerDesc};
use rustix::fs::SealFlags;

use crate::Handler;
use crate::control::{self, Bell, Changed, EventStats, Refusal, RefusalKind, Request, Stats, Subject, Wanted};
use crate::finish::{self, Places};
use crate::loading::{self, Loaded};
use crate::plan::{Destination, Plan};
use crate::run::Live;
use crate::session::Session;
use crate::{gate, tallies};

/// What cannot be exchanged.
const COUNTS: &str =
    "samples are counted by keys here, and not recorded: another gate may be put before that, and no handler";

pub(crate) const NO_RING: &str =
    "this recording has no handler ring: start it with --handler emit or with an object that writes";

/// The most bytes of an object file.
const OBJECT_MAX: u64 = 64 << 20;

/// The most gates that a recording tells of; each is told of with the handlers behind it.
const GATES_MAX: usize = 256;

/// The most lines of explanation that a refusal carries, the last ones.
const DETAILS_MAX: usize = 4000;

/// A recording, as its control socket sees it.
pub(crate) struct Running<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) session: &'a mut Session,
    pub(crate) live: &'a mut Live,
}

impl Subject for Running<'_> {
    fn stats(&mut self) -> Stats {
        if self.live.passes.ask() {
            // What is counted by keys is taken out of the kernel only when it has to be. It goes nowhere that could fail.
            let _ = self.live.passes.run(self.session, &mut self.live.output);
        }
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
            if let Some(by) = &self.plan.by {
                stats.handler = format!("by {}", by.keys().join(","));
            }
            stats.handler_id = handlers.current().0;
            stats.generation = handlers.generation();
        }
        stats
    }

    fn change(
        &mut self,
        request: Request,
        descriptor: Option<OwnedFd>,
        bell: &Bell,
    ) -> Option<Result<Changed, Refusal>> {
        self.begin(request, descriptor, bell).transpose()
    }

    fn finished(&mut self) -> Option<Result<Changed, Refusal>> {
        let ended = self.live.loading.ended()?;
        Some(ended.and_then(|(loaded, load_ns)| self.put(loaded, load_ns)))
    }

    fn abandon(&mut self) {
        self.live.loading.leave();
    }
}

impl Running<'_> {
    /// Does what takes no time, and begins to load for the rest.
    fn begin(
        &mut self,
        request: Request,
        descriptor: Option<OwnedFd>,
        bell: &Bell,
    ) -> Result<Option<Changed>, Refusal> {
        programs(&mut self.session.handlers)?;
        let swaps = matches!(request, Request::Swap { .. } | Request::Clear {});
        if swaps && self.plan.by.is_some() {
            return Err(refuse(RefusalKind::Impossible, COUNTS));
        }
        let wanted = match request {
            Request::Stats {} => return Err(refuse(RefusalKind::BadRequest, "stats change nothing")),
            Request::Clear {} => return self.swap_builtin(Builtin::None, 0).map(Some),
            Request::Where { expression: None } => return self.put_gate(None, None, Vec::new(), 0).map(Some),
            Request::Where { expression: Some(text) } => {
                let Session { sampling, stubs, target, .. } = &*self.session;
                let carried = gate::carried(&sampling.specs, stubs);
                loading::Wanted::Gate { text, carried, target: target.clone() }
            }
            Request::Swap { handler: Wanted::Builtin(name) } => {
                let builtin: Builtin = name.parse().map_err(|_| {
                    let text = format!("{name}: no such handler; built in are none, emit and count");
                    refuse(RefusalKind::BadRequest, text)
                })?;
                self.has_place_for(builtin)?;
                if programs(&mut self.session.handlers)?.has_builtin(builtin) {
                    return self.swap_builtin(builtin, 0).map(Some);
                }
                loading::Wanted::Builtin(builtin)
            }
            Request::Swap { handler: Wanted::Object { path, program, set, keep_maps } } => {
                let lacks = || refuse(RefusalKind::BadRequest, "the descriptor of the object is missing");
                let file = descriptor.ok_or_else(lacks)?;
                let Session { handlers, objects, outputs, .. } = &mut *self.session;
                let handlers = programs(handlers)?;
                if handlers.next_id().0 == u16::MAX {
                    let text = "this recording has had all handlers that can be numbered";
                    return Err(refuse(RefusalKind::Impossible, text));
                }
                let keep_maps = kept(objects, handlers, &keep_maps)?;
                let (id, rings) = (handlers.next_id(), outputs.is_some());
                loading::Wanted::Object { path: path.into(), file, program, set, keep_maps, id, rings }
            }
        };
        let shared = programs(&mut self.session.handlers)?.shared();
        self.live.loading.begin(wanted, shared, bell)?;
        Ok(None)
    }

    /// Puts in force what was loaded.
    fn put(&mut self, loaded: Loaded, load_ns: u64) -> Result<Changed, Refusal> {
        match loaded {
            Loaded::Builtin(builtin, loaded) => {
                programs(&mut self.session.handlers)?.take_builtin(loaded);
                self.swap_builtin(builtin, load_ns)
            }
            Loaded::Object { path, object, loaded } => self.swap_object(path, object, loaded, load_ns),
            Loaded::Gate { text, program, notes } => self.put_gate(Some(text), program, notes, load_ns),
        }
    }

    fn swap_builtin(&mut self, builtin: Builtin, load_ns: u64) -> Result<Changed, Refusal> {
        let handlers = programs(&mut self.session.handlers)?;
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

    fn swap_object(
        &mut self,
        path: PathBuf,
        object: Arc<Object>,
        loaded: LoadedObject,
        load_ns: u64,
    ) -> Result<Changed, Refusal> {
        let Session { handlers, objects, gate, .. } = &mut *self.session;
        let handlers = programs(handlers)?;
        let id = handlers.take_object(&loaded).map_err(failed)?;
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
        self.changed(&Handler::Object { path, object });
        self.retire();
        Ok(changed)
    }

    fn put_gate(
        &mut self,
        text: Option<String>,
        program: Option<OwnedFd>,
        notes: Vec<String>,
        load_ns: u64,
    ) -> Result<Changed, Refusal> {
        let handlers = programs(&mut self.session.handlers)?;
        let before = Instant::now();
        let generation = handlers.set_gate(program).map_err(failed)?;
        let swap_ns = ns_since(before);
        let id = handlers.current();
        let handler = handlers.name(id).unwrap_or_default().to_owned();
        self.session.gate.clone_from(&text);
        self.changed_gate(GateDesc { generation, since_ns: control::now_ns(), expression: text.clone() });
        Ok(Changed { handler, handler_id: id.0, generation, swap_ns, load_ns, gate: text, notes })
    }

    /// Enters the handler in force once more, with the gate that is before it now.
    fn changed_gate(&mut self, desc: GateDesc) {
        self.session.changes += 1;
        self.session.changed_ns = Some(desc.since_ns);
        let known = self.live.gates.last().and_then(|last| last.expression.as_ref());
        if known == desc.expression.as_ref() && self.live.gates_left_out == 0 {
            return;
        }
        if self.live.gates.len() >= GATES_MAX {
            self.live.gates_left_out += 1;
            return;
        }
        // As with a new handler: a disk that does not take this takes no pass either.
        let _ = self.live.output.gate(&desc);
        self.live.gates.push(desc);
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

pub(crate) fn refuse(kind: RefusalKind, text: impl Into<String>) -> Refusal {
    Refusal::new(kind, text)
}

/// What is wrong with an expression, with the place of it.
pub(crate) fn no_gate(error: &GateError) -> Refusal {
    let details = error.picture().lines().map(str::to_owned).collect();
    Refusal { details, ..refuse(RefusalKind::Failed, error.to_string()) }
}

pub(crate) fn failed(error: afterimage_handler::Error) -> Refusal {
    let log = error.full_log();
    let details = log[log.len().saturating_sub(DETAILS_MAX)..].to_vec();
    Refusal { details, ..refuse(RefusalKind::Failed, error.to_string()) }
}

/// The maps of the handler in force that the next one takes over.
fn kept(objects: &[LoadedObject], handlers: &Handlers, names: &[String]) -> Result<Vec<(String, OwnedFd)>, Refusal> {
    let current = objects.iter().find(|object| object.id == handlers.current());
    let find = |name: &String| match current.and_then(|object| object.map(name)) {
        Some(fd) => {
            let own = fd.try_clone_to_owned();
            let own = own.map_err(|error| refuse(RefusalKind::Failed, format!("map {name}: {error}")))?;
            Ok((name.clone(), own))
        }
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
pub(crate) fn sealed(descriptor: OwnedFd) -> Result<Vec<u8>, Refusal> {
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

pub(crate) fn ns_since(before: Instant) -> u64 {
    u64::try_from(before.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
