//! Recordings made by hand: programs that used the same place one after the other, with nothing but BPF_PROG_INFO and
//! BPF_BTF, as stock perf writes them.

use std::path::Path;

use afterimage_perf_data::features::{BpfBtf, BpfProgInfo, array};
use afterimage_perf_data::texts::Loader;
use afterimage_perf_data::{Endian, Features, FileReader, ImageId, ImageUse, Private, TextDesc, journal};

use crate::common::{file, folder, run, stderr, word};
use crate::listing::{annotate, bytes, lines, only, plain, samples};
use crate::made::{Made, event};

const PLACE: u64 = 0xffff_ffff_c000_1000;
const SUB: u64 = PLACE + 0x40;
/// The process that loads programs.
const LOADER: u32 = 77;

/// `struct bpf_prog_info` and its arrays, put together from what a test wants to be in them.
struct Program {
    id: u32,
    tag: [u8; 8],
    /// Address, code, tag.
    functions: Vec<(u64, Vec<u8>, [u8; 8])>,
    /// BPF instructions.
    xlated: Vec<u8>,
    /// Offset of a function in BPF instructions.
    func_info: Vec<u32>,
    /// BPF instruction, offsets of file and text, line, and the address of the code.
    lines: Vec<(u32, u32, u32, u32, u64)>,
    btf: u32,
}

impl Program {
    fn info(&self) -> BpfProgInfo {
        let mut info = vec![0; BpfProgInfo::INFO_MAX];
        let mut data = Vec::new();
        let mut arrays = 0;
        put32(&mut info, 4, self.id);
        info[8..16].copy_from_slice(&self.tag);
        put32(&mut info, 128, self.btf);
        let mut add = |bit: u64, pointer: usize, bytes: Vec<u8>, info: &mut Vec<u8>| {
            arrays |= bit;
            info[pointer..pointer + 8].copy_from_slice(&(data.len() as u64).to_le_bytes());
            data.extend(bytes);
            data.resize(data.len().next_multiple_of(8), 0);
        };
        let code: Vec<u8> = self.functions.iter().flat_map(|(_, code, _)| code.clone()).collect();
        let count = self.functions.len() as u32;
        put32(&mut info, 16, code.len() as u32);
        add(array::JITED_INSNS, 24, code, &mut info);
        put32(&mut info, 20, self.xlated.len() as u32);
        add(array::XLATED_INSNS, 32, self.xlated.clone(), &mut info);
        put32(&mut info, 104, count);
        let words = self.functions.iter().flat_map(|(address, _, _)| address.to_le_bytes()).collect();
        add(array::JITED_KSYMS, 112, words, &mut info);
        put32(&mut info, 108, count);
        let lens = self.functions.iter().flat_map(|(_, code, _)| (code.len() as u32).to_le_bytes()).collect();
        add(array::JITED_FUNC_LENS, 120, lens, &mut info);
        put32(&mut info, 132, 8);
        put32(&mut info, 144, self.func_info.len() as u32);
        let infos = self.func_info.iter().flat_map(|insn| [insn.to_le_bytes(), 1u32.to_le_bytes()].concat()).collect();
        add(array::FUNC_INFO, 136, infos, &mut info);
        put32(&mut info, 148, self.lines.len() as u32);
        put32(&mut info, 172, 16);
        let rows = self.lines.iter().flat_map(|(insn, file, text, line, _)| [*insn, *file, *text, line << 10 | 2]);
        add(array::LINE_INFO, 152, rows.flat_map(u32::to_le_bytes).collect(), &mut info);
        put32(&mut info, 168, self.lines.len() as u32);
        put32(&mut info, 176, 8);
        let natives = self.lines.iter().flat_map(|(.., address)| address.to_le_bytes()).collect();
        add(array::JITED_LINE_INFO, 160, natives, &mut info);
        put32(&mut info, 180, count);
        let tags = self.functions.iter().flat_map(|(.., tag)| *tag).collect();
        add(array::PROG_TAGS, 184, tags, &mut info);
        BpfProgInfo { info, arrays, data, endian: Endian::Little }
    }
}

