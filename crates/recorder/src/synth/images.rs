//! Text of BPF, ftrace and kprobes that is no program and was there before the recording: only `/proc/kallsyms` tells of it.

use afterimage_perf_data::record::Ksymbol;
use afterimage_perf_data::{Layout, Record, Result};

/// What the kernel reports for a text of these kinds, whatever its length.
const REPORTED: u32 = 4096;

/// Appends a KSYMBOL record for each, as perf does.
///
/// # Errors
/// Only when a name does not fit into a record.
pub(crate) fn append(layout: &Layout, kallsyms: &str, out: &mut Vec<u8>) -> Result<()> {
    // The kernel and its modules come first.
    for line in kallsyms.rsplit('\n').skip_while(|line| line.is_empty()) {
        if !line.contains('\t') {
            break;
        }
        let Some((addr, kind, name)) = image(line) else { continue };
        let symbol = Ksymbol { addr, len: REPORTED, kind, name: name.as_bytes(), ..Ksymbol::default() };
        Record::Ksymbol(symbol).encode(layout, out)?;
    }
    Ok(())
}

/// Address, type of the record and name, of a line that speaks of such a text.
fn image(line: &str) -> Option<(u64, u16, &str)> {
    let (symbol, owner) = line.split_once('\t')?;
    let mut words = symbol.split_ascii_whitespace();
    let (addr, _, name) = (words.next()?, words.next()?, words.next()?);
    let addr = u64::from_str_radix(addr, 16).ok().filter(|addr| *addr != 0)?;
    let kind = match (owner, name) {
        ("[bpf]", name)
            if ["bpf_trampoline_", "bpf_dispatcher_", "bpf__"].iter().any(|kind| name.starts_with(kind)) =>
        {
            Ksymbol::BPF
        }
        ("[__builtin__ftrace]", "ftrace_trampoline") => Ksymbol::OOL,
        ("[__builtin__kprobes]", "kprobe_insn_page" | "kprobe_optinsn_page") => Ksymbol::OOL,
        _ => return None,
    };
    Some((addr, kind, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_kallsyms() {
        let at = 0xffff_ffff_c000_1000;
        let known = [
            ("ffffffffc0001000 t bpf_trampoline_6442\t[bpf]", Some((at, Ksymbol::BPF, "bpf_trampoline_6442"))),
            ("ffffffffc0001000 t bpf_dispatcher_xdp\t[bpf]", Some((at, Ksymbol::BPF, "bpf_dispatcher_xdp"))),
            ("ffffffffc0001000 t bpf_prog_0123456789abcdef_x\t[bpf]", None),
            ("ffffffffc0001000 t kprobe_insn_page\t[__builtin__kprobes]", Some((at, Ksymbol::OOL, "kprobe_insn_page"))),
            ("0000000000000000 t bpf_dispatcher_xdp\t[bpf]", None),
            ("ffffffffc0001000 t bpf_dispatcher_xdp", None),
            ("\t[bpf]", None),
            ("", None),
        ];
        for (line, answer) in known {
            assert_eq!(image(line), answer, "{line}");
        }
    }
}
