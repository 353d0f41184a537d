//! What a walk costs: `cargo run --release -p afterimage-unwind --example cost`.
//!
//! Stacks of 4 to 64 frames through functions of one file, in places that are known and in new ones.
#![allow(clippy::unwrap_used, reason = "an example")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::hint::black_box;
use std::time::Instant;

use afterimage_unwind::{Arch, StackCopy, Walker};
use common::{File, Function, RBX, RIP, RSP, eh_frame, function, only_frames, registers};
use gimli::write::CallFrameInstruction::{Cfa, Offset, Undefined};

fn main() {
    // Functions that save a register and take some words, as optimized code does.
    let rows = |words: i32| vec![(1, Cfa(RSP, 16)), (1, Offset(RBX, -16)), (8, Cfa(RSP, 16 + 8 * words))];
    let mut functions: Vec<Function> = (0..200).map(|nth| function(0x1000 + 0x100 * nth, rows(3))).collect();
    functions.push(function(0xe000, vec![(0, Undefined(RIP))]));
    let bytes = eh_frame(Arch::X86_64, &functions);
    for depth in [4, 16, 64] {
        let mut words: Vec<u64> = Vec::new();
        (1..depth).for_each(|frame| words.extend([1, 2, 3, 4, 0x1010 + 0x100 * frame]));
        words.extend([1, 2, 3, 4, 0xe010]);
        let stack: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let start = registers(0x1010, 1, 2, 3);
        let copy = StackCopy { start: start.sp(), bytes: &stack };
        let mut walker = Walker::new();
        let mut time = |walks: u32, fresh: bool| {
            let mut file = File::new(Arch::X86_64, only_frames(bytes.clone()));
            let (mut frames, mut spent) = (0_usize, std::time::Duration::ZERO);
            for _ in 0..walks {
                if fresh {
                    file = File::new(Arch::X86_64, only_frames(bytes.clone()));
                }
                let began = Instant::now();
                walker.walk(&start, &copy, &mut file, |address| frames += usize::from(black_box(address) != 0));
                spent += began.elapsed();
            }
            assert_eq!(frames, (depth as usize + 1) * walks as usize);
            spent.as_nanos() as f64 / f64::from(walks)
        };
        let (known, new) = (time(200_000, false), time(200, true));
        println!("{} frames: {known:.0} ns a stack in known places, {new:.0} ns in new ones", depth + 1);
    }
}
