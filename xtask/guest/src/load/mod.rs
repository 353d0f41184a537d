//! The kinds of load, and what they share.

pub(crate) mod bpf;
pub(crate) mod btf;
pub(crate) mod busy;
pub(crate) mod cbpf;
pub(crate) mod cli;
pub(crate) mod error;
pub(crate) mod event;
pub(crate) mod fentry;
pub(crate) mod insn;
pub(crate) mod kallsyms;
pub(crate) mod kprobe;
pub(crate) mod log;
pub(crate) mod module;
pub(crate) mod pace;
pub(crate) mod places;
pub(crate) mod program;
pub(crate) mod static_key;
pub(crate) mod struct_ops;
pub(crate) mod sys;
pub(crate) mod tail_call;
pub(crate) mod xdp;
