//! `text`, and `report --sort srcline,text`: on a recording made by hand, in which a second program takes the place and
//! the name of a first one, and with foreign readers of what is dumped.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;
#[path = "common/made.rs"]
mod made;
#[path = "common/program.rs"]
mod program;

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use afterimage_perf_data::texts::Loader;
use afterimage_perf_data::{Features, ImageId, ImageUse, Private, TextDesc, journal};
use afterimage_testkit::{Need, has};
use common::{afterimage, file, folder, perf_record, run, stderr, stdout, text, word};
use made::{Made, event};
use program::Function;
use serde_json::{Value, json};

const PLACE: u64 = 0xffff_ffff_c000_1000;
const SUBPROGRAM: u64 = PLACE + 0x40;
const TRAMPOLINE: u64 = 0xffff_ffff_c000_3000;
const FIRST: [u8; 8] = [0x11; 8];
const SECOND: [u8; 8] = [0x22; 8];
const OF_SUBPROGRAM: [u8; 8] = [0x33; 8];

/// push %rbp; mov %rsp,%rbp; mov $0x1111,%eax; call 0xffffffff81000000; leave; ret
const FIRST_CODE: [u8; 16] = [0x55, 0x48, 0x89, 0xe5, 0xb8, 0x11, 0x11, 0, 0, 0xe8, 0xf2, 0xef, 0xff, 0xc0, 0xc9, 0xc3];
/// The same, but for the constant and a nop.
const SECOND_CODE: [u8; 17] =
    [0x55, 0x48, 0x89, 0xe5, 0xb8, 0x22, 0x22, 0, 0, 0x90, 0xe8, 0xf1, 0xef, 0xff, 0xc0, 0xc9, 0xc3];
/// mov $7,%eax; jmp to the ret; nop; ret
const SUBPROGRAM_CODE: [u8; 9] = [0xb8, 7, 0, 0, 0, 0xeb, 1, 0x90, 0xc3];

const FIRST_NAME: &str = "bpf_prog_1111111111111111_hot";
const SECOND_NAME: &str = "bpf_prog_2222222222222222_hot";
const SUBPROGRAM_NAME: &str = "bpf_prog_3333333333333333_inner";

/// Program 7 with a subprogram runs and goes; program 8 comes to its place, and stays; a trampoline whose code nobody has.
/// Three samples in program 7, two in its subprogram, four in program 8, one in the trampoline, one elsewhere.
fn record(path: &Path, finish: impl FnOnce(Made)) {
    let mut made = Made::at(path, vec![event("cpu-clock", 11, false)]);
    made.comm(42, b"loader");
    made.text(42, PLACE, FIRST_CODE.len() as u32, FIRST_NAME, false);
    made.text(42, SUBPROGRAM, SUBPROGRAM_CODE.len() as u32, SUBPROGRAM_NAME, false);
    made.program(42, 7, FIRST);
    made.text(42, TRAMPOLINE, 4096, "bpf_trampoline_6442", false);
    for (ip, count) in [(PLACE + 4, 2), (PLACE + 9, 1), (SUBPROGRAM, 2), (TRAMPOLINE + 0x10, 1)] {
        (0..count).for_each(|_| made.kernel_sample(0, 42, 1000, ip));
    }
    made.text(42, PLACE, FIRST_CODE.len() as u32, FIRST_NAME, true);
    made.text(42, SUBPROGRAM, SUBPROGRAM_CODE.len() as u32, SUBPROGRAM_NAME, true);
    made.text(42, PLACE, SECOND_CODE.len() as u32, SECOND_NAME, false);
    made.program(42, 8, SECOND);
    (0..4).for_each(|_| made.kernel_sample(0, 42, 1000, PLACE + 4));
    made.kernel_sample(0, 42, 1000, 0xffff_ffff_8100_0000);
    finish(made);
}

