//! What a controller may see and change of a recording that runs.

use std::os::fd::OwnedFd;
use std::time::Instant;

use afterimage_handler::{Builtin, Handlers};

use crate::Handler;
use crate::control::{self, Changed, EventStats, Refusal, RefusalKind, Request, Stats, Subject, Wanted};
use crate::finish::Places;
use crate::plan::{Destination, Plan};
use crate::run::Live;
use crate::session::Session;
use crate::tallies;

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

    fn change(&mut self, request: Request, _descriptor: Option<OwnedFd>) -> Result<Changed, Refusal> {
        match request {
            Request::Stats {} => Err(refuse(RefusalKind::BadRequest, "stats change nothing")),
            Request::Clear {} => self.swap_builtin(Builtin::None),
            Request::Swap { handler: Wanted::Builtin(name) } => match name.parse() {
                Ok(builtin) => self.swap_builtin(builtin),
                Err(_) => Err(refuse(
                    RefusalKind::BadRequest,
                    format!("{name}: no such handler; built in are none, emit and count"),
                )),
            },
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
        Ok(Changed { handler: builtin.name().to_owned(), handler_id, generation, swap_ns, load_ns })
    }

    /// Whether what the handler leaves can be written: what a file holds is fixed when it begins.
    fn has_place_for(&self, builtin: Builtin) -> Result<(), Refusal> {
        let lacks = match builtin {
            Builtin::Emit if self.session.outputs.is_none() => {
                "this recording has no handler ring: start it with --handler emit or with an object that writes"
            }
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
            let desc = Places { event, ring, entries }.describe(handler, object, plan, handlers);
            if !live.handlers[..known].iter().any(|known| (known.event, known.id) == (event, desc.id)) {
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

fn failed(error: afterimage_handler::Error) -> Refusal {
    let details = error.log().to_vec();
    Refusal { details, ..refuse(RefusalKind::Failed, error.to_string()) }
}

fn ns_since(before: Instant) -> u64 {
    u64::try_from(before.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
