//! Handlers from object files: what they decide, what they write, what is said of them, and which are refused.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use afterimage_perf_data::private::HandlerTypes;
use afterimage_perf_data::{FileReader, HandlerDesc, LabelPayload, Record, ValuePayload, journal};
use afterimage_testkit::{Need, guest, has, objects, workload};

use crate::common::{file, folder, run, stderr, stdout, word};
use crate::helper::{Busy, beside, record, recorder, start, tally, until_covered};

pub(crate) const NEEDS: [Need; 4] = [Need::Root, Need::Bpf, Need::Cc, Need::Clang];

/// `PERF_TYPE_SOFTWARE` and `PERF_COUNT_SW_BPF_OUTPUT`.
const BPF_OUTPUT: (u32, u64) = (1, 10);

/// An object of `tests/objects` or `examples/handlers`.
pub(crate) fn object(name: &str) -> String {
    word(&objects::build().join(format!("{name}.bpf.o"))).to_owned()
}

/// What tells samples apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) cpu: u32,
    /// 0 where the kernel tells programs no time.
    pub(crate) time: u64,
    ip: u64,
}

/// What a recording with an object's handler holds.
pub(crate) struct Held {
    pub(crate) of_event: Vec<Key>,
    of_program: Vec<Key>,
    /// Values of `ai_emit`, in their order on each CPU.
    pub(crate) values: Vec<Vec<u8>>,
    pub(crate) labels: Vec<(String, Vec<u8>)>,
    names: Vec<String>,
    handlers: Vec<HandlerDesc>,
    types: Vec<HandlerTypes>,
}

pub(crate) fn held(path: &Path) -> Held {
    let bytes = std::fs::read(path).unwrap();
    let mut reader = FileReader::open(&bytes).unwrap();
    let journal = std::fs::read(journal::path_of(path)).ok();
    if let Some(journal) = &journal {
        reader.use_journal(journal).unwrap();
    }
    let private = reader.private().unwrap();
    let mut held = Held {
        of_event: Vec::new(),
        of_program: Vec::new(),
        values: Vec::new(),
        labels: Vec::new(),
        names: reader.events().iter().map(|event| event.name.clone()).collect(),
        handlers: private.handlers.clone(),
        types: private.handler_types.clone(),
    };
    for raw in reader.records() {
        let raw = raw.unwrap();
        let Record::Sample(sample) = reader.decode(&raw).unwrap() else { continue };
        let event = reader.event_for(&raw).unwrap();
        let attr = &reader.events()[event].attr;
        let Some(payload) = sample.raw.filter(|_| (attr.kind, attr.config) == BPF_OUTPUT) else {
            held.of_event.push(Key { cpu: sample.cpu.unwrap(), time: sample.time.unwrap(), ip: sample.ip.unwrap() });
            continue;
        };
        match ValuePayload::decode(payload) {
            Ok(value) => {
                held.values.push(value.bytes.to_vec());
                held.of_program.push(Key { cpu: value.hdr.cpu, time: value.hdr.time, ip: value.hdr.ip });
            }
            Err(_) => {
                let label = LabelPayload::decode(payload).unwrap();
                held.labels.push((label.name().into_owned(), label.bytes.to_vec()));
            }
        }
    }
    if !held.of_program.is_empty() && held.of_program.iter().all(|key| key.time == 0) {
        held.of_event.iter_mut().for_each(|key| key.time = 0);
    }
    held.of_event.sort_unstable();
    held.of_program.sort_unstable();
    held
}

/// The word at an offset of a value.
pub(crate) fn word_at(value: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(value[at..at + 8].try_into().unwrap())
}

/// Records `command` with an object on one event; the caller says which.
pub(crate) fn with_object(path: &Path, event: &str, handler: &[&str], command: &[&str]) -> Output {
    let rate: &[&str] = if event == "cpu-clock" { &["-F", "4000"] } else { &["-c", "1"] };
    record(path, &[&["-e", event, "-m", "1024"][..], rate, handler, &["--"], command].concat())
}

/// For `setarch`, whose smaller relatives want to be told.
pub(crate) const ARCH: &str = std::env::consts::ARCH;

/// The address that a workload prints first, where addresses are not random.
pub(crate) fn address_in(program: &Path) -> String {
    let shown =
        Command::new("setarch").args([ARCH, "-R", word(program), "1"]).stdin(std::process::Stdio::null()).output();
    stdout(&shown.unwrap()).lines().next().unwrap().to_owned()
}

