//! The language: what is understood, what is refused and how, and what becomes of it.

use afterimage_perf_data::SampleType;
use proptest::prelude::*;

use super::*;
use crate::Mechanism;

const HERE: Context =
    Context { mechanism: Mechanism::Kfuncs, sample_type: SampleType::all(), first_pid_namespace: true };

/// Names that tests know.
struct Known;

impl Resolver for Known {
    fn symbol(&self, name: &str) -> std::result::Result<Vec<Place>, String> {
        let place = |start: u64| Place { process: None, start, end: start + 0x100 };
        match name {
            "twice" => Ok(vec![place(0xffff_ffff_8100_0000), place(0xffff_ffff_8200_0000)]),
            "once" => Ok(vec![place(0xffff_ffff_8100_0100)]),
            _ => Err("the kernel has no such function".to_owned()),
        }
    }

    fn dso(&self, _name: &str) -> std::result::Result<Vec<Place>, String> {
        let place = |process, start| Place { process: Some(process), start, end: start + 0x1000 };
        Ok(vec![place(7, 0x1000), place(8, 0x5000), place(7, 0x9000)])
    }

    fn cgroup(&self, path: &str) -> std::result::Result<Cgroup, String> {
        match path {
            "/" => Ok(Cgroup { id: 1, level: Some(0) }),
            "/a/b" => Ok(Cgroup { id: 77, level: Some(2) }),
            "/nested" => Ok(Cgroup { id: 5, level: None }),
            _ => Err("there is no such cgroup".to_owned()),
        }
    }
}

fn compile(text: &str) -> std::result::Result<Gate, GateError> {
    Gate::compile(text, &Known, &HERE)
}

fn gate(text: &str) -> Gate {
    compile(text).unwrap_or_else(|e| panic!("{e}\n{}", e.picture()))
}

fn sample() -> Sample {
    Sample {
        comm: *b"kworker/0:1\0\0\0\0\0",
        pid: 7,
        tid: 9,
        cpu: 3,
        ip: 0xffff_ffff_8100_0010,
        addr: 0x1234,
        period: 100,
        cgroups: vec![1, 50, 77, 90],
        user: false,
        time: 1_500_000_000,
        uid: 1000,
        ppid: 2,
        nspid: 1,
        seq: 12,
    }
}

#[test]
fn expressions_mean_what_they_say() {
    for text in [
        "pid == 7",
        "7 == pid && tid != 7",
        "pid in 7",
        "pid in (1, 7)",
        "pid not in (1, 2)",
        "cpu in 0..3",
        "cpu in (0..1, 3..3)",
        "comm == 'kworker/0:1'",
        "\"kworker/0:1\" == comm",
        "comm ~ \"kw*\"",
        "comm !~ \"*rcu*\"",
        "comm in (\"sh\", \"kworker/0:1\")",
        "kernel && !user",
        "ip in symbol(\"twice\")",
        "ip in (0x1..0x2, symbol('once'), symbol('twice'))",
        "ip not in symbol(\"once\")",
        "!(ip in dso(\"libc.so.6\"))",
        "cgroup == 90 || false",
        "cgroup in \"/a/b\"",
        "cgroup in \"/\"",
        "cgroup != \"/a/b\"",
        "time >= 1500ms && time < 1501ms && time == 1500000us && time > 1s && time > 7ns",
        "time % 1s == 500ms",
        "addr & 0xf00 == 0x200",
        "addr & 0xff == 0x34",
        "pid + 2 == tid",
        "pid + 2 * 3 - 1 == 12",
        "(pid + 2) * 3 % 26 == 1",
        "ppid < pid",
        "uid in 1_000..1_999",
        "nspid == 1",
        "1/1",
        "!0/5",
        "1/2 || !1/2",
        "period >= 100",
        "pid - 8 > 1000000",
        "true",
        "pid == 1 || tid == 9 && cpu == 3",
    ] {
        assert!(gate(text).passes(&sample()), "{text}");
        assert!(!gate(&format!("!({text})")).passes(&sample()), "not {text}");
    }
    let in_libc = gate("ip in dso(\"libc.so.6\")");
    assert!(in_libc.passes(&Sample { pid: 8, ip: 0x5fff, ..sample() }));
    assert!(!in_libc.passes(&Sample { pid: 8, ip: 0x6000, ..sample() }));
    assert!(!in_libc.passes(&Sample { pid: 7, ip: 0x5fff, ..sample() }));
}