/// What perf keeps: the programs that were alive when it asked, with code, lines and types.
fn features() -> Features {
    let first = [(4, 10, "int a = 0x1111;"), (9, 11, "return inner();")];
    let inner = [(0, 3, "return 7;")];
    let functions = [
        Function { addr: PLACE, code: &FIRST_CODE, tag: FIRST, lines: &first },
        Function { addr: SUBPROGRAM, code: &SUBPROGRAM_CODE, tag: OF_SUBPROGRAM, lines: &inner },
    ];
    let (first, first_types) = program::info(7, &functions);
    let second = [(4, 20, "int a = 0x2222;")];
    let (second, second_types) =
        program::info(8, &[Function { addr: PLACE, code: &SECOND_CODE, tag: SECOND, lines: &second }]);
    Features {
        arch: Some("x86_64".into()),
        bpf_progs: vec![first, second],
        bpf_btfs: vec![first_types, second_types],
        ..Features::default()
    }
}

fn as_perf_does(path: &Path) {
    record(path, |made| made.finish_with(&features(), None));
}

fn list(words: &[&str]) -> Vec<Value> {
    let json: Value = serde_json::from_str(&text(&[&["text", "list", "--json"], words].concat())).unwrap();
    assert_eq!(json["schema"], "afterimage/text-list/1");
    json["texts"].as_array().unwrap().clone()
}

fn names(texts: &[Value]) -> Vec<&str> {
    texts.iter().map(|t| t["name"].as_str().unwrap()).collect()
}

#[test]
fn every_text_is_listed_with_what_is_known_of_it() {
    let folder = folder();
    let path = file(&folder, "data");
    as_perf_does(&path);
    let texts = list(&["-i", word(&path)]);
    assert_eq!(names(&texts), [FIRST_NAME, SUBPROGRAM_NAME, "bpf_trampoline_6442", SECOND_NAME]);
    let samples: Vec<u64> = texts.iter().map(|t| t["samples"].as_u64().unwrap()).collect();
    assert_eq!(samples, [3, 2, 1, 4]);
    let wanted = json!({
        "id": 7, "tag": "1111111111111111", "address": "0xffffffffc0001000", "length_bytes": 16,
        "length_reported_bytes": 16, "image": {"size_bytes": 16, "way": "by-id", "proven": true}, "reason": null,
    });
    for (key, value) in wanted.as_object().unwrap() {
        assert_eq!(&texts[0][key], value, "{key}");
    }
    let (born, gone) = (texts[0]["born_ns"].as_u64().unwrap(), texts[0]["gone_ns"].as_u64().unwrap());
    assert!(born < gone && gone < texts[3]["born_ns"].as_u64().unwrap());
    assert_eq!((&texts[3]["gone_ns"], &texts[1]["id"]), (&Value::Null, &json!(7)));
    // Its length is said to be a page, which is not its own, and nobody has its code.
    let trampoline = &texts[2];
    assert_eq!((&trampoline["length_reported_bytes"], &trampoline["length_bytes"]), (&json!(4096), &Value::Null));
    assert_eq!(trampoline["image"], Value::Null);
    assert!(trampoline["reason"].as_str().is_some_and(|reason| !reason.is_empty()));
}

#[test]
fn a_list_may_be_narrowed() {
    let folder = folder();
    let path = file(&folder, "data");
    as_perf_does(&path);
    let path = word(&path);
    assert_eq!(names(&list(&["-i", path, "--kind", "trampoline"])), ["bpf_trampoline_6442"]);
    let all = list(&["-i", path]);
    let born = all[3]["born_ns"].as_u64().unwrap();
    let since = format!("{}.{:09}", born / 1_000_000_000, born % 1_000_000_000);
    assert_eq!(names(&list(&["-i", path, "--since", &since])), [SECOND_NAME]);
    assert_eq!(list(&["-i", path, "--sampled"]).len(), 4);
    assert_eq!(list(&["-i", path, "--kind", "ftrace,cbpf"]).len(), 0);
    for (words, says) in [
        (["--kind", "tree"], "afterimage: --kind tree: no such kind\n"),
        (["--since", "yesterday"], "afterimage: --since yesterday: not a time\n"),
    ] {
        let output = run(&[&["text", "list", "-i", path][..], &words].concat());
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).starts_with(says), "{}", stderr(&output));
    }
    let table = text(&["text", "list", "-i", path]);
    let rows: Vec<&str> = table.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(rows.len(), 4);
    assert!(rows[0].contains(&format!("{FIRST_NAME}@7")) && rows[0].ends_with("by-id"), "{table}");
    assert!(rows[2].contains("none: "), "{table}");
}

