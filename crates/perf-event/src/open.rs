//! Opening events on CPUs, tasks or a command, and mapping the rings they share.
//!
//! [`settle`] opens each event once to learn what this kernel and these privileges allow and bends it to that; [`open`]
//! then opens it everywhere. What was bent is one [`Note`] each.
//!
//! Rings: events of the classes clock, hardware, tracepoint and breakpoint of one CPU share a ring; each software event
//! has its own ring per CPU, for the kernel reuses one sample for all software events of a type on a CPU, and only the
//! ring then tells whose it was.

mod error;
mod event;
mod files;
mod rings;
mod settle;
mod target;

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use afterimage_perf_data::AttrFlags;

pub use error::{OpenError, OpenErrorKind};
pub use event::{Count, Event};
pub use settle::settle;
pub use target::{Target, threads_of};

use crate::facts::Facts;
use crate::ring::Ring;
use crate::spec::EventSpec;
use crate::sys::Kernel;

/// One line for the user about what differs from what was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note(pub String);

impl std::fmt::Display for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// How to open.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Data pages of each ring, a power of two; halved until all rings fit.
    pub pages: usize,
}

/// What was opened. Every event is disabled, or waits for the command's exec.
#[derive(Debug)]
pub struct Opened {
    /// The events as they were opened in the end, in the order asked for. There may be fewer than were asked for.
    pub specs: Vec<EventSpec>,
    /// One per (event, CPU, task).
    pub events: Vec<Event>,
    /// Which of them write where is [`Event::ring`].
    pub rings: Vec<Ring>,
    /// Data pages of each ring.
    pub pages: usize,
    /// What differs from what was asked for.
    pub notes: Vec<Note>,
}

impl Opened {
    /// Starts every event; groups start as one. Nothing is done about events that wait for a command's exec.
    ///
    /// # Errors
    /// Of the first that the kernel refuses to start.
    pub fn enable(&self) -> io::Result<()> {
        self.starters().try_for_each(Event::enable)
    }

    /// Stops every event. All are tried; the first error is returned.
    ///
    /// # Errors
    /// Of the first that the kernel refuses to stop.
    pub fn disable(&self) -> io::Result<()> {
        self.events.iter().map(Event::disable).fold(Ok(()), Result::and)
    }

    /// Starts the events of one CPU, as [`Opened::enable`] does.
    ///
    /// # Errors
    /// Of the first that the kernel refuses to start.
    pub fn enable_on(&self, cpu: i32) -> io::Result<()> {
        self.starters().filter(|event| event.cpu == cpu).try_for_each(Event::enable)
    }

    /// Stops the events of one CPU. All are tried; the first error is returned.
    ///
    /// # Errors
    /// Of the first that the kernel refuses to stop.
    pub fn disable_on(&self, cpu: i32) -> io::Result<()> {
        self.events.iter().filter(|event| event.cpu == cpu).map(Event::disable).fold(Ok(()), Result::and)
    }

    /// Leaders and events without a group that nothing else starts.
    fn starters(&self) -> impl Iterator<Item = &Event> {
        self.events.iter().filter(|event| {
            self.specs.get(event.spec).is_some_and(|spec| {
                let leads = spec.group.is_none_or(|leader| leader == event.spec);
                leads && !spec.attr.flags.contains(AttrFlags::ENABLE_ON_EXEC)
            })
        })
    }
}

/// Settles `specs` and opens each of them everywhere that `target` says, disabled, with its ring. Where one event would
/// stand in for several, it is opened once.
///
/// CPUs that went away and tasks that ended are left out, with a note.
///
/// # Errors
/// When an event can be opened nowhere, or no ring can be mapped. Nothing stays open then.
pub fn open(
    kernel: &Arc<dyn Kernel>,
    facts: &Facts,
    mut specs: Vec<EventSpec>,
    target: &Target,
    options: Options,
) -> Result<Opened, OpenError> {
    let mut notes = settle(kernel.as_ref(), facts, &mut specs, target)?;
    let mut specs = settle::without_twins(specs);
    for (index, spec) in specs.iter_mut().enumerate() {
        target.mark(&mut spec.attr, spec.group.is_some_and(|leader| leader != index));
    }
    let mut opening =
        Opening { kernel, target, specs: &specs, fds: Vec::new(), by_place: HashMap::new(), gone: Gone::default() };
    opening.all()?;
    let Opening { fds, gone, .. } = opening;
    notes.extend(gone.notes());
    let (rings, ring_of, pages) = rings::map(kernel.as_ref(), &specs, &fds, options.pages, &mut notes)?;
    let mut events = Vec::with_capacity(fds.len());
    for (place, ring) in fds.into_iter().zip(ring_of) {
        events.push(event::finish(kernel, &specs[place.spec], place, ring)?);
    }
    Ok(Opened { specs, events, rings, pages, notes })
}

