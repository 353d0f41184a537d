//! Replays the corpora of the fuzz targets, and keeps the seeds in them: with `AFTERIMAGE_BLESS` set, the seeds are
//! written anew.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::fs;
use std::path::{Path, PathBuf};

use afterimage_symbols::kept::KeptObject;
use afterimage_symbols::{SymbolTable, fuzzing};

type Target = fn(&[u8]);

fn folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target)
}

#[test]
fn replay() {
    let targets: [(&str, Target); 6] = [
        ("btf_lines", fuzzing::btf_lines),
        ("cgroup_names", fuzzing::cgroup_names),
        ("jitdump", fuzzing::jitdump),
        ("kallsyms", fuzzing::kallsyms),
        ("kept", fuzzing::kept),
        ("perf_map", fuzzing::perf_map),
    ];
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

/// Paths of a container, of one in a pod, and of a unit.
fn cgroup_seeds() -> [(&'static str, String); 3] {
    let id = "4f1e09c2ab37d1e6".repeat(4);
    let pod = "2c48913c_b29f_11e7_9350_020968147796";
    let in_pod =
        format!("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{pod}.slice/cri-containerd-{id}.scope");
    [
        ("docker", format!("/system.slice/docker-{id}.scope")),
        ("pod", in_pod),
        ("unit", "/machine.slice/machine-qemu\\x2d3\\x2dweb.scope/libvirt/a.service".to_owned()),
    ]
}

/// Lines of maps: plain ones, code that takes the place of other code, and what is no line.
fn map_seeds() -> [(&'static str, Vec<u8>); 3] {
    let plain = b"7f0000001000 40 LazyCompile:*hot /srv/app.js:7\n0x7f0000002000 0x10 py::f:/srv/app.py\n";
    let moved = b"1000 100 old\n2000 10 stays\n\x001080 100 new\n\x001080 100 new\n1000 80 newest\n";
    let broken = b"1000 10\n zz 10 x\n1000 ffffffffffffffff all\nffffffffffffffff 1 last\n3000 0 empty\n\n1000";
    [("plain", plain.to_vec()), ("moved", moved.to_vec()), ("broken", broken.to_vec())]
}

/// A dump with one of each record, in a byte order; cut by some bytes.
fn dump_seed(big: bool, cut: usize) -> Vec<u8> {
    let word = |w: u32| if big { w.to_be_bytes() } else { w.to_le_bytes() };
    let long = |l: u64| if big { l.to_be_bytes() } else { l.to_le_bytes() };
    let longs = |all: &[u64]| all.iter().flat_map(|l| long(*l)).collect::<Vec<u8>>();
    let words = |all: &[u32]| all.iter().flat_map(|w| word(*w)).collect::<Vec<u8>>();
    let record =
        |kind: u32, time: u64, body: Vec<u8>| [words(&[kind, 16 + body.len() as u32]), longs(&[time]), body].concat();
    let line = |addr: u64, number: u32, file: &[u8]| [longs(&[addr]), words(&[number, 0]), file.to_vec()].concat();
    let lines = [longs(&[0x1000, 2]), line(0x1000, 7, b"a.js\0"), line(0x1002, 8, b"\xff\0")].concat();
    let load = |addr: u64, index: u64, name: &[u8]| {
        [words(&[77, 77]), longs(&[addr, addr, 4, index]), name.to_vec(), vec![0x90, 0x90, 0x90, 0xc3]].concat()
    };
    let mut dump = [words(&[0x4a69_5444, 1, 40, 62, 0, 77]), longs(&[5, 0])].concat();
    dump.extend(record(2, 9, lines));
    dump.extend(record(4, 9, [longs(&[8, 4, 0]), b"hdr.fram".to_vec()].concat()));
    dump.extend(record(0, 10, load(0x1000, 1, b"first\0")));
    dump.extend(record(1, 20, [words(&[77, 77]), longs(&[0x2000, 0x1000, 0x2000, 4, 1])].concat()));
    dump.extend(record(0, 21, load(0x1000, 2, b"second\0")));
    dump.extend(record(9, 22, vec![1, 2, 3, 4]));
    dump.extend(record(3, 23, Vec::new()));
    dump.truncate(dump.len() - cut);
    dump
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

/// Objects as archives keep them, without the checksum: one that could not be had, one by build ID without anything, and one
/// with a symbol, its code and its lines.
fn kept_seeds() -> [(&'static str, Vec<u8>); 3] {
    let block = |bytes: &[u8]| [&(bytes.len() as u64).to_le_bytes(), bytes].concat();
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let longs = |longs: &[u64]| longs.iter().flat_map(|long| long.to_le_bytes()).collect::<Vec<u8>>();
    let by_path = [block(b"/opt/x (deleted)"), words(&[0, 0, 0]), longs(&[0])].concat();
    let by_build = [block(b"/opt/x"), words(&[2]), block(&[1, 2, 3, 4]), words(&[0, 0]), longs(&[0])].concat();
    let by_inode = [block(b"//anon"), words(&[1, 8, 1]), longs(&[77, 3]), words(&[1, 42]), longs(&[0])].concat();
    let empty = SymbolTable::from_elf(&tiny_elf()).unwrap().encode();
    let nothing = [block(b""), words(&[1, 1]), block(b"/opt/x"), block(&empty), longs(&[0]), longs(&[0; 5])].concat();
    // One string, one frame, one chain of it, two rows.
    let lines = [
        longs(&[1, 1, 1, 1, 2]),
        block(b"main.c"),
        words(&[1, 1, 0, 7, 3]),
        words(&[0]),
        words(&[0]),
        longs(&[0x1000, 0x1004]),
        words(&[0, u32::MAX]),
    ];
    let code = [longs(&[1, 0x1000]), block(&[0x90, 0x90, 0x90, 0xc3])].concat();
    let some = [block(b""), words(&[1, 3]), block(b"/opt/x"), block(&empty), code, lines.concat()].concat();
    [
        ("gone", [by_path, block(b"deleted")].concat()),
        ("nothing", [by_build, nothing].concat()),
        ("lines", [by_inode, some].concat()),
    ]
}

/// An ELF header and one segment of code.
fn tiny_elf() -> Vec<u8> {
    let mut elf = b"\x7fELF\x02\x01\x01".to_vec();
    elf.resize(16, 0);
    elf.extend([2, 0, 62, 0, 1, 0, 0, 0]);
    [0x1000u64, 64, 0].iter().for_each(|long| elf.extend(long.to_le_bytes()));
    elf.extend([0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    elf.extend([1, 0, 0, 0, 5, 0, 0, 0]);
    [0u64, 0x1000, 0x1000, 120, 120, 0x1000].iter().for_each(|long| elf.extend(long.to_le_bytes()));
    elf
}

#[test]
fn seeds_are_objects() {
    for (name, bytes) in kept_seeds() {
        let kept = KeptObject::decode(&fuzzing::seal_kept(&bytes)).unwrap_or_else(|| panic!("{name} is none"));
        assert_eq!(kept.content.is_err(), name == "gone");
    }
}

#[test]
fn seeds() {
    let lines = [("little", seed(0, 16)), ("big", seed(5, 16)), ("longer", seed(0, 24)), ("numbers", seed(2, 16))];
    let lines = lines.map(|(name, bytes)| ("btf_lines", name, bytes));
    let names = kallsyms_seeds().map(|(name, bytes)| ("kallsyms", name, bytes));
    let kept = kept_seeds().map(|(name, bytes)| ("kept", name, bytes));
    let maps = map_seeds().map(|(name, bytes)| ("perf_map", name, bytes));
    let dumps = [("little", dump_seed(false, 0)), ("big", dump_seed(true, 0)), ("cut", dump_seed(false, 30))];
    let dumps = dumps.map(|(name, bytes)| ("jitdump", name, bytes));
    let groups = cgroup_seeds().map(|(name, path)| ("cgroup_names", name, path.into_bytes()));
    let all = lines.into_iter().chain(names).chain(kept).chain(maps).chain(dumps).chain(groups);
    for (target, name, bytes) in all {
        let path = folder(target).join(format!("seed-{name}"));
        if std::env::var_os("AFTERIMAGE_BLESS").is_some() {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, &bytes).unwrap();
        }
        assert!(fs::read(&path).is_ok_and(|b| b == bytes), "{} is old: run with AFTERIMAGE_BLESS=1", path.display());
    }
}
