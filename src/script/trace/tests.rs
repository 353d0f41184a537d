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
    print::write(&mut out, format, raw);
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
