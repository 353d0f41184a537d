//! What a recording is asked to do: everything is decided here before anything is opened.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use afterimage_handler::Builtin;
use afterimage_handler::gate::Expression;
use afterimage_handler::object::Object;
use afterimage_kernel_text::capture;
use afterimage_perf_event::config::Rate;
use afterimage_perf_event::spec::EventSpec;

use crate::by::By;
use crate::off_cpu::OffCpuPlan;

/// What to sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Every CPU that is online.
    AllCpus,
    /// These CPUs.
    Cpus(Vec<u32>),
    /// These processes with all their threads.
    Processes(Vec<u32>),
    /// These threads.
    Threads(Vec<u32>),
    /// The command alone. With a command and another subject, the command only sets how long the recording lasts.
    Command,
}

/// Where the recording goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// A file; one that is there is kept as `FILE.old`.
    File(PathBuf),
    /// The pipe form, to stdout.
    Pipe,
    /// Nowhere: samples are counted by keys ([`Plan::by`]) and read out.
    Nowhere,
}

/// The program on each sample.
#[derive(Clone, Debug)]
pub enum Handler {
    /// One that comes with us.
    Builtin(Builtin),
    /// One from an object file, which has been opened; it says itself what becomes of a sample.
    Object {
        /// The file as the user named it.
        path: PathBuf,
        /// What was in it.
        object: Arc<Object>,
    },
}

impl Handler {
    /// The name that it goes by: of the built-in handler, or of the program.
    pub fn name(&self) -> &str {
        match self {
            Handler::Builtin(builtin) => builtin.name(),
            Handler::Object { object, .. } => object.program(),
        }
    }

    /// Whether it may write to handler rings.
    pub fn writes(&self) -> bool {
        match self {
            Handler::Builtin(builtin) => *builtin == Builtin::Emit,
            Handler::Object { object, .. } => object.writes(),
        }
    }
}

/// A whole recording.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Events, at least one.
    pub events: Vec<EventSpec>,
    /// How often to sample; `None` is each event's own default.
    pub rate: Option<Rate>,
    /// What to sample.
    pub subject: Subject,
    /// A command to run meanwhile; empty for none.
    pub command: Vec<OsString>,
    /// New threads and children of a sampled task are sampled too.
    pub inherit: bool,
    /// Callchains: by frame pointer, unless stacks are copied.
    pub callchain: bool,
    /// So many bytes of the user's stack are copied with each sample, for its user part to be unwound from when the recording
    /// is read: a multiple of 8, at most [`MAX_STACK_COPY`](afterimage_perf_event::config::MAX_STACK_COPY).
    pub stack_copy: Option<u32>,
    /// Data pages of each sampling and handler ring, a power of two.
    pub pages: usize,
    /// Where it goes.
    pub destination: Destination,
    /// The end, where it is known.
    pub duration: Option<Duration>,
    /// How long to wait before sampling starts.
    pub delay: Option<Duration>,
    /// The program on each sample. `None`: nobody asked; samples go through a stub where that is allowed.
    pub handler: Option<Handler>,
    /// With `emit` or `count`: the ordinary sample is kept too. An object's handler decides that itself.
    pub chain: bool,
    /// Samples are counted by keys in the kernel and read out, and not recorded: the destination is [`Destination::Nowhere`],
    /// and no text is kept.
    pub by: Option<By>,
    /// Time off CPU is measured too, as an event of its own.
    pub off_cpu: Option<OffCpuPlan>,
    /// Control events run beside the sampling events to the end, so that what the kernel skipped is known. Without, one runs in
    /// the first seconds of recordings of whole CPUs.
    pub audit: bool,
    /// Which samples are kept; `None`: all.
    pub gate: Option<Expression>,
    /// Samples carry their cgroup, and records tell its path.
    pub cgroups: bool,
    /// Records tell the namespaces of processes, and the recording their numbers in namespaces of their own.
    pub namespaces: bool,
    /// How kernel text is kept; `None`: not at all.
    pub text: Option<capture::Options>,
    /// The command line for the recording's header.
    pub command_line: Vec<String>,
}

/// The whole machine by cpu-clock, 4,000 times a second, into `perf.data` until it is stopped; kernel text is kept in all ways
/// that work here.
impl Default for Plan {
    fn default() -> Plan {
        Plan {
            events: vec![EventSpec::cpu_clock()],
            rate: None,
            subject: Subject::AllCpus,
            command: Vec::new(),
            inherit: true,
            callchain: false,
            stack_copy: None,
            pages: 128,
            destination: Destination::File("perf.data".into()),
            duration: None,
            delay: None,
            handler: None,
            chain: false,
            by: None,
            off_cpu: None,
            audit: false,
            gate: None,
            cgroups: false,
            namespaces: false,
            text: Some(capture::Options::default()),
            command_line: std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect(),
        }
    }
}

impl Plan {
    /// The built-in handler that runs; none beside an object's.
    pub fn builtin(&self) -> Builtin {
        match &self.handler {
            Some(Handler::Builtin(builtin)) => *builtin,
            _ => Builtin::None,
        }
    }

    /// The object that the handler comes from, if it does.
    pub fn object(&self) -> Option<&Object> {
        match &self.handler {
            Some(Handler::Object { object, .. }) => Some(object),
            _ => None,
        }
    }

    /// The name of the handler that runs.
    pub fn handler_name(&self) -> &str {
        self.handler.as_ref().map_or(Builtin::None.name(), Handler::name)
    }

    /// Whether handler rings are needed.
    pub fn writes(&self) -> bool {
        self.handler.as_ref().is_some_and(Handler::writes)
    }

    /// Whether what was asked for cannot be had without a program.
    pub(crate) fn needs_program(&self) -> bool {
        self.handler.is_some() || self.by.is_some() || self.gate.is_some() || self.audit
    }
}

/// How far a running recording is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Time since sampling began.
    pub elapsed: Duration,
    /// Samples taken.
    pub samples: u64,
    /// Samples lost, by any cause that is known while recording.
    pub lost: u64,
    /// Bytes of the recording.
    pub bytes: u64,
}
