//! Reads `/proc/kallsyms`: one symbol a line, `address type name`, then a tab and `[module]` for what is not the
//! kernel itself.
//!
//! The text gives starts only. A symbol ends where the next one of any type starts, and never past the text it is in:
//! `_etext` or `_einittext` for the kernel, the next thing in memory or the end of a page for the last symbol of a module.

use std::ops::Range;

use rustc_hash::FxHashMap;

use super::KernelTable;
use crate::names::{NameMap, Range as Named, Span};

const PAGE: u64 = 4096;

struct Line<'a> {
    addr: u64,
    kind: u8,
    name: &'a [u8],
    /// A number for the module; 0 is the kernel.
    module: u32,
}

pub(super) fn parse(text: &[u8]) -> KernelTable {
    let (mut lines, modules) = read_lines(text);
    if hides(&lines) {
        return KernelTable { hidden: true, ..KernelTable::default() };
    }
    // Stable: of several names at one address the order of the file decides.
    lines.sort_by_key(|l| l.addr);
    let core = core_text(&lines);
    let init = init_text(&lines);
    let mut out = Collected::default();
    for at in 0..lines.len() {
        out.add(&lines, at, [&core, &init], &modules);
    }
    let names = NameMap::build(&out.ranges, out.names);
    KernelTable { names, runs: out.runs, core, init, hidden: false, build_id: Vec::new() }
}

/// Whether this beginning of the list shows no address at all.
pub(super) fn is_hidden(head: &[u8]) -> bool {
    hides(&read_lines(head).0)
}

fn hides(lines: &[Line<'_>]) -> bool {
    !lines.is_empty() && lines.iter().all(|l| l.addr == 0)
}

fn read_lines(text: &[u8]) -> (Vec<Line<'_>>, Modules<'_>) {
    let mut modules = Modules { names: vec![b""], numbers: FxHashMap::default(), last: 0 };
    let mut lines = Vec::with_capacity(text.len() / 48);
    for line in text.split(|&b| b == b'\n') {
        lines.extend(read_line(line, &mut modules));
    }
    (lines, modules)
}

/// The modules by number.
struct Modules<'a> {
    names: Vec<&'a [u8]>,
    numbers: FxHashMap<&'a [u8], u32>,
    /// Lines of one module stand together.
    last: u32,
}

impl<'a> Modules<'a> {
    fn name(&self, number: u32) -> &'a [u8] {
        self.names.get(number as usize).copied().unwrap_or_default()
    }

    fn number(&mut self, name: &'a [u8]) -> u32 {
        if name.is_empty() {
            return 0;
        }
        if self.name(self.last) != name {
            let next = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
            self.last = *self.numbers.entry(name).or_insert(next);
            if self.last == next {
                self.names.push(name);
            }
        }
        self.last
    }
}

fn read_line<'a>(line: &'a [u8], modules: &mut Modules<'a>) -> Option<Line<'a>> {
    let space = line.iter().position(|&b| b == b' ')?;
    let addr = parse_hex(line.get(..space)?)?;
    let (&kind, rest) = line.get(space + 1..)?.split_first()?;
    let rest = rest.strip_prefix(b" ")?;
    let name_len = rest.iter().position(|&b| b == b'\t' || b == b' ').unwrap_or(rest.len());
    let (name, rest) = rest.split_at_checked(name_len)?;
    let module = rest.trim_ascii().strip_prefix(b"[").and_then(|m| m.strip_suffix(b"]")).unwrap_or_default();
    (!name.is_empty()).then(|| Line { addr, kind, name, module: modules.number(module) })
}

fn parse_hex(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits.iter().try_fold(0u64, |value, &digit| {
        let nibble = char::from(digit).to_digit(16)?;
        Some(value << 4 | u64::from(nibble))
    })
}

fn is_text(kind: u8) -> bool {
    matches!(kind, b't' | b'T' | b'w' | b'W')
}

