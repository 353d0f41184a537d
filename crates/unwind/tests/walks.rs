//! Stacks of made-up functions: each form of frame, and each end.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::cell::Cell;
use std::rc::Rc;

use afterimage_unwind::{Arch, Code, Registers, Section, Sections, StackEnd};
use common::File;
use common::{Function, R10, RBP, RBX, RIP, RSP, SP, debug_frame, eh_frame, function, only_frames, registers, walked};
use gimli::Register;
use gimli::write::CallFrameInstruction::{
    Cfa, CfaExpression, CfaRegister, Expression as At, Offset, SameValue, Undefined, ValExpression,
};
use gimli::write::Expression;

/// A function with so many words of its own from its 4th byte on.
fn with_words(start: u64, words: i32) -> Function {
    function(start, vec![(4, Cfa(RSP, 8 * (words + 1)))])
}

/// The outermost function: nothing called it.
fn outermost(start: u64) -> Function {
    function(start, vec![(0, Undefined(RIP))])
}

#[test]
fn frames_without_frame_pointers() {
    let mut file = File::of(&[with_words(0x1000, 2), with_words(0x2000, 1), outermost(0x3000)]);
    let stack = [11, 12, 0x2010, 21, 0x3010];
    let whole = (vec![0x1010, 0x200f, 0x300f], StackEnd::Complete);
    assert_eq!(walked(&mut file, &registers(0x1010, 1, 2, 3), &stack), whole);
    // Before the words are taken.
    let early = walked(&mut file, &registers(0x1002, 1, 2, 3), &stack[2..]);
    assert_eq!(early, (vec![0x1002, 0x200f, 0x300f], StackEnd::Complete));
}

#[test]
fn each_end_has_its_reason() {
    let mut file = File::of(&[with_words(0x1000, 2), with_words(0x2000, 1), outermost(0x3000)]);
    let start = registers(0x1010, 1, 2, 3);
    let end = |file: &mut File, stack: &[u64]| walked(file, &start, stack);
    assert_eq!(end(&mut file, &[11, 12]), (vec![0x1010], StackEnd::Truncated));
    assert_eq!(end(&mut file, &[11, 12, 0x2010, 21]), (vec![0x1010, 0x200f], StackEnd::Truncated));
    assert_eq!(end(&mut file, &[11, 12, 0x50_0000]), (vec![0x1010, 0x4f_ffff], StackEnd::NoMapping));
    assert_eq!(end(&mut file, &[11, 12, 0]), (vec![0x1010], StackEnd::Complete));
    // Code that no entry covers, and a frame pointer that leads nowhere.
    assert_eq!(end(&mut file, &[11, 12, 0x8000]), (vec![0x1010, 0x7fff], StackEnd::NoTables));
    // A frame by a register that the sample does not have.
    let lost = vec![(4, Cfa(Register(12), 8))];
    let mut file = File::of(&[function(0x1000, lost)]);
    assert_eq!(end(&mut file, &[0; 4]), (vec![0x1010], StackEnd::BadFrame));
    // One that does not get anywhere.
    let mut file = File::of(&[function(0x1000, vec![(4, Cfa(RSP, 0)), (4, SameValue(RBP)), (4, Offset(RIP, 0))])]);
    assert_eq!(end(&mut file, &[0x1010, 0]), (vec![0x1010], StackEnd::BadFrame));
    // A loop that moves up, and one that ends only with the count.
    let mut file = File::of(&[with_words(0x1000, 0)]);
    let (frames, end) = walked(&mut file, &start, &vec![0x1010; 5000]);
    assert_eq!((frames.len(), end), (4096, StackEnd::TooDeep));
}