#[test]
fn chain_and_drop_on_three_kinds_of_events() {
    if !has("chain_and_drop_on_three_kinds_of_events", &NEEDS) {
        return;
    }
    let _turn = beside();
    let (folder, work) = (folder(), workload::build());
    let plain = object("plain");
    let address = address_in(&work.writes);
    let breakpoint = format!("mem:{address}:w");
    let writes = format!("echo | setarch {ARCH} -R {} 400 > {}", word(&work.writes), word(&file(&folder, "out")));
    let commands: [(&str, Vec<&str>); 3] = [
        ("cpu-clock", vec![word(&work.split), "0.3"]),
        ("page-faults", vec![word(&work.faults), "400"]),
        (&breakpoint, vec!["sh", "-c", &writes]),
    ];
    for (event, command) in &commands {
        for keep in [true, false] {
            let path = file(&folder, "data");
            let set = format!("keep={keep}");
            with_object(&path, event, &["--handler", &plain, "--set", &set], command);
            let (sum, held) = (tally(&path).total(), held(&path));
            println!("{event} {set}: {} in the ring, {} values", held.of_event.len(), held.of_program.len());
            assert_eq!((sum.ring.lost, sum.handler_ring.lost, sum.dropped), (0, 0, Some(0)), "{sum:?}");
            assert!(sum.handled.unwrap() >= 200 && sum.handled == sum.passed, "{sum:?}");
            assert_eq!(sum.handled, Some(held.of_program.len() as u64));
            // `struct fact` begins with the address that the header has too.
            let mut addresses: Vec<u64> = held.values.iter().map(|value| word_at(value, 0)).collect();
            let mut of_headers: Vec<u64> = held.of_program.iter().map(|key| key.ip).collect();
            addresses.sort_unstable();
            of_headers.sort_unstable();
            assert_eq!(addresses, of_headers);
            assert_eq!(held.names[1], format!("{}/plain", held.names[0]));
            if keep {
                assert_eq!(held.of_event, held.of_program);
            } else {
                assert_eq!(held.of_event, []);
            }
            let [desc] = &held.handlers[..] else { panic!("{:?}", held.handlers) };
            assert_eq!((desc.name.as_str(), desc.id, desc.output_event), ("plain", 16, Some(1)));
            assert_eq!((desc.object.as_deref(), desc.program.as_deref()), (Some(plain.as_str()), Some("plain")));
            assert_eq!(desc.set, [("keep".to_owned(), keep.to_string())].into());
            assert_eq!(desc.tag.as_ref().unwrap().len(), 16);
            let [types] = &held.types[..] else { panic!("{} types", held.types.len()) };
            assert_eq!((types.handler, &types.btf[..2]), (16, &[0x9f, 0xeb][..]));
        }
    }
}

#[test]
fn labels_stand_beside_their_samples() {
    if !has("labels_stand_beside_their_samples", &NEEDS) || guest().as_deref() == Some("6.1") {
        return;
    }
    let _turn = beside();
    let (folder, faults) = (folder(), workload::build().faults);
    let path = file(&folder, "data");
    let handler =
        ["--handler", &object("whole"), "--set", "mood=HURRIED", "--set", "place=somewhere", "--set", "every=4"];
    with_object(&path, "page-faults", &[&handler[..], &["-g"]].concat(), &[word(&faults), "400"]);
    let (sum, held) = (tally(&path).total(), held(&path));
    let told = held.of_program.len();
    assert!(told >= 100 && held.labels.len() == 3 * told, "{told} values, {} labels", held.labels.len());
    assert_eq!((sum.emitted, sum.chained), (4 * told as u64, sum.handled.unwrap()));
    assert!(held.of_program.iter().all(|key| held.of_event.binary_search(key).is_ok()));
    let place = b"somewhere\0\0\0\0\0\0\0".to_vec();
    assert_eq!(held.labels.iter().filter(|label| **label == ("place".to_owned(), place.clone())).count(), told);
    assert_eq!(held.labels.iter().filter(|label| **label == ("mood".to_owned(), vec![7, 0, 0, 0])).count(), told);
}

/// The first block of C in a page, and the lines of shell after it.
fn example_of(page: &str) -> (String, Vec<String>) {
    let block = |kind: &str, from: &str| {
        let (_, rest) = from.split_once(&format!("```{kind}\n")).unwrap_or_else(|| panic!("no block of {kind}"));
        let (block, rest) = rest.split_once("```").unwrap();
        (block.to_owned(), rest.to_owned())
    };
    let (code, rest) = block("c", page);
    let (shell, _) = block("sh", &rest);
    (code, shell.lines().map(str::to_owned).collect())
}