/// Where a symbol of the kernel itself starts.
fn start_of(lines: &[Line<'_>], name: &[u8]) -> Option<u64> {
    lines.iter().find(|l| l.module == 0 && l.name == name).map(|l| l.addr)
}

/// From `_sinittext` to `_einittext`: what ran while the kernel started and is gone since. The idle task of the first CPU
/// was started from there, so that its stacks end there for as long as the kernel runs.
fn init_text(lines: &[Line<'_>]) -> Range<u64> {
    match (start_of(lines, b"_sinittext"), start_of(lines, b"_einittext")) {
        (Some(start), Some(end)) if start < end => start..end,
        _ => 0..0,
    }
}

/// From `_stext` to `_etext`.
fn core_text(lines: &[Line<'_>]) -> Range<u64> {
    let named = |name: &[u8]| start_of(lines, name);
    let mut texts = lines.iter().filter(|l| l.module == 0 && is_text(l.kind) && l.addr != 0).map(|l| l.addr);
    let (first, last) = (texts.next().unwrap_or(0), texts.next_back());
    let start = named(b"_stext").or_else(|| named(b"_text")).unwrap_or(first);
    let end = named(b"_etext").or_else(|| last.map(end_of_last)).unwrap_or(start);
    start..end.max(start)
}

/// The most that a symbol is granted which nothing follows: the rest of its page and one more, as perf does.
fn end_of_last(start: u64) -> u64 {
    (start.saturating_add(PAGE - 1) & !(PAGE - 1)).saturating_add(PAGE)
}

/// BPF, ftrace and kprobe text wear the place of a module in the list.
fn needs_time(module: &[u8]) -> bool {
    module == b"bpf" || module.starts_with(b"__builtin__")
}

#[derive(Default)]
struct Collected {
    ranges: Vec<Named>,
    names: String,
    runs: Vec<(u32, String)>,
    last_module: Option<u32>,
}

impl Collected {
    fn add(&mut self, lines: &[Line<'_>], at: usize, texts: [&Range<u64>; 2], modules: &Modules<'_>) {
        let Some(line) = lines.get(at).filter(|l| is_named(l, modules)) else { return };
        let text = texts.into_iter().find(|text| text.contains(&line.addr));
        if line.module == 0 && text.is_none() {
            return;
        }
        // Of several text symbols at one address the last one stands, as in perf.
        let later = lines.get(at + 1..).unwrap_or_default();
        if later.iter().take_while(|l| l.addr == line.addr).any(|l| is_named(l, modules)) {
            return;
        }
        let next = later.iter().find(|l| l.addr > line.addr);
        let end = next.map_or(u64::MAX, |l| l.addr);
        let end = match next {
            _ if line.module == 0 => end.min(text.map_or(0, |text| text.end)),
            Some(next) if next.module == line.module => end,
            _ => end.min(end_of_last(line.addr)),
        };
        self.push(line, end, modules.name(line.module));
    }

    fn push(&mut self, line: &Line<'_>, end: u64, module: &[u8]) {
        let number = u32::try_from(self.ranges.len()).unwrap_or(u32::MAX);
        let name = String::from_utf8_lossy(line.name);
        let (Ok(at), Ok(len)) = (u32::try_from(self.names.len()), u32::try_from(name.len())) else { return };
        self.names.push_str(&name);
        self.ranges.push(Named { start: line.addr, end, rank: line.addr, name: Span { at, len } });
        if self.last_module != Some(line.module) {
            self.last_module = Some(line.module);
            self.runs.push((number, String::from_utf8_lossy(module).into_owned()));
        }
    }
}

/// Whether the line names text that stays. `$x` and `$d` mark code and data on ARM and RISC-V.
fn is_named(line: &Line<'_>, modules: &Modules<'_>) -> bool {
    is_text(line.kind) && line.addr != 0 && line.name.first() != Some(&b'$') && !needs_time(modules.name(line.module))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const TEXT: &[u8] = b"\
0000000000000000 A fixed_percpu_data
ffffffff81000000 T _stext
ffffffff81000000 T _text
ffffffff81000010 T start_here
ffffffff81000020 t local_alias
ffffffff81000020 T GLOBAL_alias
ffffffff81000040 W weak_one
ffffffff81000050 T _etext
ffffffff81001000 R rodata
ffffffff81002000 t between
ffffffff82000000 T _sinittext
ffffffff82000000 t start_kernel
ffffffff82000040 t init_last
ffffffff82000060 T _einittext
ffffffff82000060 t exit_only
ffffffffc0002000 t second_fn\t[two]
ffffffffc0000000 t first_fn\t[one]
ffffffffc0000040 T first_last\t[one]
ffffffffc0000fc0 d first_data\t[one]
ffffffffc0100000 t bpf_prog_0123456789abcdef_x\t[bpf]
ffffffffc0200000 t ftrace_trampoline\t[__builtin__ftrace]
not a line
ffffffffzz000000 t damaged
";

    fn at(table: &KernelTable, addr: u64) -> Option<(&str, Option<&str>, u64)> {
        table.lookup(addr).map(|h| (h.name, h.module, h.offset))
    }

    #[test]
    fn names_inside_the_bounds_only() {
        let table = parse(TEXT);
        assert!(!table.hidden());
        assert_eq!((table.start(), table.end()), (0xffff_ffff_8100_0000, 0xffff_ffff_8100_0050));
        let core = |low: u64| at(&table, 0xffff_ffff_8100_0000 + low);
        assert_eq!(core(0), Some(("_text", None, 0)));
        assert_eq!(core(0x1f), Some(("start_here", None, 15)));
        assert_eq!(core(0x24), Some(("GLOBAL_alias", None, 4)));
        assert_eq!(core(0x4f), Some(("weak_one", None, 15)));
        assert_eq!(core(0x50), None, "past _etext");
        assert_eq!(core(0x2000), None, "neither in the text nor in that of the start");
        assert_eq!(core(0x100_0010), Some(("start_kernel", None, 16)));
        assert_eq!(core(0x100_005f), Some(("init_last", None, 31)));
        assert_eq!(core(0x100_0060), None, "past _einittext");
        assert_eq!(at(&table, 0xffff_ffff_80ff_ffff), None);
    }

    #[test]
    fn modules_end_and_passing_text_is_left_out() {
        let table = parse(TEXT);
        let high = |low: u64| at(&table, 0xffff_ffff_c000_0000 + low);
        assert_eq!(high(0x3f), Some(("first_fn", Some("one"), 0x3f)));
        assert_eq!(high(0xfbf), Some(("first_last", Some("one"), 0xf7f)));
        assert_eq!(high(0xfc0), None, "data of the module");
        assert_eq!(high(0x2010), Some(("second_fn", Some("two"), 0x10)));
        assert_eq!(high(0x3000), None, "the last symbol of a module ends with its page");
        assert_eq!(high(0x10_0000), None, "BPF programs need a time");
        assert_eq!(high(0x20_0000), None, "trampolines need a time");
    }

    #[test]
    fn an_excerpt_answers_alike() {
        let table = parse(TEXT);
        let asked: Vec<u64> = [0x8100_001f, 0x8100_0024, 0x8100_0000, 0xc000_0041, 0xc000_2010, 0x8200_0000]
            .map(|low: u64| 0xffff_ffff_0000_0000 + low)
            .into();
        let excerpt = table.excerpt(asked.iter().copied());
        let small = parse(&excerpt);
        assert_eq!(small.len(), 6, "{}", String::from_utf8_lossy(&excerpt));
        assert_eq!((small.start(), small.end()), (table.start(), table.end()));
        // Each address of the symbols that were asked for, and the first behind them.
        let ranges = [
            (0x8100_0000, 0x8100_003f_u64),
            (0x8200_0000, 0x8200_003f),
            (0xc000_0040, 0xc000_0fc0),
            (0xc000_2000, 0xc000_3000),
        ];
        for (start, end) in ranges {
            for low in start..=end {
                let addr = 0xffff_ffff_0000_0000_u64 + low;
                assert_eq!(at(&small, addr), at(&table, addr), "{addr:#x}");
            }
        }
        assert_eq!(at(&small, 0xffff_ffff_8100_0045), None, "not asked for");
        let far = parse(&table.excerpt([0xffff_ffff_8100_0045]));
        assert_eq!(at(&far, 0xffff_ffff_8100_0018), None, "the bound of the text is no name for what follows it");
        assert!(table.excerpt([0x10]).is_empty());
    }

    #[test]
    fn zeroed_addresses_are_hidden() {
        let table = parse(b"0000000000000000 T _stext\n0000000000000000 t other\n");
        assert!(table.hidden() && table.is_empty());
        assert_eq!(table.lookup(0), None);
        assert!(!parse(b"").hidden(), "nothing at all is not the same as hidden");
    }

    #[test]
    fn encoded_and_back() {
        let table = parse(TEXT).with_build_id(&[1; 20]);
        let bytes = table.encode();
        assert_eq!(KernelTable::decode(&bytes).unwrap(), table);
        assert_eq!(KernelTable::decode(&bytes[..bytes.len() - 1]), None);
    }
}
