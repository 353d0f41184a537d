//! What is to be sampled, and its beginning.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;

use afterimage_perf_data::{AttrFlags, SampleType};
use afterimage_perf_event::config::{Config, Rate};
use afterimage_perf_event::facts::Facts;
use afterimage_perf_event::open::{self, OpenError, OpenErrorKind, Opened, Target, threads_of};
use afterimage_perf_event::spec::{self, EventSpec};
use afterimage_perf_event::sys::{Kernel, Real};

use super::Sampler;
use crate::gate::Expression;
use crate::object::Object;
use crate::{Builtin, Error, ErrorKind, EventConfig, Handlers, Options, Result, cpus};

/// How often everything is opened where threads are started meanwhile.
const OPENINGS: usize = 10;

/// What is to be sampled, and with which handler. Each method sets one thing; [`Builder::start`] begins.
#[derive(Debug)]
pub struct Builder {
    event: String,
    rate: Option<Rate>,
    threads: Option<Vec<u32>>,
    call_chains: bool,
    pages: usize,
    builtin: Builtin,
    chain: bool,
    object: Option<Object>,
    only: Option<String>,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder {
            event: "cpu-clock".to_owned(),
            rate: None,
            threads: None,
            call_chains: false,
            pages: 64,
            builtin: Builtin::None,
            chain: false,
            object: None,
            only: None,
        }
    }
}

impl Builder {
    /// The event, by perf's name of it: `cpu-clock`, `page-faults`, `mem:0x1234:w`.
    #[must_use]
    pub fn event(mut self, name: &str) -> Builder {
        name.clone_into(&mut self.event);
        self
    }

    /// Samples a second, for each thread while it runs.
    #[must_use]
    pub fn frequency(mut self, hz: u64) -> Builder {
        self.rate = Some(Rate::Freq(hz));
        self
    }

    /// One sample every so many events (ns of clock events).
    #[must_use]
    pub fn period(mut self, events: u64) -> Builder {
        self.rate = Some(Rate::Period(events));
        self
    }

    /// These threads alone, and none that they start: thread ids as gettid(2) gives them.
    #[must_use]
    pub fn threads(mut self, tids: &[u32]) -> Builder {
        self.threads = Some(tids.to_vec());
        self
    }

    /// Whether samples have call chains, by frame pointers.
    #[must_use]
    pub fn call_chains(mut self, wanted: bool) -> Builder {
        self.call_chains = wanted;
        self
    }

    /// Pages of each ring, a power of two (64 if not said): there are two rings on each CPU.
    #[must_use]
    pub fn pages(mut self, pages: usize) -> Builder {
        self.pages = pages;
        self
    }

    /// The built-in handler to begin with: `none` or `emit`. A sampler does not take `count`, for what that leaves is no item.
    #[must_use]
    pub fn handler(mut self, builtin: Builtin) -> Builder {
        self.builtin = builtin;
        self
    }

    /// Lets the ordinary sample through beside what a built-in handler makes of it. An object decides that itself.
    #[must_use]
    pub fn chain(mut self, wanted: bool) -> Builder {
        self.chain = wanted;
        self
    }

    /// The handler of an object, instead of a built-in one.
    #[must_use]
    pub fn object(mut self, object: Object) -> Builder {
        self.object = Some(object);
        self
    }

    /// Only samples for which an expression holds get to the handler: `user && comm ~ "worker*"`.
    #[must_use]
    pub fn only(mut self, expression: &str) -> Builder {
        self.only = Some(expression.to_owned());
        self
    }

    /// Opens everything and begins to sample.
    ///
    /// # Errors
    /// [`ErrorKind::NotPermitted`] without CAP_BPF and CAP_PERFMON; [`ErrorKind::Options`] for what makes no sense; what the
    /// checks of the object and the kernel say.
    pub fn start(self) -> Result<Sampler> {
        match &self.object {
            Some(_) if self.chain => {
                let cause = "an object decides itself whether a sample is kept";
                return Err(Error::new(ErrorKind::Options, "chain", cause));
            }
            Some(_) => {}
            None => super::can_be_drained(self.builtin)?,
        }
        let facts = Facts::system();
        let spec = self.spec(&facts)?;
        let fixed = self.threads.is_some();
        let mut tids = self.tids(&facts)?;
        // What a thread starts before the stub is attached has events without one, so that it is done once more.
        let mut turn = 0;
        loop {
            turn += 1;
            let mut sampler = self.open(&facts, spec.clone(), &tids)?;
            let now = if fixed { Vec::new() } else { self.tids(&facts)? };
            let started = now.iter().filter(|tid| !tids.contains(tid)).count();
            if started > 0 && turn < OPENINGS {
                tids = now;
                continue;
            }
            if started > 0 {
                sampler
                    .notes
                    .push(format!("{started} threads were started meanwhile; they may be sampled without a handler"));
            }
            if let Some(object) = &self.object {
                sampler.swap_object(object)?;
            }
            if let Some(text) = &self.only {
                sampler.only(Some(text))?;
            }
            sampler.outputs.enable().map_err(|e| Error::io("starting the handler rings", &e))?;
            sampler.resume()?;
            return Ok(sampler);
        }
    }

