//! Code that is gone: a program that was freed and whose place another one took, also after the recorder was killed and
//! where neither the kernel nor its symbols are at hand.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use afterimage_perf_data::FileReader;
use afterimage_profile::{Place, ReplayOptions, Sink, State, TimedSample, replay};
use afterimage_testkit::{Need, has};

use crate::common::{file, folder, stderr, stdout, text, word};
use crate::hot::{Hot, PARTS, compile};
use crate::programs::{NEEDS, Recording, check, turn};

/// How often a second program is loaded until it lies over the first one's place.
const TRIES: usize = 100;
/// How long a program runs.
const TIME: Duration = Duration::from_millis(400);

/// How far apart two functions may begin to be at one place, in bytes: the kernel puts a random bit of space in front of
/// code, and the loops of both lie in both functions all the same.
const NEAR: u64 = 16;

/// A program that ran hot and was freed, another that ran hot at its place, and which function of the first and of the
/// second lay over each other.
fn one_after_the_other(folder: &Path, path: &Path) -> ([Hot; 2], [usize; 2]) {
    let object = compile(folder, "second", 0x2222_0000);
    let recording = Recording::start(path, &[]);
    let mut first = Hot::load(folder, "first", 0x1111_0000);
    first.run(TIME);
    first.free();
    let over = |hot: &Hot| {
        let pairs = (1..4).flat_map(|i| (1..4).map(move |j| [i, j]));
        let apart = |[i, j]: &[usize; 2]| first.functions[*i].address.abs_diff(hot.functions[*j].address);
        pairs.into_iter().filter(|pair| apart(pair) <= NEAR).min_by_key(apart)
    };
    let found = (0..TRIES).find_map(|attempt| {
        let mut hot = Hot::load_compiled(&object, "second");
        match over(&hot) {
            Some(pair) => {
                println!("the program loaded as number {} lies over the first", attempt + 1);
                Some((hot, pair))
            }
            None => {
                hot.free();
                None
            }
        }
    });
    let (mut second, pair) = found.expect("no program came to lie where the first one lay");
    second.run(TIME);
    second.free();
    recording.stop();
    ([first, second], pair)
}

fn variant(hot: &Hot) -> &str {
    let name = hot.functions[0].name.trim_end_matches("_main");
    name.rsplit('_').next().unwrap()
}

#[test]
fn two_programs_at_one_place() {
    if !has("two_programs_at_one_place", &NEEDS) {
        return;
    }
    let _turn = turn();
    let folder = folder();
    let path = file(&folder, "a.data");
    let (both, pair) = one_after_the_other(folder.path(), &path);
    for hot in &both {
        check(&path, hot, variant(hot));
    }
    // The report has the same numbers.
    let report: serde_json::Value =
        serde_json::from_str(&text(&["report", "--json", "--sort", "sym", "-i", word(&path)])).unwrap();
    let of = |name: &str| {
        let rows = report["events"][0]["rows"].as_array().unwrap().iter();
        rows.filter(|row| row["sym"] == name).map(|row| row["samples"].as_u64().unwrap()).sum::<u64>()
    };
    for hot in &both {
        for function in &hot.functions[1..] {
            println!("report: {:>6} samples of {} at {:#x}", of(&function.name), function.name, function.address);
        }
        assert!(of(&hot.functions[1].name) > 200);
    }
    without_time(&path, [&both[0].functions[pair[0]].name, &both[1].functions[pair[1]].name]);
}

/// Samples in texts, with the text's name at their time.
#[derive(Default)]
struct Named(Vec<(u64, String)>);

impl Sink for Named {
    fn sample(&mut self, state: &State, sample: &TimedSample<'_>) {
        if let Place::Text(id) = state.locate(sample.process, sample.mode(), sample.ip).place {
            self.0.push((sample.ip, state.kernel().text(id).unwrap().name.to_string()));
        }
    }
}

