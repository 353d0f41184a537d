//! Names of the kernel: of the running one if it is the recorded one, of an image of the recorded build, or none.

use std::path::{Path, PathBuf};
use std::process::Command;

use afterimage_perf_data::features::BuildIdEntry;
use afterimage_perf_data::record::cpumode;
use afterimage_perf_data::{BuildId, Features};
use afterimage_testkit::{Need, has};
use serde_json::Value;

use crate::common::{afterimage, file, folder, stderr, stdout, word};
use crate::made::{Made, event};

/// Where the kernel of the test is linked to, and how far from there it lay.
const LINKED: u64 = 0xffff_ffff_8100_0000;
const MOVED: u64 = 0x1b00_0000;

/// A kernel's image with symbols, of one function.
fn vmlinux(folder: &Path, build_id: &str) -> PathBuf {
    let (source, image) = (folder.join("function.c"), folder.join("vmlinux"));
    std::fs::write(&source, "unsigned some_function(unsigned x)\n{\n\treturn x * 1664525u;\n}\n").unwrap();
    let output = Command::new("cc")
        .args(["-O1", "-nostdlib", "-static", "-no-pie", "-fno-pic", "-Wl,-e,some_function"])
        .args([format!("-Wl,--build-id=0x{build_id}"), format!("-Wl,-Ttext={LINKED:#x}")])
        .arg(format!("-Wl,--defsym=_text={LINKED:#x}"))
        .arg("-o")
        .args([&image, &source])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    image
}

/// A recording of one sample at `ip` in a kernel that lay at `text`.
fn recording(path: &Path, text: u64, ip: u64, features: &Features) {
    let mut made = Made::at(path, vec![event("cpu-clock", 11, false)]);
    made.kernel_map(text, 0x200_0000, text);
    made.kernel_sample(0, 42, 1000, ip);
    made.finish_with(features, None);
}

fn of_build(id: &[u8]) -> Features {
    let filename = "[kernel.kallsyms]".to_owned();
    let entry = BuildIdEntry { pid: -1, build_id: BuildId::new(id), filename, cpumode: cpumode::KERNEL };
    Features { build_ids: vec![entry], ..Features::default() }
}

/// The name that the sample gets, how the kernel was refused, and what was said.
fn name(home: &Path, path: &Path, words: &[&str]) -> (Option<String>, Value, String) {
    let mut command = afterimage();
    command.env("HOME", home).env("XDG_CACHE_HOME", home.join("cache"));
    let output = command.args(["report", "--json", "--sort", "sym", "-i", word(path)]).args(words).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let shown: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let name = shown["events"][0]["rows"][0]["sym"].as_str().map(str::to_owned);
    (name, shown["not_used"]["kernel"].clone(), stderr(&output))
}

#[test]
fn an_image_of_the_recorded_build() {
    if !has("an_image_of_the_recorded_build", &[Need::Cc]) {
        return;
    }
    let folder = folder();
    let path = file(&folder, "data");
    recording(&path, LINKED + MOVED, LINKED + MOVED, &of_build(&[0x5a; 20]));
    let (none, refused, said) = name(folder.path(), &path, &[]);
    assert_eq!((none, &refused["reason"], &refused["addresses"]), (None, &"other-kernel".into(), &1.into()));
    assert!(
        said.contains(": names of the kernel were not used for 1 addresses: the kernel that runs here is not the"),
        "{said}"
    );
    let image = vmlinux(folder.path(), &"5a".repeat(20));
    let (named, refused, said) = name(folder.path(), &path, &["-k", word(&image)]);
    assert_eq!((named.as_deref(), refused), (Some("some_function"), Value::Null), "{said}");
    // Where distributions put it, in a copy of the recorded machine's files.
    let tree = file(&folder, "tree");
    let place = tree.join("usr/lib/debug/.build-id/5a");
    std::fs::create_dir_all(&place).unwrap();
    std::fs::copy(&image, place.join(format!("{}.debug", "5a".repeat(19)))).unwrap();
    assert_eq!(name(folder.path(), &path, &["--symfs", word(&tree)]).0.as_deref(), Some("some_function"));
    // One of another build names nothing.
    let other = vmlinux(folder.path(), &"5b".repeat(20));
    let (none, refused, said) = name(folder.path(), &path, &["-k", word(&other)]);
    assert_eq!((none, &refused["reason"]), (None, &"other-kernel".into()));
    assert!(said.contains("one file is of another build than the recorded one and was not used"), "{said}");
}

/// perf keeps a list of symbols by the kernel's build ID.
#[test]
fn a_list_in_perfs_folder() {
    let folder = folder();
    let path = file(&folder, "data");
    recording(&path, LINKED + MOVED, LINKED + MOVED + 8, &of_build(&[0x5a; 20]));
    let place = folder.path().join(".debug/.build-id/5a").join("5a".repeat(19));
    std::fs::create_dir_all(&place).unwrap();
    let list =
        format!("{LINKED:x} T _text\n{LINKED:x} T _stext\n{LINKED:x} t kept_function\n{:x} T _etext\n", LINKED + 0x100);
    std::fs::write(place.join("kallsyms"), list).unwrap();
    assert_eq!(name(folder.path(), &path, &[]).0.as_deref(), Some("kept_function"));
}

/// Without a build ID the running kernel is taken for the recorded one if machine, release and place are the same.
#[test]
fn what_else_tells_the_running_kernel() {
    if !has("what_else_tells_the_running_kernel", &[Need::Root]) {
        return;
    }
    let list = std::fs::read_to_string("/proc/kallsyms").unwrap();
    let address = |name: &str| {
        let line = list.lines().find(|line| line.split(' ').nth(2) == Some(name)).unwrap();
        u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap()
    };
    let text = address("_text");
    if text == 0 {
        println!("skipped: the kernel hides its addresses");
        return;
    }
    let here = |path: &str| Some(std::fs::read_to_string(path).unwrap().trim_end().to_owned());
    let same = Features {
        hostname: here("/proc/sys/kernel/hostname"),
        os_release: here("/proc/sys/kernel/osrelease"),
        ..Features::default()
    };
    let folder = folder();
    let path = file(&folder, "data");
    let function = "vfs_read";
    let case = |text: u64, ip: u64, features: &Features| {
        recording(&path, text, ip, features);
        name(folder.path(), &path, &[]).0
    };
    let ip = address(function) + 1;
    assert_eq!(case(text, ip, &same).as_deref(), Some(function));
    let moved = 0x20_0000;
    assert_eq!(case(text + moved, ip + moved, &same), None, "it lay elsewhere");
    let other = |name: &str| Some(name.to_owned());
    assert_eq!(case(text, ip, &Features { os_release: other("6.1.0-1-other"), ..same.clone() }), None);
    assert_eq!(case(text, ip, &Features { hostname: other("elsewhere"), ..same.clone() }), None);
    assert_eq!(case(text, ip, &Features::default()), None);
    let wrong = Features { build_ids: of_build(&[0x5a; 20]).build_ids, ..same };
    assert_eq!(case(text, ip, &wrong), None, "a build ID says more");
}
