//! The command line. Each flag is defined once; its parser, `-h` and `--help` come from here.
//!
//! Options are perf's where perf has one, with perf's meaning. The last of a repeated single-valued option wins.

mod later;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

use crate::annotate::AnnotateArgs;
use crate::archive::ArchiveArgs;
use crate::cache::CacheArgs;
use crate::exit;
use crate::handler::HandlerArgs;
use crate::record::RecordArgs;
use crate::texts::TextArgs;

/// A sampling profiler for Linux with a program on every sample.
#[derive(Parser, Debug)]
#[command(name = "afterimage", version, about, args_override_self = true, max_term_width = 100)]
pub(crate) struct Line {
    #[command(flatten)]
    pub(crate) talk: Talk,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// How much we say on stderr.
#[derive(Args, Debug, Default)]
pub(crate) struct Talk {
    /// Say only what went wrong
    #[arg(short, long, global = true, display_order = 900)]
    pub(crate) quiet: bool,
    /// Say more (may be given more than once)
    #[arg(short, long, global = true, display_order = 901, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

/// The subcommands.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Record samples into a file that perf reads too
    Record(Box<RecordArgs>),
    /// Show where the time went, as a table
    Report(ReportArgs),
    /// Show the instructions of functions, and how many samples each has
    Annotate(Box<AnnotateArgs>),
    /// Print every sample, in the layout of `perf script`
    Script(ScriptArgs),
    /// Write the stacks for other tools: folded lines or a flame graph
    Export(ExportArgs),
    /// Put a recording and all that names it into one file, which is read on any machine
    Archive(ArchiveArgs),
    /// Kernel code that came and went: list it, write it to a file, compare it; watch it come and go
    Text(TextArgs),
    /// Show and change the handlers of recordings that run: list, swap, clear, stats; print the header for your own
    Handler(HandlerArgs),
    /// Show or empty the cache of symbols on disk, and set how much it may take
    Cache(CacheArgs),
    /// Show what this kernel, these privileges and these settings allow
    Doctor(DoctorArgs),
    /// What is planned and not built
    #[command(hide = true, name = "top", aliases = ["diff", "serve", "stat"])]
    Later(LaterArgs),
}

/// Which recording is read.
#[derive(Args, Clone, Debug)]
pub(crate) struct InputArgs {
    /// The recording to read; `-` is standard input. Of several `report` makes one report, others read the last
    #[arg(short, long, value_name = "FILE", default_value = "perf.data")]
    pub(crate) input: Vec<PathBuf>,
    /// Accepted for perf's sake: files of any owner are read
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Take the kernel's names from this copy of /proc/kallsyms, believed as it is
    #[arg(long, value_name = "FILE")]
    pub(crate) kallsyms: Option<PathBuf>,
    /// The kernel's image with symbols; its build ID has to be the recorded one
    #[arg(short = 'k', long, value_name = "FILE")]
    pub(crate) vmlinux: Option<PathBuf>,
    /// Look for the recorded machine's files in this folder, as if it were /
    #[arg(long, value_name = "DIR")]
    pub(crate) symfs: Option<PathBuf>,
    /// Look for debug files and copies of programs here first, filed by build ID as in /usr/lib/debug or in perf's ~/.debug
    /// (may be given more than once)
    #[arg(long, value_name = "DIR")]
    pub(crate) debug_dir: Vec<PathBuf>,
    /// Get files that are not here by their build ID from these debuginfod servers (those of DEBUGINFOD_URLS where none is
    /// named), and keep them in the cache; without this option nothing is asked of the network
    #[arg(long, value_name = "URLS", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub(crate) debuginfod: Option<String>,
    /// How long a file may take to come from there
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) debuginfod_timeout: u64,
}

impl InputArgs {
    /// The recording, where one is read: the last of those that were named.
    pub(crate) fn last(&self) -> &Path {
        // There is one that it is by default.
        self.input.last().map_or(Path::new("perf.data"), PathBuf::as_path)
    }
}