/// One opened descriptor and where it counts.
#[derive(Debug)]
struct Place {
    fd: Arc<OwnedFd>,
    spec: usize,
    cpu: i32,
    tid: i32,
}

/// What could not be opened because it was not there.
#[derive(Debug, Default)]
struct Gone {
    cpus: Vec<i32>,
    busy: Vec<(String, i32)>,
    tasks: Vec<i32>,
}

impl Gone {
    fn notes(&self) -> Vec<Note> {
        let mut notes = Vec::new();
        let cpus = self.cpus.iter().map(|cpu| Note(format!("CPU {cpu} is offline: it is not sampled")));
        let busy = self.busy.iter();
        let busy =
            busy.map(|(name, cpu)| Note(format!("{name} is in use by another on CPU {cpu}: it is not sampled there")));
        notes.extend(cpus.chain(busy));
        if !self.tasks.is_empty() {
            notes.push(Note(format!("{} of the threads ended before they were sampled", self.tasks.len())));
        }
        notes
    }
}

/// The opening of all events of a target.
struct Opening<'a> {
    kernel: &'a Arc<dyn Kernel>,
    target: &'a Target,
    specs: &'a [EventSpec],
    fds: Vec<Place>,
    by_place: HashMap<(usize, i32, i32), Arc<OwnedFd>>,
    gone: Gone,
}

impl Opening<'_> {
    fn all(&mut self) -> Result<(), OpenError> {
        for (tid, cpu) in self.target.places() {
            for spec in 0..self.specs.len() {
                self.one(spec, tid, cpu)?;
            }
        }
        for (index, spec) in self.specs.iter().enumerate() {
            if !self.fds.iter().any(|place| place.spec == index) {
                return Err(self.nowhere(spec));
            }
        }
        Ok(())
    }

    fn one(&mut self, index: usize, tid: i32, cpu: i32) -> Result<(), OpenError> {
        let spec = &self.specs[index];
        let leader = match spec.group {
            Some(leader) if leader != index => match self.by_place.get(&(leader, tid, cpu)) {
                Some(fd) => Some(Arc::clone(fd)),
                None => return Ok(()),
            },
            _ => None,
        };
        let group = leader.as_ref().map(|fd| fd.as_fd());
        match files::open(self.kernel.as_ref(), &spec.attr, spec.cgroup.as_ref(), tid, cpu, group) {
            Ok(fd) => {
                let fd = Arc::new(fd);
                self.by_place.insert((index, tid, cpu), Arc::clone(&fd));
                self.fds.push(Place { fd, spec: index, cpu, tid });
                Ok(())
            }
            Err(cause) => self.refused(spec, tid, cpu, cause),
        }
    }

    /// Whether a refusal concerns this place alone.
    fn refused(&mut self, spec: &EventSpec, tid: i32, cpu: i32, cause: io::Error) -> Result<(), OpenError> {
        match cause.raw_os_error() {
            Some(libc::ENODEV) if cpu >= 0 => push_new(&mut self.gone.cpus, cpu),
            Some(libc::EBUSY) if cpu >= 0 => push_new(&mut self.gone.busy, (spec.name.clone(), cpu)),
            Some(libc::ESRCH) if tid >= 0 => push_new(&mut self.gone.tasks, tid),
            _ => return Err(OpenError::classify(spec, tid, cpu, cause)),
        }
        Ok(())
    }

    fn nowhere(&self, spec: &EventSpec) -> OpenError {
        let kind = if self.gone.busy.iter().any(|(name, _)| *name == spec.name) {
            OpenErrorKind::Busy
        } else if !self.gone.tasks.is_empty() {
            OpenErrorKind::NoTask
        } else {
            OpenErrorKind::NoCpu
        };
        OpenError { event: spec.name.clone(), kind, cause: None }
    }
}

fn push_new<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if !list.contains(&item) {
        list.push(item);
    }
}

/// Whether an attr asks for what only CAP_PERFMON or a low perf_event_paranoid allows.
fn wants_kernel(flags: AttrFlags) -> bool {
    !flags.contains(AttrFlags::EXCLUDE_KERNEL)
}

#[cfg(test)]
mod tests;