/// A look-up by address alone has to take one of the two, and gives it the samples of both.
fn without_time(path: &Path, [first, second]: [&String; 2]) {
    let bytes = std::fs::read(path).unwrap();
    let reader = FileReader::open(&bytes).unwrap();
    let mut named = Named::default();
    let replayed = replay(&reader, &ReplayOptions::default(), &mut named);
    let texts: Vec<(u64, u64, String)> = replayed
        .state
        .kernel()
        .texts()
        .map(|(_, text)| (text.addr, text.addr + u64::from(text.len), text.name.to_string()))
        .collect();
    let by_address = |ip: u64| texts.iter().rev().find(|(start, end, _)| (*start..*end).contains(&ip)).map(|t| &t.2);
    let (mut right, mut wrong) = (BTreeMap::new(), BTreeMap::new());
    for (ip, name) in &named.0 {
        *right.entry(name.clone()).or_insert(0u64) += 1;
        *wrong.entry(by_address(*ip).cloned().unwrap_or_default()).or_insert(0u64) += 1;
    }
    println!("with the time:    {first} {:?}, {second} {:?}", right.get(first), right.get(second));
    println!("without the time: {first} {:?}, {second} {:?}", wrong.get(first), wrong.get(second));
    assert!(right[first] > 20 && right[second] > 20);
    let kept = wrong.get(first).copied().unwrap_or(0);
    assert!(kept * 5 < right[first], "{kept} of {} are the first one's still", right[first]);
    assert!(wrong[second] > right[second]);
}

#[test]
fn a_freed_program_after_a_kill() {
    if !has("a_freed_program_after_a_kill", &NEEDS) {
        return;
    }
    let _turn = turn();
    let folder = folder();
    let path = file(&folder, "a.data");
    let recording = Recording::start(&path, &[]);
    let mut hot = Hot::load(folder.path(), "killed", 0x3333_0000);
    hot.run(TIME);
    hot.free();
    // A few passes, so that what was captured is in the journal.
    std::thread::sleep(Duration::from_millis(1500));
    recording.kill();
    check(&path, &hot, "killed");
}

#[test]
fn without_the_kernel_and_its_symbols() {
    let needs = [&NEEDS[..], &[Need::Setpriv]].concat();
    if !has("without_the_kernel_and_its_symbols", &needs) {
        return;
    }
    let _turn = turn();
    let folder = folder();
    let path = file(&folder, "a.data");
    let recording = Recording::start(&path, &[]);
    let mut hot = Hot::load(folder.path(), "elsewhere", 0x4444_0000);
    hot.run(TIME);
    hot.free();
    recording.stop();
    let root = empty_root(folder.path(), &path);
    let annotate = |words: &[&str]| {
        let output = Command::new("chroot")
            .args(["--userspec=65534:65534", word(&root), "/afterimage", "annotate", "--json", "-i", "/a.data"])
            .args(words)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        serde_json::from_str::<serde_json::Value>(&stdout(&output)).unwrap()
    };
    for (function, (part, _)) in hot.functions[1..].iter().zip(PARTS) {
        let shown = annotate(&["-s", &function.name]);
        assert_eq!(crate::listing::bytes(crate::listing::only(&shown)), function.code, "{part}");
    }
    // The heaviest function of the kernel itself.
    let all = annotate(&["-d", "[kernel.kallsyms]", "--percent-limit", "0"]);
    let kernel = all["symbols"].as_array().unwrap().iter().find(|symbol| symbol["kind"] == "kernel").unwrap();
    println!("{} of the kernel: {}", kernel["name"], kernel["code"]);
    assert!(kernel["code"]["way"].is_string(), "{}", kernel["reason"]);
    assert!(crate::listing::lines(kernel).iter().all(|line| line["text"] != "(bad)"));
}

/// A folder with nothing in it but the command, the libraries that it is linked with, and a recording.
fn empty_root(folder: &Path, recording: &Path) -> std::path::PathBuf {
    let root = folder.join("root");
    std::fs::create_dir(&root).unwrap();
    let command = Path::new(env!("CARGO_BIN_EXE_afterimage"));
    std::fs::copy(command, root.join("afterimage")).unwrap();
    std::fs::copy(recording, root.join("a.data")).unwrap();
    let linked = Command::new("ldd").arg(command).output().unwrap();
    for library in stdout(&linked).split_whitespace().filter(|word| word.starts_with('/')) {
        let place = root.join(library.trim_start_matches('/'));
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        std::fs::copy(library, place).unwrap();
    }
    let all = Command::new("chmod").args(["-R", "a+rX"]).arg(folder).status().unwrap();
    assert!(all.success());
    root
}
