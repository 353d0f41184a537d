//! Time off CPU, in the same recording as what is sampled: the programs that measure it, and the event that it goes to.
//!
//! Each entry of the kernel's tables becomes one sample of the event `off-cpu`: a thread, a stack, the time as PERIOD, and the
//! reason as a label in its RAW data. A thread that still waits at the end gets a sample too, so that the waits of a thread and
//! its time on CPUs come to what has passed.

mod stack;
mod types;

use std::time::Duration;

use afterimage_handler::CountEntry;
use afterimage_handler::off_cpu::{OffCpu, OpenWait, Options, State, WaitCounts, Whose};
use afterimage_perf_data::off_cpu::{OffCpuLost, Waits, WakersTally};
use afterimage_perf_data::record::cpumode;
use afterimage_perf_data::{
    Attr, AttrFlags, Callchain, Endian, EventDesc, HandlerTypes, Layout, OffCpuTally, Record, Sample, SampleType,
};
use afterimage_perf_event::facts::Facts;
use afterimage_perf_event::open::{Target, threads_of};

use crate::control::now_ns;
use crate::plan::Subject;
use crate::{Plan, RecordError};
use stack::Trim;
use types::Said;

/// The event's name in recordings.
pub(crate) const NAME: &str = "off-cpu";
/// The name of the event of who ended waits.
const WAKERS: &str = "off-cpu-wakers";
/// The id of its samples, which the kernel does not know; that of wakers follows.
const ID: u64 = (1 << 62) + (1 << 32);

/// The inode of the initial pid namespace, `PROC_PID_INIT_INO` in include/linux/proc_ns.h.
const INITIAL_PID_NAMESPACE: &str = "pid:[4026531836]";

/// What of time off CPU is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OffCpuPlan {
    /// Shorter waits are counted, and have no samples.
    pub min: Duration,
    /// Who ends waits is measured too, as one more event.
    pub wakers: bool,
    /// Distinct stacks that the kernel has room for on each CPU between two passes, up to 32,768; `None` chooses.
    pub entries: Option<u32>,
    /// Threads that there is room for at the same time; `None` chooses.
    pub threads: Option<u32>,
}

/// One entry, or one thread at the end, on its way into the recording.
struct Wait<'a> {
    pid: u32,
    tid: u32,
    cpu: u32,
    time: u64,
    ns: u64,
    labels: [Option<Said>; 2],
    chain: &'a [u64],
}

/// What measures time off CPU while a recording runs.
pub(crate) struct Waiting {
    programs: OffCpu,
    min_ns: u64,
    trim: Trim,
    /// Where samples go; known when the events of the file are. Both events are laid out alike.
    to: Option<(usize, Layout)>,
    /// Who ends waits goes to the event behind it.
    wakers: bool,
    woken: Waits,
    started: u64,
    stopped: Option<u64>,
    /// Who waits at the end, until that is written.
    open: Vec<OpenWait>,
    /// Threads that waited at the end, and nobody knows since when.
    open_unknown: u64,
    delivered: Waits,
    cut_at_start: Waits,
    cut_at_end: Waits,
    /// Those that waited at the end, for less than is wanted.
    open_below: Waits,
    open_no_stack: u64,
    /// Who waited at the end could not be asked.
    problem: Option<String>,
}

/// Refuses what makes no sense before anything is opened.
pub(crate) fn check(plan: &Plan) -> Result<(), RecordError> {
    let refuse = |text: &str| Err(RecordError::Usage(format!("--off-cpu: {text}")));
    if plan.by.is_some() {
        return refuse("with --by nothing is recorded");
    }
    if plan.destination == crate::Destination::Pipe {
        return refuse("its counts have no place in the pipe form");
    }
    if plan.gate.is_some() {
        return refuse("--where chooses among samples, and waits are none");
    }
    if matches!(plan.subject, Subject::Cpus(_)) {
        return refuse("a thread that waits is on no CPU, so that none can be chosen");
    }
    if std::fs::read_link("/proc/self/ns/pid").is_ok_and(|link| link.as_os_str() != INITIAL_PID_NAMESPACE) {
        return refuse("it knows threads by their numbers in the initial pid namespace, and this is another one");
    }
    Ok(())
}

