//! Replays the corpora of the fuzz targets, and keeps the seeds in them: with `AFTERIMAGE_BLESS` set, the seeds are
//! written anew.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::fs;
use std::path::{Path, PathBuf};

use afterimage_symbols::fuzzing;

type Target = fn(&[u8]);

fn folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target)
}

#[test]
fn replay() {
    let targets: [(&str, Target); 2] = [("btf_lines", fuzzing::btf_lines), ("kallsyms", fuzzing::kallsyms)];
    for (target, run) in targets {
        let mut inputs = 0;
        for entry in fs::read_dir(folder(target)).unwrap() {
            run(&fs::read(entry.unwrap().path()).unwrap());
            inputs += 1;
        }
        assert!(inputs >= 3, "{target} has {inputs} inputs");
    }
}

/// A kernel with a module, one that hides its addresses, and a table as the cache keeps it.
fn kallsyms_seeds() -> [(&'static str, Vec<u8>); 3] {
    let list = b"0000000000000000 A fixed_percpu_data\nffffffff81000000 T _stext\nffffffff81000000 T startup\n\
        ffffffff81000100 t sub\nffffffff81000180 W weak\nffffffff81000200 T _etext\nffffffff82000000 T _sinittext\n\
        ffffffff82000040 t setup\nffffffff82000080 T _einittext\nffffffffc0001000 t work\t[mod]\n\
        ffffffffc0001080 r data\t[mod]\nffffffffc0002000 t bpf_prog_1_x\t[bpf]\n";
    let hidden = b"0000000000000000 T _stext\n0000000000000000 T _etext\n";
    let table = [&[1], &*afterimage_symbols::KernelTable::parse(list).encode()].concat();
    [("list", list.to_vec()), ("hidden", hidden.to_vec()), ("table", table)]
}

/// Two functions with three lines, as the fuzz target takes them.
fn seed(flags: u8, record_len: u8) -> Vec<u8> {
    let addresses = [0xffff_ffff_c000_1000u64, 0xffff_ffff_c000_0800];
    let natives = [addresses[0] + 11, addresses[0] + 30, addresses[1]];
    let (big_records, big_btf) = (flags & 1 != 0, flags & 4 != 0);
    let word = |big: bool, w: u32| if big { w.to_be_bytes() } else { w.to_le_bytes() };
    let mut out = vec![flags, record_len, 2, 3];
    addresses.iter().for_each(|a| out.extend(a.to_le_bytes()));
    [64u32, 32].iter().for_each(|l| out.extend(l.to_le_bytes()));
    natives.iter().for_each(|n| out.extend(n.to_le_bytes()));
    for (insn, text, line) in [(0, 12, 10), (3, 25, 11), (9, 12, 30)] {
        let record = [insn, 1, text, line << 10 | 5].map(|w| word(big_records, w)).concat();
        out.extend(record.iter().copied().chain([0; 8]).take(record_len.into()));
    }
    let strings = b"\0prog.bpf.c\0\tint x = 1;\0\treturn x;\0";
    out.extend(if big_btf { 0xeb9fu16.to_be_bytes() } else { 0xeb9fu16.to_le_bytes() });
    out.extend([1, 0]);
    [24, 0, 0, 0, strings.len() as u32].iter().for_each(|w| out.extend(word(big_btf, *w)));
    out.extend(strings);
    out
}

#[test]
fn seeds() {
    let lines = [("little", seed(0, 16)), ("big", seed(5, 16)), ("longer", seed(0, 24)), ("numbers", seed(2, 16))];
    let lines = lines.map(|(name, bytes)| ("btf_lines", name, bytes));
    let names = kallsyms_seeds().map(|(name, bytes)| ("kallsyms", name, bytes));
    for (target, name, bytes) in lines.into_iter().chain(names) {
        let path = folder(target).join(format!("seed-{name}"));
        if std::env::var_os("AFTERIMAGE_BLESS").is_some() {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, &bytes).unwrap();
        }
        assert!(fs::read(&path).is_ok_and(|b| b == bytes), "{} is old: run with AFTERIMAGE_BLESS=1", path.display());
    }
}
