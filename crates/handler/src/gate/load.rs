//! Loading a gate's instructions (bpf(2), BPF_PROG_LOAD).

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use super::asm::Insn;
use crate::{Error, ErrorKind, Result};

/// Bytes for what the verifier says.
const LOG: usize = 1 << 16;
/// Lines of it that are kept.
const KEEP: usize = 12;

/// Loads a program of type perf_event.
pub(crate) fn load(insns: &[Insn]) -> Result<OwnedFd> {
    let insns: Vec<libbpf_sys::bpf_insn> = insns.iter().map(raw).collect();
    match attempt(&insns, &mut []) {
        Ok(fd) => Ok(fd),
        Err(first) => {
            // Once more, to hear why.
            let mut log = vec![0u8; LOG];
            match attempt(&insns, &mut log) {
                Ok(fd) => Ok(fd),
                Err(_) => Err(refused(&first, &log)),
            }
        }
    }
}

fn raw(insn: &Insn) -> libbpf_sys::bpf_insn {
    let mut raw = libbpf_sys::bpf_insn { code: insn.code, off: insn.off, imm: insn.imm, ..Default::default() };
    raw.set_dst_reg(insn.dst);
    raw.set_src_reg(insn.src);
    raw
}

fn attempt(insns: &[libbpf_sys::bpf_insn], log: &mut [u8]) -> io::Result<OwnedFd> {
    let mut options =
        libbpf_sys::bpf_prog_load_opts { sz: size_of::<libbpf_sys::bpf_prog_load_opts>() as u64, ..Default::default() };
    if !log.is_empty() {
        options.log_level = 1;
        options.log_size = log.len() as u32;
        options.log_buf = log.as_mut_ptr().cast();
    }
    // SAFETY: strings, instructions, options and the log they point at live through the call and have the lengths given.
    let fd = unsafe {
        libbpf_sys::bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_PERF_EVENT,
            c"ai_where".as_ptr(),
            c"Dual MIT/GPL".as_ptr(),
            insns.as_ptr(),
            insns.len() as u64,
            &raw mut options,
        )
    };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the kernel has just given us this descriptor, nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn refused(error: &io::Error, log: &[u8]) -> Error {
    let kind = match error.raw_os_error() {
        Some(libc::EPERM) => ErrorKind::NotPermitted,
        _ => ErrorKind::System,
    };
    let text = String::from_utf8_lossy(log.split(|&byte| byte == 0).next().unwrap_or_default()).into_owned();
    let lines: Vec<String> = text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect();
    let last = lines.len().saturating_sub(KEEP);
    Error::new(kind, "loading the gate", error.to_string()).with_log(lines[last..].to_vec())
}