fn whose(plan: &Plan, facts: &Facts, target: &Target) -> Result<Whose, RecordError> {
    let pid = match target {
        Target::Command { pid, .. } => Some(*pid),
        Target::Tasks { tids, .. } => tids.first().copied(),
        Target::Cpus(_) => None,
    };
    Ok(match &plan.subject {
        Subject::AllCpus | Subject::Cpus(_) => Whose::Everybody,
        Subject::Processes(pids) if plan.inherit => Whose::Processes(pids.clone()),
        Subject::Processes(pids) => {
            Whose::Threads(threads_of(facts, pids).map_err(RecordError::system("threads of the processes"))?)
        }
        Subject::Threads(tids) => Whose::Threads(tids.clone()),
        Subject::Command if plan.inherit => Whose::Processes(pid.into_iter().collect()),
        Subject::Command => Whose::Threads(pid.into_iter().collect()),
    })
}

impl Waiting {
    /// Loads the programs, if they are wanted.
    pub(crate) fn open(
        plan: &Plan,
        facts: &Facts,
        target: &Target,
        cpus: &[u32],
    ) -> Result<Option<Waiting>, RecordError> {
        let Some(wanted) = &plan.off_cpu else { return Ok(None) };
        let trim = Trim::running();
        let min_ns = u64::try_from(wanted.min.as_nanos()).unwrap_or(u64::MAX);
        let options = Options {
            whose: whose(plan, facts, target)?,
            follow: plan.inherit,
            min_ns,
            cpus: cpus.to_vec(),
            entries: wanted.entries,
            threads: wanted.threads,
            wakers: wanted.wakers,
            syscall: trim.function("do_syscall_64"),
            walk_all: false,
        };
        Ok(Some(Waiting {
            programs: OffCpu::load(&options)?,
            min_ns,
            trim,
            to: None,
            wakers: wanted.wakers,
            woken: Waits::default(),
            started: 0,
            stopped: None,
            open: Vec::new(),
            open_unknown: 0,
            delivered: Waits::default(),
            cut_at_start: Waits::default(),
            cut_at_end: Waits::default(),
            open_below: Waits::default(),
            open_no_stack: 0,
            problem: None,
        }))
    }

    /// The events of the samples, laid out like `first` where that can be.
    pub(crate) fn events(&self, first: &Attr) -> Vec<EventDesc> {
        const SOFTWARE: u32 = 1;
        const CONTEXT_SWITCHES: u64 = 3;
        let attr = Attr {
            kind: SOFTWARE,
            config: CONTEXT_SWITCHES,
            period_or_freq: 1,
            sample_type: SampleType::IDENTIFIER
                | SampleType::IP
                | SampleType::TID
                | SampleType::TIME
                | SampleType::CPU
                | SampleType::PERIOD
                | SampleType::CALLCHAIN
                | SampleType::RAW,
            read_format: first.read_format,
            flags: AttrFlags::SAMPLE_ID_ALL | AttrFlags::USE_CLOCKID | AttrFlags::DISABLED,
            clockid: first.clockid,
            ..Attr::default()
        };
        let event = |id: u64, name: &str| EventDesc { attr: attr.clone(), ids: vec![id], name: name.to_owned() };
        let wakers = self.wakers.then(|| event(ID + 1, WAKERS));
        std::iter::once(event(ID, NAME)).chain(wakers).collect()
    }

    /// The types of what labels its samples.
    pub(crate) fn types() -> HandlerTypes {
        types::all()
    }

    /// Samples go to this event of the file.
    pub(crate) fn goes_to(&mut self, event: usize, desc: &EventDesc) {
        self.to = Some((event, Layout::new(&desc.attr, Endian::NATIVE)));
    }

    /// Measures from now on.
    pub(crate) fn start(&mut self) {
        self.started = now_ns();
        self.programs.start(self.started);
    }