#[test]
fn one_text_is_dumped_and_several_are_never_mixed() {
    let folder = folder();
    let path = file(&folder, "data");
    as_perf_does(&path);
    let path = word(&path);
    let raw = |name: &str| run(&["text", "dump", "--raw", "-i", path, name]);
    for name in ["hot@7", FIRST_NAME, "1111111111111111", "@7@0xffffffffc0001000", "hot@1.003"] {
        let output = raw(name);
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &FIRST_CODE[..]), "{name}");
    }
    assert_eq!(raw("hot@8").stdout, SECOND_CODE);
    assert_eq!(raw("inner").stdout, SUBPROGRAM_CODE);
    let output = raw("hot");
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
    let said = stderr(&output);
    assert!(said.contains("hot: 2 texts are called that"), "{said}");
    assert!(said.contains(&format!("{FIRST_NAME}@7 (")) && said.contains(&format!("{SECOND_NAME}@8 (")), "{said}");
    for (name, code, says) in [
        ("cold", 2, "cold: no such text in the recording"),
        ("bpf_trampoline_6442", 1, "bpf_trampoline_6442: no code: "),
        ("hot@x", 2, "hot@x: x is no program's id, address or time"),
    ] {
        let output = raw(name);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(code), 0), "{name}");
        assert!(stderr(&output).contains(says), "{}", stderr(&output));
    }
    let hex = text(&["text", "dump", "-i", path, "hot@8"]);
    let lines: Vec<&str> = hex.lines().collect();
    assert!(lines[0].starts_with(&format!("# {SECOND_NAME}@8 (")) && lines[0].ends_with("17 bytes, read by by-id"));
    assert_eq!(lines[1], "ffffffffc0001000  55 48 89 e5 b8 22 22 00  00 90 e8 f1 ef ff c0 c9");
    assert_eq!(lines[2], "ffffffffc0001010  c3");
}

/// Runs a foreign reader and gives what it printed.
fn foreign(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).output().unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn objdump_and_gdb_open_what_is_dumped() {
    let needs = [Need::Objdump, Need::Gdb];
    if !has("objdump_and_gdb_open_what_is_dumped", &needs) {
        return;
    }
    let folder = folder();
    let (path, elf) = (file(&folder, "data"), file(&folder, "hot.elf"));
    as_perf_does(&path);
    text(&["text", "dump", "-i", word(&path), "hot@7", "-o", word(&elf)]);
    let elf = word(&elf);
    let listing = foreign("objdump", &["-d", "-l", elf]);
    for part in [
        "file format elf64-x86-64",
        "ffffffffc0001000 <bpf_prog_1111111111111111_hot>:",
        "/src/hot.bpf.c:10",
        "mov    $0x1111,%eax",
        "/src/hot.bpf.c:11",
    ] {
        assert!(listing.contains(part), "{part}: {listing}");
    }
    let gdb = |command: &str| foreign("gdb", &["-batch", "-nx", "-ex", command, elf]);
    let shown = gdb(&format!("info line *{:#x}", PLACE + 9));
    assert!(shown.starts_with("Line 11 of \"/src/hot.bpf.c\""), "{shown}");
    let shown = gdb(&format!("disassemble {FIRST_NAME}"));
    assert!(shown.contains("<+4>:") && shown.contains("$0x1111"), "{shown}");
    // Code without lines is a file, too.
    text(&["text", "dump", "-i", word(&path), "inner", "-o", elf]);
    assert!(foreign("objdump", &["-d", elf]).contains("ffffffffc0001040 <bpf_prog_3333333333333333_inner>:"));
}

