//! Values of types that BTF describes: made by hand, made by clang, and damaged.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use std::process::Command;

use afterimage_perf_data::btf::{Types, Unreadable, Value};
use afterimage_perf_data::{ErrorKind, fuzzing};
use afterimage_testkit::{Need, has};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::json;

use common::types::{self, BOOL, Builder, CHAR, CONST, SIGNED, TYPEDEF, VOLATILE};

/// What [`types::sample`] makes, as text.
const SAMPLE: &str = concat!(
    r#"{pid=12, state=RUNNING, lat_ns=345, path="/x", ids=[7, -9], where=0xffff8880, word=W, long_word=5, "#,
    "ratio=1.5, flags=HIGH, ok=true, low=-1, high=9}"
);

#[test]
fn something_of_everything() {
    for big in [false, true] {
        let (btf, id, bytes) = types::sample(big);
        let types = Types::parse(&btf).unwrap();
        assert_eq!(types.len(), 14);
        assert_eq!(types.find("struct hit"), Some(id));
        assert_eq!((types.size(id), &*types.name(id)), (Some(72), "struct hit"));
        let value = types.value(id, &bytes).unwrap();
        // Of a union each member shows the same bytes: an int in 8 bytes has the lower half in one byte order only.
        assert_eq!(value.to_string(), SAMPLE.replace('W', if big { "0" } else { "5" }));
        let expected = json!({
            "pid": 12, "state": "RUNNING", "lat_ns": 345, "path": "/x", "ids": [7, -9], "where": "0xffff8880",
            "word": if big { 0 } else { 5 }, "long_word": 5, "ratio": 1.5, "flags": "HIGH", "ok": true, "low": -1, "high": 9
        });
        assert_eq!(value.to_json(), expected);
    }
}

#[test]
fn names_are_those_of_c() {
    let mut b = Builder::new(false);
    let (int, anonymous) = (b.int("int", 4, SIGNED), b.structure("", 0, &[]));
    let inner = b.array(int, 3);
    let (outer, qualified) = (b.array(inner, 2), b.alias(VOLATILE, "", int));
    let (pointer, alias) = (b.pointer(qualified), b.alias(TYPEDEF, "u32", int));
    let (to_void, state) = (b.pointer(0), b.enumeration("state", 4, false, &[]));
    let btf = b.finish();
    let types = Types::parse(&btf).unwrap();
    let names = [outer, anonymous, pointer, alias, to_void, state, 99].map(|id| types.name(id));
    let expected = ["int[2][3]", "struct (anonymous)", "int *", "u32", "void *", "enum state", "type 99"];
    assert_eq!(names, expected);
}

/// One value of one type, as the text and the JSON that it has.
fn shown(bytes: &[u8], make: impl Fn(&mut Builder) -> u32) -> (String, serde_json::Value) {
    let mut b = Builder::new(false);
    let id = make(&mut b);
    let btf = b.finish();
    let value = Types::parse(&btf).unwrap().value(id, bytes).unwrap();
    (value.to_string(), value.to_json())
}

#[test]
fn texts_and_characters() {
    let text = |count| {
        move |b: &mut Builder| {
            let chr = b.int("char", 1, SIGNED);
            let chr = b.alias(CONST, "", chr);
            b.array(chr, count)
        }
    };
    assert_eq!(shown(b"ab\0cd", text(5)), ("\"ab\"".into(), json!("ab")));
    assert_eq!(shown(b"abcde", text(5)).0, "\"abcde\"");
    assert_eq!(shown(b"ab", text(16)).0, "\"ab\"", "less than the whole array");
    assert_eq!(shown(b"abc", text(0)).0, "\"abc\"", "no length: all that is there");
    assert_eq!(shown(b"\xff\"\n\x1b\\", text(5)), ("\"\u{fffd}\\\"\\n\\x1b\\\\\"".into(), json!("\u{fffd}\"\n\x1b\\")));
    assert_eq!(shown(b"A", |b| b.int("char", 1, SIGNED)), ("'A'".into(), json!(65)));
    assert_eq!(shown(b"\x07", |b| b.int("c", 1, CHAR)).0, "7");
    assert_eq!(shown(b"A", |b| b.int("unsigned char", 1, 0)), ("65".into(), json!(65)));
}