/// What README.md tells users to type is typed here.
#[test]
fn the_example_of_the_readme_runs() {
    if !has("the_example_of_the_readme_runs", &NEEDS) || guest().is_some() {
        return;
    }
    let _turn = beside();
    let (folder, split) = (folder(), workload::build().split);
    let (code, shell) = example_of(include_str!("../../README.md"));
    assert!(code.lines().filter(|line| !line.is_empty()).count() <= 5, "{code}");
    std::fs::write(file(&folder, "inside.bpf.c"), code).unwrap();
    let path = std::env::var("PATH").unwrap();
    let ours = Path::new(env!("CARGO_BIN_EXE_afterimage")).parent().unwrap();
    let before = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!((before, shell.len()), (1, 4), "nothing but the example's source is there");
    for line in shell {
        let line = line.replace("./my-program", &format!("{} 0.3", word(&split)));
        let mut shell = Command::new("sh");
        shell.current_dir(folder.path()).env("PATH", format!("{}:{path}", word(ours)));
        let output = shell.args(["-c", &line]).output().unwrap();
        println!("$ {line}\n{}", stderr(&output));
        assert_eq!(output.status.code(), Some(0), "{line}: {}", stderr(&output));
    }
    let inside = tally(&file(&folder, "perf.data.old")).total();
    assert!(inside.dropped.unwrap() > 20 && inside.handled.unwrap() - inside.chained == inside.dropped.unwrap());
    let all = tally(&file(&folder, "perf.data")).total();
    assert_eq!((all.dropped, Some(all.chained)), (Some(0), all.handled));
}

/// Code and last line of what is said, without the hint.
fn refused(path: &Path, words: &[&str]) -> (Option<i32>, String, String) {
    let output = recorder(path, &[words, &["--", "true"]].concat()).output().unwrap();
    let said = stderr(&output);
    let (errors, hints): (Vec<&str>, Vec<&str>) = said.lines().partition(|line| line.starts_with("afterimage: "));
    assert!(!path.exists() && !journal::path_of(path).exists(), "{words:?} left something");
    let last = errors.last().map(|line| line.trim_start_matches("afterimage: ").to_owned()).unwrap_or_default();
    (output.status.code(), last, hints.join("\n"))
}

#[test]
fn what_is_wrong_is_said_in_a_line() {
    if !has("what_is_wrong_is_said_in_a_line", &NEEDS) {
        return;
    }
    let folder = folder();
    let path = file(&folder, "data");
    let [bare, slow, whole] = ["bare", "slow", "whole"].map(object);
    let cases: [(i32, &[&str], String); 8] = [
        (
            2,
            &["--handler", &bare],
            format!("--handler {bare}: choosing a program: the object has several handlers, name one: all, none"),
        ),
        (
            2,
            &["--handler", &format!("{bare}:some")],
            format!("--handler {bare}: choosing a program: the object has no program some; it has all, none"),
        ),
        (
            2,
            &["--handler", &slow, "--set", "most=1"],
            format!("--handler {slow}: most: no such constant: there are least"),
        ),
        (2, &["--handler", &slow, "--set", "least=much"], format!("--handler {slow}: least=much: it is a number")),
        (
            2,
            &["--handler", &whole, "--set", "verdict=KEEP"],
            format!("--handler {whole}: verdict=KEEP: it is a number or one of DROP, CHAIN"),
        ),
        (2, &["--handler", "emit", "--set", "a=1"], "--set: emit is built in and has no constants".to_owned()),
        (2, &["--handler", &slow, "--chain"], "--chain: an object decides itself whether a sample is kept".to_owned()),
        (
            1,
            &["--handler", "./nowhere.bpf.o"],
            "--handler ./nowhere.bpf.o: No such file or directory (os error 2)".to_owned(),
        ),
    ];
    for (code, words, says) in cases {
        assert_eq!(refused(&path, words), (Some(code), says, refused(&path, words).2), "{words:?}");
    }
}

