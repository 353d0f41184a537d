//! The course of a recording, from the first check to the last byte.

use std::os::fd::AsFd;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use afterimage_handler::Builtin;
use afterimage_kernel_text::capture::by_id;
use afterimage_perf_data::{Endian, Features, GateDesc, HandlerDesc, HandlerTypes, Layout, Private, RecordingTally};
use afterimage_perf_event::caps::{Cap, Caps};
use afterimage_perf_event::child::{self, Child, Ended};
use afterimage_perf_event::facts::Facts;
use afterimage_perf_event::open::{Target, threads_of};
use afterimage_perf_event::spec::EventClass;
use afterimage_perf_event::sys::{Kernel, Real};
use afterimage_symbols::KernelTable;
use afterimage_symbols::cache::Cache;

use crate::by::Gather;
use crate::change::Running;
use crate::control::{self, Control};
use crate::finish::{self, Described};
use crate::jit::Follower;
use crate::loading::Loading;
use crate::nested::Nested;
use crate::off_cpu::{self, Waiting};
use crate::output::Output;
use crate::pass::Passes;
use crate::plan::{Destination, Plan, Progress, Subject};
use crate::session::{Session, may_use_bpf};
use crate::synth::kernel::KernelText;
use crate::synth::{self, Scanner, procfs};
use crate::tallies::{self, KernelLost};
use crate::text::{self, Finished};
use crate::wait::{Listeners, Waiter, Wake};
use crate::{Observer, RecordError, TextStats, kernel_names};

/// How long a command may take to end when it is told to.
const GRACE: Duration = Duration::from_secs(2);

/// Bytes of news that may wait for the next pass.
const NEWS: usize = 4 << 20;

/// How a recording ended.
#[derive(Debug)]
pub struct Outcome {
    /// What became of every overflow.
    pub tally: RecordingTally,
    /// Size of the recording in bytes.
    pub bytes: u64,
    /// How the command ended; `None` without one, or when we ended it because the time was over.
    pub ended: Option<Ended>,
    /// What does not add up, or was lost besides samples: one line each.
    pub problems: Vec<String>,
    /// What was done to keep kernel text; `None` where none was kept.
    pub text: Option<TextStats>,
}

/// Makes a recording. It ends when the command or all targets have ended, the duration is over, or `stop` is set.
///
/// # Errors
/// When it could not begin, nothing is left behind. When it could not be written to its end, what was written before is
/// readable.
pub fn record(plan: &Plan, stop: &AtomicBool, observer: &mut dyn Observer) -> Result<Outcome, RecordError> {
    check(plan)?;
    let kernel: Arc<dyn Kernel> = Arc::new(Real);
    let facts = Facts::system();
    let mut child = match plan.command.as_slice() {
        [] => None,
        argv => Some(child::spawn_stopped_to(argv, stdout_of_child(plan)?)?),
    };
    let mut notes = Vec::new();
    let find = || target(plan, &facts, child.as_ref());
    let (mut session, target) = Session::open(&kernel, &facts, plan, &find, &mut notes)?;
    let mut live = Live::begin(plan, &facts, &mut session)?;
    match Control::open() {
        Ok(control) => live.control = Some(control),
        Err(error) => notes.push(format!("the recording cannot be controlled while it runs: {error}")),
    }
    // Only now: what else would be said before an error does not matter any more.
    notes.iter().for_each(|note| observer.note(note));
    let mut waiter = Waiter::new(child.as_ref(), &target, observer.is_watched());
    let begun = live.scan(&target, &mut session, observer).and_then(|()| start(plan, &mut session, &mut child));
    let begun = begun.and_then(|()| live.delay(plan, &mut session, &mut waiter, &mut child, stop));
    if let Err(error) = begun {
        live.output.discard();
        return Err(error);
    }
    live.output.begun();
    let ended = live.follow(plan, &mut session, &mut waiter, &mut child, stop, observer);
    end_with_us(&ended, &mut child);
    live.end(session, ended?, observer)
}