fn put32(info: &mut [u8], at: usize, word: u32) {
    info[at..at + 4].copy_from_slice(&word.to_le_bytes());
}

fn btf(id: u32, strings: &[u8]) -> BpfBtf {
    let mut data = [0xeb9f_u16.to_le_bytes(), [1, 0]].concat();
    [24, 0, 0, 0, strings.len() as u32].iter().for_each(|word: &u32| data.extend(word.to_le_bytes()));
    data.extend(strings);
    BpfBtf { id, data }
}

/// push %rbp; mov $imm,%eax; jmp to the start; leave; ret
fn code(imm: u32) -> Vec<u8> {
    let [a, b, c, d] = imm.to_le_bytes();
    vec![0x55, 0xb8, a, b, c, d, 0xeb, 0xf8, 0xc9, 0xc3]
}

/// The first program has two functions, the second uses the place of its subprogram for a function of its own.
fn programs() -> [Program; 2] {
    // r0 = 7; exit
    let xlated = vec![0xb7, 0, 0, 0, 7, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0];
    [
        Program {
            id: 41,
            tag: [0x11; 8],
            functions: vec![(PLACE, code(0x100), [0x99; 8]), (SUB, code(0x200), [0x22; 8])],
            xlated: [xlated.clone(), xlated.clone()].concat(),
            func_info: vec![0, 2],
            lines: vec![(0, 1, 8, 3, PLACE + 1), (2, 1, 19, 9, SUB + 1), (3, 1, 19, 10, SUB + 8)],
            btf: 5,
        },
        Program {
            id: 42,
            tag: [0x33; 8],
            functions: vec![(SUB, code(0x300), [0x33; 8])],
            xlated,
            func_info: Vec::new(),
            lines: vec![(0, 1, 8, 3, SUB)],
            btf: 6,
        },
    ]
}

const FIRST: &str = "bpf_prog_1111111111111111_first";
const PART: &str = "bpf_prog_2222222222222222_part";
const SECOND: &str = "bpf_prog_3333333333333333_second";

fn recording(path: &Path) {
    let mut made = Made::at(path, vec![event("cpu-clock", 11, false)]);
    let here = |made: &mut Made, names: &[(u64, &str)], there: bool| {
        for (address, name) in names {
            made.text(LOADER, *address, 10, name, !there);
        }
    };
    here(&mut made, &[(PLACE, FIRST), (SUB, PART)], true);
    made.program(LOADER, 41, [0x11; 8]);
    made.kernel_sample(0, 42, 1000, PLACE + 6);
    for _ in 0..3 {
        made.kernel_sample(0, 42, 1000, SUB + 6);
    }
    made.kernel_sample(0, 42, 1000, SUB + 8);
    here(&mut made, &[(PLACE, FIRST), (SUB, PART)], false);
    here(&mut made, &[(SUB, SECOND)], true);
    made.program(LOADER, 42, [0x33; 8]);
    for _ in 0..5 {
        made.kernel_sample(0, 42, 1000, SUB + 1);
    }
    // In the middle of an instruction, as some counters give it.
    made.kernel_sample(0, 42, 1000, SUB + 3);
    let strings = b"\0prog.c\0\treturn 7;\0\tint part;\0";
    let features = Features {
        arch: Some("x86_64".into()),
        bpf_progs: programs().iter().map(Program::info).collect(),
        bpf_btfs: vec![btf(5, strings), btf(6, strings)],
        ..Features::default()
    };
    made.finish_with(&features, None);
}