/// Whatever tables say: they cannot lead round and round in the copied stack.
#[test]
fn tables_that_lead_down_the_stack_end_a_walk() {
    // One function leads up 101 words to the other, which leads down 101 words to the first.
    let down = function(0x2000, vec![(4, Cfa(RSP, -808)), (4, Offset(RIP, 0))]);
    let mut file = File::of(&[with_words(0x1000, 100), down]);
    let mut stack = vec![0; 200];
    (stack[0], stack[100]) = (0x1010, 0x2010);
    let start = registers(0x1010, 1, 2, 3);
    assert_eq!(walked(&mut file, &start, &stack), (vec![0x1010, 0x200f], StackEnd::Downwards));
    // A frame that called another one has something on the stack.
    let level = function(0x2000, vec![(4, Cfa(RSP, 0)), (4, Offset(RIP, 0))]);
    let mut file = File::of(&[with_words(0x1000, 1), level]);
    assert_eq!(walked(&mut file, &start, &[0, 0x2010, 0x1010]), (vec![0x1010, 0x200f], StackEnd::Downwards));
    // One that nothing was called from yet may have its return address in a register, as the C library's vfork does.
    let moved = gimli::write::CallFrameInstruction::Register(RIP, RBX);
    let mut file =
        File::of(&[function(0x1000, vec![(0, Cfa(RSP, 0)), (0, moved)]), with_words(0x2000, 1), outermost(0x3000)]);
    let whole = (vec![0x1010, 0x200f, 0x300f], StackEnd::Complete);
    assert_eq!(walked(&mut file, &registers(0x1010, 1, 0x2010, 3), &[7, 0x3010]), whole);
    // Where the caller's stack is stands behind the end of the copy.
    let lost = function(0x2000, vec![(4, Cfa(RSP, 16)), (4, Offset(RSP, 800))]);
    let mut file = File::of(&[with_words(0x1000, 0), lost, with_words(0x3000, 0)]);
    assert_eq!(walked(&mut file, &start, &[0x2010, 0, 0x3010]), (vec![0x1010, 0x200f], StackEnd::BadFrame));
}

/// A handler's stack may lie above the one that was interrupted, of which nothing was copied: its function is told, and no more.
#[test]
fn a_handler_on_a_stack_of_its_own_may_lie_above() {
    let mut restorer = function(0x4000 - 1, Vec::new());
    restorer.signal = true;
    let constant = |value: u64| {
        let mut expression = Expression::new();
        expression.op_constu(value);
        expression
    };
    restorer.rows = vec![(0, Cfa(RSP, -64)), (0, ValExpression(RIP, constant(0x2010)))];
    let functions = [with_words(0x1000, 0), restorer, with_words(0x2000, 1)];
    let start = registers(0x1010, 1, 2, 3);
    let found = walked(&mut File::of(&functions), &start, &[0x4000, 0, 0]);
    assert_eq!(found, (vec![0x1010, 0x4000, 0x2010], StackEnd::BadFrame));
    // Not twice, or tables could go on with it.
    let [first, mut restorer, _] = functions;
    restorer.rows[1].1 = ValExpression(RIP, constant(0x4010));
    let found = walked(&mut File::of(&[first, restorer]), &start, &[0x4000, 0, 0]);
    assert_eq!(found, (vec![0x1010, 0x4000, 0x4010], StackEnd::Downwards));
}

/// Reading code means reading a file.
#[test]
fn code_is_read_only_where_it_may_be_what_handlers_return_to() {
    struct Counted(Rc<Cell<u32>>);
    impl Code for Counted {
        fn read(&self, _: u64, _: &mut [u8]) -> bool {
            self.0.set(self.0.get() + 1);
            false
        }
    }
    let functions = [with_words(0x1000, 2), with_words(0x2000, 1), outermost(0x3000)];
    for (returns, frame, reads) in [(0x3010, 0x300f, 0), (0x3100, 0x30ff, 1), (0x8000, 0x7fff, 1)] {
        let count = Rc::new(Cell::new(0));
        let sections = only_frames(eh_frame(Arch::X86_64, &functions));
        let mut file = File::with_code(Arch::X86_64, sections, Counted(count.clone()));
        for _ in 0..2 {
            let found = walked(&mut file, &registers(0x1010, 1, 2, 3), &[11, 12, 0x2010, 21, returns]);
            assert_eq!(found.0, [0x1010, 0x200f, frame]);
        }
        assert_eq!(count.get(), reads, "{returns:#x}");
    }
}