/// Each as the command shows it: what is wrong, the expression, marks under the part that is meant, and a hint.
#[test]
fn what_is_wrong_is_shown() {
    let shown = |text: &str| {
        let error = compile(text).expect_err(text);
        let hint = error.hint.as_ref().map(|hint| format!("\n{hint}")).unwrap_or_default();
        format!("{error}\n{}{hint}", error.picture())
    };
    for (text, wanted) in [
        ("", "an expression that is empty\n\n^\nfor example: pid == 1234 && user"),
        ("pid = 1", "`=` is no comparison\npid = 1\n    ^\nequal is =="),
        ("conm == \"x\"", "there is no field `conm`\nconm == \"x\"\n^^^^\ndid you mean comm?"),
        ("pid", "pid is a number, where a condition is expected\npid\n^^^\ncompare it: pid == 1"),
        ("pid == comm", "comm is a text, where a number is expected\npid == comm\n       ^^^^"),
        ("comm == 3", "3 is a number, and comm is a text\ncomm == 3\n        ^\ncomm == \"name\""),
        ("pid == \"sh\"", "this is a text, where a number is expected\npid == \"sh\"\n       ^^^^"),
        ("user == 1", "user is a condition and has no number\nuser == 1\n^^^^\nuser alone, or !user"),
        ("pid == 1 and user", "`and` stands where an operator is expected\npid == 1 and user\n         ^^^\nand is &&"),
        ("(pid == 1", "`)` is expected after what is in brackets, not the end\n(pid == 1\n         ^"),
        ("pid == 1)", "a bracket that was not opened\npid == 1)\n        ^"),
        ("1 < pid < 5", "comparisons do not chain\n1 < pid < 5\n        ^\na < b && b < c"),
        (
            "cpu in 3..1",
            "a range from high to low holds nothing\ncpu in 3..1\n       ^^^^\nranges hold both their ends",
        ),
        ("cpu in (1, tid)", "a set holds numbers alone, no fields\ncpu in (1, tid)\n           ^^^"),
        ("comm == \"x", "a text that does not end\ncomm == \"x\n        ^^"),
        (
            "comm == \"sixteen-letters!\"",
            "the kernel keeps 15 bytes of a name: this never matches\ncomm == \"sixteen-letters!\"\n        \
             ^^^^^^^^^^^^^^^^^^\ncut it, or take a pattern: comm ~ \"name*\"",
        ),
        ("pid ~ \"1*\"", "pid is a number: only comm matches patterns\npid ~ \"1*\"\n^^^"),
        ("comm < \"x\"", "texts are equal or not, and match or not: == != ~ !~\ncomm < \"x\"\n^^^^^^^^^^"),
        (
            "ip in symbol(\"no\")",
            "symbol no: the kernel has no such function\nip in symbol(\"no\")\n      ^^^^^^^^^^^^",
        ),
        (
            "addr in symbol(\"once\")",
            "symbol() is a place in code: only ip can be in it\naddr in symbol(\"once\")\n        ^^^^^^^^^^^^^^",
        ),
        (
            "symbol(\"once\")",
            "symbol() is a place in code, where a condition is expected\nsymbol(\"once\")\n^^^^^^^^^^^^^^\nip in symbol(…)",
        ),
        (
            "ip in module(\"x\")",
            "there is no field `module`\nip in module(\"x\")\n      ^^^^^^^^^^^\nfields are comm pid tid cpu ip addr period cgroup user kernel time uid ppid nspid",
        ),
        ("cgroup in \"/none\"", "cgroup /none: there is no such cgroup\ncgroup in \"/none\"\n          ^^^^^^^"),
        (
            "cgroup in \"/nested\"",
            "what is below a cgroup is known in the first cgroup namespace alone\ncgroup in \"/nested\"\n          \
             ^^^^^^^^^\ncgroup == \"/path\" takes it alone",
        ),
        ("pid % 0 == 1", "the right side of % is a number that is not 0\npid % 0 == 1\n      ^"),
        ("pid % tid == 1", "the right side of % is a number that is not 0\npid % tid == 1\n      ^^^"),
        (
            "pid / 2 == 1",
            "`/` stands where an operator is expected\npid / 2 == 1\n    ^\nthere is no division; one sample of N is 1/N",
        ),
        ("3/2", "some of N samples are 0 to N, and N is 1 to 4294967295\n3/2\n^^^"),
        (
            "time > 1.5s",
            "`1` is followed by a point: numbers have no fractions\ntime > 1.5s\n       ^\n1500us for 1.5ms",
        ),
        (
            "pid == 5x",
            "`5x` is no number\npid == 5x\n       ^^\nnumbers are decimal or begin with 0x; times end in ns, us, ms or s",
        ),
        (
            "pid == 18446744073709551616",
            "`18446744073709551616` is no number of up to 64 bits\npid == 18446744073709551616\n       ^^^^^^^^^^^^^^^^^^^^",
        ),
        ("pid == -1", "numbers are not negative\npid == -1\n       ^"),
        ("comm == „sh“", "`„` has no meaning here\ncomm == „sh“\n        ^\ntexts stand in \" or '"),
        ("größe == 1", "`ö` has no meaning here\ngröße == 1\n  ^"),
        ("pid ==", "a field, a number or a text is expected, not the end\npid ==\n      ^"),
        (
            "pid == 1\n|| user user",
            "`user` stands where an operator is expected\npid == 1 || user user\n                 ^^^^",
        ),
    ] {
        assert_eq!(shown(text), wanted, "{text}");
    }
}

