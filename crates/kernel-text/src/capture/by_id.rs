//! BPF programs that are loaded now, read by id (`BPF_PROG_GET_NEXT_ID`, `BPF_OBJ_GET_INFO_BY_FD`; bpf(2)).
//!
//! Works while a program lives. Without the right to see kernel addresses the functions carry address 0 and are left
//! out of [`Program::functions`].

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;

use afterimage_perf_event::sys::bpf;
use libbpf_rs::btf::{Btf, types};
use libbpf_rs::query::{BtfInfoIter, ProgInfoIter, ProgInfoQueryOptions};
pub use libbpf_rs::query::{LineInfo, ProgramInfo};

/// One function of a program: the kernel symbol that it is known by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Kernel address of the first native instruction.
    pub address: u64,
    /// Native length in bytes.
    pub length: u32,
    /// The kernel's symbol, `bpf_prog_<tag>_<name>`.
    pub name: String,
}

/// One loaded program with everything that the kernel tells of it.
#[derive(Clone, Debug)]
pub struct Program {
    /// The kernel's id.
    pub id: u32,
    /// The program's tag.
    pub tag: [u8; 8],
    /// Main function first, then the subprograms.
    pub functions: Vec<Function>,
    /// What the kernel returned.
    pub info: ProgramInfo,
}

/// All programs loaded now, ascending by id, but for those that go while they are read. Empty where bpf(2) refuses.
pub fn programs() -> Vec<Program> {
    ProgInfoIter::with_query_opts(ProgInfoQueryOptions::default().include_all())
        .filter_map(|info| Some(Program { id: info.id, tag: info.tag.0, functions: functions(&info)?, info }))
        .collect()
}

/// Type information of the given ids: `(id, raw BTF)`, ascending.
pub fn type_information(ids: &BTreeSet<u32>) -> Vec<(u32, Vec<u8>)> {
    if ids.is_empty() {
        return Vec::new();
    }
    BtfInfoIter::default().filter(|info| ids.contains(&info.id)).map(|info| (info.id, info.btf)).collect()
}

/// The functions of a program; `None` when it has gone meanwhile, and its types with it: without them its functions would go
/// by other names than the kernel's.
fn functions(info: &ProgramInfo) -> Option<Vec<Function>> {
    let btf = if info.func_info.is_empty() { None } else { Btf::from_prog_id(info.id).ok() };
    if btf.is_none() && !info.func_info.is_empty() && bpf::program(info.id).is_err() {
        return None;
    }
    let functions = info
        .jited_ksyms
        .iter()
        .zip(&info.jited_func_lens)
        .enumerate()
        .filter(|(_, (address, _))| !address.is_null())
        .map(|(at, (address, length))| Function {
            address: address.addr() as u64,
            length: *length,
            name: symbol(info, btf.as_ref(), at),
        });
    Some(functions.collect())
}

/// The symbol as the kernel's `bpf_get_prog_name` builds it.
fn symbol(info: &ProgramInfo, btf: Option<&Btf<'_>>, at: usize) -> String {
    // The main function goes by the tag of the whole program; its own in `prog_tags` is of its own instructions alone.
    let of_subprogram = info.prog_tags.get(at).filter(|_| at > 0);
    let tag = of_subprogram.map_or(info.tag.0, |t| t.0);
    let hex: String = tag.iter().map(|b| format!("{b:02x}")).collect();
    let from_btf = || {
        let record = info.func_info.get(at)?;
        let function: types::Func<'_> = btf?.type_by_id(record.type_id.into())?;
        Some(String::from_utf8_lossy(function.name()?.as_bytes()).into_owned())
    };
    // Without type information the main function has the program's name and each subprogram is called F.
    let own = || match at {
        0 => (!info.name.is_empty()).then(|| info.name.to_string_lossy().into_owned()),
        _ => Some("F".to_owned()),
    };
    match from_btf().or_else(own) {
        Some(name) => format!("bpf_prog_{hex}_{name}"),
        None => format!("bpf_prog_{hex}"),
    }
}
