//! The command line of `text`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::cli::InputArgs;

/// `afterimage text`
#[derive(Args, Debug)]
pub(crate) struct TextArgs {
    #[command(subcommand)]
    pub(crate) what: What,
}

/// What to do with kernel texts.
#[derive(Subcommand, Debug)]
pub(crate) enum What {
    /// List the kernel code that came and went during a recording
    List(ListArgs),
    /// Print the code of one text, or write it to an ELF file for objdump and gdb
    Dump(DumpArgs),
    /// Compare the code of two texts: exit code 0 the same, 1 different, 2 trouble
    Diff(DiffArgs),
    /// Watch kernel code come and go on this machine, without sampling, and keep it
    Watch(WatchArgs),
}

/// `afterimage text list`
#[derive(Args, Debug)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) input: InputArgs,
    /// Only what came at or after this time, in seconds as `script` prints them
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Only these kinds: program, subprogram, trampoline, dispatcher, struct_ops, cbpf, bpf, ftrace, kprobe, optprobe, module, kernel and others
    #[arg(long, value_name = "KINDS", value_delimiter = ',')]
    pub(crate) kind: Vec<String>,
    /// Only what samples fell into
    #[arg(long)]
    pub(crate) sampled: bool,
    /// One JSON object on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

/// `afterimage text dump`
#[derive(Args, Debug)]
pub(crate) struct DumpArgs {
    #[command(flatten)]
    pub(crate) input: InputArgs,
    /// Write to this file: an ELF file with symbol and source lines, or with --raw the bytes alone; `-` is standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// The bytes as they are
    #[arg(long)]
    pub(crate) raw: bool,
    /// Which text: its symbol, or a BPF program's own name or tag; then perhaps @ID of the program, @0xADDRESS, @SECONDS.FRACTION when it was there
    #[arg(value_name = "NAME[@WHICH]")]
    pub(crate) name: String,
}

/// `afterimage text diff`
#[derive(Args, Debug)]
pub(crate) struct DiffArgs {
    #[command(flatten)]
    pub(crate) input: InputArgs,
    /// The one text, as for `dump`; with FILE: before it, of another recording
    #[arg(value_name = "[FILE:]NAME[@WHICH]")]
    pub(crate) old: String,
    /// The other
    #[arg(value_name = "[FILE:]NAME[@WHICH]")]
    pub(crate) new: String,
}

/// `afterimage text watch`
#[derive(Args, Debug)]
pub(crate) struct WatchArgs {
    /// One JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
    /// Keep the code: each text as an ELF file in this folder
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// End after this many seconds (otherwise at ctrl-C)
    #[arg(long, value_name = "SECONDS")]
    pub(crate) duration: Option<String>,
}