#[test]
fn a_difference_is_shown_and_the_same_is_silent() {
    let folder = folder();
    let (path, other) = (file(&folder, "data"), file(&folder, "other"));
    as_perf_does(&path);
    as_perf_does(&other);
    let (path, other) = (word(&path), word(&other));
    let same = run(&["text", "diff", "-i", path, "hot@7", &format!("{other}:hot@7")]);
    assert_eq!((same.status.code(), stdout(&same).as_str()), (Some(0), ""));
    let output = run(&["text", "diff", "-i", path, "hot@7", "hot@8"]);
    assert_eq!(output.status.code(), Some(1));
    let shown = stdout(&output);
    let changed: Vec<&str> = shown.lines().skip(2).filter(|line| line.starts_with(['-', '+'])).collect();
    // The call goes to the same place, from another distance: it is the same.
    assert_eq!(changed.len(), 3, "{shown}");
    assert!(changed[0].starts_with("-     4:") && changed[0].contains("0x1111"), "{shown}");
    assert!(changed[1].starts_with("+     4:") && changed[1].contains("0x2222"), "{shown}");
    assert!(changed[2].starts_with("+     9:") && changed[2].contains("nop"), "{shown}");
    for (words, says) in [
        (["hot", "hot@8"], "hot: 2 texts are called that"),
        (["bpf_trampoline_6442", "hot@8"], "bpf_trampoline_6442: no code"),
        (["hot@7", "/nonexistent:hot"], "/nonexistent: no such file"),
    ] {
        let output = run(&[&["text", "diff", "-i", path][..], &words].concat());
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{words:?}");
        assert!(stderr(&output).contains(says), "{}", stderr(&output));
    }
}

