//! The bytes of text at a time: address reuse, neighbours, changes in place, and why they may be missing.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use afterimage_kernel_text::{
    Image, Images, KSYMBOL_BPF, KSYMBOL_OUT_OF_LINE, KsymChange, Missing, Seen, TextId, TextKind, Timeline, Way, Why,
};
use proptest::prelude::*;

const A: u64 = 0xffff_ffff_c000_1000;

struct Machine {
    timeline: Timeline,
    images: Images,
}

impl Machine {
    fn new() -> Machine {
        Machine { timeline: Timeline::new(), images: Images::new() }
    }

    fn change(&mut self, time: u64, addr: u64, len: u32, name: &str, ksym_type: u16, unregister: bool) -> TextId {
        let change = KsymChange { addr, len, name: name.as_bytes(), ksym_type, unregister, origin: 1, loader: None };
        self.timeline.apply(time, &change).unwrap()
    }

    fn program(&mut self, time: u64, addr: u64, name: &str, code: &[u8], read: u64) -> TextId {
        let text = self.change(time, addr, code.len() as u32, name, KSYMBOL_BPF, false);
        self.image(text, code, read);
        text
    }

    fn image(&mut self, text: TextId, code: &[u8], at: u64) {
        let id = self.images.insert(code);
        self.timeline.image(text, Image { id, at, way: Way::FreeTime, proven: true });
    }

    fn bytes(&self, addr: u64, len: usize, time: u64) -> Result<Vec<u8>, Missing> {
        self.timeline.bytes(&self.images, addr, len, time)
    }

    fn why(&self, addr: u64, len: usize, time: u64) -> (u64, Why, usize) {
        let missing = self.bytes(addr, len, time).unwrap_err();
        (missing.at, missing.why, missing.got.len())
    }
}

/// Instructions of a made-up machine: the first byte says how long it is; `0x80 | n` ends a function.
fn code(lengths: &[u8], fill: u8) -> Vec<u8> {
    let mut code: Vec<u8> =
        lengths.iter().flat_map(|n| std::iter::once(*n).chain(vec![fill; usize::from(*n) - 1])).collect();
    code.push(0x81);
    code
}

/// What a decoder of a trace does: it asks for as many bytes as the longest instruction has, and takes what there is.
fn decode(machine: &Machine, mut ip: u64, time: u64) -> Result<Vec<Vec<u8>>, Missing> {
    let mut instructions = Vec::new();
    loop {
        let bytes = match machine.bytes(ip, 15, time) {
            Ok(bytes) => bytes,
            Err(missing) if !missing.got.is_empty() => missing.got,
            Err(missing) => return Err(missing),
        };
        let len = usize::from(bytes[0] & 0x7f);
        instructions.push(bytes[..len].to_vec());
        if bytes[0] & 0x80 != 0 {
            return Ok(instructions);
        }
        ip += len as u64;
    }
}

#[test]
fn a_decoder_follows_a_trace_over_an_address_that_is_used_again() {
    let mut m = Machine::new();
    let (first, second) = (code(&[3, 5, 15, 2], 0xaa), code(&[4, 4, 9, 1, 1, 6], 0xbb));
    m.program(10, A, "bpf_prog_1_first", &first, 20);
    m.change(20, A, first.len() as u32, "bpf_prog_1_first", KSYMBOL_BPF, true);
    m.program(20, A, "bpf_prog_2_second", &second, 35);
    m.change(30, A, second.len() as u32, "bpf_prog_2_second", KSYMBOL_BPF, true);
    // The branches of the trace: when, and where to.
    let lengths = |time| -> Vec<usize> { decode(&m, A, time).unwrap().iter().map(Vec::len).collect() };
    assert_eq!(lengths(10), [3, 5, 15, 2, 1]);
    assert_eq!(lengths(19), [3, 5, 15, 2, 1]);
    assert_eq!(lengths(20), [4, 4, 9, 1, 1, 6, 1]);
    assert_eq!(lengths(29), [4, 4, 9, 1, 1, 6, 1]);
    assert_eq!(decode(&m, A, 30).unwrap_err().why, Why::NoText);
    // A decoder that takes the last text of an address for the text of all times reads the first trace wrong.
    assert_ne!(lengths(10), lengths(29));
}

#[test]
fn neighbours_are_read_across_and_gaps_are_not() {
    let mut m = Machine::new();
    m.program(10, A, "bpf_prog_1_a", &[1; 64], 11);
    m.program(10, A + 64, "bpf_prog_2_b", &[2; 64], 11);
    m.program(10, A + 192, "bpf_prog_3_c", &[3; 64], 11);
    assert_eq!(m.bytes(A + 60, 8, 10).unwrap(), [1, 1, 1, 1, 2, 2, 2, 2]);
    assert_eq!(m.bytes(A, 128, 10).unwrap().len(), 128);
    assert_eq!(m.why(A + 120, 16, 10), (A + 128, Why::NoText, 8));
    assert_eq!(m.why(A - 1, 16, 10), (A - 1, Why::NoText, 0));
    assert_eq!(m.why(u64::MAX - 2, 16, 10).1, Why::NoText);
    assert_eq!(m.bytes(A, 0, 10), Ok(Vec::new()));
}