/// After an error nobody would wait for the command: it ends with us.
fn end_with_us<T>(outcome: &Result<T, RecordError>, child: &mut Option<Child>) {
    if let (Err(_), Some(child)) = (outcome, child) {
        // One that has ended already is no second failure.
        let _ = child.signal(rustix::process::Signal::TERM);
    }
}

/// What a command prints must not stand among the records of a stream.
fn stdout_of_child(plan: &Plan) -> Result<Stdio, RecordError> {
    match plan.destination {
        Destination::File(_) => Ok(Stdio::inherit()),
        // Nor between the rows of a table.
        Destination::Pipe | Destination::Nowhere => {
            let stderr = std::io::stderr().as_fd().try_clone_to_owned();
            stderr.map(Stdio::from).map_err(RecordError::system("standard error for the command"))
        }
    }
}

/// What can be refused before anything is opened.
fn check(plan: &Plan) -> Result<(), RecordError> {
    let usage = |text: &str| Err(RecordError::Usage(text.to_owned()));
    if plan.off_cpu.is_some() {
        off_cpu::check(plan)?;
        if !may_use_bpf() {
            let what = "--off-cpu".to_owned();
            return Err(RecordError::Capability { what, capability: "CAP_BPF and CAP_PERFMON" });
        }
    }
    if plan.by.is_some() {
        return check_by(plan);
    }
    let option = match (&plan.handler, &plan.gate) {
        (Some(_), _) => "--handler",
        (None, Some(_)) => "--where",
        (None, None) if plan.audit => "--audit",
        (None, None) => return Ok(()),
    };
    if plan.events.iter().all(|event| event.class == EventClass::Tracepoint) {
        return usage(&format!("{option}: tracepoint events run no program, for it would see everybody's hits"));
    }
    if plan.chain && plan.object().is_some() {
        return usage("--chain: an object decides itself whether a sample is kept");
    }
    if plan.builtin() == Builtin::Count && plan.destination == Destination::Pipe {
        return usage("--handler count: its counts have no place in the pipe form");
    }
    if !may_use_bpf() {
        return Err(RecordError::Capability { what: option.to_owned(), capability: "CAP_BPF and CAP_PERFMON" });
    }
    Ok(())
}

fn check_by(plan: &Plan) -> Result<(), RecordError> {
    // Nothing would be written there, and what is kept of kernel text would only grow.
    if plan.destination != Destination::Nowhere || plan.text.is_some() {
        let text =
            "counting by keys (by) records nothing: its destination is Nowhere, and no text is kept (text: None)";
        return Err(RecordError::Usage(text.to_owned()));
    }
    if plan.events.iter().any(|event| event.class == EventClass::Tracepoint) {
        let text = "--by: tracepoint events run no program that could count them, for it would see everybody's hits";
        return Err(RecordError::Usage(text.to_owned()));
    }
    if !may_use_bpf() {
        return Err(RecordError::Capability { what: "--by".to_owned(), capability: "CAP_BPF and CAP_PERFMON" });
    }
    Ok(())
}

fn target(plan: &Plan, facts: &Facts, child: Option<&Child>) -> Result<Target, RecordError> {
    let cpus = facts.online_cpus().map_err(RecordError::system("list of online CPUs"))?;
    let tasks = |tids: Vec<u32>| Target::Tasks { tids, cpus: cpus.clone(), inherit: plan.inherit };
    let gone = |what: &str, id: u32| RecordError::NoTarget(format!("{what} {id}: no such process"));
    Ok(match (&plan.subject, child) {
        (Subject::AllCpus, _) => Target::Cpus(cpus),
        (Subject::Cpus(list), _) => match list.iter().find(|cpu| !cpus.contains(cpu)) {
            Some(cpu) => return Err(RecordError::NoTarget(format!("-C {cpu}: no such CPU is online"))),
            None => Target::Cpus(list.clone()),
        },
        (Subject::Processes(pids), _) => {
            if let Some(&pid) = pids.iter().find(|&&pid| !procfs::is_alive(Path::new("/proc"), pid)) {
                return Err(gone("-p", pid));
            }
            tasks(threads_of(facts, pids).map_err(RecordError::system("threads of the processes"))?)
        }
        (Subject::Threads(tids), _) => match tids.iter().find(|&&tid| !procfs::is_alive(Path::new("/proc"), tid)) {
            Some(&tid) => return Err(gone("-t", tid)),
            None => tasks(tids.clone()),
        },
        // With a delay the events must not start by themselves at the exec.
        (Subject::Command, Some(child)) if plan.delay.is_some() => tasks(vec![child.pid()]),
        (Subject::Command, Some(child)) => Target::Command { pid: child.pid(), cpus, inherit: plan.inherit },
        (Subject::Command, None) => return Err(RecordError::Usage("no command to record".to_owned())),
    })
}