#[test]
fn long_arrays_are_cut_in_text_and_whole_in_json() {
    let bytes: Vec<u8> = (0..100).collect();
    let (text, json) = shown(&bytes, |b| {
        let byte = b.int("u8", 1, 0);
        b.array(byte, 100)
    });
    assert!(text.starts_with("[0, 1, 2, ") && text.ends_with(", 31, … 68 more]"), "{text}");
    assert_eq!(json, json!(bytes));
}

#[test]
fn large_numbers() {
    let of = |size: u32, encoding: u32, bytes: &[u8]| shown(bytes, |b| b.int("n", size, encoding));
    assert_eq!(of(8, 0, &[0xff; 8]), (u64::MAX.to_string(), json!(u64::MAX)));
    assert_eq!(of(8, SIGNED, &[0xff; 8]), ("-1".into(), json!(-1)));
    assert_eq!(of(16, 0, &[0xff; 16]), (u128::MAX.to_string(), json!(u128::MAX.to_string())));
    let mut least = [0; 16];
    least[15] = 0x80;
    assert_eq!(of(16, SIGNED, &least).1, json!(i128::MIN.to_string()));
    assert_eq!(of(1, BOOL, &[0]).1, json!(false));
    let float = |size, bytes: &[u8]| shown(bytes, |b| b.float("f", size));
    assert_eq!(float(4, &0.5_f32.to_le_bytes()), ("0.5".into(), json!(0.5)));
    assert_eq!(float(8, &f64::NAN.to_le_bytes()), ("NaN".into(), json!("NaN")));
    assert_eq!(float(16, &[0; 16]).0, "<a float of an unusual size>");
}

#[test]
fn enumerators_by_value() {
    let of = |size, signed, value: i64| {
        let all = [("ONE", 1), ("LAST", -1), ("FAR", 1 << 33)];
        shown(&value.to_le_bytes(), |b| b.enumeration("e", size, signed, &all[..if size == 8 { 3 } else { 2 }]))
    };
    assert_eq!(of(4, true, -1), ("LAST".into(), json!("LAST")));
    assert_eq!(of(4, false, -1).0, "LAST", "older compilers do not say that there are negative ones");
    assert_eq!(of(1, true, -1).0, "LAST");
    assert_eq!(of(8, true, 1 << 33).0, "FAR");
    assert_eq!(of(4, true, -7), ("-7".into(), json!(-7)));
    assert_eq!(of(4, false, -7).0, "4294967289");
}