    /// The event with all that its samples carry.
    fn spec(&self, facts: &Facts) -> Result<EventSpec> {
        let bad = |cause: String| Error::new(ErrorKind::Options, format!("event {}", self.event), cause);
        let mut specs = spec::parse(&self.event, facts).map_err(|error| bad(error.to_string()))?;
        let (Some(mut spec), None) = (specs.pop(), specs.pop()) else {
            return Err(bad("one event is sampled at a time".to_owned()));
        };
        let max_stack = match &self.object {
            Some(object) => object.max_stack(),
            None => self.builtin.max_stack(self.chain),
        };
        let needs = match &self.only {
            Some(text) => Expression::parse(text).map_err(|error| super::no_gate(&error))?.needs(),
            None => SampleType::empty(),
        };
        let config =
            Config { rate: self.rate, callchain: self.call_chains, max_stack, sample_type: needs, ..Config::default() };
        config.apply(&mut spec);
        if self.threads.is_none() {
            // Threads that are started later, and no child processes.
            spec.attr.flags |= AttrFlags::INHERIT_THREAD;
        }
        Ok(spec)
    }

    fn tids(&self, facts: &Facts) -> Result<Vec<u32>> {
        match &self.threads {
            Some(tids) => Ok(tids.clone()),
            None => threads_of(facts, &[std::process::id()]).map_err(|e| Error::io("the threads of this process", &e)),
        }
    }

    fn open(&self, facts: &Facts, spec: EventSpec, tids: &[u32]) -> Result<Sampler> {
        let kernel: Arc<dyn Kernel> = Arc::new(Real);
        let cpus = cpus::online()?;
        let options = open::Options { pages: self.pages };
        let target = Target::Tasks { tids: tids.to_vec(), cpus: cpus.clone(), inherit: self.threads.is_none() };
        let sampling = open::open(&kernel, facts, vec![spec], &target, options).map_err(|e| refused(&e))?;
        let first = |opened: &Opened| opened.specs.first().cloned().ok_or_else(|| no_event(&self.event));
        let sampled = first(&sampling)?;
        let mut handlers = Handlers::load(&Options {
            builtin: self.builtin,
            chain: self.chain,
            events: vec![EventConfig::from_attr(&sampled.attr)?],
            cpus: cpus.clone(),
            ..Options::default()
        })?;
        let mut output = EventSpec::bpf_output(&format!("{}/handler", self.event));
        let config = Config { rate: Some(Rate::Period(1)), sample_type: SampleType::RAW, ..Config::default() };
        config.apply(&mut output);
        let outputs =
            open::open(&kernel, facts, vec![output], &Target::Cpus(cpus), options).map_err(|e| refused(&e))?;
        for event in &outputs.events {
            if let Ok(cpu) = u32::try_from(event.cpu) {
                handlers.set_output(0, cpu, event.as_fd())?;
            }
        }
        for event in &sampling.events {
            handlers.attach(0, event.fd.as_fd())?;
        }
        let mut notes: Vec<String> = sampling.notes.iter().chain(&outputs.notes).map(ToString::to_string).collect();
        notes.extend(handlers.note().map(str::to_owned));
        let carried = sampled.attr.sample_type;
        Ok(Sampler { sampling, outputs, handlers, objects: VecDeque::new(), carried, notes })
    }
}

fn no_event(name: &str) -> Error {
    Error::new(ErrorKind::System, format!("event {name}"), "it was opened nowhere")
}

fn refused(error: &OpenError) -> Error {
    let kind = match error.kind {
        OpenErrorKind::CpuWideDenied | OpenErrorKind::KernelDenied | OpenErrorKind::TaskDenied => {
            ErrorKind::NotPermitted
        }
        OpenErrorKind::Busy => ErrorKind::Busy,
        OpenErrorKind::NoEvent | OpenErrorKind::Unsupported | OpenErrorKind::TooNew => ErrorKind::Unsupported,
        _ => ErrorKind::System,
    };
    Error::new(kind, "opening the events", error.to_string())
}