/// Starts sampling and the command, in the order that the target wants. With a delay sampling starts after it.
fn start(plan: &Plan, session: &mut Session, child: &mut Option<Child>) -> Result<(), RecordError> {
    let by_exec = plan.subject == Subject::Command && plan.delay.is_none();
    if !by_exec && plan.delay.is_none() {
        session.enable()?;
    } else {
        session.enable_outputs()?;
        if by_exec {
            session.start_off_cpu();
        }
    }
    if let Some(child) = child {
        child.start()?;
    }
    Ok(())
}

/// The part of a recording that grows.
pub(crate) struct Live {
    pub(crate) output: Output,
    pub(crate) passes: Passes,
    features: Features,
    /// Every handler that was in force on an event, each once.
    pub(crate) handlers: Vec<HandlerDesc>,
    /// Every gate that was in force.
    pub(crate) gates: Vec<GateDesc>,
    /// Changes of the gate after there was room for more.
    pub(crate) gates_left_out: u64,
    /// The first of the file's events that are handler rings.
    pub(crate) first_output: usize,
    /// When it was opened, ns on the recording's clock.
    pub(crate) started_ns: u64,
    control: Option<Control>,
    /// What a controller wants and is not there yet.
    pub(crate) loading: Loading,
    pub(crate) types: Vec<HandlerTypes>,
    sideband: Layout,
    /// Cgroups have their paths.
    cgroups: bool,
}

impl Live {
    fn begin(plan: &Plan, facts: &Facts, session: &mut Session) -> Result<Live, RecordError> {
        let Described { events, handlers, count_targets, first_output, off_cpu } = finish::describe(session, plan);
        let features = finish::features_before(plan, &session.sampling.specs, facts);
        let mut types: Vec<HandlerTypes> = session.objects.iter().map(finish::types).collect();
        let desc = off_cpu.and_then(|event| Some((event, events.get(event)?)));
        if let (Some(waiting), Some((event, desc))) = (&mut session.off_cpu, desc) {
            waiting.goes_to(event, desc);
            types.push(Waiting::types());
        }
        let mut output = Output::create(&plan.destination, &events, &features, &handlers)?;
        output.handler_types(&types)?;
        output.ways(&session.texts.ways())?;
        let started_ns = control::now_ns();
        let first = session.gate.clone().zip(session.handlers.as_ref()).map(|(expression, handlers)| GateDesc {
            generation: handlers.generation(),
            since_ns: started_ns,
            expression: Some(expression),
        });
        first.iter().try_for_each(|gate| output.gate(gate))?;
        let gates = Vec::from_iter(first);
        let sideband = Layout::new(session.sideband.attr(), Endian::NATIVE);
        let mut passes = Passes::new(events, sideband, count_targets);
        passes.gather = plan.by.as_ref().map(|by| Gather::new(by, sideband));
        // A stream has no place for what they tell.
        let to_file = matches!(plan.destination, Destination::File(_));
        passes.jit = to_file.then(|| Follower::new(sideband, &session.target));
        passes.nested = (to_file && plan.namespaces).then(|| Nested::new(sideband));
        let (control, loading) = (None, Loading::default());
        Ok(Live {
            output,
            passes,
            features,
            handlers,
            gates,
            gates_left_out: 0,
            first_output,
            started_ns,
            control,
            loading,
            types,
            sideband,
            cgroups: plan.cgroups,
        })
    }

