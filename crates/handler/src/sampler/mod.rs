//! Samples of a program's own threads, with a handler on each: what a service embeds.
//!
//! ```no_run
//! use afterimage_handler::{Builtin, Sampler};
//!
//! # fn main() -> afterimage_handler::Result<()> {
//! let mut sampler = Sampler::builder().frequency(999).handler(Builtin::Emit).start()?;
//! std::thread::sleep(std::time::Duration::from_millis(100));
//! sampler.drain(|item| println!("{item}"))?;
//! println!("{} samples", sampler.counters().handled);
//! # Ok(())
//! # }
//! ```
//!
//! A [`Sampler`] has an event on each of the threads, the stub on each event, a ring that the kernel writes ordinary samples
//! to and one that the handler writes to, on each CPU. Nothing of it runs by itself: whoever owns it calls
//! [`Sampler::drain`] as often as it likes, and what found no room in a ring is counted. It needs CAP_BPF and CAP_PERFMON.

mod item;
mod start;

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use afterimage_perf_data::btf::Types;
use afterimage_perf_data::{Endian, Layout, SampleType};
use afterimage_perf_event::open::Opened;

/// What an [`Item`] is made of.
pub use afterimage_perf_data::btf::{Unreadable, Value};
/// What an [`Item`] is made of.
pub use afterimage_perf_data::{AiHdr, EmitPayload, Sample};
pub use item::Item;
pub use start::Builder;

use crate::gate::{Context, Gate, GateError, NoNames};
use crate::object::{LoadedObject, Object};
use crate::{Builtin, Counters, Error, ErrorKind, HandlerId, Handlers, Result};

/// Handlers whose records may still be in a ring: the one in force and the one before it.
const KEPT: usize = 2;

/// What a drain brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Items that were handed out.
    pub items: u64,
    /// Records of a kind that is not known here, or that made no sense.
    pub unreadable: u64,
}

/// Threads that are being sampled. Dropping it ends that.
#[derive(Debug)]
pub struct Sampler {
    // Fields are dropped in this order: events stop before their programs go.
    sampling: Opened,
    outputs: Opened,
    handlers: Handlers,
    objects: VecDeque<LoadedObject>,
    /// What all samples carry.
    carried: SampleType,
    notes: Vec<String>,
}

impl Sampler {
    /// What is to be sampled, and with which handler: by default every thread of this process, those that it starts later
    /// too, 4,000 times a second of CPU time, with no handler.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Hands out what is in the rings, ring by ring: what the handler wrote comes before the ordinary samples. Items of one CPU
    /// and one kind come in their order.
    ///
    /// # Errors
    /// When a ring makes no sense; the next drain goes on behind the damage.
    pub fn drain(&mut self, mut f: impl FnMut(&Item<'_>)) -> Result<Drained> {
        let types: Vec<(u16, Types<'_>)> =
            self.objects.iter().filter_map(|object| Some((object.id.0, Types::parse(&object.btf).ok()?))).collect();
        let mut drained = Drained::default();
        let mut damage = None;
        for opened in [&mut self.outputs, &mut self.sampling] {
            let Some(layout) = opened.specs.first().map(|spec| Layout::new(&spec.attr, Endian::NATIVE)) else {
                continue;
            };
            for ring in &mut opened.rings {
                let head = ring.head();
                let done = ring.drain(head, &mut |record| match Item::of(record, &layout, &types) {
                    Ok(Some(item)) => {
                        drained.items += 1;
                        f(&item);
                    }
                    Ok(None) => {}
                    Err(_) => drained.unreadable += 1,
                });
                damage = damage.or(done.err());
            }
        }
        self.prune();
        match damage {
            Some(error) => Err(Error::new(ErrorKind::System, "reading a ring", error.to_string())),
            None => Ok(drained),
        }
    }

    /// Lets go of the oldest objects of which nothing is in a ring any more: never of the one in force, which whoever has
    /// [`Sampler::handlers`] may have put there again.
    fn prune(&mut self) {
        let (current, mut excess) = (self.handlers.current(), self.objects.len().saturating_sub(KEPT));
        let handlers = &mut self.handlers;
        self.objects.retain(|object| {
            let goes = excess > 0 && object.id != current;
            if goes {
                excess -= 1;
                handlers.forget(object.id);
            }
            !goes
        });
    }

    /// Puts another built-in handler in force while sampling goes on. No sample falls between.
    ///
    /// # Errors
    /// [`ErrorKind::Options`] for `count`, whose tables are not drained here; when the kernel refuses it. The old one stays
    /// in force then.
    pub fn swap(&mut self, builtin: Builtin) -> Result<()> {
        can_be_drained(builtin)?;
        self.handlers.load_builtin(builtin)?;
        self.handlers.swap(builtin).map(drop)
    }

    /// Puts the handler of an object in force, as [`Sampler::swap`] does.
    ///
    /// # Errors
    /// When the object is refused, by us or by the kernel; the old handler stays in force then.
    pub fn swap_object(&mut self, object: &Object) -> Result<HandlerId> {
        let loaded = self.handlers.load_object(object)?;
        let id = loaded.id;
        if let Err(error) = self.handlers.swap(id) {
            self.handlers.forget(id);
            return Err(error);
        }
        self.objects.push_back(loaded);
        Ok(id)
    }

    /// Lets only those samples get to the handler for which an expression holds (docs/where.md); `None` lets all of them. Names
    /// of functions and files cannot be looked up here.
    ///
    /// # Errors
    /// [`ErrorKind::Options`] for what is no such expression; the old gate stays then.
    pub fn only(&mut self, expression: Option<&str>) -> Result<()> {
        let program = match expression {
            None => None,
            Some(text) => self.gate(text)?,
        };
        self.handlers.set_gate(program).map(drop)
    }

    fn gate(&self, text: &str) -> Result<Option<OwnedFd>> {
        let context = Context::here(self.handlers.mechanism(), self.carried);
        let gate = Gate::compile(text, &NoNames, &context).map_err(|error| no_gate(&error))?;
        gate.load(&self.handlers.shared())
    }

    /// Stops sampling for a while; counters are exact then.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn pause(&self) -> Result<()> {
        self.sampling.disable().map_err(|e| Error::io("stopping the events", &e))
    }

    /// Goes on after [`Sampler::pause`].
    ///
    /// # Errors
    /// What the kernel says.
    pub fn resume(&self) -> Result<()> {
        self.sampling.enable().map_err(|e| Error::io("starting the events", &e))
    }

    /// What became of all samples so far, on all CPUs.
    pub fn counters(&self) -> Counters {
        self.handlers.totals(0)
    }

    /// The stubs and programs, for what is not done here.
    pub fn handlers(&mut self) -> &mut Handlers {
        &mut self.handlers
    }

    /// What differs from what was asked for, a line each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}

/// Refuses a handler that leaves what [`Sampler::drain`] does not hand out.
fn can_be_drained(builtin: Builtin) -> Result<()> {
    if builtin == Builtin::Count {
        let cause = "a sampler hands out records, and this one leaves counts in tables: see Handlers::drain_counts";
        return Err(Error::new(ErrorKind::Options, format!("handler {builtin}"), cause));
    }
    Ok(())
}

/// What is wrong with an expression.
fn no_gate(error: &GateError) -> Error {
    Error::new(ErrorKind::Options, format!("`{}`", error.expression), error.to_string())
}

impl Drop for Sampler {
    fn drop(&mut self) {
        // An event that cannot be stopped samples on into a ring that goes with it.
        let _ = self.sampling.disable();
    }
}
