//! Copies at the end of texts, of a memory that is made up.

use std::collections::HashMap;

use afterimage_kernel_text::capture::Captured;
use afterimage_kernel_text::{Image, KSYMBOL_BPF, KsymChange, Seen, TextKind};
use afterimage_perf_data::ImageId;
use afterimage_perf_data::record::{Ksymbol, SampleId};

use super::*;

const ADDR: u64 = 0xffff_ffff_c000_0000;

/// What stands where, and what was asked for.
#[derive(Default)]
struct Memory {
    copies: HashMap<u64, Copied>,
    asked: Vec<(u64, Extent)>,
}

impl Memory {
    fn put(&mut self, addr: u64, bytes: Vec<u8>, whole: bool) {
        self.copies.insert(addr, Copied { bytes, whole });
    }
}

impl Memory {
    fn copy(&mut self, addr: u64, extent: Extent) -> Result<Copied, ReadError> {
        self.asked.push((addr, extent));
        self.copies.get(&addr).cloned().ok_or(ReadError::NotMapped(addr))
    }
}

fn change(addr: u64, len: u32, name: &'static str, unregister: bool) -> KsymChange<'static> {
    KsymChange { addr, len, name: name.as_bytes(), ksym_type: KSYMBOL_BPF, unregister, origin: 1, loader: None }
}

/// Copies all that ended, and puts it away.
fn copy(texts: &mut Texts, memory: &mut Memory, kept: bool) {
    loop {
        let outcomes = texts.ended.next(&texts.live.timeline, &mut |addr, extent| memory.copy(addr, extent));
        if outcomes.is_empty() {
            break;
        }
        outcomes.into_iter().for_each(|outcome| texts.ended_as(outcome, Way::KcoreQc, kept));
    }
}

fn proofs(texts: &Texts, text: TextId) -> Vec<(Way, bool)> {
    let text = texts.live.timeline.text(text).unwrap();
    text.images.iter().map(|image| (image.way, image.proven)).collect()
}

fn reason(texts: &Texts, text: TextId) -> Option<String> {
    texts.live.timeline.text(text).unwrap().missing.map(str::to_owned)
}

/// A recorder whose capture copies at the end, without one that runs.
fn texts() -> Texts {
    Texts { copies_at_end: true, ..Texts::start(None) }
}

fn filter(time: u64, addr: u64, failed: bool) -> Captured {
    Captured {
        time,
        addr,
        len: 40,
        name: Vec::new(),
        tag: None,
        own_tag: None,
        id: None,
        function: Some(0),
        kind: TextKind::Cbpf,
        way: Way::FreeTime,
        proven: false,
        bytes: Vec::new(),
        freed: true,
        came: false,
        failed: failed.then(|| "a piece of it was lost".into()),
        owner: addr,
        group: 0,
        functions: 1,
        program_type: 1,
        derived: false,
    }
}

/// Of a text of which a piece was lost the capture tells passes after its free.
#[test]
fn what_is_told_of_too_late_is_not_proven() {
    let (mut texts, mut memory) = (texts(), Memory::default());
    texts.held_since = 1000;
    let [late, in_time] = [ADDR, ADDR + 64];
    memory.put(late, vec![0x11; 40], true);
    memory.put(in_time, vec![0x22; 40], true);
    texts.captured(filter(999, late, true), false);
    texts.captured(filter(1000, in_time, true), false);
    copy(&mut texts, &mut memory, true);
    let at = |addr| texts.live.timeline.lookup(addr, 500).unwrap().text;
    assert_eq!(proofs(&texts, at(late)), [(Way::KcoreQc, false)]);
    assert_eq!(proofs(&texts, at(in_time)), [(Way::KcoreQc, true)]);
    assert!(reason(&texts, at(late)).unwrap().contains("too late"));
    assert_eq!(texts.ended.late(), 1);
    // What has a copy needs none that may be of something else.
    memory.asked.clear();
    let text = at(in_time);
    texts.ended.told(text, false);
    copy(&mut texts, &mut memory, true);
    assert_eq!(memory.asked, []);
}

#[test]
fn what_the_kernel_did_not_keep_is_not_proven() {
    let (mut texts, mut memory) = (texts(), Memory::default());
    memory.put(ADDR, vec![0x11; 40], true);
    texts.captured(filter(10, ADDR, false), false);
    copy(&mut texts, &mut memory, false);
    let text = texts.live.timeline.lookup(ADDR, 5).unwrap().text;
    assert_eq!(proofs(&texts, text), [(Way::KcoreQc, false)]);
    assert!(reason(&texts, text).unwrap().contains("than it promised"));
}

#[test]
fn a_copy_goes_no_further_than_the_next_text_and_is_made_again_by_length() {
    let (mut texts, mut memory) = (texts(), Memory::default());
    let timeline = &mut texts.live.timeline;
    // What was there before it came says nothing.
    timeline.apply(1, &change(ADDR + 128, 64, "bpf_prog_1111111111111111_old", false));
    timeline.apply(2, &change(ADDR + 128, 64, "bpf_prog_1111111111111111_old", true));
    let text = timeline.apply(10, &change(ADDR, 4096, "bpf_trampoline_1", false)).unwrap();
    timeline.apply(11, &change(ADDR + 640, 64, "bpf_prog_2222222222222222_next", false));
    timeline.apply(12, &change(ADDR + 640, 64, "bpf_prog_2222222222222222_next", true));
    timeline.apply(20, &change(ADDR, 4096, "bpf_trampoline_1", true));
    texts.ended.went(text);
    memory.put(ADDR, vec![0x90; 640], false);
    copy(&mut texts, &mut memory, true);
    assert_eq!(memory.asked, [(ADDR, Extent::AtMost { len: 640, next: true })]);
    assert_eq!(proofs(&texts, text), [(Way::KcoreQc, false)], "its neighbour's bytes may be among them");
    assert!(reason(&texts, text).unwrap().contains("where it ends"));
    memory.put(ADDR, vec![0x90; 300], true);
    texts.ended.went(text);
    copy(&mut texts, &mut memory, true);
    assert_eq!(proofs(&texts, text).last(), Some(&(Way::KcoreQc, true)));

    // It is told at its free how long it was.
    memory.put(ADDR, vec![0x90; 290], true);
    let mut freed = filter(21, ADDR, false);
    (freed.kind, freed.name, freed.len) = (TextKind::Trampoline, b"bpf_trampoline_1".to_vec(), 290);
    texts.captured(freed.clone(), false);
    copy(&mut texts, &mut memory, true);
    assert_eq!(memory.asked.last(), Some(&(ADDR, Extent::Exact(290))));
    assert_eq!(proofs(&texts, text).last(), Some(&(Way::KcoreQc, true)));
    let times = memory.asked.len();
    texts.captured(freed, false);
    copy(&mut texts, &mut memory, true);
    assert_eq!(memory.asked.len(), times, "once is enough");
}

#[test]
fn a_module_is_copied_as_it_comes_and_again_as_it_goes() {
    let (mut texts, mut memory) = (texts(), Memory::default());
    memory.put(ADDR, vec![0x11; 40], true);
    let mut module = filter(10, ADDR, false);
    (module.kind, module.name, module.freed, module.came) = (TextKind::Module, b"a".to_vec(), false, true);
    texts.captured(module.clone(), false);
    copy(&mut texts, &mut memory, true);
    // A branch in it is switched meanwhile.
    memory.put(ADDR, vec![0x22; 40], true);
    (module.time, module.freed, module.came) = (monotonic(), true, false);
    texts.captured(module.clone(), false);
    copy(&mut texts, &mut memory, true);
    let text = texts.live.timeline.lookup(ADDR, 20).unwrap().text;
    let images = texts.live.timeline.text(text).unwrap().images.to_vec();
    let ids: Vec<ImageId> = images.iter().map(|image: &Image| image.id).collect();
    assert_eq!(ids, [ImageId::of(&[0x11; 40]), ImageId::of(&[0x22; 40])]);
    assert!(images.iter().all(|image| image.proven));
    memory.asked.clear();
    texts.captured(module, false);
    copy(&mut texts, &mut memory, true);
    assert_eq!(memory.asked, [], "its end was copied");
}

#[test]
fn copies_are_put_away_before_they_are_too_many() {
    let (mut texts, mut memory) = (texts(), Memory::default());
    for n in 0..40 {
        let addr = ADDR + (n << 20);
        memory.put(addr, vec![n as u8; 1 << 20], true);
        let seen = Seen {
            addr,
            len: 1 << 20,
            name: b"",
            kind: TextKind::Cbpf,
            tag: None,
            id: None,
            function: None,
            loader: None,
        };
        let text = texts.live.timeline.freed(10, &seen).unwrap();
        texts.ended.went(text);
    }
    let mut sizes = Vec::new();
    loop {
        let outcomes = texts.ended.next(&texts.live.timeline, &mut |addr, extent| memory.copy(addr, extent));
        if outcomes.is_empty() {
            break;
        }
        sizes.push(outcomes.len());
    }
    assert_eq!(sizes, [16, 16, 8]);
}

/// A record of a program's function, of its beginning or its end.
fn record(time: u64, unregister: bool) -> Ksymbol<'static> {
    Ksymbol {
        addr: ADDR,
        len: 64,
        kind: Ksymbol::BPF,
        flags: unregister.into(),
        name: b"bpf_prog_0011223344556677_main",
        misc: 0,
        id: SampleId { pid: Some(7), tid: Some(7), time: Some(time), ..SampleId::default() },
    }
}