/// Which samples of a recording are looked at.
#[derive(Args, Debug, Default)]
pub(crate) struct FilterArgs {
    /// Only samples of threads with these names, `/REGEX/` among them (a comma in one is \x2c)
    #[arg(short = 'c', long, visible_alias = "comm", value_name = "NAMES")]
    pub(crate) comms: Option<String>,
    /// Only samples in the code of these objects, by short name or path, `/REGEX/` among them
    #[arg(short = 'd', long, visible_alias = "dso", value_name = "NAMES")]
    pub(crate) dsos: Option<String>,
    /// Only samples in these symbols, `/REGEX/` among them
    #[arg(short = 'S', long, visible_alias = "symbol", value_name = "NAMES")]
    pub(crate) symbols: Option<String>,
    /// Only samples of these processes (7,10-20)
    #[arg(long, value_name = "PIDS")]
    pub(crate) pid: Option<String>,
    /// Only samples of these threads
    #[arg(long, value_name = "TIDS")]
    pub(crate) tid: Option<String>,
    /// Only samples on these CPUs (0,2-3)
    #[arg(short = 'C', long, value_name = "CPUS")]
    pub(crate) cpu: Option<String>,
    /// Only samples of this time: FROM,TO in seconds (either may be left out; several with blanks between them), or parts of the recording like 10%/2 (the second tenth) and 0%-30%
    #[arg(long, value_name = "FROM,TO")]
    pub(crate) time: Option<String>,
}

/// What percentages are of where filters leave samples out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Percentage {
    /// Of what is shown, which is 100 %
    Relative,
    /// Of all samples, but for those of other times and CPUs
    Absolute,
}

/// `afterimage report`
#[derive(Args, Debug)]
pub(crate) struct ReportArgs {
    #[command(flatten)]
    pub(crate) input: InputArgs,
    #[command(flatten)]
    pub(crate) filters: FilterArgs,
    /// Only samples in symbols that have this in their name
    #[arg(long, value_name = "TEXT")]
    pub(crate) symbol_filter: Option<String>,
    /// Leave out samples at addresses without a name, and such frames of call chains
    #[arg(short = 'U', long)]
    pub(crate) hide_unresolved: bool,
    /// What percentages are of where filters leave samples out
    #[arg(long, value_enum, default_value = "absolute")]
    pub(crate) percentage: Percentage,
    /// Plain text on standard output (the only way there is)
    #[arg(long)]
    pub(crate) stdio: bool,
    /// One JSON object on standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// What makes a row [default: comm,dso,sym]: comm, dso, sym, srcline (line of source code), srcfile, symbol_size, dso_size, text (one BPF program of several of a name), pid, tid, cpu, socket, event, cgroup, cgroup_id, container (what the cgroup is of), nspid (the process by its number in its own namespace), time, parent, addr, label:NAME (what a handler said of the sample); of memory weight, local_weight, ins_lat, local_ins_lat, mem, snoop, tlb, locked, blocked, symbol_daddr, dso_daddr, dcacheline, phys_daddr, data_page_size, code_page_size, transaction; of branches symbol_from, symbol_to, dso_from, dso_to, addr_from, addr_to, srcline_from, srcline_to, mispredict, in_tx, abort, cycles; of tracepoints trace, FIELD, EVENT.FIELD. sample and period among them are columns; rows are in the order of the keys before the word overhead first; +KEYS adds to the usual ones
    #[arg(short, long, value_name = "KEYS")]
    pub(crate) sort: Option<String>,
    /// The columns in their order: overhead, overhead_children, overhead_sys, overhead_us, overhead_guest_sys, overhead_guest_us, sample, period and keys; +FIELDS adds to the usual ones. Keys of --sort that are not among them stand behind
    #[arg(short = 'F', long, value_name = "FIELDS")]
    pub(crate) fields: Option<String>,
    /// Take each recorded branch for a sample, as keys of branches do [keys by default: comm,dso_from,symbol_from,symbol_to,cycles]
    #[arg(short = 'b', long)]
    pub(crate) branch_stack: bool,
    /// Begin call chains with the branches that led to the sample [keys by default: srcline,sym,dso]
    #[arg(long)]
    pub(crate) branch_history: bool,
    /// Take weights for periods [keys by default: local_weight,mem,sym,dso,symbol_daddr,dso_daddr,snoop,tlb,locked,blocked,local_ins_lat]
    #[arg(long)]
    pub(crate) mem_mode: bool,
    /// Steps of the key time: a number with s, ms, us or ns
    #[arg(long, value_name = "TIME", default_value = "100ms")]
    pub(crate) time_quantum: String,
    /// Which symbols the key parent finds on stacks, innermost first
    #[arg(short = 'p', long, value_name = "REGEX", default_value = "^sys_|^do_page_fault")]
    pub(crate) parent: String,
    /// Leave out samples that have no parent on their stack
    #[arg(short = 'x', long)]
    pub(crate) exclude_other: bool,
    /// Show how many samples a row stands for
    #[arg(short = 'n', long)]
    pub(crate) show_nr_samples: bool,
    /// Show the shares in the kernel and in processes
    #[arg(long)]
    pub(crate) show_cpu_utilization: bool,
    /// Show the sum of the periods of a row
    #[arg(long)]
    pub(crate) show_total_period: bool,
    /// Give each function the time of what it called, too
    #[arg(long, overrides_with = "no_children")]
    pub(crate) children: bool,
    /// Count a sample for the function it hit alone (the default, unlike perf)
    #[arg(long, overrides_with = "children")]
    pub(crate) no_children: bool,
    /// How to show call chains: graph, fractal, flat, folded or none; then a least percentage and a limit of lines; caller or callee; function, address or srcline, by which frames are told apart; percent, period or count, which stand at branches
    #[arg(short = 'g', long, value_name = "HOW", num_args = 0..=1, default_missing_value = "graph")]
    pub(crate) call_graph: Option<String>,
    /// Call chains from the outermost caller down (as -g caller)
    #[arg(short = 'G', long)]
    pub(crate) inverted: bool,
    /// Show no row below this share of its event
    #[arg(long, value_name = "PERCENT", default_value = "0")]
    pub(crate) percent_limit: String,
    /// Show only this event
    #[arg(long, value_name = "NAME")]
    pub(crate) event: Option<String>,
    /// Show where and how the recording was made
    #[arg(long)]
    pub(crate) header: bool,
    /// Show that and nothing else
    #[arg(long, conflicts_with_all = ["json", "stats"])]
    pub(crate) header_only: bool,
    /// Show how many records of each type there are, and nothing else
    #[arg(long, conflicts_with = "json")]
    pub(crate) stats: bool,
    /// Show inlined functions in call chains, where debug information tells of them
    #[arg(long, overrides_with = "no_inline")]
    pub(crate) inline: bool,
    /// Leave inlined functions out (the default, unlike perf)
    #[arg(long, overrides_with = "inline")]
    pub(crate) no_inline: bool,
}

