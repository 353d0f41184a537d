//! Intel's own decoder of processor traces, libipt, with its code from the timeline: a trace that was written by hand
//! runs through an address that is used again.
#![cfg(target_arch = "x86_64")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use afterimage_kernel_text::{Image, Images, KSYMBOL_BPF, KsymChange, Timeline, Way};
use afterimage_testkit::{Need, has};

/// Where one program is followed by another.
const A: u64 = 0xffff_ffff_c000_1000;
/// What both of them jump to.
const B: u64 = 0xffff_ffff_c000_2000;
/// Times of the trace's clock, which is that of the timeline here: the first program's, the end of its life, the
/// second one's.
const FIRST: u64 = 100;
const REUSED: u64 = 200;
const SECOND: u64 = 250;

/// `xor eax, eax`, `cmp edi, 5`, `jne` over `inc eax`, `nop`, `jmp rax`.
const CODE_1: &[&[u8]] = &[&[0x31, 0xc0], &[0x83, 0xff, 5], &[0x75, 2], &[0xff, 0xc0], &[0x90], &[0xff, 0xe0]];
/// `mov eax, 1`, `test eax, eax`, `je` over `nop`, `jne` over `int3`, `jmp rax`.
const CODE_2: &[&[u8]] = &[&[0xb8, 1, 0, 0, 0], &[0x85, 0xc0], &[0x74, 1], &[0x90], &[0x75, 1], &[0xcc], &[0xff, 0xe0]];
/// `nop`, `jmp rax`.
const CODE_B: &[&[u8]] = &[&[0x90], &[0xff, 0xe0]];

/// Packets as the Software Developer's Manual writes them (volume 3, "Trace packets and data types").
mod packet {
    const FULL_IP: u8 = 6 << 5;

    pub(crate) fn psb() -> Vec<u8> {
        [0x02, 0x82].repeat(8)
    }

    pub(crate) fn psb_end() -> Vec<u8> {
        vec![0x02, 0x23]
    }

    pub(crate) fn tsc(time: u64) -> Vec<u8> {
        [&[0x19], &time.to_le_bytes()[..7]].concat()
    }

    /// Code of 64 bits from here on.
    pub(crate) fn mode_exec_64() -> Vec<u8> {
        vec![0x99, 0x01]
    }

    fn with_ip(code: u8, ip: u64) -> Vec<u8> {
        [&[FULL_IP | code][..], &ip.to_le_bytes()].concat()
    }

    /// Tracing begins at an address.
    pub(crate) fn tip_pge(ip: u64) -> Vec<u8> {
        with_ip(0x11, ip)
    }

    /// An indirect branch went there.
    pub(crate) fn tip(ip: u64) -> Vec<u8> {
        with_ip(0x0d, ip)
    }

    /// Tracing ends with a branch whose target is not told.
    pub(crate) fn tip_pgd() -> Vec<u8> {
        vec![0x01]
    }

    /// Conditional branches, oldest first: taken or not. At most six.
    pub(crate) fn tnt(taken: &[bool]) -> Vec<u8> {
        vec![taken.iter().fold(1, |bits, taken| bits << 1 | u8::from(*taken)) << 1]
    }
}

/// The first program, B, the second one where the first was, B.
fn trace() -> Vec<u8> {
    [
        packet::psb(),
        packet::tsc(FIRST),
        packet::psb_end(),
        packet::mode_exec_64(),
        packet::tip_pge(A),
        packet::tnt(&[true]),
        packet::tip(B),
        packet::tsc(SECOND),
        packet::tip(A),
        packet::tnt(&[false, true]),
        packet::tip(B),
        packet::tip_pgd(),
    ]
    .concat()
}