/// The rows of a report without its head, spaces made one.
fn rows(words: &[&str]) -> Vec<String> {
    let report = text(&[&["report", "-q", "-g", "none"], words].concat());
    report.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn a_report_tells_programs_of_one_name_and_place_apart() {
    let folder = folder();
    let path = file(&folder, "data");
    as_perf_does(&path);
    let path = word(&path);
    let by_text = rows(&["-i", path, "--sort", "text"]);
    let shares: Vec<(&str, &str)> = by_text.iter().map(|row| row.split_once(' ').unwrap()).collect();
    assert_eq!(
        shares.iter().map(|(share, _)| *share).collect::<Vec<_>>(),
        ["36.36%", "27.27%", "18.18%", "9.09%", "9.09%"]
    );
    assert!(shares[0].1.starts_with(&format!("{SECOND_NAME}@8 (")) && shares[0].1.contains(", from 1."), "{by_text:?}");
    assert!(shares[1].1.starts_with(&format!("{FIRST_NAME}@7 (")) && shares[1].1.contains(" to 1."), "{by_text:?}");
    assert!(shares[2].1.starts_with(&format!("{SUBPROGRAM_NAME}@7 (")), "{by_text:?}");
    assert_eq!(shares[3].1, "-");
    let by_line = rows(&["-i", path, "--sort", "srcline"]);
    assert_eq!(
        by_line,
        ["36.36% hot.bpf.c:20", "18.18% ??:0", "18.18% hot.bpf.c:3", "18.18% hot.bpf.c:10", "9.09% hot.bpf.c:11"]
    );
    let json = text(&["report", "--json", "-i", path, "--sort", "srcline,text"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    let row = &json["events"][0]["rows"][0];
    let wanted = json!({
        "srcline": "hot.bpf.c:20", "file": "/src/hot.bpf.c", "line": 20, "source": "int a = 0x2222;", "samples": 4,
    });
    for (key, value) in wanted.as_object().unwrap() {
        assert_eq!(&row[key], value, "{key}");
    }
    assert_eq!((&row["text"]["name"], &row["text"]["id"]), (&json!(SECOND_NAME), &json!(8)));
    let elsewhere = json["events"][0]["rows"].as_array().unwrap().iter().filter(|row| row["text"].is_null()).count();
    assert_eq!(elsewhere, 1);
}

/// Two calls of a subprogram from one program, the second one four bytes into what it returns to.
#[test]
fn frames_of_chains_are_told_apart_by_function_line_or_address() {
    let folder = folder();
    let path = file(&folder, "data");
    let mut made = Made::at(&path, vec![event("cpu-clock", 11, true)]);
    made.comm(42, b"loader");
    made.text(42, PLACE, FIRST_CODE.len() as u32, FIRST_NAME, false);
    made.text(42, SUBPROGRAM, SUBPROGRAM_CODE.len() as u32, SUBPROGRAM_NAME, false);
    made.program(42, 7, FIRST);
    // A caller's address is that behind its call.
    for (caller, samples) in [(PLACE + 5, 3), (PLACE + 6, 1), (PLACE + 14, 4)] {
        (0..samples).for_each(|_| made.kernel_chain(0, 42, 1000, &[SUBPROGRAM, caller]));
    }
    made.finish_with(&features(), None);
    let chains = |key: &str| -> Vec<String> {
        let how = format!("folded,{key}");
        let report = text(&["report", "-q", "--no-children", "-i", word(&path), "--sort", "comm", "-g", &how]);
        report.lines().filter(|line| line.contains(';')).map(str::to_owned).collect()
    };
    let (inner, outer) = (SUBPROGRAM_NAME, FIRST_NAME);
    assert_eq!(chains("function"), [format!("100.00% {inner};{outer}")]);
    let by_line = [("10", "50.00%"), ("11", "50.00%")];
    let by_line = by_line.map(|(line, share)| format!("{share} {inner} hot.bpf.c:3;{outer} hot.bpf.c:{line}"));
    assert_eq!(chains("srcline"), by_line);
    let by_address = [("0xd", "50.00%"), ("0x4", "37.50%"), ("0x5", "12.50%")];
    let by_address = by_address.map(|(offset, share)| format!("{share} {inner}+0x0;{outer}+{offset}"));
    assert_eq!(chains("address"), by_address);
}

#[test]
fn lines_stand_in_scripts_as_in_perfs() {
    let folder = folder();
    let path = file(&folder, "data");
    as_perf_does(&path);
    let lines = text(&["script", "-i", word(&path), "-F", "ip,sym,srcline"]);
    let lines: Vec<&str> = lines.lines().take(3).collect();
    assert_eq!(lines[..2], [" ffffffffc0001004 bpf_prog_1111111111111111_hot", "  hot.bpf.c:10"]);
}

#[test]
fn images_of_the_recorder_are_shown_with_their_way() {
    let folder = folder();
    let path = file(&folder, "data");
    let (known, lost) = (ImageId::of(&SUBPROGRAM_CODE), ImageId::of(b"not kept"));
    let taken = |image, proven| ImageUse { image, at_ns: 1_002_000_000, way: "free-time".into(), proven };
    let cbpf = TextDesc {
        number: 0,
        kind: "cbpf".into(),
        address: 0xffff_ffff_c000_5000,
        length: Some(SUBPROGRAM_CODE.len() as u32),
        gone_ns: Some(1_002_000_000),
        loader: Some(Loader { pid: 42, comm: "bad\x1b[2J".into() }),
        images: vec![taken(known, true)],
        ..TextDesc::default()
    };
    let doubtful = TextDesc {
        number: 1,
        address: 0xffff_ffff_c000_6000,
        images: vec![taken(known, false), taken(lost, true)],
        ..cbpf.clone()
    };
    let without = TextDesc {
        number: 2,
        address: 0xffff_ffff_c000_7000,
        images: Vec::new(),
        reason: Some("the ring was full".into()),
        ..cbpf.clone()
    };
    let private = Private {
        texts: vec![cbpf, doubtful, without],
        images: [(known, SUBPROGRAM_CODE.to_vec())].into(),
        ..Private::default()
    };
    record(&path, |made| made.finish_with(&Features::default(), Some(&private)));
    let path = word(&path);
    let texts = list(&["-i", path, "--kind", "cbpf"]);
    assert_eq!(texts.len(), 3, "{texts:?}");
    assert_eq!(texts[0]["name"], Value::Null);
    assert_eq!(texts[0]["image"], json!({"size_bytes": 9, "way": "free-time", "proven": true}));
    assert_eq!(texts[0]["loader"], json!({"pid": 42, "comm": "bad\u{1b}[2J"}));
    assert_eq!(texts[1]["image"]["proven"], false);
    assert_eq!((&texts[2]["image"], &texts[2]["reason"]), (&Value::Null, &json!("the ring was full")));
    // Names are data: in a table they cannot steer a terminal.
    assert!(text(&["text", "list", "-i", path]).contains("bad\\x1b[2J/42"));
    let output = run(&["text", "dump", "--raw", "-i", path, "@0xffffffffc0006000"]);
    assert_eq!(output.stdout, SUBPROGRAM_CODE);
    assert!(stderr(&output).contains("read by free-time and is not proven"), "{}", stderr(&output));
}

#[test]
fn a_killed_recording_has_its_texts_in_the_journal() {
    let folder = folder();
    let path = file(&folder, "data");
    record(&path, Made::killed);
    let mut journal = journal::Writer::create(File::create(journal::path_of(&path)).unwrap()).unwrap();
    let features = features();
    journal.program(&features.bpf_progs[0]).unwrap();
    journal.program_types(&features.bpf_btfs[0]).unwrap();
    let image = ImageId::of(&SECOND_CODE);
    journal.images([(&image, &SECOND_CODE[..])]).unwrap();
    let taken = ImageUse { image, at_ns: 1_002_000_000, way: "free-time".into(), proven: true };
    let filter =
        TextDesc { kind: "cbpf".into(), address: 0x5000, length: Some(17), images: vec![taken], ..TextDesc::default() };
    journal.texts(&[filter]).unwrap();
    let texts = list(&["-i", word(&path)]);
    let images: Vec<&Value> = texts.iter().map(|text| &text["image"]["way"]).collect();
    assert_eq!(
        images,
        ["free-time", "by-id", "by-id", "", ""]
            .map(|w| if w.is_empty() { Value::Null } else { json!(w) })
            .iter()
            .collect::<Vec<_>>()
    );
    let output = run(&["text", "dump", "--raw", "-i", word(&path), "hot@7"]);
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &FIRST_CODE[..]));
    assert!(rows(&["-i", word(&path), "--sort", "srcline"]).contains(&"9.09% hot.bpf.c:11".to_owned()));
}

#[test]
fn recordings_of_perf_hold_the_programs_that_were_there() {
    let needs = [Need::Root, Need::Bpf, Need::Perf, Need::NoGuest];
    if !has("recordings_of_perf_hold_the_programs_that_were_there", &needs) {
        return;
    }
    let folder = folder();
    let (path, own) = (file(&folder, "data"), file(&folder, "own"));
    // Our own programs run meanwhile, so that there are some.
    let mut child = afterimage()
        .args(["record", "-q", "-a", "--handler", "count", "-o", word(&own), "--duration", "4"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    while !own.exists() {
        assert!(child.try_wait().unwrap().is_none(), "the recording ended");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    std::thread::sleep(std::time::Duration::from_millis(500));
    perf_record(&path, &["-a", "-e", "cpu-clock", "-F", "99"], &["sleep", "1"]);
    assert!(child.wait().unwrap().success());
    let texts = list(&["-i", word(&path), "--kind", "program,subprogram"]);
    let with_code: Vec<&Value> = texts.iter().filter(|text| !text["image"].is_null()).collect();
    assert!(!with_code.is_empty(), "{texts:?}");
    for text in &with_code {
        assert_eq!((&text["image"]["way"], &text["image"]["size_bytes"]), (&json!("by-id"), &text["length_bytes"]));
    }
    let which = format!("{}@{}", with_code[0]["name"].as_str().unwrap(), with_code[0]["id"]);
    let output = run(&[
        "text",
        "dump",
        "--raw",
        "-i",
        word(&path),
        &format!("{which}@{}", with_code[0]["address"].as_str().unwrap()),
    ]);
    assert_eq!(output.stdout.len() as u64, with_code[0]["length_bytes"].as_u64().unwrap());
}

/// Loads programs of ours, which go soon; gives the process that did.
fn load_programs(into: &Path) -> u32 {
    let words = ["record", "-q", "-a", "--handler", "count", "--no-text", "--duration", "0.5", "-o", word(into)];
    let mut child = afterimage().args(words).spawn().unwrap();
    assert!(child.wait().unwrap().success());
    child.id()
}

/// Ends a recording or a watch in good order. Programs go a while after the process that loaded them: that is waited for.
fn interrupt(child: &Child) {
    std::thread::sleep(std::time::Duration::from_secs(1));
    let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
}

/// What a watch told while programs of ours came and went: its lines, its last line, and who loaded.
fn watched(folder: &tempfile::TempDir, turn: usize) -> (Vec<Value>, Value, u32) {
    let kept = file(folder, &format!("kept{turn}"));
    let mut watch =
        afterimage().args(["text", "watch", "-q", "--json", "-o", word(&kept)]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap());
    let mut first = String::new();
    lines.read_line(&mut first).unwrap();
    let first: Value = serde_json::from_str(&first).unwrap();
    assert_eq!(first["schema"], "afterimage/text-watch/1");
    assert!(first["ways"].as_array().unwrap().iter().any(|way| way["works"] == true), "{first}");
    let loader = load_programs(&file(folder, "data"));
    interrupt(&watch);
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    let status = watch.wait().unwrap();
    let mut events: Vec<Value> = rest.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let end = events.pop().unwrap();
    assert_eq!(end["event"], "end");
    assert_eq!(status.code(), Some(if end["lost"] == json!([]) { 0 } else { 1 }), "{end}");
    (events, end, loader)
}

#[test]
fn a_watch_tells_of_programs_and_keeps_their_code() {
    if !has("a_watch_tells_of_programs_and_keeps_their_code", &[Need::Root, Need::Bpf]) {
        return;
    }
    let folder = folder();
    // Somebody else may load so many programs at the same time that a part is lost, and told as lost.
    let (events, end, loader) =
        (0..5).map(|turn| watched(&folder, turn)).find(|(_, end, _)| end["lost"] == json!([])).unwrap();
    let of_loader: Vec<&Value> = events.iter().filter(|event| event["loader"]["pid"] == loader).collect();
    // The stub stays as long as the recording; the program by which libbpf tries names goes at once.
    for name in ["ai_stub_kern", "libbpf_nametest"] {
        let is_it = |event: &&&Value| event["name"].as_str().is_some_and(|n| n.ends_with(name));
        let own: Vec<&&Value> = of_loader.iter().filter(is_it).collect();
        let went = own
            .iter()
            .find(|event| event["event"] == "went")
            .unwrap_or_else(|| panic!("{name} by {loader}: {own:?} of {events:?}"));
        assert!(went["born_ns"].as_u64().unwrap() < went["gone_ns"].as_u64().unwrap());
        assert_eq!(went["image"]["size_bytes"], went["length_bytes"], "{went}");
        let file = own.iter().find_map(|event| event["file"].as_str()).unwrap();
        assert!(std::fs::read(file).unwrap().starts_with(b"\x7fELF"));
    }
    assert!(end["with_code"].as_u64().unwrap() >= 2 && end["with_code"].as_u64() <= end["texts"].as_u64(), "{end}");
}

#[test]
fn a_watch_needs_a_time_that_is_one() {
    let output = run(&["text", "watch", "--duration", "soon"]);
    assert_eq!((output.status.code(), stdout(&output).len()), (Some(2), 0));
    assert_eq!(stderr(&output), "afterimage: --duration soon: not a time\n");
}

#[test]
fn our_recordings_keep_what_came_and_went() {
    if !has("our_recordings_keep_what_came_and_went", &[Need::Root, Need::Bpf]) {
        return;
    }
    let folder = folder();
    let (path, elf) = (file(&folder, "data"), file(&folder, "stub.elf"));
    let mut recorder = afterimage()
        .args(["record", "-q", "-a", "-F", "99", "--handler", "none", "-o", word(&path)])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while !path.exists() {
        assert!(recorder.try_wait().unwrap().is_none(), "the recording ended");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    // The file is made when everything that listens is open.
    let loader = load_programs(&file(&folder, "other"));
    interrupt(&recorder);
    let recorder = recorder.wait_with_output().unwrap();
    assert!(recorder.status.success(), "{}", stderr(&recorder));
    let texts = list(&["-i", word(&path)]);
    let own: Vec<&Value> = texts.iter().filter(|text| text["loader"]["pid"] == loader).collect();
    let stub = own.iter().find(|text| text["name"].as_str().is_some_and(|name| name.ends_with("ai_stub_kern")));
    let stub = stub.unwrap_or_else(|| panic!("{texts:?}"));
    assert!(stub["born_ns"].is_u64() && stub["gone_ns"].is_u64(), "{stub}");
    assert_eq!((&stub["image"]["proven"], &stub["image"]["size_bytes"]), (&json!(true), &stub["length_bytes"]));
    let which = format!("ai_stub_kern@{}", stub["id"]);
    text(&["text", "dump", "-i", word(&path), "-o", word(&elf), &which]);
    assert!(std::fs::read(&elf).unwrap().starts_with(b"\x7fELF"));
    // Somebody else may load so many programs that not all of them are read by their ids.
    if Need::Objdump.missing().is_none() && !stderr(&recorder).contains("no source lines") {
        // It is gone, and its lines are still known.
        let listing = foreign("objdump", &["-d", "-l", word(&elf)]);
        assert!(listing.contains(".bpf.c:"), "{listing}");
    }
    // The same program, loaded before and loaded again, is the same code.
    let other = texts.iter().find(|text| text["name"] == stub["name"] && text["id"] != stub["id"]).unwrap();
    let (a, b) = (
        format!("@{}@{}", stub["id"], stub["address"].as_str().unwrap()),
        format!("@{}@{}", other["id"], other["address"].as_str().unwrap()),
    );
    let code = run(&["text", "diff", "-i", word(&path), &a, &b]).status.code();
    assert!(matches!(code, Some(0 | 1)), "{code:?}");
}

/// Whoever reads the report learns by which ways the code was kept, and what was refused where it was recorded.
#[test]
fn a_report_tells_which_ways_kept_code_and_which_were_refused() {
    if !has("a_report_tells_which_ways_kept_code_and_which_were_refused", &[Need::Root, Need::Bpf]) {
        return;
    }
    let folder = folder();
    let path = file(&folder, "data");
    // The hold is there only where a module or a kernel of ours is.
    let words = ["-q", "--text-ways", "free-time,kcore-qc", "-o", word(&path), "--", "true"];
    run(&[&["record"], &words[..]].concat());
    let said: Value = serde_json::from_slice(&run(&["report", "--json", "-i", word(&path)]).stdout).unwrap();
    let ways = said["text_ways"].as_array().unwrap();
    let of = |name: &str| ways.iter().find(|way| way["way"] == name && way["part"].is_null()).unwrap();
    assert!(of("free-time")["missing"].is_null(), "{ways:?}");
    let header = stdout(&run(&["report", "--header", "-i", word(&path)]));
    let line = |begin: &str| header.lines().find_map(|line| line.strip_prefix(begin)).unwrap_or_default().to_owned();
    assert!(line("# kernel text : ").split(", ").any(|way| way == "free-time"), "{header}");
    match of("kcore-qc")["missing"].as_str() {
        Some(why) => assert_eq!(line("# kernel text not by kcore-qc : "), why),
        None => assert!(line("# kernel text : ").contains("kcore-qc"), "{header}"),
    }
}