/// `afterimage script`
#[derive(Args, Debug)]
pub(crate) struct ScriptArgs {
    #[command(flatten)]
    pub(crate) input: InputArgs,
    #[command(flatten)]
    pub(crate) filters: FilterArgs,
    /// Which fields to print, by perf's names: comm, tid, pid, time, cpu, event, trace, ip, sym, symoff, dso, srcline, period, addr, data_src, weight, iregs, uregs, brstack and others; of ours label, value, read, ustack, aux, transaction, id, stream_id; +FIELD adds, -FIELD leaves out
    #[arg(short = 'F', long, value_name = "FIELDS", allow_hyphen_values = true)]
    pub(crate) fields: Vec<String>,
    /// Leave call chains out
    #[arg(short = 'G', long)]
    pub(crate) hide_call_graph: bool,
    /// A JSON object a line for each sample, with all that it has
    #[arg(long, conflicts_with_all = ["fields", "ns", "header"])]
    pub(crate) json: bool,
    /// Show at most so many addresses of a call chain
    #[arg(long, value_name = "COUNT")]
    pub(crate) max_stack: Option<usize>,
    /// Nine digits after the second
    #[arg(long)]
    pub(crate) ns: bool,
    /// Show where and how the recording was made
    #[arg(long)]
    pub(crate) header: bool,
    /// Show that and nothing else
    #[arg(long, conflicts_with = "json")]
    pub(crate) header_only: bool,
    /// Show inlined functions in call chains, where debug information tells of them
    #[arg(long, overrides_with = "no_inline")]
    pub(crate) inline: bool,
    /// Leave inlined functions out (the default, unlike perf)
    #[arg(long, overrides_with = "inline")]
    pub(crate) no_inline: bool,
}

/// A format of `export`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// One line a stack: `comm;outermost;…;innermost WEIGHT`
    Folded,
    /// A flame graph that a browser opens
    Svg,
}

/// What a stack of `export` weighs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WeightBy {
    /// The sum of the periods: what the percentages of report are made from
    Period,
    /// The number of samples
    Samples,
}