#[test]
fn a_trampoline_has_the_bytes_of_its_true_length() {
    let mut m = Machine::new();
    let trampoline = m.change(10, A, 4096, "bpf_trampoline_1", KSYMBOL_BPF, false);
    m.program(11, A + 320, "bpf_prog_1_a", &[1; 64], 12);
    assert_eq!(m.why(A, 8, 15), (A, Why::NoImage(None), 0));
    m.timeline.missing(trampoline, "ring full");
    assert_eq!(m.why(A, 8, 15).1, Why::NoImage(Some("ring full".into())));
    m.image(trampoline, &[7; 300], 20);
    assert_eq!(m.why(A + 296, 8, 15), (A + 300, Why::OutsideImage, 4));
    let seen = Seen {
        addr: A,
        len: 300,
        name: b"bpf_trampoline_1",
        kind: TextKind::Trampoline,
        tag: None,
        id: None,
        function: None,
        loader: None,
    };
    assert_eq!(m.timeline.freed(20, &seen), Some(trampoline));
    assert_eq!(m.why(A + 296, 8, 15), (A + 300, Why::NoText, 4));
    assert_eq!(m.bytes(A + 320, 4, 15).unwrap(), [1; 4]);
    assert_eq!(m.why(A, 8, 20).1, Why::NoText);
}

#[test]
fn changes_in_place_hold_from_their_time_on() {
    let mut m = Machine::new();
    m.program(10, A, "bpf_prog_1_a", &[1, 2, 3, 4, 5, 6, 7, 8], 50);
    // Before and after the image was read.
    m.timeline.poke(30, A + 2, &[0xe9, 0xe9], &[3, 4]);
    m.timeline.poke(70, A + 3, &[4, 5, 6], &[0xcc, 0xcc, 0xcc]);
    m.timeline.poke(75, A + 4, &[0xcc], &[0x55]);
    // Of a text that was there before.
    m.timeline.poke(5, A + 6, &[7], &[0x77]);
    assert_eq!(m.bytes(A, 8, 20).unwrap(), [1, 2, 0xe9, 0xe9, 5, 6, 7, 8]);
    assert_eq!(m.bytes(A, 8, 30).unwrap(), [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(m.bytes(A, 8, 70).unwrap(), [1, 2, 3, 0xcc, 0xcc, 0xcc, 7, 8]);
    assert_eq!(m.bytes(A, 8, 80).unwrap(), [1, 2, 3, 0xcc, 0x55, 0xcc, 7, 8]);
    assert_eq!(m.bytes(A + 4, 1, 80).unwrap(), [0x55]);
}

/// Slots of kprobes: the page is registered empty, and records tell what is written into it and out of it again.
#[test]
fn slots_are_known_by_their_changes() {
    let mut m = Machine::new();
    m.change(10, A, 4096, "kprobe_insn_page", KSYMBOL_OUT_OF_LINE, false);
    m.timeline.poke(20, A + 16, &[], &[0x90, 0x90, 0xe9]);
    m.timeline.poke(30, A + 16, &[0x90, 0x90, 0xe9], &[]);
    m.timeline.poke(40, A + 16, &[], &[0xc3]);
    assert_eq!(m.why(A + 16, 3, 15).1, Why::Changed, "the record says that nothing is known of it before");
    assert_eq!(m.bytes(A + 16, 3, 20).unwrap(), [0x90, 0x90, 0xe9]);
    assert_eq!(m.why(A + 16, 3, 35), (A + 16, Why::Changed, 0));
    assert_eq!(m.bytes(A + 16, 1, 45).unwrap(), [0xc3]);
    assert_eq!(m.why(A + 19, 1, 20).1, Why::NoImage(None));
}

/// What a record tells of the bytes before a change was there until then.
#[test]
fn the_old_bytes_of_a_later_change_are_known_too() {
    let mut m = Machine::new();
    m.change(10, A, 64, "bpf_prog_1_a", KSYMBOL_BPF, false);
    m.timeline.poke(30, A, &[1, 2], &[3, 4]);
    m.timeline.poke(40, A, &[3], &[5]);
    assert_eq!(m.bytes(A, 2, 20).unwrap(), [1, 2]);
    assert_eq!(m.bytes(A, 2, 30).unwrap(), [3, 4]);
    assert_eq!(m.bytes(A, 2, 40).unwrap(), [5, 4]);
}

#[test]
fn an_image_that_was_not_kept_is_told() {
    let mut m = Machine::new();
    m.program(10, A, "bpf_prog_1_a", &[1; 8], 50);
    let id = m.timeline.texts().next().unwrap().1.images[0].id;
    assert_eq!(m.images.bytes_held(), 8);
    m.images.remove(id);
    assert_eq!((m.images.bytes_held(), m.why(A, 1, 20).1), (0, Why::ImageNotKept));
    let told = m.bytes(A, 1, 20).unwrap_err().to_string();
    assert_eq!(told, "no bytes at 0xffffffffc0001000: the text's image is not in the recording");
}

proptest! {
    /// A text that is changed again and again, its image read at any time: the bytes of every time are right.
    #[test]
    fn equals_the_memory_itself(
        pokes in prop::collection::vec((0usize..30, prop::collection::vec(any::<u8>(), 1..6)), 0..12),
        read in 0usize..13,
    ) {
        let mut memory = (0..40).collect::<Vec<u8>>();
        let mut m = Machine::new();
        let text = m.change(5, A, 40, "bpf_prog_1_a", KSYMBOL_BPF, false);
        let mut states = vec![memory.clone()];
        for (i, (at, new)) in pokes.iter().enumerate() {
            let old = memory[*at..at + new.len()].to_vec();
            memory[*at..at + new.len()].copy_from_slice(new);
            m.timeline.poke(20 + 10 * i as u64, A + *at as u64, &old, new);
            states.push(memory.clone());
        }
        let read = read.min(states.len() - 1);
        m.image(text, &states[read], 15 + 10 * read as u64);
        for (i, state) in states.iter().enumerate() {
            let time = 15 + 10 * i as u64;
            prop_assert_eq!(&m.bytes(A, 40, time).unwrap(), state, "at {}", time);
            prop_assert_eq!(&m.bytes(A + 7, 9, time).unwrap(), &state[7..16]);
        }
    }
}
