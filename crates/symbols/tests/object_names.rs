//! The names of programs and libraries are those that perf prints.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod made;
mod oracle;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use afterimage_symbols::source::RealFiles;
use afterimage_symbols::{Finder, Origin, Request, SymbolTable, demangle};
use afterimage_testkit::{Need, has};

const BASE: u64 = 0x7f00_0000_0000;
const APART: u64 = 1 << 32;

fn table_of(path: &Path) -> Arc<SymbolTable> {
    let mut finder = Finder::with(Box::new(RealFiles), None);
    let path = path.as_os_str().as_encoded_bytes();
    finder.find(&Request { path, build_id: None, live: None }).unwrap()
}

/// The names at every symbol of the code of an object and at every `step` bytes: address, ours, perf's.
fn compare(path: &Path, step: usize) -> Vec<(u64, String, String)> {
    let path = path.canonicalize().unwrap();
    let table = table_of(&path);
    let (mut maps, mut addresses, mut ours) = (Vec::new(), Vec::new(), Vec::new());
    for (segment, base) in table.segments().iter().filter(|s| s.executable).zip((0..).map(|i| BASE + i * APART)) {
        let offset = segment.offset & !0xfff;
        let len = (segment.offset - offset + segment.file_size).next_multiple_of(4096);
        maps.push(oracle::Map { start: base, len, offset, path: &path });
        let code = segment.vaddr..segment.vaddr + segment.file_size;
        let starts = table.iter().map(|s| s.start).flat_map(|at| [at, at + 2]);
        let places = starts.chain(code.clone().step_by(step)).filter(|at| code.contains(at));
        for vaddr in places.collect::<BTreeSet<u64>>() {
            let file_offset = vaddr - segment.vaddr + segment.offset;
            assert_eq!(table.vaddr_of_offset(file_offset), Some(vaddr));
            addresses.push(base + file_offset - offset);
            let name = table.lookup_offset(file_offset).map(|hit| demangle(hit.name).into_owned());
            ours.push((vaddr, name.unwrap_or_else(|| "[unknown]".into())));
        }
    }
    let perf = oracle::perf_names(&addresses, &maps, None);
    ours.into_iter().zip(perf).map(|((at, ours), perf)| (at, ours, perf)).collect()
}

/// perf 6.1 names the entries of the linkage table by counting relocations, which goes wrong where one has no symbol,
/// knows no other linkage tables, lets `_init`, `_fini` and data run on to the next symbol, and may stop at a label
/// inside a function. We do not.
fn explained(ours: &str, perf: &str) -> bool {
    ours.ends_with("@plt") || perf.ends_with("@plt") || (ours == "[unknown]" && matches!(perf, "_init" | "_fini"))
}

#[test]
fn system_objects_as_perf_names_them() {
    if !has("system_objects_as_perf_names_them", &[Need::Perf]) {
        return;
    }
    for path in ["/bin/bash", "/bin/ls", "/lib/x86_64-linux-gnu/libc.so.6", "/lib/aarch64-linux-gnu/libc.so.6"] {
        let path = Path::new(path);
        if !path.exists() {
            continue;
        }
        let names = compare(path, 16);
        let different: Vec<_> = names.iter().filter(|(_, ours, perf)| ours != perf && !explained(ours, perf)).collect();
        println!("{}: {} addresses, {} named differently", path.display(), names.len(), different.len());
        assert!(names.len() > 1000);
        assert!(different.is_empty(), "{:#x?}", &different[..different.len().min(20)]);
    }
}

#[test]
fn a_rust_program_as_perf_names_it() {
    if !has("a_rust_program_as_perf_names_it", &[Need::Perf]) {
        return;
    }
    let names = compare(&std::env::current_exe().unwrap(), 4096);
    let different: Vec<_> = names.iter().filter(|(_, ours, perf)| ours != perf && !explained(ours, perf)).collect();
    println!("{} addresses, {} named differently", names.len(), different.len());
    assert!(names.iter().any(|(_, ours, _)| ours.starts_with("object_names::compare")));
    assert!(different.is_empty(), "{:#x?}", &different[..different.len().min(20)]);
}