/// The rings of two CPUs are read one after the other.
#[test]
fn an_end_that_is_read_before_its_beginning_is_one() {
    let (mut texts, mut memory) = (texts(), Memory::default());
    memory.put(ADDR, vec![0x11; 64], true);
    texts.symbol(&record(10, false));
    texts.symbol(&record(20, true));
    assert!(texts.ended.heard().unregistered);
    copy(&mut texts, &mut memory, true);
    assert_eq!(memory.asked.len(), 1);
    // The same program again, at the same place: whose end this is can only be told when its beginning is read.
    texts.symbol(&record(40, true));
    assert!(texts.ended.heard().unregistered, "something is freed, whatever it is");
    copy(&mut texts, &mut memory, true);
    assert_eq!(memory.asked.len(), 1);
    memory.put(ADDR, vec![0x22; 64], true);
    texts.symbol(&record(30, false));
    copy(&mut texts, &mut memory, true);
    let text = texts.live.timeline.lookup(ADDR, 35).unwrap().text;
    let images = texts.live.timeline.text(text).unwrap().images.to_vec();
    assert_eq!(
        images.iter().map(|image| (image.id, image.proven)).collect::<Vec<_>>(),
        [(ImageId::of(&[0x22; 64]), true)]
    );
    // One that goes on has no end to be copied at.
    memory.asked.clear();
    texts.symbol(&record(50, false));
    copy(&mut texts, &mut memory, true);
    assert_eq!(memory.asked, []);
}
