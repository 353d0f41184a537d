//! Our texts of BPF instructions beside those of bpftool, for a program that the kernel took.

use std::process::Command;

use afterimage_testkit::{Need, has};

use super::bpf;

/// Loads and stores of all sizes, jumps of all kinds, atomics, numbers of 64 bits, byte orders, calls of a function.
const SOURCE: &str = r#"
typedef unsigned long long u64;
typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned char u8;
#define KEEP(x) __asm__ volatile("" : "+r"(x))

struct all { u64 a; u32 b; u16 c; u8 d; u8 e; long long s; };

static __attribute__((noinline)) u64 part(u64 x, u32 y)
{
	if ((long long)x > 5) x -= 3;
	if (y < 100) x ^= y;
	if ((int)y <= -2) x |= 0x1234567890abcdefULL;
	if (x & 64) x = -x;
	return x / 7 + y % 5;
}

__attribute__((section("socket"), used)) int oracle(void *ctx)
{
	struct all v = {};
	u64 x = 0x1122334455667788ULL;
	u32 y = 9;
	KEEP(x); KEEP(y);
	volatile struct all *p = (volatile struct all *)&v;
	p->a = x; p->b = y; p->c = 3; p->d = (u8)x; p->e = 200; p->s = -5;
	__sync_fetch_and_add(&v.a, 3);
	x += p->a + p->b + p->c + p->d + p->e;
	x = (x << 3) | (x >> 5);
	y = (u32)((int)y >> 2) * 3;
	KEEP(x); KEEP(y);
	x += __builtin_bswap32((u32)x) + __builtin_bswap16((u16)y) + __builtin_bswap64(x);
	x += part(x, y);
	for (int i = 0; i < 4; i++) { x += i; KEEP(x); }
	return x != 0;
}
char _license[] __attribute__((section("license"), used)) = "Dual MIT/GPL";
"#;

fn tool(words: &[&str]) -> String {
    let found = ["/usr/sbin/bpftool", "bpftool"]
        .into_iter()
        .find(|path| Command::new(path).arg("version").output().is_ok_and(|output| output.status.success()));
    let output = Command::new(found.unwrap()).args(words).output().unwrap();
    assert!(output.status.success(), "bpftool {words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The listing of bpftool: text of each instruction, and its bytes. A line `N: (op) text`, then one with the bytes.
fn listed(listing: &str) -> Vec<(String, Vec<u8>)> {
    let mut all: Vec<(String, Vec<u8>)> = Vec::new();
    for line in listing.lines() {
        let bytes: Option<Vec<u8>> = line.split_whitespace().map(|b| u8::from_str_radix(b, 16).ok()).collect();
        let text = line.trim_start().split_once(") ").filter(|(head, _)| head.contains(": ("));
        match (text, bytes.filter(|bytes| bytes.len() == 8 || bytes.len() == 16)) {
            (Some((_, text)), _) => all.push((text.to_owned(), Vec::new())),
            (None, Some(bytes)) => all.last_mut().unwrap().1.extend(bytes),
            _ => {}
        }
    }
    all
}

#[test]
fn instructions_read_as_bpftool_prints_them() {
    let needs = [Need::Root, Need::Bpf, Need::Clang, Need::Bpftool];
    if !has("instructions_read_as_bpftool_prints_them", &needs) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (source, object) = (folder.path().join("oracle.c"), folder.path().join("oracle.o"));
    std::fs::write(&source, SOURCE).unwrap();
    let output = Command::new("clang")
        .args(["-O1", "-g", "-target", "bpf", "-mcpu=v3", "-c"])
        .arg(&source)
        .arg("-o")
        .arg(&object)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let loaded = libbpf_rs::ObjectBuilder::default().open_file(&object).unwrap().load().unwrap();
    let mut infos = libbpf_rs::query::ProgInfoIter::default();
    let id = infos.find(|info| info.name.to_string_lossy() == "oracle").unwrap().id.to_string();
    let all = listed(&tool(&["prog", "dump", "xlated", "id", &id, "opcodes"]));
    drop(loaded);
    assert!(all.len() > 60, "{all:?}");
    let mut calls = 0;
    for (theirs, bytes) in &all {
        let slots = bpf::parse(bytes, false);
        let ours = bpf::text(slots[0], slots.get(1).copied(), &|_| None);
        if theirs.starts_with("call ") {
            // Who is called stands in no instruction.
            assert!(ours.starts_with("call "), "{ours} where bpftool has {theirs}");
            calls += 1;
        } else {
            assert_eq!(&ours, theirs, "{bytes:x?}");
        }
    }
    println!("{} instructions alike, {calls} of them calls", all.len());
    assert!(calls >= 1);
}