#[test]
fn an_array_without_a_length_takes_the_rest() {
    let make = |b: &mut Builder| {
        let (int, chr) = (b.int("int", 4, SIGNED), b.int("char", 1, SIGNED));
        let rest = b.array(chr, 0);
        b.structure("s", 4, &[("n", int, 0, 0), ("rest", rest, 32, 0)])
    };
    assert_eq!(shown(b"\x05\0\0\0hello", make).0, r#"{n=5, rest="hello"}"#);
    assert_eq!(shown(b"\x05\0\0\0", make).0, r#"{n=5, rest=""}"#);
}

/// A handler may write several values of one type, one behind the other.
#[test]
fn several_values_are_a_list() {
    let mut b = Builder::new(false);
    let (int, chr) = (b.int("int", 4, SIGNED), b.int("char", 1, SIGNED));
    let text = b.array(chr, 2);
    let rest = b.array(chr, 0);
    let open = b.structure("open", 4, &[("n", int, 0, 0), ("rest", rest, 32, 0)]);
    let btf = b.finish();
    let types = Types::parse(&btf).unwrap();
    let all = |id, bytes: &[u8]| types.values(id, bytes).map(|value| value.to_string());
    assert_eq!(all(int, &[1, 0, 0, 0]).unwrap(), "1");
    assert_eq!(all(int, &[1, 0, 0, 0, 2, 0, 0, 0]).unwrap(), "[1, 2]");
    assert_eq!(all(int, &[1, 0, 0, 0, 2]).unwrap(), "1", "not two");
    assert_eq!(all(chr, b"abc").unwrap(), "\"abc\"");
    assert_eq!(all(text, b"abcd").unwrap(), "[\"ab\", \"cd\"]");
    assert_eq!(all(open, b"\x01\0\0\0text").unwrap(), "{n=1, rest=\"text\"}", "all of it is one");
    assert_eq!(all(open, b"\x01\0\0"), Err(Unreadable::Short { there: 3, wanted: 4 }));
}

#[test]
fn the_old_form_of_bit_fields() {
    // The place stands in the integer's own type.
    let make = |b: &mut Builder| {
        let three = b.add("int", 1, 0, false, 4, &[SIGNED << 24 | 3]);
        let five = b.add("unsigned", 1, 0, false, 4, &[5]);
        b.structure("s", 4, &[("a", three, 0, 0), ("b", five, 3, 0)])
    };
    assert_eq!(shown(&[0b0100_1111, 0, 0, 0], make).0, "{a=-1, b=9}");
}

#[test]
fn what_cannot_be_read_has_a_reason() {
    let (btf, id, bytes) = types::sample(false);
    let types = Types::parse(&btf).unwrap();
    let reason = |id, bytes: &[u8]| types.value(id, bytes).unwrap_err();
    assert_eq!(reason(id, &bytes[..71]), Unreadable::Short { there: 71, wanted: 72 });
    assert_eq!(reason(id, &bytes[..71]).to_string(), "71 of the type's 72 bytes");
    assert_eq!(reason(0, &bytes), Unreadable::NoType(0));
    assert_eq!(reason(99, &bytes).to_string(), "the handler has no type 99");
    let mut b = Builder::new(false);
    let round = b.alias(TYPEDEF, "round", 1);
    let function = b.add("f", 13, 0, false, 0, &[]);
    let own = b.structure("own", 4, &[("own", 3, 0, 0)]);
    let many = b.array(own, u32::MAX);
    let byte = b.int("u8", 1, 0);
    let mut doubled = byte;
    for _ in 0..20 {
        doubled = b.union("u", 1, &[("a", doubled, 0, 0), ("b", doubled, 0, 0)]);
    }
    let unknown = b.add("later", 31, 0, false, 0, &[]);
    let btf = b.finish();
    let types = Types::parse(&btf).unwrap();
    assert_eq!(types.value(round, &bytes), Err(Unreadable::NoType(round)));
    assert_eq!(types.value(function, &bytes), Err(Unreadable::NoValues(function)));
    assert_eq!(types.value(unknown, &bytes), Err(Unreadable::NoType(unknown)));
    let nested = types.value(own, &bytes).unwrap().to_string();
    assert!(nested.starts_with("{own={own={own=") && nested.contains('<'), "{nested}");
    assert_eq!(types.value(many, &[]).unwrap(), Value::List(Vec::new()));
    // A million parts by name, of one byte.
    let text = types.value(doubled, &[7]).unwrap().to_string();
    assert!(text.contains("b=7") && text.contains("<too many parts>"));
}

#[test]
fn damaged_headers() {
    let (btf, ..) = types::sample(false);
    for end in 0..btf.len() {
        assert!(Types::parse(&btf[..end]).is_err(), "{end} bytes");
    }
    assert_eq!(Types::parse(b"nothing at all").unwrap_err().kind(), ErrorKind::BadValue);
}

/// A type, and a value of it.
#[derive(Clone, Debug)]
enum Model {
    Int { log: u32, signed: bool, raw: u128 },
    Text(String, usize),
    Float(f64),
    Pointer(u64),
    Enum(i32),
    List(Vec<u16>),
    Struct(Vec<Model>),
    Alias(u32, Box<Model>),
}

fn models() -> impl Strategy<Value = Model> {
    let leaf = prop_oneof![
        (0..5_u32, any::<bool>(), any::<u128>()).prop_map(|(log, signed, raw)| Model::Int { log, signed, raw }),
        ("[a-z]{0,9}", 0..5_usize).prop_map(|(text, room)| Model::Text(text, room)),
        (-1e9..1e9).prop_map(Model::Float),
        any::<u64>().prop_map(Model::Pointer),
        (-3..3).prop_map(Model::Enum),
        vec(any::<u16>(), 1..6).prop_map(Model::List),
    ];
    leaf.prop_recursive(4, 20, 5, |inner| {
        prop_oneof![
            vec(inner.clone(), 1..5).prop_map(Model::Struct),
            (8..11_u32, inner).prop_map(|(kind, of)| Model::Alias(kind, Box::new(of))),
        ]
    })
}

/// Adds the type and the bytes of a model; gives what has to be read.
fn put(b: &mut Builder, big: bool, model: &Model, bytes: &mut Vec<u8>) -> (u32, Value<'static>) {
    let mut number = |raw: u128, size: usize| {
        if big { bytes.extend(&raw.to_be_bytes()[16 - size..]) } else { bytes.extend(&raw.to_le_bytes()[..size]) }
    };
    match model {
        Model::Int { log, signed, raw } => {
            let size = 1_usize << log;
            number(*raw, size);
            let unused = 128 - 8 * size as u32;
            let value = if *signed {
                Value::Signed((*raw << unused) as i128 >> unused)
            } else {
                Value::Unsigned(*raw << unused >> unused)
            };
            (b.int("n", size as u32, if *signed { SIGNED } else { 0 }), value)
        }
        Model::Text(text, room) => {
            bytes.extend(text.as_bytes());
            bytes.resize(bytes.len() + room, 0);
            let chr = b.int("char", 1, SIGNED);
            // An array of none would be one without a length.
            let len = text.len() + room;
            bytes.resize(bytes.len() + usize::from(len == 0), 0);
            (b.array(chr, len.max(1) as u32), Value::Text(text.clone()))
        }
        Model::Float(float) => {
            number(float.to_bits().into(), 8);
            (b.float("double", 8), Value::Float(*float))
        }
        Model::Pointer(address) => {
            number((*address).into(), 8);
            (b.pointer(0), Value::Pointer(*address))
        }
        Model::Enum(of) => {
            number(u128::from(*of as u32), 4);
            let name = match of {
                -1 => Some("MINUS".into()),
                2 => Some("TWO".into()),
                _ => None,
            };
            (b.enumeration("e", 4, true, &[("TWO", 2), ("MINUS", -1)]), Value::Enum(name, (*of).into()))
        }
        Model::List(items) => {
            items.iter().for_each(|item| number((*item).into(), 2));
            let of = b.int("u16", 2, 0);
            (b.array(of, items.len() as u32), Value::List(items.iter().map(|n| Value::Unsigned((*n).into())).collect()))
        }
        Model::Struct(members) => {
            let start = bytes.len();
            let (mut list, mut fields) = (Vec::new(), Vec::new());
            for (nth, member) in members.iter().enumerate() {
                let at = (bytes.len() - start) as u32 * 8;
                let (id, value) = put(b, big, member, bytes);
                fields.push((format!("f{nth}").into(), value));
                list.push((["f0", "f1", "f2", "f3", "f4"][nth], id, at, 0));
            }
            (b.structure("s", (bytes.len() - start) as u32, &list), Value::Fields(fields))
        }
        Model::Alias(kind, of) => {
            let (id, value) = put(b, big, of, bytes);
            (b.alias(*kind, if *kind == TYPEDEF { "t" } else { "" }, id), value)
        }
    }
}

proptest! {
    #[test]
    fn values_are_those_that_were_put_in(model in models(), big: bool, behind in vec(any::<u8>(), 0..8)) {
        let mut b = Builder::new(big);
        let mut bytes = Vec::new();
        let (id, expected) = put(&mut b, big, &model, &mut bytes);
        let btf = b.finish();
        let types = Types::parse(&btf).unwrap();
        prop_assert_eq!(types.size(id), Some(bytes.len() as u64));
        bytes.extend(behind);
        prop_assert_eq!(types.value(id, &bytes).unwrap(), expected);
    }

    #[test]
    fn bit_fields(fields in vec((1..34_u32, any::<bool>(), any::<u64>()), 1..12), big: bool) {
        let mut b = Builder::new(big);
        let (signed, unsigned) = (b.int("s64", 8, SIGNED), b.int("u64", 8, 0));
        let (mut bits, mut members, mut expected) = (Vec::new(), Vec::new(), Vec::new());
        let names: Vec<String> = (0..fields.len()).map(|n| format!("f{n}")).collect();
        for ((width, sign, raw), name) in fields.iter().zip(&names) {
            let at = bits.len() as u32;
            // The bits of a field as they follow each other in memory: from the lowest, or from the highest.
            let of = |nth: u32| raw >> (if big { width - 1 - nth } else { nth }) & 1;
            bits.extend((0..*width).map(of));
            members.push((name.as_str(), if *sign { signed } else { unsigned }, at, *width));
            let unused = 64 - width;
            let number = if *sign { i128::from((raw << unused) as i64 >> unused) } else { (raw << unused >> unused).into() };
            expected.push(format!("{name}={number}"));
        }
        let place = |nth: usize| if big { 7 - nth } else { nth };
        let byte = |eight: &[u64]| eight.iter().enumerate().fold(0, |byte, (nth, bit)| byte | (*bit as u8) << place(nth));
        let bytes: Vec<u8> = bits.chunks(8).map(byte).collect();
        let id = b.structure("s", bytes.len() as u32, &members);
        let btf = b.finish();
        let value = Types::parse(&btf).unwrap().value(id, &bytes).unwrap();
        prop_assert_eq!(value.to_string(), format!("{{{}}}", expected.join(", ")));
    }

    #[test]
    fn damage_is_no_reason_to_panic(
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..12), big: bool, value in vec(any::<u8>(), 0..100),
    ) {
        let (mut btf, ..) = types::sample(big);
        for (at, byte) in damage {
            let at = at.index(btf.len());
            btf[at] = byte;
        }
        let len = (btf.len() as u16).to_le_bytes();
        fuzzing::values([&len[..], &btf, &value].concat().as_slice());
    }
}

const SOURCE: &str = r#"
typedef unsigned long long u64;
typedef u64 stamp_t;
enum state { SLEEPING = 1, RUNNING = 2, GONE = -3 };
enum wide { NARROW = 1, WIDE = 0x100000000ULL };
struct inner { const char *why; short codes[3]; };
struct hit {
    int pid;
    volatile enum state state;
    stamp_t lat_ns;
    char path[16];
    unsigned char raw[4];
    _Bool ok;
    char letter;
    unsigned low : 3, mid : 9;
    int sign : 4;
    enum wide width;
    union { u64 word; struct { unsigned half, other; }; };
    const struct inner inner[2];
    u64 matrix[2][2];
    double ratio;
    float part;
};
struct hit hit = {
    .pid = -12, .state = RUNNING, .lat_ns = 345, .path = "/usr/bin/x", .raw = {1, 2, 3, 255}, .ok = 1, .letter = 'q',
    .low = 5, .mid = 300, .sign = -2, .width = NARROW, .half = 7, .other = 1, .inner = {{0, {1, -2, 3}}, {0, {0, 0, 9}}},
    .matrix = {{1, 2}, {3, 4}}, .ratio = 2.25, .part = -0.5,
};
"#;

/// What clang writes for a struct, and the bytes that it gives a variable of it.
#[test]
fn values_of_clang() {
    if !has("values_of_clang", &[Need::Clang]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (source, object) = (folder.path().join("hit.c"), folder.path().join("hit.o"));
    std::fs::write(&source, SOURCE).unwrap();
    for (target, big) in [("bpfel", false), ("bpfeb", true)] {
        let mut clang = Command::new("clang");
        clang.args(["-O2", "-g", "-target", target, "-c"]).arg(&source).arg("-o").arg(&object);
        let status = clang.status().unwrap();
        assert!(status.success());
        let elf = std::fs::read(&object).unwrap();
        let (btf, bytes) = (section(&elf, ".BTF", big), section(&elf, ".data", big));
        let types = Types::parse(&btf).unwrap();
        let id = types.find("struct hit").unwrap();
        let expected = concat!(
            r#"{pid=-12, state=RUNNING, lat_ns=345, path="/usr/bin/x", raw=[1, 2, 3, 255], ok=true, letter='q', low=5, "#,
            "mid=300, sign=-2, width=NARROW, word=WORD, half=7, other=1, inner=[{why=0x0, codes=[1, -2, 3]}, ",
            "{why=0x0, codes=[0, 0, 9]}], matrix=[[1, 2], [3, 4]], ratio=2.25, part=-0.5}"
        );
        let word = if big { 7_u64 << 32 | 1 } else { 1 << 32 | 7 };
        let value = types.value(id, &bytes).unwrap();
        assert_eq!(value.to_string(), expected.replace("WORD", &word.to_string()));
    }
}

/// A section of a 64-bit ELF file, by its name.
fn section(elf: &[u8], name: &str, big: bool) -> Vec<u8> {
    let number = |at: usize, size: usize| {
        let bytes = &elf[at..at + size];
        let add = |n: usize, b: &u8| n << 8 | usize::from(*b);
        if big { bytes.iter().fold(0, add) } else { bytes.iter().rev().fold(0, add) }
    };
    let headers = number(40, 8);
    let (count, names) = (number(60, 2), number(62, 2));
    let header = |nth: usize| headers + nth * 64;
    let strings = number(header(names) + 24, 8);
    let is_called = |nth: &usize| {
        let at = strings + number(header(*nth), 4);
        elf[at..].starts_with(format!("{name}\0").as_bytes())
    };
    let found = header((0..count).find(is_called).unwrap());
    let (offset, size) = (number(found + 24, 8), number(found + 32, 8));
    elf[offset..offset + size].to_vec()
}