#[test]
fn what_lacks_tables_that_were_left_out_says_so() {
    let sections = Sections { left_out: true, ..only_frames(eh_frame(Arch::X86_64, &[with_words(0x1000, 0)])) };
    let mut file = File::new(Arch::X86_64, sections);
    let found = walked(&mut file, &registers(0x1010, 1, 2, 3), &[0x8010]);
    assert_eq!(found, (vec![0x1010, 0x800f], StackEnd::LeftOut));
    // What ends for another reason does not.
    assert_eq!(walked(&mut file, &registers(0x1010, 1, 2, 3), &[]).1, StackEnd::Truncated);
}

#[test]
fn registers_that_callees_saved_are_followed() {
    // The inner function saves rbx, the outer keeps its frame in it.
    let inner = function(0x1000, vec![(1, Cfa(RSP, 16)), (1, Offset(RBX, -16))]);
    let outer = function(0x2000, vec![(4, CfaRegister(RBX)), (4, Cfa(RBX, 16))]);
    let mut file = File::of(&[inner, outer, outermost(0x3000)]);
    // rbx of the inner function is its own: the outer one's is on the stack.
    let stack = [SP + 32, 0x2010, 1, 2, 3, 0x3010];
    let found = walked(&mut file, &registers(0x1010, 1, 0xdead, 3), &stack);
    assert_eq!(found, (vec![0x1010, 0x200f, 0x300f], StackEnd::Complete));
}

/// What gcc writes of a function that aligns its stack: the frame is at an address that lies on it.
#[test]
fn expressions_read_the_copied_stack() {
    let mut stored = Expression::new();
    stored.op_breg(RBP, -8);
    stored.op_deref();
    let rows = vec![(2, Cfa(R10, 0)), (8, CfaExpression(stored))];
    let mut file = File::of(&[function(0x1000, rows), outermost(0x3000)]);
    let stack = [7, SP + 48, 0, 0, 0, 0x3010];
    let bp = SP + 16;
    assert_eq!(walked(&mut file, &registers(0x1010, bp, 2, 3), &stack).0, [0x1010, 0x300f]);
    // While r10 still holds it.
    assert_eq!(walked(&mut file, &registers(0x1004, 1, 2, SP + 48), &stack).0, [0x1004, 0x300f]);
    // The address of its place, and then a frame beyond the copy.
    let beyond = [7, SP + 4096, 0];
    assert_eq!(walked(&mut file, &registers(0x1010, bp, 2, 3), &beyond), (vec![0x1010], StackEnd::Truncated));
}

#[test]
fn register_rules_by_expression_begin_with_the_frame() {
    // The caller's rbp is the frame less 8, the return address is at the frame less 16.
    let minus = |by: u64| {
        let mut expression = Expression::new();
        expression.op_constu(by);
        expression.op(gimli::DW_OP_minus);
        expression
    };
    let rows = vec![(0, Cfa(RSP, 32)), (0, ValExpression(RBP, minus(8))), (0, At(RIP, minus(16)))];
    let next = function(0x2000, vec![(0, Cfa(RBP, 16))]);
    let mut file = File::of(&[function(0x1000, rows), next, outermost(0x3000)]);
    // The frame is at 32, so rbp is 24, and its frame at 40: the word before that.
    let stack = [1, 2, 0x2010, 4, 0x3010, 6];
    assert_eq!(walked(&mut file, &registers(0x1010, 9, 2, 3), &stack).0, [0x1010, 0x200f, 0x300f]);
}

