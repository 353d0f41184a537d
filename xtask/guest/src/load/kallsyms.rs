//! Addresses of symbols by /proc/kallsyms (proc(5)); slow, so only for what stays a while.

use std::fs;

use crate::load::error::{Error, Result};

/// Every symbol for which `wanted` holds: its name and its address, None where addresses are hidden.
pub(crate) fn find(wanted: &dyn Fn(&str) -> bool) -> Result<Vec<(String, Option<u64>)>> {
    let path = "/proc/kallsyms";
    let text = fs::read(path).map_err(|e| Error::failed(format!("read {path}"), e))?;
    Ok(matching(&text, wanted))
}

fn matching(text: &[u8], wanted: &dyn Fn(&str) -> bool) -> Vec<(String, Option<u64>)> {
    let symbol = |line: &[u8]| {
        let mut words = line.split(|byte| b" \t".contains(byte)).map(std::str::from_utf8);
        let (address, name) = (words.next()?.ok()?, words.nth(1)?.ok()?);
        let address = || u64::from_str_radix(address, 16).ok().filter(|address| *address != 0);
        wanted(name).then(|| (name.to_owned(), address()))
    };
    text.split(|byte| *byte == b'\n').filter_map(symbol).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symbol_is_the_third_word() {
        let text = b"ffffffffc0000000 t kprobe_insn_page\t[__builtin__kprobes]\n0 T hidden\nbroken\n";
        let all = matching(text, &|_| true);
        assert_eq!(all, [("kprobe_insn_page".into(), Some(0xffff_ffff_c000_0000)), ("hidden".into(), None)]);
        assert_eq!(matching(text, &|name| name == "T"), []);
    }
}
