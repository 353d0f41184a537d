//! Functions of the kernel on a machine that has neither its image with symbols nor /proc/kcore: the bytes are in the
//! recording.

use std::path::Path;
use std::process::{Command, Stdio};

use afterimage_perf_data::features::BuildIdEntry;
use afterimage_perf_data::record::cpumode;
use afterimage_perf_data::{BuildId, Features, FileReader, Private};
use afterimage_profile::{ReplayOptions, ResolveOptions, Resolver, Subject, annotate};
use afterimage_testkit::{Need, has, workload};
use serde_json::Value;

use crate::common::{afterimage, file, folder};
use crate::listing::{lines, only, samples, samples_of_line};
use crate::made::{Made, event};
use crate::programs::turn;

const NEEDS: [Need; 3] = [Need::Root, Need::Bpf, Need::Cc];

fn record(path: &Path, command: &[&str]) {
    let mut recorder = afterimage();
    recorder.args(["record", "-q", "-a", "-e", "cpu-clock", "-F", "2000", "-o"]).arg(path).arg("--").args(command);
    assert!(recorder.stdout(Stdio::null()).status().unwrap().success());
}

/// The heaviest functions of the kernel: each with code, each sample at the start of an instruction.
fn check(path: &Path, most: usize) {
    let shown = crate::listing::annotate(path, &["-d", "[kernel.kallsyms]", "--percent-limit", "0"]);
    let bytes = std::fs::read(path).unwrap();
    let reader = FileReader::open(&bytes).unwrap();
    let mut resolver = Resolver::new(&reader, ResolveOptions::default());
    let found = annotate(&reader, &ReplayOptions::default(), &mut resolver);
    let symbols: Vec<&Value> =
        shown["symbols"].as_array().unwrap().iter().filter(|symbol| symbol["kind"] == "kernel").take(most).collect();
    assert!(!symbols.is_empty());
    for symbol in symbols {
        let total: u64 = samples(symbol).iter().sum();
        println!("{:>6} samples  {}  {}", total, symbol["name"].as_str().unwrap(), symbol["code"]);
        assert!(symbol["code"]["way"].is_string(), "{}: {}", symbol["name"], symbol["reason"]);
        let starts: Vec<u64> = lines(symbol).iter().map(|line| line["offset"].as_u64().unwrap()).collect();
        assert!(lines(symbol).iter().all(|line| line["text"].is_string() && line["text"] != "(bad)"), "{symbol}");
        let address = |text: &Value| u64::from_str_radix(text.as_str().unwrap().trim_start_matches("0x"), 16).unwrap();
        let start = address(&symbol["address"]);
        let thing = found.things.iter().find(|t| t.subject == Subject::Kernel && t.start == start).unwrap();
        for hits in thing.hits.values() {
            for offset in hits.by_offset.keys() {
                assert!(starts.contains(offset), "{}+{offset:#x} is within an instruction", symbol["name"]);
            }
        }
    }
}

#[test]
fn an_idle_machine() {
    if !has("an_idle_machine", &NEEDS) {
        return;
    }
    let _turn = turn();
    let folder = folder();
    let path = file(&folder, "a.data");
    record(&path, &["sleep", "1"]);
    check(&path, 10);
}

#[test]
fn a_busy_machine() {
    if !has("a_busy_machine", &NEEDS) {
        return;
    }
    let _turn = turn();
    let folder = folder();
    let path = file(&folder, "a.data");
    let faults = workload::build().faults;
    let mut busy =
        Command::new("dd").args(["if=/dev/zero", "of=/dev/null", "bs=64k"]).stderr(Stdio::null()).spawn().unwrap();
    record(&path, &["sh", "-c", &format!("find /usr > /dev/null; {} 200000 > /dev/null", faults.display())]);
    busy.kill().unwrap();
    busy.wait().unwrap();
    check(&path, 10);
}

/// Where the kernel of the test is linked to, and how far from there it lies in the recording.
const LINKED: u64 = 0xffff_ffff_8100_0000;
const MOVED: u64 = 0x1b00_0000;

/// A kernel's image with symbols and lines, of one function.
fn vmlinux(folder: &Path, build_id: &str) -> std::path::PathBuf {
    let (source, image) = (folder.join("function.c"), folder.join("vmlinux"));
    let text = "unsigned some_function(unsigned x)\n{\n\tx = x * 1664525u; /* here */\n\treturn x ^ (x >> 7);\n}\n";
    std::fs::write(&source, text).unwrap();
    let output = Command::new("cc")
        .args(["-O1", "-g", "-nostdlib", "-static", "-no-pie", "-fno-pic", "-mcmodel=kernel", "-Wl,-e,some_function"])
        .args([format!("-Wl,--build-id=0x{build_id}"), format!("-Wl,-Ttext={LINKED:#x}")])
        .arg(format!("-Wl,--defsym=_text={LINKED:#x}"))
        .arg("-o")
        .args([&image, &source])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    image
}

/// Without copies in the recording the kernel's own image serves, if it is of the recorded build, and wherever the
/// kernel lay.
#[test]
#[cfg(target_arch = "x86_64")]
fn the_image_of_the_kernel_has_code_and_lines() {
    if !has("the_image_of_the_kernel_has_code_and_lines", &[Need::Cc]) {
        return;
    }
    let folder = folder();
    let path = file(&folder, "data");
    let id = [0x5a; 20];
    let image = vmlinux(folder.path(), &"5a".repeat(20));
    let start = LINKED + MOVED;
    let mut made = Made::at(&path, vec![event("cpu-clock", 11, false)]);
    made.kernel_map(start, 0x1000, start);
    made.kernel_sample(0, 42, 1000, start);
    let symbols = format!("{start:016x} t _stext\n{start:016x} t some_function\n{:016x} t _etext\n", start + 0x1000);
    let private = Private { kernel_symbols: symbols.into_bytes(), ..Private::default() };
    let entry = BuildIdEntry {
        pid: -1,
        build_id: BuildId::new(&id),
        filename: "[kernel.kallsyms]".to_owned(),
        cpumode: cpumode::KERNEL,
    };
    let arch = Some("x86_64".to_owned());
    made.finish_with(&Features { arch, build_ids: vec![entry], ..Features::default() }, Some(&private));
    let shown = crate::listing::annotate(&path, &["-s", "some_function", "-k", image.to_str().unwrap()]);
    let function = only(&shown);
    assert_eq!(function["code"]["way"], "vmlinux", "{function}");
    assert_eq!(function["address"], format!("{start:#x}"));
    assert!(lines(function)[0]["text"].as_str().unwrap().starts_with("imul $0x19660d,"), "{function}");
    assert_eq!(samples_of_line(function, 3), 1);
    assert!(lines(function)[0]["source"][0]["text"].as_str().unwrap().contains("/* here */"));
    // Another build of the same function is not believed.
    let other = vmlinux(folder.path(), &"5b".repeat(20));
    let shown = crate::listing::annotate(&path, &["-s", "some_function", "-k", other.to_str().unwrap()]);
    assert_eq!(only(&shown)["code"], Value::Null);
    assert_eq!(only(&shown)["tried"][1]["reason"], "the file is of another build than the recorded one");
}
