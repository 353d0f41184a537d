//! The options of `record`, as the user types them.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::ArgAction;

use super::view::View;

/// What `record` was asked to do.
#[derive(clap::Args, Debug)]
#[command(after_help = "Without -a, -C, -p, -t or a command the whole machine is recorded until ctrl-C.")]
pub(crate) struct RecordArgs {
    /// Event to sample, as perf names it; may be repeated or a list: cpu-clock, page-faults, sched:sched_switch, mem:ADDR:w
    #[arg(short = 'e', long = "event", value_name = "EVENT", action = ArgAction::Append)]
    pub(crate) events: Vec<String>,
    /// Record the events that answer a question, with call chains: who fights for which locks, which addresses fault, which requests go to block devices, who wakes whom (docs/views.md)
    #[arg(long = "view", value_name = "VIEW", conflicts_with = "events")]
    pub(crate) view: Option<View>,
    /// Take only those hits of the tracepoints for which this holds; several follow the order of several -e
    #[arg(long = "filter", value_name = "EXPR", action = ArgAction::Append)]
    pub(crate) filters: Vec<String>,
    /// Samples a second for each CPU, or "max" [default: 4000; every hit of tracepoints and breakpoints]
    #[arg(short = 'F', long = "freq", value_name = "HZ", conflicts_with = "count")]
    pub(crate) freq: Option<String>,
    /// One sample every N events
    #[arg(short = 'c', long = "count", value_name = "N")]
    pub(crate) count: Option<u64>,
    /// Record every CPU
    #[arg(short = 'a', long = "all-cpus")]
    pub(crate) all_cpus: bool,
    /// Record only these CPUs: 0,2-3
    #[arg(short = 'C', long = "cpu", value_name = "LIST")]
    pub(crate) cpus: Option<String>,
    /// Record these processes and the threads they start
    #[arg(short = 'p', long = "pid", value_name = "LIST")]
    pub(crate) pids: Option<String>,
    /// Record these threads
    #[arg(short = 't', long = "tid", value_name = "LIST")]
    pub(crate) tids: Option<String>,
    /// Record each event only for tasks of a cgroup: a list of paths, one for each event, or one for all; a place left empty is everything. Takes -a or -C
    #[arg(short = 'G', long = "cgroup", value_name = "NAMES", action = ArgAction::Append)]
    pub(crate) cgroup: Vec<String>,
    /// Record the cgroup of each sample, the paths of cgroups and the namespaces of processes: for report --sort container,nspid
    #[arg(long = "all-cgroups")]
    pub(crate) all_cgroups: bool,
    /// Record the namespaces of processes
    #[arg(long = "namespaces")]
    pub(crate) namespaces: bool,
    /// Do not follow new threads and children
    #[arg(short = 'i', long = "no-inherit")]
    pub(crate) no_inherit: bool,
    /// Record call chains by frame pointer
    #[arg(short = 'g')]
    pub(crate) callchain: bool,
    /// How call chains are taken: fp, by frame pointers, or dwarf or dwarf,SIZE: each sample carries SIZE bytes of its stack (8192), and reports unwind it
    #[arg(long = "call-graph", value_name = "MODE[,SIZE]")]
    pub(crate) call_graph: Option<String>,
    /// Record no call chains, whatever else asks for them: a handler may then walk stacks itself
    #[arg(long = "no-callchain")]
    pub(crate) no_callchain: bool,
    /// Size of each sampling ring in pages, or with a unit: 128, 1M
    #[arg(short = 'm', long = "mmap-pages", value_name = "PAGES")]
    pub(crate) mmap_pages: Option<String>,
    /// Where the recording goes; "-" writes the pipe form to stdout
    #[arg(short = 'o', long = "output", value_name = "FILE", default_value = "perf.data")]
    pub(crate) output: PathBuf,
    /// Stop after this many seconds
    #[arg(long = "duration", value_name = "SECONDS")]
    pub(crate) duration: Option<f64>,
    /// Start sampling this many milliseconds after everything is set up
    #[arg(short = 'D', long = "delay", value_name = "MS")]
    pub(crate) delay: Option<u64>,
    /// Program that runs on each sample: none, emit, count, or one of your own as FILE.o or FILE.o:PROGRAM
    #[arg(long = "handler", value_name = "NAME")]
    pub(crate) handler: Option<String>,
    /// Set a constant of your own handler; may be repeated
    #[arg(long = "set", value_name = "NAME=VALUE", action = ArgAction::Append, requires = "handler")]
    pub(crate) set: Vec<String>,
    /// With emit or count: let the ordinary sample through too
    #[arg(long = "chain", requires = "handler")]
    pub(crate) chain: bool,
    /// Count to the end what the kernel skipped because BPF was busy, by control events beside the sampling events
    #[arg(long = "audit")]
    pub(crate) audit: bool,
    /// Measure too how long threads are on no CPU, by stack and reason, as an event of its own; waits shorter than MIN (100us, 2ms) are counted alone (docs/off-cpu.md)
    #[arg(long = "off-cpu", value_name = "MIN", num_args = 0..=1, require_equals = true, default_missing_value = "0")]
    pub(crate) off_cpu: Option<String>,
    /// With --off-cpu: measure too who ends the waits, by the stack of the waker, as an event of its own
    #[arg(long = "wakers", requires = "off_cpu")]
    pub(crate) wakers: bool,
    /// With --off-cpu: distinct stacks that the kernel has room for between two passes, for each CPU, up to 32768
    #[arg(long = "off-cpu-entries", value_name = "N", requires = "off_cpu", hide_short_help = true)]
    pub(crate) off_cpu_entries: Option<u32>,
    /// With --off-cpu: threads that there is room for at the same time [default: 8192]
    #[arg(long = "off-cpu-threads", value_name = "N", requires = "off_cpu", hide_short_help = true)]
    pub(crate) off_cpu_threads: Option<u32>,
    /// Keep only those samples for which this holds, decided in the kernel: 'pid == 12 && comm ~ "kw*"' (docs/where.md)
    #[arg(long = "where", value_name = "EXPR")]
    pub(crate) gate: Option<String>,
    /// Keep no copies of kernel code: BPF programs, trampolines and modules that go, and kernel functions that got samples
    #[arg(long = "no-text")]
    pub(crate) no_text: bool,
    /// Copy kernel text only in these ways: free-time, fentry, kcore-qc, rcu-window, by-id, kcore [default: what works here, copies at the free in the first of these ways that does]
    #[arg(long = "text-ways", value_name = "LIST", conflicts_with = "no_text", hide_short_help = true)]
    pub(crate) text_ways: Option<String>,
    #[command(flatten)]
    pub(crate) by: ByArgs,
    /// The command to run and record
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    pub(crate) command: Vec<OsString>,
}