    /// Writes what was there before: kernel, programs, processes.
    fn scan(&mut self, target: &Target, session: &mut Session, observer: &mut dyn Observer) -> Result<(), RecordError> {
        if self.passes.gather.as_ref().is_some_and(|gather| !gather.wants_names()) {
            return Ok(());
        }
        let mut records = Vec::new();
        let kallsyms = session.texts.kernel_symbols();
        synth::kernel::append(&self.sideband, KernelText::find(&kallsyms), &mut records)?;
        let mut programs = Vec::new();
        if session.sideband.all_cpus {
            programs = by_id::programs();
            synth::bpf::append(&self.sideband, &programs, &mut records)?;
            synth::images::append(&self.sideband, &kallsyms, &mut records)?;
            (self.features.bpf_progs, self.features.bpf_btfs) = finish::programs(&programs);
        }
        if self.cgroups {
            synth::groups::append(&self.sideband, &mut records)?;
        }
        let mut scanner = Scanner::new(Path::new("/proc"), self.passes.nested.is_some());
        match target {
            _ if self.passes.gather.as_ref().is_some_and(|gather| !gather.wants_maps()) => {}
            Target::Cpus(_) => scanner.all(&self.sideband, &mut records)?,
            Target::Tasks { tids, .. } => scanner.these(&self.sideband, &procfs::processes_of(tids), &mut records)?,
            Target::Command { pid, .. } => scanner.these(&self.sideband, &[*pid], &mut records)?,
        };
        if scanner.refused() > 0 {
            let (n, s) = (scanner.refused(), if scanner.refused() == 1 { "" } else { "es" });
            let cause = if Caps::effective().allows(Cap::SysPtrace) { "" } else { ", that needs CAP_SYS_PTRACE" };
            observer.note(&format!("the maps of {n} process{s} cannot be read{cause}: their code has no names"));
        }
        if self.passes.gather.is_some() {
            self.passes.settle_before(&records);
            return Ok(());
        }
        let mut rest = records.as_slice();
        while let Some((record, tail)) = split_record(rest) {
            self.passes.files.learn(record);
            if let Some(jit) = &mut self.passes.jit {
                jit.learn(record);
            }
            if let Some(nested) = &mut self.passes.nested {
                nested.learn(record);
            }
            session.texts.learn(record);
            rest = tail;
        }
        self.output.records(&records)?;
        session.texts.loaded_before(&programs, &self.features.bpf_progs, &self.features.bpf_btfs);
        let news = session.texts.news();
        self.output.end_of_scan(&tallies::so_far(session), &news)
    }

    /// Passes while sampling waits for its start, for the sideband tells of everything from the beginning; then the start.
    /// It comes at once when the command or all targets have ended, or `stop` is set.
    fn delay(
        &mut self,
        plan: &Plan,
        session: &mut Session,
        waiter: &mut Waiter,
        child: &mut Option<Child>,
        stop: &AtomicBool,
    ) -> Result<(), RecordError> {
        let Some(delay) = plan.delay else { return Ok(()) };
        let begun = Instant::now();
        let mut passes = || loop {
            let left = delay.saturating_sub(begun.elapsed());
            let wake =
                waiter.wait(session, &self.listeners(), Some(left), stop).map_err(RecordError::system("poll"))?;
            if wake == Wake::Over || ended(child)?.is_some() || delay <= begun.elapsed() || stop.load(Ordering::Relaxed)
            {
                return session.enable();
            }
            self.turn(wake, plan, session)?;
        };
        let started = passes();
        end_with_us(&started, child);
        started
    }

