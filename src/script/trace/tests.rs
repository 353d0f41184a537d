use super::format::{Format, Kind};
use super::print;

const SWITCH: &str = r#"name: sched_switch
ID: 372
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;
	field:int common_pid;	offset:4;	size:4;	signed:1;

	field:char prev_comm[8];	offset:8;	size:8;	signed:0;
	field:pid_t prev_pid;	offset:16;	size:4;	signed:1;
	field:long prev_state;	offset:24;	size:8;	signed:1;
	field:__data_loc char[] where;	offset:32;	size:4;	signed:0;
	field:unsigned short ports[2];	offset:36;	size:4;	signed:0;

print fmt: "comm=%s pid=%d state=%s%s at %s ports=%03u,%#x", REC->prev_comm, REC->prev_pid, (REC->prev_state & ((0x1 | 0x2) + 1 << 1) - 1) ? __print_flags(REC->prev_state & 0x7, "|", { 0x1, "S" }, { 0x2, "D" }, { (unsigned long)(1UL << 2), "T" }) : "R", REC->prev_state & 0x80 ? "+" : "", __get_str(where), REC->ports[0], (unsigned int)REC->ports[1]
"#;

fn record(state: i64) -> Vec<u8> {
    let mut raw = vec![0; 40];
    raw[8..12].copy_from_slice(b"bash");
    raw[16..20].copy_from_slice(&(-7_i32).to_le_bytes());
    raw[24..32].copy_from_slice(&state.to_le_bytes());
    raw[32..36].copy_from_slice(&(40_u32 | 5 << 16).to_le_bytes());
    raw[36..38].copy_from_slice(&7_u16.to_le_bytes());
    raw[38..40].copy_from_slice(&0xabcd_u16.to_le_bytes());
    raw.extend_from_slice(b"here\0");
    raw
}

fn printed(format: &Format, raw: &[u8]) -> String {
    let mut out = Vec::new();
    let strings = [(0xabcd, "at".to_owned())].into_iter().collect();
    let mut names = |address: u64| (address >> 4 == 7).then(|| ("seven".to_owned(), address & 15));
    print::write(&mut out, format, raw, &strings, &mut names);
    String::from_utf8(out).unwrap()
}

#[test]
fn a_record_is_printed_as_its_format_says() {
    let format = Format::parse(SWITCH).unwrap();
    assert_eq!((format.id, format.field("ports").unwrap().kind), (372, Kind::Array { item: 2 }));
    assert_eq!(printed(&format, &record(0)), "comm=bash pid=-7 state=R at here ports=007,0xabcd");
    assert_eq!(printed(&format, &record(0x87)), "comm=bash pid=-7 state=S|D|T+ at here ports=007,0xabcd");
}

#[test]
fn what_is_not_understood_is_listed_by_field() {
    let text = SWITCH.replace("__get_str(where)", "ftrace_special(where)");
    let format = Format::parse(&text).unwrap();
    let listed = "prev_comm=bash prev_pid=-7 prev_state=1 where=here ports={0x7,0xabcd}";
    assert_eq!(printed(&format, &record(1)), listed);
}

#[test]
fn a_record_cut_anywhere_is_no_panic() {
    let format = Format::parse(SWITCH).unwrap();
    let raw = record(0x87);
    for end in 0..raw.len() {
        assert!(printed(&format, &raw[..end]).starts_with("prev_comm="));
    }
}

#[test]
fn a_format_cut_anywhere_is_no_panic() {
    let raw = record(0x87);
    for end in (0..SWITCH.len()).filter(|end| SWITCH.is_char_boundary(*end)) {
        if let Some(format) = Format::parse(&SWITCH[..end]) {
            let _ = printed(&format, &raw);
        }
    }
}

#[test]
fn nesting_has_an_end() {
    let deep = format!("ID: 1\nprint fmt: \"%d\", {}1{}\n", "(".repeat(100_000), ")".repeat(100_000));
    assert!(Format::parse(&deep).unwrap().print.is_none());
}

/// A format with one field of each sort, printed by `print`.
fn made(print: &str, raw: &[u8]) -> String {
    let fields = [
        "field:unsigned long p;\toffset:0;\tsize:8;\tsigned:0;",
        "field:__u8 b[16];\toffset:8;\tsize:16;\tsigned:0;",
        "field:unsigned char addr[6];\toffset:24;\tsize:6;\tsigned:0;",
    ];
    let format = Format::parse(&format!("name: made\nID: 1\nformat:\n\t{}\nprint fmt: {print}\n", fields.join("\n\t")));
    printed(&format.unwrap(), raw)
}

#[test]
fn pointers_are_what_their_letters_say() {
    let mut raw = vec![0; 30];
    raw[8..24].copy_from_slice(&[2, 0, 1, 2, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1]);
    raw[24..30].copy_from_slice(&[0, 0x1b, 2, 3, 4, 255]);
    for (address, print, text) in [
        (0x72_u64, r#""%pS", (void *)REC->p"#, "seven+0x2"),
        (0x72, r#""in %ps", REC->p"#, "in seven"),
        (0x82, r#""%pS", REC->p"#, "0x82"),
        (0, r#""%p", REC->p"#, "(nil)"),
        (0xabcd, r#""%s here", REC->p"#, "at here"),
        (0xabce, r#""%s", REC->p"#, "abce"),
        (0x1234, r#""%#08lx %#x", REC->p, 0"#, "0x001234 0"),
        (0, r#""%pI4", REC->b"#, "2.0.1.2"),
        (0, r#""%pI6c", REC->b"#, "200:102:a00:1::1"),
        (0, r#""%pISpc", REC->b"#, "10.0.0.1:258"),
        (0, r#""%pU", REC->b"#, "02000102-0a00-0001-0000-000000000001"),
        (0, r#""%02x:%02x", REC->addr[1], REC->addr[5]"#, "1b:ff"),
        (1, r#""%s", __print_flags(REC->p, "|", { UNKNOWN, "no" }, { ( gfp_t)1, "one" }, { 0, ((void *)0) })"#, "one"),
        (1, r#""%s", __print_symbolic(REC->p, { UNKNOWN, "no" }, { 2, "two" })"#, "0x1"),
        (
            5,
            r#""%p %d", (((struct page *)vmemmap_base) + (REC->p)), __builtin_expect(!!(REC->p >= 5), 0) ? 1 : 2"#,
            "0x5 1",
        ),
        (3, "\"of\ntwo %d\n\", REC->p", "of\\x0atwo 3"),
    ] {
        raw[..8].copy_from_slice(&address.to_le_bytes());
        assert_eq!(made(print, &raw), text, "{print}");
    }
    // What there are no letters for, and what lacks its bytes, is listed by field.
    assert!(made(r#""%pXY", REC->b"#, &raw).starts_with("p=0x3 b={0x2,"));
    assert!(made(r#""%pU", REC->b"#, &raw[..20]).starts_with("p=0x3 b=?"));
}

#[test]
fn numbers_of_the_other_byte_order() {
    let text =
        "name: made\nID: 1\nformat:\n\tfield:int n;\toffset:0;\tsize:4;\tsigned:1;\n\nprint fmt: \"%d\", REC->n\n";
    let format = Format { little: false, ..Format::parse(text).unwrap() };
    assert_eq!(printed(&format, &[255, 255, 255, 0]), "-256");
    assert_eq!(print::fields(&format, &[0, 0, 1, 2]), [("n", print::Value::Number(258))]);
}
