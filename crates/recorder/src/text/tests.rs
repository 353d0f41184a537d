//! Which text a copy goes to.

use afterimage_kernel_text::{KSYMBOL_BPF, KsymChange, TextKind};

use super::*;

const ADDR: u64 = 0xffff_ffff_c000_0000;

/// The copy of a main function with a subprogram, by the program's id.
fn by_id(tag: [u8; 8], own_tag: [u8; 8]) -> Captured {
    Captured {
        time: 20,
        addr: ADDR,
        len: 4,
        name: Vec::new(),
        tag: Some(tag),
        own_tag: Some(own_tag),
        id: Some(7),
        function: Some(0),
        kind: TextKind::Program,
        way: Way::ById,
        proven: true,
        bytes: vec![1, 2, 3, 4],
        freed: false,
        came: false,
        failed: None,
        owner: 0,
        group: 7,
        functions: 2,
        program_type: 1,
        derived: false,
    }
}

/// Where the records of its own coming were lost, and nobody knows that yet, another text seems to stand there.
#[test]
fn a_copy_by_id_goes_to_the_text_of_its_tag() {
    let of_text: [u8; 8] = [0, 0, 0, 0, 0, 0, 0, 0xa1];
    let other: [u8; 8] = [0, 0, 0, 0, 0, 0, 0, 0xb2];
    for (tag, own_tag, kept) in [(of_text, other, 1), (other, of_text, 1), (other, other, 0)] {
        let mut texts = Texts::start(None);
        let change = KsymChange {
            addr: ADDR,
            len: 4,
            name: b"bpf_prog_00000000000000a1_main",
            ksym_type: KSYMBOL_BPF,
            unregister: false,
            origin: 1,
            loader: None,
        };
        let text = texts.live.timeline.apply(10, &change).unwrap();
        texts.captured(by_id(tag, own_tag), true);
        assert_eq!(texts.live.timeline.text(text).unwrap().images.len(), kept, "{tag:?} {own_tag:?}");
    }
}

/// What stood behind a trampoline was copied with it, and its free tells how long it is.
#[test]
fn a_copy_that_is_longer_than_its_text_is_not_proven() {
    let mut texts = Texts::start(None);
    let change = KsymChange {
        addr: ADDR,
        len: 4096,
        name: b"bpf_trampoline_6442470312",
        ksym_type: KSYMBOL_BPF,
        unregister: false,
        origin: 1,
        loader: None,
    };
    let text = texts.live.timeline.apply(10, &change).unwrap();
    texts.image(text, &[1, 2, 3, 4, 5, 6], 15, Way::Memory, true);
    texts.image(text, &[1, 2, 3, 4], 16, Way::Memory, true);
    let freed = Captured {
        name: b"bpf_trampoline_6442470312".to_vec(),
        kind: TextKind::Trampoline,
        id: None,
        tag: None,
        function: None,
        bytes: Vec::new(),
        freed: true,
        way: Way::FreeTime,
        ..by_id([0; 8], [0; 8])
    };
    texts.captured(freed, false);
    let proven: Vec<bool> = texts.live.timeline.text(text).unwrap().images.iter().map(|image| image.proven).collect();
    assert_eq!(proven, [false, true]);
}