#[test]
fn one_place_has_the_code_of_each_of_its_times() {
    let folder = folder();
    let path = file(&folder, "data");
    recording(&path);
    let part = annotate(&path, &["-s", "part"]);
    let part = only(&part);
    assert_eq!((&part["name"], &part["id"], &part["function"]), (&PART.into(), &41.into(), &1.into()));
    assert_eq!(bytes(part), code(0x200), "the second function's own bytes, not the first one's");
    assert_eq!(samples(part), [0, 0, 3, 1, 0]);
    let percent: Vec<f64> = lines(part).iter().map(|l| l["events"][0]["percent"].as_f64().unwrap()).collect();
    assert_eq!(percent, [0.0, 0.0, 75.0, 25.0, 0.0]);
    let second = annotate(&path, &["-s", "second@42"]);
    let second = only(&second);
    assert_eq!(bytes(second), code(0x300));
    assert_eq!(samples(second), [0, 6, 0, 0, 0], "also what lies within an instruction");
    assert_eq!(second["address"], part["address"]);
    let first = annotate(&path, &["-s", FIRST]);
    assert_eq!((bytes(only(&first)), samples(only(&first))), (code(0x100), vec![0, 0, 1, 0, 0]));
}

#[test]
fn lines_are_those_of_the_function() {
    let folder = folder();
    let path = file(&folder, "data");
    recording(&path);
    let part = annotate(&path, &["-s", "part"]);
    let numbers: Vec<_> = lines(only(&part)).iter().map(|line| line["source"][0]["line"].as_u64()).collect();
    assert_eq!(numbers, [None, Some(9), Some(9), Some(10), Some(10)]);
    assert_eq!(lines(only(&part))[1]["source"][0]["text"], "\tint part;");
    assert_eq!(lines(only(&part))[1]["source"][0]["file"], "prog.c");
    let shown = plain(&path, &["-s", "part", "--insns"]);
    let expected = [
        "prog.c:9      int part;",
        "2: (bpf) r0 = 7",
        "0.00 : ffffffffc0001041:   mov    $0x200,%eax",
        "75.00 : ffffffffc0001046:   jmp    ffffffffc0001040 <bpf_prog_2222222222222222_part>",
        "prog.c:10      int part;",
        "3: (bpf) exit",
        "25.00 : ffffffffc0001048:   leave",
    ];
    let mut rest = shown.as_str();
    for part in expected {
        let at = rest.find(part).unwrap_or_else(|| panic!("{part:?} is not next in\n{rest}\nof\n{shown}"));
        rest = &rest[at + part.len()..];
    }
    let none = plain(&path, &["-s", "part", "--no-source"]);
    assert!(!none.contains("prog.c"), "{none}");
}

#[test]
fn branches_name_what_was_there_then() {
    let folder = folder();
    let path = file(&folder, "data");
    recording(&path);
    let part = annotate(&path, &["-s", "part"]);
    let target = &lines(only(&part))[2]["target"];
    assert_eq!((&target["address"], &target["symbol"]), (&format!("{SUB:#x}").into(), &PART.into()));
    assert_eq!(lines(only(&part))[1]["target"], serde_json::Value::Null);
}

#[test]
fn the_time_and_the_number_choose() {
    let folder = folder();
    let path = file(&folder, "data");
    recording(&path);
    // The records are a millisecond apart, from 1 s on.
    let early = annotate(&path, &["-s", "@0xffffffffc0001040", "--at", "1.005"]);
    assert_eq!(only(&early)["name"], PART);
    let late = annotate(&path, &["-s", "@0xffffffffc0001040", "--at", "1.015"]);
    assert_eq!(only(&late)["name"], SECOND);
    let both = plain(&path, &["-s", "@0xffffffffc0001040"]);
    assert!(both.starts_with("# 2 of that name:\n"), "{both}");
    assert!(both.contains("second@42 at 0xffffffffc0001040") && both.contains("part@41 at 0xffff"), "{both}");
    let nobody = run(&["annotate", "-i", word(&path), "-s", "part@42"]);
    assert_eq!(nobody.status.code(), Some(2));
    assert!(stderr(&nobody).contains(&format!("{PART}@41")), "{}", stderr(&nobody));
    let unknown = run(&["annotate", "-i", word(&path), "-s", "nothing_like_it"]);
    assert_eq!((unknown.status.code(), stderr(&unknown).contains("no such symbol has samples")), (Some(2), true));
}