    /// Measures no more.
    pub(crate) fn stop(&mut self) {
        self.programs.stop();
        self.stopped.get_or_insert_with(now_ns);
    }

    /// Asks who waits now. Programs that were under way when it [stopped](Waiting::stop) must be through.
    pub(crate) fn look(&mut self) {
        match self.programs.open_waits() {
            Ok(open) => self.open = open,
            Err(error) => self.problem = Some(format!("who waited at the end is not in the recording: {error}")),
        }
    }

    /// Writes what was measured since the last time as samples, and after the end those who still wait. Gives the events, and
    /// for how many waits each sample stands.
    pub(crate) fn drain(
        &mut self,
        cpus: &[u32],
        out: &mut Vec<u8>,
        span: &mut Option<(u64, u64)>,
    ) -> Result<Vec<(usize, Vec<u64>)>, RecordError> {
        let Some((event, layout)) = &self.to else { return Ok(Vec::new()) };
        let (event, layout) = (*event, *layout);
        let (mut counts, mut failed) = (Vec::new(), None);
        // Wakers first: a wait is stored before its waker, so that no waker is here whose wait is not.
        let mut by_waker = Vec::new();
        for &cpu in cpus {
            let (trim, woken) = (&mut self.trim, &mut self.woken);
            self.programs.drain_wakers(cpu, &mut |entry| {
                woken.add(Waits { waits: entry.count, ns: entry.period });
                by_waker.push(entry.count);
                let wait = Wait {
                    pid: entry.pid,
                    tid: entry.tid,
                    cpu,
                    time: entry.first_time,
                    ns: entry.period,
                    labels: [name_in(entry).map(Said::Woken), None],
                    chain: entry.chain,
                };
                let written = wait.encode(ID + 1, trim, &layout, out, span);
                failed = failed.take().or(written.err());
            });
        }
        for &cpu in cpus {
            let (trim, delivered, cut) = (&mut self.trim, &mut self.delivered, &mut self.cut_at_start);
            self.programs.drain(cpu, &mut |entry| {
                let waits = Waits { waits: entry.count, ns: entry.period };
                delivered.add(waits);
                if State::of(entry.bucket) == State::Before {
                    cut.add(waits);
                }
                counts.push(entry.count);
                let wait = Wait {
                    pid: entry.pid,
                    tid: entry.tid,
                    cpu,
                    time: entry.first_time,
                    ns: entry.period,
                    labels: [Some(Said::State(entry.bucket)), name_in(entry).map(Said::Waker)],
                    chain: entry.chain,
                };
                let written = wait.encode(ID, trim, &layout, out, span);
                failed = failed.take().or(written.err());
            });
        }
        for wait in std::mem::take(&mut self.open) {
            if self.still_waits(&wait, &layout, out, span)? {
                counts.push(1);
            }
        }
        match failed {
            Some(error) => Err(error),
            None => {
                let both = [(event, counts), (event + 1, by_waker)];
                Ok(both.into_iter().filter(|(_, counts)| !counts.is_empty()).collect())
            }
        }
    }

    /// A thread that waits at the end. `false` where it gets no sample.
    fn still_waits(
        &mut self,
        open: &OpenWait,
        layout: &Layout,
        out: &mut Vec<u8>,
        span: &mut Option<(u64, u64)>,
    ) -> Result<bool, RecordError> {
        let Some(end) = self.stopped.filter(|end| open.since < *end) else { return Ok(false) };
        if open.since == 0 {
            self.open_unknown += 1;
            return Ok(false);
        }
        let ns = end - open.since;
        let waits = Waits { waits: 1, ns };
        if ns < self.min_ns {
            self.open_below.add(waits);
            return Ok(false);
        }
        self.delivered.add(waits);
        self.cut_at_end.add(waits);
        if open.since <= self.started {
            self.cut_at_start.add(waits);
        }
        self.open_no_stack += u64::from(open.chain.is_empty());
        let (pid, tid, cpu, labels) = (open.pid, open.tid, open.cpu, [Some(Said::State(open.state)), None]);
        let wait = Wait { pid, tid, cpu, time: end, ns, labels, chain: &open.chain };
        wait.encode(ID, &mut self.trim, layout, out, span)?;
        Ok(true)
    }

