//! Bytes of any kind: no panic, an end.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use afterimage_unwind::{Arch, fuzzing};
use common::{RBP, RBX, RIP, RSP, eh_frame, function};
use gimli::write::CallFrameInstruction::{Cfa, CfaRegister, Offset, RememberState, RestoreState, Undefined};
use proptest::prelude::*;

/// An input of the fuzz target: right tables, and a stack that they walk.
fn right(flags: u8) -> Vec<u8> {
    let arch = if flags & 1 == 0 { Arch::X86_64 } else { Arch::Aarch64 };
    let functions = [
        function(0x1000, vec![(1, Cfa(RSP, 16)), (1, Offset(RBX, -16)), (3, RememberState), (8, Cfa(RSP, 8))]),
        function(0x2000, vec![(1, RememberState), (4, Cfa(RBP, 16)), (4, Offset(RBP, -16)), (90, RestoreState)]),
        function(0x3000, vec![(0, CfaRegister(RBP)), (4, Undefined(RIP))]),
    ];
    let frames = eh_frame(arch, &functions);
    let mut input = vec![flags];
    [frames.len() as u16, 0, 0].iter().for_each(|len| input.extend(len.to_le_bytes()));
    let count = if flags & 1 == 0 { 24 } else { 33 };
    let registers = (0..count).map(|nth| match nth {
        6 => 0x7fff_0020_u64,
        7 | 31 => 0x7fff_0000,
        8 | 32 => 0x1004,
        _ => 0x2010 + nth,
    });
    registers.for_each(|value| input.extend(value.to_le_bytes()));
    input.extend(frames);
    for word in [1_u64, 0x2010, 3, 4, 0x7fff_0040, 0x2018, 7, 8, 0, 0x3010, 1, 2] {
        input.extend(word.to_le_bytes());
    }
    input
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn flipped_and_cut(
        flags in 0..8_u8,
        flips in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..12),
        cut in any::<proptest::sample::Index>(),
        whole in any::<bool>(),
    ) {
        let mut input = right(flags);
        for (index, value) in flips {
            let at = index.index(input.len());
            input[at] = value;
        }
        if !whole {
            input.truncate(cut.index(input.len()));
        }
        fuzzing::walk(&input);
    }

    #[test]
    fn any_bytes(input in proptest::collection::vec(any::<u8>(), 0..1200)) {
        fuzzing::walk(&input);
    }
}