#[test]
fn without_code_the_ways_are_told() {
    let folder = folder();
    let path = file(&folder, "data");
    let mut made = Made::at(&path, vec![event("cpu-clock", 11, false)]);
    made.text(LOADER, PLACE, 64, FIRST, false);
    made.program(LOADER, 41, [0x11; 8]);
    made.kernel_sample(0, 42, 1000, PLACE + 6);
    made.text(LOADER, PLACE + 0x1000, 4096, "bpf_trampoline_42", false);
    made.kernel_sample(0, 42, 1000, PLACE + 0x1010);
    made.finish_with(&Features::default(), None);
    let all = annotate(&path, &[]);
    let all = all["symbols"].as_array().unwrap();
    assert_eq!(all.len(), 2);
    for symbol in all {
        assert_eq!(symbol["code"], serde_json::Value::Null);
        let (kind, tried) = (symbol["kind"].as_str().unwrap(), symbol["tried"].as_array().unwrap());
        let ways: Vec<&str> = tried.iter().map(|tried| tried["way"].as_str().unwrap()).collect();
        assert_eq!(ways, ["image", "info"], "{symbol}");
        let why = tried[1]["reason"].as_str().unwrap();
        match kind {
            "program" => assert_eq!(why, "the recording has no info of program 41"),
            _ => assert_eq!(why, "only programs have infos, and it is a trampoline"),
        }
        // Where samples fell is known all the same.
        assert_eq!(lines(symbol).len(), 1);
        assert_eq!(lines(symbol)[0]["text"], serde_json::Value::Null);
    }
    let shown = plain(&path, &["-s", FIRST]);
    assert!(shown.contains("no code:") && shown.contains("info: the recording has no info of program 41"), "{shown}");
    assert!(shown.contains("100.00 : ffffffffc0001006:   ?"), "{shown}");
}

/// A text as the recorder describes it.
fn desc(number: u64, kind: &str, name: &str, address: u64, length: u32, times: (u64, Option<u64>)) -> TextDesc {
    TextDesc {
        number,
        kind: kind.to_owned(),
        name: Some(name.to_owned()),
        address,
        length: Some(length),
        born_ns: (times.0 != 0).then_some(times.0),
        gone_ns: times.1,
        ..TextDesc::default()
    }
}

fn image(private: &mut Private, bytes: &[u8], at_ns: u64, way: &str) -> ImageUse {
    let image = ImageId::of(bytes);
    private.images.insert(image, bytes.to_vec());
    ImageUse { image, at_ns, way: way.to_owned(), proven: true }
}

const KERNEL: u64 = 0xffff_ffff_8100_0100;
const TRAMPOLINE: u64 = PLACE + 0x1000;
const LOST: u64 = PLACE + 0x2000;

/// A kernel function, a trampoline whose reported page reaches over a program, a program that nobody could read.
fn with_images(path: &Path) {
    let mut made = Made::at(path, vec![event("cpu-clock", 11, false)]);
    let mut private = Private::default();
    made.kernel_sample(0, 42, 1000, KERNEL + 6);
    let born = made.text(LOADER, TRAMPOLINE, 4096, "bpf_trampoline_42", false);
    made.kernel_sample(0, 42, 1000, TRAMPOLINE + 1);
    made.kernel_sample(0, 42, 1000, TRAMPOLINE + 1);
    let gone = made.text(LOADER, TRAMPOLINE, 4096, "bpf_trampoline_42", true);
    let lost = made.text(LOADER, LOST, 64, FIRST, false);
    made.kernel_sample(0, 42, 1000, LOST + 3);
    let mut function = desc(1, "kernel", "some_function", KERNEL, 10, (0, None));
    function.images = vec![image(&mut private, &code(0x500), born, "memory")];
    let mut trampoline = desc(2, "trampoline", "bpf_trampoline_42", TRAMPOLINE, 10, (born, Some(gone)));
    trampoline.length_reported = Some(4096);
    trampoline.images = vec![image(&mut private, &code(0x600), gone, "free-time")];
    trampoline.loader = Some(Loader { pid: LOADER, comm: "loader".to_owned() });
    let mut program = desc(3, "program", FIRST, LOST, 64, (lost, None));
    program.reason = Some("it was freed before it could be read".to_owned());
    private.texts = vec![function, trampoline, program];
    private.kernel_symbols = format!(
        "{:016x} t _stext\n{:016x} r end\n{KERNEL:016x} t some_function\n{:016x} r end\n{:016x} t _etext\n",
        KERNEL - 0x100,
        KERNEL - 0xf0,
        KERNEL + 10,
        KERNEL + 0x1000,
    )
    .into_bytes();
    made.finish_with(&Features { arch: Some("x86_64".into()), ..Features::default() }, Some(&private));
}