#[test]
fn what_is_too_large_is_refused() {
    let kind = |text: &str| compile(text).expect_err("too large").kind;
    assert_eq!(kind(&"(".repeat(40)), GateErrorKind::TooLarge);
    assert_eq!(kind(&"!".repeat(4000)), GateErrorKind::TooLarge);
    assert_eq!(kind(&format!("pid{} == 1", " + 1".repeat(100))), GateErrorKind::TooLarge);
    assert_eq!(kind(&format!("pid == {}1", " ".repeat(5000))), GateErrorKind::TooLarge);
    // Much fits: a list of 400 numbers, 100 names.
    let list = |n: u32| (0..n).map(|i| (i * 3).to_string()).collect::<Vec<_>>().join(",");
    assert!(gate(&format!("pid in ({})", list(400))).size() < 1200);
    let names = (0..100).map(|i| format!("comm ~ \"*{i}x*y\"")).collect::<Vec<_>>().join("||");
    let refused = compile(&names).expect_err("a program of many patterns");
    assert_eq!(refused.to_string(), "it would be a program of more than 4096 instructions");
}

#[test]
fn constants_fold() {
    for (text, verdict) in [
        ("true || pid == 1", Some(true)),
        ("false && pid == 1", Some(false)),
        ("1 + 1 == 2 && 3 in (1..5)", Some(true)),
        ("pid >= 0", Some(true)),
        ("pid > 4294967295", Some(false)),
        ("user || kernel", Some(true)),
        ("user && kernel", Some(false)),
        ("pid == 1 && pid == 2", Some(false)),
        ("pid != 1 || pid != 2", Some(true)),
        ("(cpu < 4 || cpu > 2) && 1/1", Some(true)),
        ("cpu & 3 < 4", Some(true)),
        ("time % 10 > 9", Some(false)),
        ("pid == pid", Some(true)),
        ("comm ~ \"*\"", Some(true)),
        ("1/3 && !1/3", Some(false)),
        ("pid == 1 || user", None),
        ("!(pid == 1 && tid in (1, 2))", None),
    ] {
        let gate = gate(text);
        assert_eq!(gate.always(), verdict, "{text}");
        assert_eq!(!gate.notes().is_empty(), verdict.is_some(), "{text}");
    }
    let one = fold(&gate("pid == 3 || pid in (4, 9) || pid == 5").tree, false);
    let ranges = ranges::Ranges::new(vec![(3, 5), (9, 9)]);
    assert_eq!(one, Cond::In(tree::Value::Field(Field::Pid), ranges), "one test");
    assert_eq!(gate("user || kernel").notes(), ["user || kernel: holds for every sample: there is no gate"]);
    assert_eq!(gate("comm == \"kw*\"").notes(), ["comm == \"kw*\" takes that very name; a pattern is comm ~ \"kw*\""]);
}

#[test]
fn five_terms_are_few_instructions() {
    let size = gate("pid == 7 && cpu in 0..3 && user && comm == \"x\" && period > 3").size();
    assert!(size < 60, "{size}");
}

#[test]
fn what_events_do_not_carry_is_refused() {
    let needs = |text: &str| Expression::parse(text).unwrap().needs();
    assert_eq!(needs("addr > 1 || pid == 1"), SampleType::ADDR);
    assert_eq!(needs("pid == 1"), SampleType::empty());
    let without = Context { sample_type: SampleType::IP, ..HERE };
    let refused = |text: &str, context: Context| Gate::compile(text, &Known, &context).unwrap_err().to_string();
    let sentence = "addr: the events carry no addresses, which is settled as they are opened";
    assert_eq!(refused("addr == 1", without), sentence);
    let contained = Context { first_pid_namespace: false, ..HERE };
    assert!(Gate::compile("pid == 1", &Known, &contained).is_ok());
    assert_eq!(refused("ppid == 1", contained), "ppid: known here only in the kernel's own pid namespace");
    let plain = Context { mechanism: Mechanism::Plain, ..contained };
    assert_eq!(refused("tid == 1", plain), "tid: known here only in the kernel's own pid namespace");
}

/// The corpus of the fuzz target, and what the target does with it.
#[test]
fn the_corpus_is_read() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/gate");
    let mut read = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        fuzz(&String::from_utf8_lossy(&bytes));
        read += 1;
    }
    assert!(read >= 10, "{read}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    /// No text makes us panic, and every error's picture can be drawn.
    #[test]
    fn any_text_is_read(text in "\\PC*", cut in any::<prop::sample::Index>()) {
        fuzz(&text);
        let words = "pid == 7 && (cpu in (0..3, 5) || comm ~ \"a*b\" && ip in symbol(\"once\")) || !1/3 && time % 1s & 3 > 2";
        let at = cut.index(words.len());
        fuzz(&words[..at]);
        fuzz(&format!("{}{text}{}", &words[..at], &words[at..]));
    }
}
