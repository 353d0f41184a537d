//! The names of the kernel's text are those that perf prints, for every symbol.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod oracle;

use afterimage_symbols::KernelTable;
use afterimage_testkit::{Need, has};

#[test]
fn every_kernel_symbol_as_perf_names_it() {
    if !has("every_kernel_symbol_as_perf_names_it", &[Need::Root, Need::Perf]) {
        return;
    }
    let table = KernelTable::parse(&std::fs::read("/proc/kallsyms").unwrap());
    assert!(!table.hidden());
    let starts = table.starts().filter(|&at| table.contains(at));
    let addresses: Vec<u64> = starts.flat_map(|at| [at, at + 3]).filter(|&at| table.contains(at)).collect();
    assert!(addresses.len() > 10_000, "only {} addresses", addresses.len());
    let perf = oracle::perf_names(&addresses, &[], Some(table.start()..table.end()));
    let mut different = Vec::new();
    for (&addr, perf) in addresses.iter().zip(&perf) {
        let ours = table.lookup(addr).map_or("[unknown]", |hit| hit.name);
        if ours != perf {
            different.push(format!("{addr:#x}: ours {ours}, perf {perf}"));
        }
    }
    println!("{} addresses, {} named differently", addresses.len(), different.len());
    assert!(different.is_empty(), "{:#?}", &different[..different.len().min(20)]);
}

#[test]
fn hidden_from_those_who_may_not_see() {
    if !has("hidden_from_those_who_may_not_see", &[Need::Root, Need::Setpriv]) {
        return;
    }
    let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups", "cat", "/proc/kallsyms"];
    let out = std::process::Command::new("setpriv").args(nobody).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    let line = text.lines().find(|line| line.ends_with(" T _stext")).unwrap();
    let table = KernelTable::parse(&out.stdout);
    assert_eq!(table.hidden(), line.starts_with("0000000000000000 "));
    assert_eq!(table.is_empty(), table.hidden());
}