#[test]
fn every_shape_of_symbol_as_perf_names_it() {
    if !has("every_shape_of_symbol_as_perf_names_it", &[Need::Perf, Need::Cc]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let program = made::freestanding(dir.path(), "shapes", "");
    let names = compare(&program, 1);
    for (at, ours, perf) in &names {
        let label = ours == "bounded" && (perf == "Linner_label" || perf == "bounded");
        assert!(ours == perf || label, "{at:#x}: ours {ours}, perf {perf}");
    }
    let named: BTreeSet<&str> = names.iter().map(|(_, ours, _)| ours.as_str()).collect();
    let expected = [
        "global_one",
        "local_one",
        "weak_one",
        "plain",
        "unsized_one",
        "bounded",
        "ns::S<int>::member",
        "abc::inner::rusty",
    ];
    for name in expected {
        assert!(named.contains(name), "{name} is not among {named:?}");
    }
    assert!(!named.contains("__barred") && !named.contains("Linner_label"));
}

#[test]
fn linkage_tables_lead_to_the_right_function() {
    if !has("linkage_tables_lead_to_the_right_function", &[Need::Cc]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let source = "int puts(const char*); int getpid(void); double atof(const char*);\n\
                  int main(int c, char **v) { puts(v[0]); return getpid() + (int)atof(v[0]); }\n";
    for (name, options) in
        [("lazy", &["-Wl,-z,lazy"][..]), ("now", &["-Wl,-z,now"]), ("ibt", &["-fcf-protection=full"])]
    {
        if name == "ibt" && cfg!(not(target_arch = "x86_64")) {
            continue;
        }
        let program = made::compile(dir.path(), name, source, options);
        let table = table_of(&program);
        let plt: BTreeSet<&str> = table.iter().map(|s| s.name).filter(|name| name.ends_with("@plt")).collect();
        for name in ["puts@plt", "getpid@plt", "atof@plt"] {
            assert!(plt.contains(name), "{name} is not among {plt:?}");
        }
        // The disassembler of binutils knows these names too.
        let out = Command::new("objdump").args(["-d", "--no-show-raw-insn"]).arg(&program).output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let heads = text.lines().filter_map(|line| line.strip_suffix("@plt>:")?.split_once(" <"));
        let heads: Vec<(u64, &str)> = heads.map(|(at, name)| (u64::from_str_radix(at, 16).unwrap(), name)).collect();
        assert!(heads.len() >= 3, "{text}");
        for (at, name) in heads {
            let hit = table.lookup_vaddr(at).map(|hit| hit.name);
            assert_eq!(hit, Some(format!("{name}@plt").as_str()), "{at:#x}");
        }
    }
}

#[test]
fn exported_functions_as_nm_lists_them() {
    if !has("exported_functions_as_nm_lists_them", &[Need::Cc]) {
        return;
    }
    for path in ["/bin/bash", "/lib/x86_64-linux-gnu/libc.so.6", "/lib/aarch64-linux-gnu/libc.so.6"].map(Path::new) {
        if !path.exists() {
            continue;
        }
        let table = table_of(path);
        assert!(table.origin() >= Origin::Dynamic);
        let out = Command::new("nm").args(["-D", "--defined-only"]).arg(path).output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let mut at_each: std::collections::BTreeMap<u64, Vec<&str>> = Default::default();
        for line in text.lines() {
            let fields: Vec<&str> = line.split(' ').collect();
            if let [at, "T" | "i", name] = fields[..] {
                let bare = name.split('@').next().unwrap();
                at_each.entry(u64::from_str_radix(at, 16).unwrap()).or_default().push(bare);
            }
        }
        assert!(at_each.len() > 500, "{}", at_each.len());
        let mut from_symtab = 0;
        for (at, names) in &at_each {
            let hit = table.lookup_vaddr(*at).unwrap_or_else(|| panic!("{at:#x} {names:?}"));
            assert_eq!(hit.start, *at, "{names:?}");
            // A full table may hold a name that is not exported.
            from_symtab += usize::from(!names.contains(&hit.name.split('@').next().unwrap()));
        }
        assert!(from_symtab == 0 || table.origin() > Origin::Dynamic, "{from_symtab} names are not exported");
        println!("{}: {} addresses", path.display(), at_each.len());
    }
}

#[test]
fn encoded_and_back() {
    let table = table_of(&std::env::current_exe().unwrap());
    let bytes = table.encode();
    assert_eq!(SymbolTable::decode(&bytes).unwrap(), *table);
    assert!(SymbolTable::decode(&bytes[..bytes.len() / 2]).is_none());
    assert!(SymbolTable::decode(b"").is_none());
}