/// `afterimage export`
#[derive(Args, Debug)]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    pub(crate) input: InputArgs,
    /// The format to write
    #[arg(long, value_enum, default_value = "folded")]
    pub(crate) format: Format,
    /// Where to write; `-` is standard output
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub(crate) output: PathBuf,
    /// The event to draw; events are never added together (the first by default)
    #[arg(long, value_name = "NAME")]
    pub(crate) event: Option<String>,
    /// Put this label, which a handler gave the samples, between command and stack (may be given more than once)
    #[arg(long, value_name = "NAME")]
    pub(crate) label: Vec<String>,
    /// What the widths stand for
    #[arg(long, value_enum, default_value = "period")]
    pub(crate) weight: WeightBy,
    /// The title of the picture
    #[arg(long, value_name = "TEXT")]
    pub(crate) title: Option<String>,
}

/// `afterimage doctor`
#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// One JSON object on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

/// A subcommand that is not built: whatever follows is accepted, so that the answer is always the same.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub(crate) struct LaterArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<OsString>,
}

/// A command line that leads nowhere.
pub(crate) enum Refused {
    /// It cannot be parsed, or asks for help or the version.
    Clap(clap::Error),
    /// It asks for what is not built.
    Later(anyhow::Error),
}

/// Parses a command line; the first word is the name of the program.
pub(crate) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Line, Refused> {
    let words: Vec<OsString> = words.into_iter().collect();
    let matches = later::add(Line::command()).try_get_matches_from(&words).map_err(Refused::Clap)?;
    if let Some(error) = later::refuse(&matches) {
        return Err(Refused::Later(error));
    }
    let line = Line::from_arg_matches(&matches).map_err(Refused::Clap)?;
    if let Command::Later(_) = line.command {
        let name = words.iter().skip(1).filter_map(|w| w.to_str()).find(|w| !w.starts_with('-'));
        return Err(Refused::Later(exit::not_yet(name.unwrap_or("this subcommand"))));
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_words(words: &str) -> Result<Line, Refused> {
        parse(std::iter::once("afterimage").chain(words.split_whitespace()).map(OsString::from))
    }

    fn report(words: &str) -> ReportArgs {
        match parse_words(words) {
            Ok(Line { command: Command::Report(args), .. }) => args,
            Err(Refused::Clap(error)) => panic!("{error}"),
            _ => panic!("not report"),
        }
    }

    #[test]
    fn the_definition_is_consistent() {
        later::add(Line::command()).debug_assert();
    }

    #[test]
    fn the_last_of_a_repeated_option_wins() {
        let args =
            report("report -i a -i b --sort dso -s sym --children --no-children --percent-limit 1 --percent-limit 2");
        assert_eq!((args.input.input, args.sort.as_deref()), (vec!["a".into(), "b".into()], Some("sym")));
        assert_eq!((args.children, args.no_children, args.percent_limit.as_str()), (false, true, "2"));
    }

    #[test]
    fn fields_add_up() {
        let Ok(Line { command: Command::Script(args), .. }) = parse_words("script -F comm,ip -F +sym -F -time") else {
            panic!("not script");
        };
        assert_eq!(args.fields, ["comm,ip", "+sym", "-time"]);
    }

    #[test]
    fn the_value_of_g_may_be_left_out() {
        assert_eq!(report("report -g -n").call_graph.as_deref(), Some("graph"));
        assert_eq!(report("report -g caller -n").call_graph.as_deref(), Some("caller"));
        assert_eq!(report("report -gcallee").call_graph.as_deref(), Some("callee"));
        assert_eq!(report("report --call-graph=none").call_graph.as_deref(), Some("none"));
        assert_eq!(report("report").call_graph, None);
    }

    #[test]
    fn what_is_not_built_says_so() {
        for (words, says) in [
            ("record --switch-events -- true", "record --switch-events: not supported yet"),
            ("record -a -b", "record --branch-any: not supported yet"),
            ("record --switch-output=1s -a", "record --switch-output: not supported yet"),
            ("report --tui", "report --tui: not supported yet"),
            ("report -T -i x", "report --threads: not supported yet"),
            ("script --reltime", "script --reltime: not supported yet"),
            ("script -d", "script --debug-mode: not supported yet"),
            ("top -a", "top: not supported yet"),
            ("annotate --gtk", "annotate --gtk: not supported yet"),
            ("-q diff --stdio foo", "diff: not supported yet"),
        ] {
            let Err(Refused::Later(error)) = parse_words(words) else { panic!("{words} was accepted") };
            assert_eq!(error.to_string(), says);
        }
    }
}