#[test]
fn what_would_damage_samples_is_refused_and_runs_without_call_chains() {
    if !has("what_would_damage_samples_is_refused_and_runs_without_call_chains", &NEEDS) {
        return;
    }
    let _turn = beside();
    let folder = folder();
    let path = file(&folder, "data");
    let refused_object = object("refused");
    for (program, says) in [
        ("task_stack", "bpf_get_task_stack() would write over the call chain of the sample"),
        ("task_stack_below", "bpf_get_task_stack() would write over the call chain of the sample"),
        ("short_stack", "bpf_get_stack() of the user's stack into a buffer of 8 bytes would cut the call chain"),
        ("short_stack_below", "bpf_get_stack() of the user's stack into a buffer of 64 bytes would cut the call chain"),
        ("any_flags", "bpf_get_stack() of the user's stack into a buffer of 64 bytes, with flags that are no constant"),
        ("any_size", "bpf_get_stack() of the user's stack into a buffer of no constant size would cut the call chain"),
    ] {
        let handler = format!("{refused_object}:{program}");
        let (code, line, hint) = refused(&path, &["-g", "-e", "cpu-clock", "--handler", &handler]);
        println!("{line}");
        let place = objects::line_of("refused.bpf.c", &format!("/* line: {program} */"));
        assert_eq!(code, Some(1));
        assert!(line.starts_with(&format!("handler {program}: ")) && line.contains(says), "{line}");
        assert!(line.contains(&format!("refused.bpf.c:{place}: ")), "{line}");
        assert!(hint.contains("docs/handlers.md"), "{hint}");
        record(&path, &["-g", "--no-callchain", "-e", "cpu-clock", "--handler", &handler, "--", "true"]);
        std::fs::remove_file(&path).unwrap();
    }
    for (program, says) in [
        ("lru", "evicts by age (LRU)"),
        ("sleeps", "a program that may sleep cannot run on a sample"),
        ("packet", "which cannot be called by a program of type perf_event"),
    ] {
        let (code, line, _) = refused(&path, &["-e", "cpu-clock", "--handler", &format!("{refused_object}:{program}")]);
        println!("{line}");
        assert!(code == Some(1) && line.contains(says), "{code:?} {line}");
    }
    let endless = format!("{refused_object}:endless");
    let (code, line, _) = refused(&path, &["-e", "cpu-clock", "--handler", &endless]);
    assert_eq!(code, Some(1));
    assert!(line.starts_with("loading endless: the kernel's verifier refuses it: "), "{line}");
    let lines = |verbose: &[&str]| {
        let words = [verbose, &["-e", "cpu-clock", "--handler", &endless, "--", "true"]].concat();
        stderr(&recorder(&path, &words).output().unwrap()).lines().count()
    };
    let (last, all) = (lines(&[]), lines(&["-v"]));
    assert!((3..=14).contains(&last) && all > last, "{last} lines, and {all} with -v");
}

/// A handler that walks the user's stack with room enough gets call chains that the kernel leaves whole.
#[test]
fn deep_call_chains_stay_whole() {
    if !has("deep_call_chains_stay_whole", &NEEDS) {
        return;
    }
    let _turn = beside();
    let (folder, busy) = (folder(), workload::build().busy);
    let path = file(&folder, "data");
    let handler = format!("{}:long_stack", object("refused"));
    let output = with_object(&path, "cpu-clock", &["-g", "--handler", &handler], &[word(&busy), "100", "300"]);
    assert!(stderr(&output).contains("call chains have at most 119 frames"), "{}", stderr(&output));
    let bytes = std::fs::read(&path).unwrap();
    let reader = FileReader::open(&bytes).unwrap();
    let mut deepest = 0;
    for raw in reader.records() {
        let raw = raw.unwrap();
        let Record::Sample(sample) = reader.decode(&raw).unwrap() else { continue };
        let words = sample.callchain.unwrap().iter().count();
        deepest = deepest.max(words);
        // Header, id, ip, pid and tid, time, CPU, period; then the number of words and the words.
        assert_eq!(raw.bytes.len(), 8 + 6 * 8 + 8 + 8 * words);
    }
    assert!((119..=127).contains(&deepest), "{deepest}");
}

/// What is known of a handler is in the journal from the start.
#[test]
fn a_killed_recording_has_its_handlers_types() {
    if !has("a_killed_recording_has_its_handlers_types", &NEEDS) {
        return;
    }
    let _turn = beside();
    let folder = folder();
    let path: PathBuf = file(&folder, "a.data");
    let busy = Busy::new();
    let mut recorder = start(&path, &["-a", "-e", "cpu-clock", "-F", "999", "--handler", &object("plain")]);
    busy.go(&path);
    until_covered(&path, 50);
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    drop(busy);
    let held = held(&path);
    assert_eq!(held.handlers[0].program.as_deref(), Some("plain"));
    assert_eq!((held.types.len(), held.types[0].handler), (1, 16));
    assert!(held.of_event.len() >= 25 && held.of_program.len() >= 25);
    let report = run(&["report", "-i", word(&path)]);
    assert_eq!(report.status.code(), Some(0), "{}", stderr(&report));
}