    /// Who may wake us beside the rings.
    fn listeners(&self) -> Listeners<'_> {
        Listeners { control: self.control.as_ref(), jit: self.passes.jit.as_ref().and_then(Follower::watched) }
    }

    /// A pass, or no more than to hear the news, a JIT compiler or a controller.
    fn turn(&mut self, wake: Wake, plan: &Plan, session: &mut Session) -> Result<(), RecordError> {
        if let Some(mut control) = self.control.take() {
            match wake {
                Wake::Control => control.serve(&mut Running { plan, session, live: self }),
                _ => control.sweep(&mut Running { plan, session, live: self }),
            }
            self.control = Some(control);
        }
        match wake {
            Wake::Control => Ok(()),
            Wake::Jit => self.passes.hear_compilers(&mut self.output, false),
            Wake::News if self.passes.waiting() < NEWS && !session.texts.is_pressing() => {
                self.passes.hear(session);
                Ok(())
            }
            _ => self.passes.run(session, &mut self.output),
        }
    }

    /// Passes until something ends the recording; then sampling is stopped and the last pass is made.
    fn follow(
        &mut self,
        plan: &Plan,
        session: &mut Session,
        waiter: &mut Waiter,
        child: &mut Option<Child>,
        stop: &AtomicBool,
        observer: &mut dyn Observer,
    ) -> Result<Option<Ended>, RecordError> {
        let started = Instant::now();
        if let Some(gather) = &mut self.passes.gather {
            gather.begin(observer.is_watched());
        }
        let mut end;
        loop {
            let left = plan.duration.map(|d| d.saturating_sub(started.elapsed()));
            let due = self.passes.gather.as_ref().and_then(Gather::due_in);
            let until = left.into_iter().chain(due).min();
            let wake = waiter.wait(session, &self.listeners(), until, stop).map_err(RecordError::system("poll"))?;
            end = ended(child)?;
            let time_over = left.is_some_and(|left| left.is_zero());
            if end.is_some() || wake == Wake::Over || time_over || stop.load(Ordering::Relaxed) {
                break;
            }
            self.turn(wake, plan, session)?;
            if wake == Wake::Pass {
                self.read_out(session, observer)?;
            }
            if wake == Wake::Pass && observer.is_watched() {
                observer.progress(&self.progress(session, started));
            }
        }
        // Whoever asks from now on is told that the session has ended.
        self.control = None;
        session.end_first_audit(true);
        session.disable()?;
        if let Some(gather) = &mut self.passes.gather {
            gather.end();
        }
        if let (Some(child), None) = (child.as_mut(), end) {
            end = end_child(child, stop)?;
        }
        self.passes.run(session, &mut self.output)?;
        while session.texts.wait_for_frees() {
            self.passes.run(session, &mut self.output)?;
        }
        if observer.is_watched() {
            observer.progress(&self.progress(session, started));
        }
        Ok(end)
    }

    /// Shows what was counted by keys, when it is time.
    fn read_out(&mut self, session: &Session, observer: &mut dyn Observer) -> Result<(), RecordError> {
        let Some(gather) = &mut self.passes.gather else { return Ok(()) };
        if gather.due_in().is_none_or(|left| !left.is_zero()) {
            return Ok(());
        }
        let readout = gather.read_out(&event_names(session), false);
        observer.read_out(&readout, None).map_err(unread)
    }

    fn progress(&self, session: &Session, started: Instant) -> Progress {
        let total = tallies::so_far(session).total();
        Progress {
            elapsed: started.elapsed(),
            samples: total.handled.unwrap_or(total.chained),
            lost: total.ring.lost + total.handler_ring.lost + total.map.lost.total(),
            bytes: self.output.bytes(),
        }
    }

    /// The final tally, features and private section.
    fn end(
        self,
        mut session: Session,
        ended: Option<Ended>,
        observer: &mut dyn Observer,
    ) -> Result<Outcome, RecordError> {
        let Live { mut output, mut passes, mut features, handlers, gates, types, .. } = self;
        let lost = KernelLost::read(&session);
        let (tally, mut problems) = tallies::complete(&session, &lost);
        problems.extend(passes.damage.iter().map(|(first, times)| format!("{first} ({times} such)")));
        problems.extend(session.off_cpu.iter().filter_map(Waiting::problem).map(str::to_owned));
        if session.book.sideband_lost > 0 {
            let n = session.book.sideband_lost;
            problems.push(format!("{n} records about processes and kernel text were lost: some names may be missing"));
        }
        if output.waited() > Duration::from_millis(1) {
            let seconds = output.waited().as_secs_f64();
            problems.push(format!("the reader of the stream was slow: passes waited {seconds:.1} s for it"));
        }
        if session.book.strangers > 0 {
            problems.push(format!("{} samples carry ids of no event of ours", session.book.strangers));
        }
        if self.gates_left_out > 0 {
            problems.push(format!("{} more changes of the gate are not told of in the recording", self.gates_left_out));
        }
        if let Some(gather) = &mut passes.gather {
            let readout = gather.read_out(&event_names(&session), true);
            observer.read_out(&readout, Some(&tally)).map_err(unread)?;
            let (rows, stored) = (gather.samples(), tally.total().map.stored);
            if rows != stored {
                problems.push(format!("the rows do not add up: they hold {rows} samples, {stored} were counted"));
            }
        }
        features.build_ids = finish::build_ids(passes.files.build_ids());
        features.sample_time = passes.span;
        let addresses = output.read_back().map(|bytes| kernel_names::addresses(&bytes)).unwrap_or_default();
        let table = Some(&addresses).filter(|found| !found.is_empty()).and_then(|_| KernelTable::running().ok());
        if let Some(jit) = &mut passes.jit {
            loop {
                jit.finish();
                let is_more = jit.is_full();
                output.jit(&jit.take())?;
                if !is_more {
                    break;
                }
            }
            problems.extend(jit.problems());
        }
        if let Some(nested) = &mut passes.nested {
            output.nested(&nested.take())?;
        }
        let mut texts = Finished::default();
        if session.texts.is_on() {
            let news = session.texts.close();
            output.news(&news)?;
        }
        let journal = output.read_journal();
        if session.texts.is_on() {
            texts = text::fold(journal.as_deref().unwrap_or_default(), &addresses);
            let left_out = table.as_ref().map_or(0, |table| texts.kernel_functions(&session.texts, table, &addresses));
            problems.extend(session.texts.problems(left_out));
            features.bpf_progs = std::mem::take(&mut texts.programs);
            features.bpf_btfs = std::mem::take(&mut texts.types);
        }
        let text = session.texts.is_on().then(|| session.texts.stats());
        let ways = session.texts.ways();
        // The programs and rings are gone before the file is closed: what is slow to free does not delay the reader.
        drop(session);
        features.private = Some(Private {
            tally: Some(tally.clone()),
            handlers,
            handler_types: types,
            gates,
            ways,
            true_counts: passes.true_counts,
            kernel_symbols: table.map(|table| table.excerpt(addresses)).unwrap_or_default(),
            texts: texts.texts,
            images: texts.images,
            ..Private::default()
        });
        let bytes = output.finish(&features, &journal.as_deref().map(text::carried).unwrap_or_default())?;
        passes.files.keep_unreachable(Cache::open_default().as_ref());
        Ok(Outcome { tally, bytes, ended, problems, text })
    }
}