    /// What became of all waits; while the recording goes on, of those that are in it.
    pub(crate) fn tally(&self, complete: bool) -> OffCpuTally {
        let counts: WaitCounts = self.programs.totals();
        let mut below_min = counts.below;
        below_min.add(self.open_below);
        let mut total = counts.ended;
        total.add(self.cut_at_end);
        total.add(self.open_below);
        let threads = counts.lost_threads + self.open_unknown;
        total.add(Waits { waits: threads, ns: 0 });
        let tally = OffCpuTally {
            event: self.to.as_ref().map_or(0, |(event, _)| *event),
            name: NAME.to_owned(),
            min_ns: self.min_ns,
            total,
            delivered: self.delivered,
            below_min,
            lost: OffCpuLost {
                full: counts.lost_full,
                collision: counts.lost_collision,
                threads,
                unwritten: Waits::default(),
            },
            cut_at_start: self.cut_at_start,
            cut_at_end: self.cut_at_end,
            no_stack: counts.no_stack + self.open_no_stack,
            wakers: self.wakers.then(|| self.wakers_tally(&counts, complete)),
        };
        if complete { tally } else { tally.of_parts() }
    }

    /// What became of who ended waits.
    fn wakers_tally(&self, counts: &WaitCounts, complete: bool) -> WakersTally {
        let mut by_nobody = counts.woken_by_nobody;
        by_nobody.add(self.cut_at_end);
        if !complete {
            // Some of those counted are in samples of the next pass.
            let known = [self.woken, counts.woken_lost];
            by_nobody = known.into_iter().fold(self.delivered, |rest, known| Waits {
                waits: rest.waits.saturating_sub(known.waits),
                ns: rest.ns.saturating_sub(known.ns),
            });
        }
        WakersTally {
            event: self.to.as_ref().map_or(0, |(event, _)| event + 1),
            name: WAKERS.to_owned(),
            delivered: self.woken,
            lost: counts.woken_lost,
            by_nobody,
        }
    }

    /// What could not be had.
    pub(crate) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }
}

/// The name of the other thread in an entry; `None` without one.
fn name_in(entry: &CountEntry<'_>) -> Option<[u8; 16]> {
    let mut name = [0; 16];
    name[..8].copy_from_slice(&entry.ip.to_ne_bytes());
    name[8..].copy_from_slice(&entry.cgroup.to_ne_bytes());
    (name[0] != 0).then_some(name)
}

impl Wait<'_> {
    fn encode(
        &self,
        id: u64,
        trim: &mut Trim,
        layout: &Layout,
        out: &mut Vec<u8>,
        span: &mut Option<(u64, u64)>,
    ) -> Result<(), RecordError> {
        let chain = trim.chain(self.chain);
        let ip = stack::innermost(&chain);
        let bytes: Vec<u8> = chain.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let mut raw = Vec::new();
        for said in self.labels.iter().flatten() {
            types::label(self.cpu, self.time, ip, *said, &mut raw);
        }
        let sample = Sample {
            // Kernel addresses are those with the highest bit set; a thread without a stack was in the kernel, too.
            misc: if ip >> 63 == 1 || ip == 0 { cpumode::KERNEL } else { cpumode::USER },
            identifier: Some(id),
            ip: Some(ip),
            pid: Some(self.pid),
            tid: Some(self.tid),
            time: Some(self.time),
            cpu: Some(self.cpu),
            period: Some(self.ns),
            callchain: Some(Callchain::new(&bytes, Endian::NATIVE)),
            raw: Some(&raw),
            ..Sample::default()
        };
        *span = Some(span.map_or((self.time, self.time), |(a, b)| (a.min(self.time), b.max(self.time))));
        Ok(Record::Sample(sample).encode(layout, out)?)
    }
}