#[test]
fn images_of_the_recording_come_first() {
    let folder = folder();
    let path = file(&folder, "data");
    with_images(&path);
    let shown = annotate(&path, &["-s", "some_function"]);
    let function = only(&shown);
    assert_eq!((&function["kind"], &function["code"]["way"]), (&"kernel".into(), &"memory".into()), "{function}");
    assert_eq!((bytes(function), samples(function)), (code(0x500), vec![0, 0, 1, 0, 0]));
    let shown = annotate(&path, &["-s", "bpf_trampoline_42"]);
    let trampoline = only(&shown);
    assert_eq!(bytes(trampoline), code(0x600), "its own length, not the page that was reported");
    assert_eq!((&trampoline["length_bytes"], samples(trampoline)), (&10.into(), vec![0, 2, 0, 0, 0]));
    let origin = &trampoline["code"];
    assert_eq!((&origin["way"], &origin["proven"]), (&"free-time".into(), &true.into()));
    assert_eq!(trampoline["loader"], serde_json::json!({"pid": LOADER, "comm": "loader"}));
    let shown = plain(&path, &["-s", "bpf_trampoline_42"]);
    for part in ["kept by the recording (free-time)", "proven", "loaded by loader (pid 77)", "mov    $0x600,%eax"] {
        assert!(shown.contains(part), "{part:?} is not in\n{shown}");
    }
}

#[test]
fn code_without_samples_is_shown_too() {
    let folder = folder();
    let path = file(&folder, "data");
    let mut made = Made::at(&path, vec![event("cpu-clock", 11, false)]);
    let mut private = Private::default();
    let born = made.text(LOADER, TRAMPOLINE, 4096, "bpf_trampoline_42", false);
    made.kernel_sample(0, 42, 1000, KERNEL);
    let mut trampoline = desc(2, "trampoline", "bpf_trampoline_42", TRAMPOLINE, 10, (born, None));
    trampoline.images = vec![image(&mut private, &code(0x600), born, "free-time")];
    private.texts = vec![trampoline];
    made.finish_with(&Features { arch: Some("x86_64".into()), ..Features::default() }, Some(&private));
    let shown = annotate(&path, &["-s", "bpf_trampoline_42"]);
    assert_eq!((bytes(only(&shown)), &only(&shown)["events"]), (code(0x600), &serde_json::json!([])));
    let shown = plain(&path, &["-s", "bpf_trampoline_42"]);
    assert!(
        shown.contains("for cpu-clock (0 samples,") && shown.contains("0.00 : ffffffffc0002000:   push"),
        "{shown}"
    );
    // Unasked nothing is shown that has no samples.
    assert!(!plain(&path, &[]).contains("trampoline"));
}

#[test]
fn what_could_not_be_read_says_why() {
    let folder = folder();
    let path = file(&folder, "data");
    with_images(&path);
    let shown = annotate(&path, &["-s", FIRST]);
    let program = only(&shown);
    assert_eq!(program["code"], serde_json::Value::Null);
    assert_eq!(
        program["tried"][0],
        serde_json::json!({"way": "image", "reason": "it was freed before it could be read"})
    );
    assert!(program["reason"].as_str().unwrap().starts_with("image: it was freed before it could be read; info: "));
}

