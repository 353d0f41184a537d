//! The options of `afterimage annotate`. perf's where perf has them.

use clap::Args;

use crate::cli::InputArgs;

/// `afterimage annotate`
#[derive(Args, Debug)]
pub(crate) struct AnnotateArgs {
    #[command(flatten)]
    pub(crate) input: InputArgs,
    /// What to annotate, as -s names it
    #[arg(value_name = "SYMBOL")]
    pub(crate) name: Option<String>,
    /// What to annotate: a symbol, or a BPF program's own name; @ID narrows it to a BPF program, @0xADDRESS to a place, @FILE
    /// to a file or build ID (without it: everything above --percent-limit)
    #[arg(short, long, value_name = "SYMBOL[@ID]")]
    pub(crate) symbol: Option<String>,
    /// Only code of these objects
    #[arg(short, long, value_name = "DSO,...")]
    pub(crate) dsos: Option<String>,
    /// Only what was there at that time: seconds with a point, as script prints them, or nanoseconds ending in ns
    #[arg(long, value_name = "TIME")]
    pub(crate) at: Option<String>,
    /// Put the BPF instructions beside the machine's
    #[arg(long)]
    pub(crate) insns: bool,
    /// Plain text on standard output (the only way there is)
    #[arg(long)]
    pub(crate) stdio: bool,
    /// One JSON object on standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// How instructions are written: att or intel
    #[arg(short = 'M', long, value_name = "STYLE", default_value = "att")]
    pub(crate) disassembler_style: String,
    /// Show the bytes of each instruction
    #[arg(long)]
    pub(crate) asm_raw: bool,
    /// Show the source between the instructions (the default)
    #[arg(long, overrides_with = "no_source")]
    pub(crate) source: bool,
    /// Do not show the source
    #[arg(long, overrides_with = "source")]
    pub(crate) no_source: bool,
    /// Show how many samples an instruction has
    #[arg(short = 'n', long)]
    pub(crate) show_nr_samples: bool,
    /// Show the sum of the periods of an instruction
    #[arg(long)]
    pub(crate) show_total_period: bool,
    /// Without a symbol: show nothing that has a smaller share of its event
    #[arg(long, value_name = "PERCENT", default_value = "0.5")]
    pub(crate) percent_limit: String,
    /// What an instruction's share is of: local-period, local-hits, global-period or global-hits
    #[arg(long, value_name = "TYPE", default_value = "local-period")]
    pub(crate) percent_type: String,
    /// Show only this event
    #[arg(long, value_name = "NAME")]
    pub(crate) event: Option<String>,
}