#[test]
fn code_without_an_entry_goes_by_its_frame_pointer() {
    let mut file = File::of(&[with_words(0x1000, 0), with_words(0x3000, 1)]);
    // 0x8000 has no entry: its rbp leads to the caller's and the return address.
    let stack = [0x8010, 5, 0, 0x3010, 7, 0];
    let found = walked(&mut file, &registers(0x1010, SP + 16, 2, 3), &stack);
    assert_eq!(found, (vec![0x1010, 0x800f, 0x300f], StackEnd::Complete));
    // The outermost frame has a frame pointer of 0.
    assert_eq!(walked(&mut file, &registers(0x8010, 0, 2, 3), &stack), (vec![0x8010], StackEnd::Complete));
    // One that is no frame's: below the stack pointer, far above.
    for bp in [SP - 8, SP + 0x10_0000] {
        assert_eq!(walked(&mut file, &registers(0x8010, bp, 2, 3), &stack), (vec![0x8010], StackEnd::NoTables));
    }
}

/// The layout of `struct ucontext` on x86-64.
fn context(ip: u64, sp: u64, bp: u64) -> Vec<u64> {
    let mut words = vec![0xbad; 30];
    (words[15], words[20], words[21]) = (bp, sp, ip);
    words
}

#[test]
fn a_signal_handler_returns_to_where_the_kernel_came_from() {
    // As in the C library: the context is at the stack pointer when the handler has returned.
    let mut restorer = function(0x4000 - 1, Vec::new());
    restorer.signal = true;
    let at = |offset: i64| {
        let mut expression = Expression::new();
        expression.op_breg(RSP, offset);
        expression
    };
    let mut frame = at(160);
    frame.op_deref();
    restorer.rows = vec![(0, CfaExpression(frame)), (0, At(RBP, at(120))), (0, At(RIP, at(168)))];
    let functions = [with_words(0x1000, 0), restorer, with_words(0x2000, 1), outermost(0x3000)];
    let mut stack = vec![0x4000];
    stack.extend(context(0x2010, SP + 8 * 31, 77));
    stack.extend([21, 0x3010]);
    let start = registers(0x1010, 1, 2, 3);
    // The interrupted function goes on at its very address, which no call stands before.
    let whole = (vec![0x1010, 0x4000, 0x2010, 0x300f], StackEnd::Complete);
    assert_eq!(walked(&mut File::of(&functions), &start, &stack), whole);

    // Where there are no tables of that code, the code itself tells.
    struct Restorer;
    impl Code for Restorer {
        fn read(&self, address: u64, to: &mut [u8]) -> bool {
            to.copy_from_slice(&[0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05][..to.len()]);
            address == 0x4000
        }
    }
    let functions = [with_words(0x1000, 0), with_words(0x2000, 1), outermost(0x3000)];
    let sections = only_frames(eh_frame(Arch::X86_64, &functions));
    let mut file = File::with_code(Arch::X86_64, sections, Restorer);
    assert_eq!(walked(&mut file, &start, &stack), whole);
}

#[test]
fn debug_frame_is_asked_where_eh_frame_knows_nothing() {
    let frames = eh_frame(Arch::X86_64, &[with_words(0x1000, 1)]);
    let debug = debug_frame(Arch::X86_64, &[with_words(0x2000, 2), outermost(0x3000)]);
    let sections = Sections { debug_frame: Some(debug), ..only_frames(frames) };
    let mut file = File::new(Arch::X86_64, sections);
    let stack = [1, 0x2010, 2, 3, 0x3010];
    let found = walked(&mut file, &registers(0x1010, 1, 2, 3), &stack);
    assert_eq!(found, (vec![0x1010, 0x200f, 0x300f], StackEnd::Complete));
}

