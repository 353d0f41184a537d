//! What compilers of other languages make of frames: stacks that are unwound from copies beside what the programs are known to do,
//! and beside frame pointers in a build that has them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use afterimage_testkit::{Need, has};

use crate::common::{afterimage, file, folder, stderr, word};
use crate::unwound::{chains, complete};

/// The leaves of a program, each with what it is called by, inner to outer.
type Callers = [(&'static str, Vec<&'static str>)];

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/script_lines/programs").join(name)
}

fn build(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", stderr(&output));
}

/// Records a program and gives its chains, with how many samples each has; says how many stacks are complete.
fn recorded(folder: &tempfile::TempDir, program: &Path, mode: &str, callers: &Callers) -> BTreeMap<Vec<String>, usize> {
    let path = file(folder, mode);
    let mut record = afterimage();
    record.args(["record", "-q", "-o", word(&path), "-e", "cpu-clock:u", "-F", "999", "--call-graph", mode, "--"]);
    let output = record.arg(program).arg("0.6").output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let chains = chains(&path, &[], callers);
    if mode == "dwarf" {
        let (all, complete) = complete(&path, &[]);
        println!("{}: {complete} of {all} stacks complete", program.display());
        assert!(complete * 100 >= all * 99, "{complete} of {all} stacks complete");
    }
    chains
}

/// Each leaf's stack is whole, in all but one of a hundred samples: one may be taken where a leaf has just been entered.
fn whole(chains: &BTreeMap<Vec<String>, usize>, callers: &Callers) {
    for (leaf, callers) in callers {
        let whole: Vec<String> = [*leaf].iter().chain(callers).map(|name| name.to_string()).collect();
        let of_leaf: usize = chains.iter().filter(|(chain, _)| chain[0] == *leaf).map(|(_, n)| n).sum();
        let right = chains.get(&whole).copied().unwrap_or(0);
        assert!(of_leaf > 20 && right * 100 >= of_leaf * 99, "{leaf}: {right} of {of_leaf}: {chains:?}");
    }
}

/// The stacks with at least half a percent of the samples.
fn set(chains: &BTreeMap<Vec<String>, usize>) -> BTreeSet<&Vec<String>> {
    let all: usize = chains.values().sum();
    chains.iter().filter(|(_, n)| **n * 200 >= all).map(|(chain, _)| chain).collect()
}

/// Stacks from copies of a build without frame pointers, and by frame pointers of one that has them: the known ones, the same.
fn alike(folder: &tempfile::TempDir, plain: &Path, with_pointers: &Path, callers: &Callers) {
    let unwound = recorded(folder, plain, "dwarf", callers);
    let walked = recorded(folder, with_pointers, "fp", callers);
    whole(&unwound, callers);
    assert_eq!(set(&unwound), set(&walked));
    assert!(set(&unwound).len() >= callers.len());
}

#[test]
fn exceptions_of_cpp() {
    if !has("exceptions_of_cpp", &[Need::Root, Need::Bpf, Need::Cxx]) {
        return;
    }
    let callers = [
        ("leaf_caught", vec!["catching", "main"]),
        ("leaf_unwinding", vec!["destroyed", "cleaning", "unwound", "main"]),
        ("leaf_virtual", vec!["Derived::run", "dispatched", "main"]),
        ("leaf_called", vec!["called", "main"]),
    ];
    let common = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/workload");
    for flags in [&["-O0"][..], &["-O2"], &["-O3", "-flto"], &["-O2", "-static"]] {
        let folder = folder();
        let program = |pointers: &str| {
            let program = file(&folder, pointers);
            let mut cxx = Command::new("c++");
            cxx.args(["-g", "-fno-optimize-sibling-calls", "-Wall", pointers, "-I"]).arg(&common).args(flags);
            build(cxx.arg(source("thrown.cc")).arg("-o").arg(&program));
            program
        };
        println!("{flags:?}");
        alike(&folder, &program("-fomit-frame-pointer"), &program("-fno-omit-frame-pointer"), &callers);
    }
}

#[test]
fn panics_of_rust() {
    if !has("panics_of_rust", &[Need::Root, Need::Bpf, Need::Rustc]) {
        return;
    }
    let callers = [
        ("leaf_dropped", vec!["dropped", "guarded", "caught", "outer"]),
        ("leaf_caught", vec!["caught", "outer"]),
        ("leaf_object", vec!["dispatched", "outer"]),
        ("leaf_deep", [vec!["recursive"; 20], vec!["outer"]].concat()),
    ];
    for flags in [&["-O"][..], &["-Copt-level=0"], &["-O", "-Clto=fat", "-Ccodegen-units=1"]] {
        let folder = folder();
        let program = |pointers: &str| {
            let program = file(&folder, pointers);
            let mut rustc = Command::new("rustc");
            rustc.args(["--edition=2021", "-Cpanic=unwind"]).arg(format!("-Cforce-frame-pointers={pointers}"));
            build(rustc.args(flags).arg(source("panics.rs")).arg("-o").arg(&program));
            program
        };
        println!("{flags:?}");
        alike(&folder, &program("no"), &program("yes"), &callers);
    }
}

/// Go keeps frame pointers in every build, and tables for debuggers alone.
#[test]
fn goroutines_of_go() {
    if !has("goroutines_of_go", &[Need::Root, Need::Bpf, Need::Go]) {
        return;
    }
    let callers = [
        ("main.leafDeep", [vec!["main.recursive"; 20], vec!["main.main"]].concat()),
        ("main.leafApart", vec!["main.worker"]),
    ];
    let folder = folder();
    let program = file(&folder, "program");
    let mut go = Command::new("go");
    go.args(["build", "-o"]).arg(&program).arg(source("goroutines.go"));
    build(go.env("GOCACHE", folder.path().join("cache")).env("GOFLAGS", "-mod=mod").env("GO111MODULE", "off"));
    alike(&folder, &program, &program, &callers);
}