fn texts() -> (Timeline, Images) {
    let (mut timeline, mut images) = (Timeline::new(), Images::new());
    let mut change = |time, addr, name: &str, code: &[&[u8]], unregister| {
        let code = code.concat();
        let len = code.len() as u32;
        let name = name.as_bytes();
        let change = KsymChange { addr, len, name, ksym_type: KSYMBOL_BPF, unregister, origin: 1, loader: None };
        let text = timeline.apply(time, &change).unwrap();
        if !unregister {
            let id = images.insert(&code);
            timeline.image(text, Image { id, at: time + 1, way: Way::FreeTime, proven: true });
        }
    };
    change(10, B, "bpf_prog_3_target", CODE_B, false);
    change(20, A, "bpf_prog_1_first", CODE_1, false);
    change(REUSED, A, "bpf_prog_1_first", CODE_1, true);
    change(REUSED, A, "bpf_prog_2_second", CODE_2, false);
    (timeline, images)
}

/// The program beside this file, which links libipt.
fn decoder() -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/libipt.c");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("libipt-{}", std::process::id()));
    let built = Command::new("cc").args(["-Wall", "-Werror", "-o"]).arg(&program).arg(source).arg("-lipt").output();
    let built = built.unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    program
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What libipt made of the trace.
#[derive(Debug, Default, PartialEq, Eq)]
struct Decoded {
    /// Address and bytes of each instruction.
    instructions: Vec<(u64, String)>,
    /// Address and time of what was asked for.
    asked: Vec<(u64, u64)>,
    error: Option<String>,
}

/// Runs libipt over the trace. `bytes` answers its image callback: address, length and time.
fn decode(program: &Path, mut bytes: impl FnMut(u64, usize, u64) -> Vec<u8>) -> Decoded {
    let mut child =
        Command::new(program).arg(hex(&trace())).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut answers = child.stdin.take().unwrap();
    let mut decoded = Decoded::default();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["?", ip, size, time] => {
                let (ip, time) = (u64::from_str_radix(ip, 16).unwrap(), time.parse().unwrap());
                decoded.asked.push((ip, time));
                writeln!(answers, "{}", hex(&bytes(ip, size.parse().unwrap(), time))).unwrap();
            }
            ["=", ip, bytes] => decoded.instructions.push((u64::from_str_radix(ip, 16).unwrap(), bytes.into())),
            ["!", ..] => decoded.error = Some(line),
            _ => panic!("{line:?} is none of the decoder's lines"),
        }
    }
    assert!(child.wait().unwrap().success());
    decoded
}

/// Those instructions of a text that were run, each with its address.
fn run(start: u64, code: &[&[u8]], skipped: usize) -> Vec<(u64, String)> {
    let mut at = start;
    let mut all = Vec::new();
    for (i, instruction) in code.iter().enumerate() {
        if i != skipped {
            all.push((at, hex(instruction)));
        }
        at += instruction.len() as u64;
    }
    all
}

#[test]
fn libipt_follows_a_trace_over_an_address_that_is_used_again() {
    if !has("libipt_follows_a_trace_over_an_address_that_is_used_again", &[Need::Cc, Need::Libipt, Need::NoGuest]) {
        return;
    }
    let program = decoder();
    let (timeline, images) = texts();
    let of_its_time = |ip, len, time| match timeline.bytes(&images, ip, len, time) {
        Ok(bytes) => bytes,
        Err(missing) => missing.got,
    };
    let decoded = decode(&program, of_its_time);
    let whole = usize::MAX;
    let expected = [run(A, CODE_1, 3), run(B, CODE_B, whole), run(A, CODE_2, 5), run(B, CODE_B, whole)].concat();
    assert_eq!((decoded.instructions, decoded.error), (expected.clone(), None));
    assert!(decoded.asked.contains(&(A, FIRST)) && decoded.asked.contains(&(A, SECOND)), "{:?}", decoded.asked);
    // With the code of one time for the whole trace, one of the programs is decoded as the other one.
    for time in [FIRST, SECOND] {
        let wrong = decode(&program, |ip, len, _| of_its_time(ip, len, time));
        assert_ne!(wrong.instructions, expected, "code of {time}");
        assert!(wrong.error.is_some(), "the code of {time} goes with the whole trace: {wrong:?}");
    }
    std::fs::remove_file(program).unwrap();
}