#[test]
fn an_unfinished_recording_is_annotated_from_its_journal() {
    let folder = folder();
    let path = file(&folder, "data");
    let mut made = Made::at(&path, vec![event("cpu-clock", 11, false)]);
    let born = made.text(LOADER, LOST, 10, PART, false);
    made.program(LOADER, 41, [0x22; 8]);
    made.kernel_sample(0, 42, 1000, LOST + 6);
    made.killed();
    let mut journal = journal::Writer::create(std::fs::File::create(journal::path_of(&path)).unwrap()).unwrap();
    let mut text = desc(9, "program", PART, LOST, 10, (born, None));
    let image = ImageId::of(&code(0x700));
    text.images = vec![ImageUse { image, at_ns: born, way: "rcu-window".to_owned(), proven: false }];
    journal.texts(&[text]).unwrap();
    journal.images([(&image, code(0x700).as_slice())]).unwrap();
    let output = run(&["annotate", "--json", "-i", word(&path), "-s", "part"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(shown["complete"], false);
    assert_eq!(bytes(only(&shown)), code(0x700));
    let origin = &only(&shown)["code"];
    assert_eq!((&origin["way"], &origin["proven"]), (&"rcu-window".into(), &false.into()));
}

/// A module is one text of many functions: each is annotated alone where its name is known, else all as one.
#[test]
fn functions_of_a_module_stand_apart() {
    let folder = folder();
    let path = file(&folder, "data");
    for named in [true, false] {
        let mut made = Made::at(&path, vec![event("cpu-clock", 11, false)]);
        let mut private = Private::default();
        made.kernel_sample(0, 42, 1000, PLACE + 1);
        made.kernel_sample(0, 42, 1000, PLACE + 10 + 6);
        made.kernel_sample(0, 42, 1000, PLACE + 10 + 6);
        let mut module = desc(1, "module", "of_the_test", PLACE, 20, (0, None));
        module.images = vec![image(&mut private, &[code(0x100), code(0x200)].concat(), 1, "memory")];
        private.texts = vec![module];
        if named {
            let (first, second, end) = (PLACE, PLACE + 10, PLACE + 20);
            let symbols = [(first, 't', "one"), (second, 't', "two"), (end, 'r', "end")];
            let lines = symbols.map(|(at, kind, name)| format!("{at:016x} {kind} {name}\t[of_the_test]\n"));
            private.kernel_symbols = lines.concat().into_bytes();
        }
        made.finish_with(&Features { arch: Some("x86_64".into()), ..Features::default() }, Some(&private));
        let shown = annotate(&path, &[]);
        let found: Vec<_> = shown["symbols"]
            .as_array()
            .unwrap()
            .iter()
            .map(|symbol| (symbol["name"].as_str().unwrap().to_owned(), bytes(symbol), samples(symbol)))
            .collect();
        let two = || ("two".to_owned(), code(0x200), vec![0, 0, 2, 0, 0]);
        let one = || ("one".to_owned(), code(0x100), vec![0, 1, 0, 0, 0]);
        let all = ("of_the_test".to_owned(), [code(0x100), code(0x200)].concat(), vec![0, 1, 0, 0, 0, 0, 0, 2, 0, 0]);
        assert_eq!(found, if named { vec![two(), one()] } else { vec![all] });
    }
}

/// Infos, types, texts and images are anybody's bytes.
#[test]
fn damage_is_stood() {
    let folder = folder();
    for make in [recording, with_images] {
        let (whole, damaged) = (file(&folder, "whole"), file(&folder, "damaged"));
        make(&whole);
        let bytes = std::fs::read(&whole).unwrap();
        let records = {
            let reader = FileReader::open(&bytes).unwrap();
            usize::try_from(reader.data_offset() + reader.data_size()).unwrap()
        };
        // Behind the records stands what is looked into here.
        let places = (0..48).map(|nth| records + (bytes.len() - records) * nth / 48);
        for (at, flip) in places.flat_map(|at| [(at, 0xff), (at, 0x01)]) {
            let mut bytes = bytes.clone();
            bytes[at] ^= flip;
            std::fs::write(&damaged, &bytes).unwrap();
            let output = run(&["annotate", "--json", "--insns", "-i", word(&damaged)]);
            let says = stderr(&output);
            assert!(matches!(output.status.code(), Some(0 | 1)), "{at} {flip}: {:?} {says}", output.status);
            assert!(!says.contains("panicked"), "{at} {flip}: {says}");
        }
    }
}