fn event_names(session: &Session) -> Vec<String> {
    session.sampling.specs.iter().map(|spec| spec.name.clone()).collect()
}

/// What was counted could not be shown.
fn unread(source: std::io::Error) -> RecordError {
    RecordError::Output { path: "-".into(), source }
}

/// How the command ended, if there is one and it has.
fn ended(child: &mut Option<Child>) -> Result<Option<Ended>, RecordError> {
    let Some(child) = child else { return Ok(None) };
    child.try_wait().map_err(RecordError::system("wait for the command"))
}

/// The time is over, or the user wants to stop: the command ends too, as perf does it.
fn end_child(child: &mut Child, stop: &AtomicBool) -> Result<Option<Ended>, RecordError> {
    child.signal(rustix::process::Signal::TERM).map_err(RecordError::system("end of the command"))?;
    // One that does not heed it runs on: the recording is worth more than its status.
    let until = Instant::now() + GRACE;
    let ended = loop {
        match child.try_wait().map_err(RecordError::system("wait for the command"))? {
            Some(ended) => break ended,
            None if Instant::now() >= until => return Ok(None),
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    // When the duration ended it, that is not the command's own failure.
    Ok(stop.load(Ordering::Relaxed).then_some(ended))
}

fn split_record(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let size = u16::from_ne_bytes(*bytes.get(6..8)?.first_chunk::<2>()?);
    bytes.split_at_checked(usize::from(size)).filter(|(record, _)| !record.is_empty())
}
