//! Replays the corpus of the fuzz target, and keeps the seeds in it: with `AFTERIMAGE_BLESS` set, the seeds are written
//! anew.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use afterimage_unwind::{Arch, fuzzing};
use common::{RBP, RBX, RIP, RSP, SP, debug_frame, eh_frame, function};
use gimli::Register;
use gimli::write::CallFrameInstruction::{Cfa, CfaExpression, Expression as At, Offset, Undefined};
use gimli::write::Expression;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/walk")
}

#[test]
fn replay() {
    let mut inputs = 0;
    for entry in fs::read_dir(folder()).unwrap() {
        fuzzing::walk(&fs::read(entry.unwrap().path()).unwrap());
        inputs += 1;
    }
    assert!(inputs >= 4, "{inputs} inputs");
}

fn input(flags: u8, sections: [&[u8]; 3], pc: u64, stack: &[u64]) -> Vec<u8> {
    let mut out = vec![flags];
    sections.iter().for_each(|section| out.extend((section.len() as u16).to_le_bytes()));
    let (count, at) = if flags & 1 == 0 { (24, [7, 8]) } else { (33, [31, 32]) };
    let values = (0..count).map(|nth| {
        if nth == at[0] {
            SP
        } else if nth == at[1] {
            pc
        } else {
            SP + 8 * nth
        }
    });
    values.for_each(|value| out.extend(value.to_le_bytes()));
    sections.iter().for_each(|section| out.extend_from_slice(section));
    stack.iter().for_each(|word| out.extend(word.to_le_bytes()));
    out
}

fn header(frames: &[u8], starts: &[u64]) -> Vec<u8> {
    let [frames_at, header_at] = fuzzing::PLACES;
    let mut out = vec![1, 0x1b, 0x03, 0x3b];
    out.extend(((frames_at - header_at - 4) as i32).to_le_bytes());
    out.extend((starts.len() as u32).to_le_bytes());
    let (mut at, mut starts) = (0, starts.iter());
    while at + 8 <= frames.len() {
        let word = |at: usize| u32::from_le_bytes(frames[at..at + 4].try_into().unwrap());
        if word(at + 4) != 0 {
            out.extend((*starts.next().unwrap() as i32 - header_at as i32).to_le_bytes());
            out.extend(((frames_at - header_at) as i32 + at as i32).to_le_bytes());
        }
        at += 4 + word(at) as usize;
    }
    out
}

fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let mut stored = Expression::new();
    stored.op_breg(RBP, -8);
    stored.op_deref();
    let mut above = Expression::new();
    above.op_breg(RSP, 16);
    let plain = [
        function(0x1000, vec![(1, Cfa(RSP, 16)), (1, Offset(RBX, -16))]),
        function(0x2000, vec![(1, Cfa(RSP, 24))]),
        function(0x3000, vec![(0, Undefined(RIP))]),
    ];
    let odd = [
        function(0x1000, vec![(0, CfaExpression(stored)), (0, At(RBX, above))]),
        function(0x2000, vec![(1, Cfa(RBP, 16)), (1, Offset(RBP, -16))]),
    ];
    let (fp, lr, sp) = (Register(29), Register(30), Register(31));
    let arm = [
        function(0x1000, Vec::new()),
        function(0x2000, vec![(4, Cfa(sp, 16)), (4, Offset(fp, -16)), (4, Offset(lr, -8))]),
    ];
    let stack = [1, 0x2010, 3, 4, 0x3010, 6, 0x1010, 0x2010, 9, 0x2018];
    let frames = eh_frame(Arch::X86_64, &plain);
    let header = header(&frames, &[0x1000, 0x2000, 0x3000]);
    let debug = debug_frame(Arch::X86_64, &plain);
    vec![
        ("seed-plain", input(0, [&frames, &[], &[]], 0x1010, &stack)),
        ("seed-header", input(2, [&frames, &header, &[]], 0x1010, &stack)),
        ("seed-debug", input(0, [&[], &[], &debug], 0x1010, &stack)),
        ("seed-expressions", input(0, [&eh_frame(Arch::X86_64, &odd), &[], &[]], 0x1010, &stack)),
        ("seed-signal", input(4, [&frames, &[], &[]], 0x1010, &[stack, stack, stack].concat())),
        ("seed-arm", input(1, [&eh_frame(Arch::Aarch64, &arm), &[], &[]], 0x1010, &stack)),
    ]
}

#[test]
fn the_seeds_are_those_of_this_form() {
    for (name, bytes) in seeds() {
        let path = folder().join(name);
        if std::env::var_os("AFTERIMAGE_BLESS").is_some() {
            fs::write(&path, &bytes).unwrap();
        }
        assert!(fs::read(&path).expect(name) == bytes, "{name}: AFTERIMAGE_BLESS=1 writes it anew");
    }
}