/// Counting by keys instead of recording.
#[derive(clap::Args, Debug, Default)]
pub(crate) struct ByArgs {
    /// Count samples by these keys in the kernel and print what was counted, instead of recording: a list of comm, pid, tid, cpu, cgroup, kstack, ustack, stack, ip, label:NAME
    #[arg(long = "by", value_name = "KEYS", conflicts_with = "output")]
    pub(crate) by: Option<String>,
    /// With --by: what is made of the samples of a key: count, sum(FIELD), max(FIELD) or hist(FIELD); fields: period, addr, weight
    #[arg(long = "value", value_name = "VALUE", requires = "by", default_value = "count")]
    pub(crate) value: String,
    /// With --by: print what was counted each time this has passed: seconds, or 250ms [default: at the end]
    #[arg(long = "interval", value_name = "TIME", requires = "by")]
    pub(crate) interval: Option<String>,
    /// With --by: one JSON object a line for each readout
    #[arg(long = "json", requires = "by")]
    pub(crate) json: bool,
    /// With --by: folded stacks, as flame graphs are made from
    #[arg(long = "folded", requires = "by", conflicts_with = "json")]
    pub(crate) folded: bool,
    /// With --by: distinct keys that the kernel has room for between two passes, for each event and CPU, up to 32768
    #[arg(long = "by-entries", value_name = "N", requires = "by")]
    pub(crate) entries: Option<u32>,
}