#[test]
fn the_header_finds_what_reading_all_finds() {
    let functions: Vec<Function> = (1..200).map(|nth| with_words(0x1000 + 0x100 * nth, (nth % 7) as i32)).collect();
    let bytes = eh_frame(Arch::X86_64, &functions);
    // Entries follow each other, and each begins with its own length; the first is that of the common part.
    let mut header = vec![1, 0x1b, 0x03, 0x3b];
    header.extend(0x7ffc_i32.to_le_bytes());
    header.extend(199_u32.to_le_bytes());
    let (mut at, mut nth) = (0, 0);
    while at + 8 <= bytes.len() {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        if word(at + 4) != 0 {
            header.extend((functions[nth].start as i32 - 0x1_8000).to_le_bytes());
            header.extend((0x8000 + at as i32).to_le_bytes());
            nth += 1;
        }
        at += 4 + word(at) as usize;
    }
    assert_eq!(nth, 199);
    let with =
        Sections { eh_frame_hdr: Some(Section { address: 0x1_8000, bytes: header }), ..only_frames(bytes.clone()) };
    let (mut with, mut without) = (File::new(Arch::X86_64, with), File::new(Arch::X86_64, only_frames(bytes)));
    let stack: Vec<u64> = (0..64).map(|nth| 0x1104 + 0x3b0 * nth % 0xc000).collect();
    let mut longest = 0;
    for ip in (0x1000..0xd000).step_by(0x35) {
        let start = registers(ip, 1, 2, 3);
        let found = walked(&mut with, &start, &stack);
        longest = longest.max(found.0.len());
        assert_eq!(found, walked(&mut without, &start, &stack), "{ip:#x}");
    }
    assert!(longest > 5, "{longest}");
}

#[test]
fn frames_of_arm() {
    let (fp, lr, sp) = (Register(29), Register(30), Register(31));
    let rows = |words: i32| vec![(4, Cfa(sp, 8 * words)), (4, Offset(fp, -8 * words)), (4, Offset(lr, -8 * words + 8))];
    let functions = [function(0x1000, Vec::new()), function(0x2000, rows(4)), function(0x3000, Vec::new())];
    let sections = only_frames(eh_frame(Arch::Aarch64, &functions));
    let mut file = File::new(Arch::Aarch64, sections);
    let registers = |pc: u64, lr: u64| {
        let mask = 1 << 29 | 1 << 30 | 1 << 31 | 1 << 32;
        Registers::of_sample(Arch::Aarch64, mask, [5, lr, SP, pc]).unwrap()
    };
    // A leaf has its return address in the link register; that of the next is signed. A frame that called another one and
    // has its return address nowhere is the outermost.
    let stack = [9, 0x7f80_0000_0000_3010 | 0xaa << 56, 1, 2, 3];
    let found = walked(&mut file, &registers(0x1010, 0x2010), &stack);
    assert_eq!(found.0[..2], [0x1010, 0x200f]);
    assert_eq!(found, (vec![0x1010, 0x200f, 0x300f], StackEnd::Complete));
}

#[test]
fn a_signal_on_arm_leads_to_the_interrupted_function() {
    let (fp, lr) = (Register(29), Register(30));
    let mut restorer = function(0x4000 - 4, vec![(0, Cfa(fp, 0)), (0, Offset(fp, 0)), (0, Offset(lr, 8))]);
    restorer.signal = true;
    let functions = [function(0x1000, Vec::new()), restorer, function(0x2000, Vec::new())];
    let mut file = File::new(Arch::Aarch64, only_frames(eh_frame(Arch::Aarch64, &functions)));
    let mask = 1 << 29 | 1 << 30 | 1 << 31 | 1 << 32;
    let start = Registers::of_sample(Arch::Aarch64, mask, [5, 0x4000, SP, 0x1010]).unwrap();
    // siginfo and ucontext: x0 at 312, x30 at 552, sp at 560, pc at 568.
    let mut stack = vec![0; 80];
    (stack[69], stack[70], stack[71]) = (0x2050, SP + 600, 0x2010);
    let found = walked(&mut file, &start, &stack);
    // A leaf was interrupted: its caller is in its link register, and here calls itself the same.
    assert_eq!(found.0[..4], [0x1010, 0x4000, 0x2010, 0x204f]);
}
