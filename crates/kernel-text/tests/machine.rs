//! A machine that allocates and frees code as the kernel does, with what its records tell, mixed as the rings of
//! several CPUs mix it: the timeline has to know what was where.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use afterimage_kernel_text::{KSYMBOL_BPF, KsymChange, Seen, TextKind, Timeline};
use proptest::prelude::*;

const BASE: u64 = 0xffff_ffff_c000_0000;
/// Code is given out in pieces of so many bytes, first fit.
const GRAIN: u64 = 64;
const GRAINS: usize = 40;

#[derive(Clone, Debug)]
struct Code {
    kind: TextKind,
    name: String,
    start: u64,
    len: u32,
    born: u64,
    gone: u64,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Came,
    Went,
    Freed,
}

#[derive(Clone, Debug)]
struct Event {
    time: u64,
    what: What,
    code: usize,
    ring: usize,
}

/// Steps: which kind comes, how long it is, or which of those that live goes; and the CPU.
fn scripts() -> impl Strategy<Value = Vec<(u8, u32, usize)>> {
    prop::collection::vec((0u8..6, 1u32..700, 0usize..3), 1..120)
}

fn run(script: &[(u8, u32, usize)]) -> (Vec<Code>, Vec<Event>) {
    let (mut all, mut events) = (Vec::<Code>::new(), Vec::new());
    let mut used = [None; GRAINS];
    let mut time = 10;
    for (what, size, ring) in script {
        time += 10;
        let living: Vec<usize> = (0..all.len()).filter(|i| all[*i].gone == u64::MAX).collect();
        let mut tell = |time, what, code, ring| events.push(Event { time, what, code, ring });
        if *what < 3 {
            let kind = [TextKind::Program, TextKind::Trampoline, TextKind::Cbpf][usize::from(*what)];
            let grains = (u64::from(*size)).div_ceil(GRAIN) as usize;
            let free = |at: &usize| used[*at..*at + grains].iter().all(Option::is_none);
            let Some(at) = (0..=GRAINS - grains).find(free) else { continue };
            used[at..at + grains].fill(Some(all.len()));
            if kind != TextKind::Cbpf {
                tell(time, What::Came, all.len(), *ring);
            }
            let name = match kind {
                TextKind::Program => format!("bpf_prog_{:016x}_x", all.len()),
                TextKind::Trampoline => format!("bpf_trampoline_{}", all.len()),
                _ => String::new(),
            };
            let start = BASE + at as u64 * GRAIN;
            all.push(Code { kind, name, start, len: *size, born: time, gone: u64::MAX });
        } else if let Some(code) = living.get(*size as usize % living.len().max(1)).copied() {
            if all[code].kind != TextKind::Cbpf {
                tell(time, What::Went, code, *ring);
            }
            // Another CPU frees it a little later.
            if all[code].kind != TextKind::Program || size % 2 == 0 {
                tell(time + 5, What::Freed, code, (*ring + 1) % 3);
            }
            all[code].gone = if all[code].kind == TextKind::Cbpf { time + 5 } else { time };
            used.iter_mut().filter(|grain| **grain == Some(code)).for_each(|grain| *grain = None);
        }
    }
    (all, events)
}

/// In passes of so many events, ring by ring.
fn mixed(events: &[Event], pass: usize) -> Vec<&Event> {
    events.chunks(pass).flat_map(|pass| (0..3).flat_map(|ring| pass.iter().filter(move |e| e.ring == ring))).collect()
}

fn tell(t: &mut Timeline, event: &Event, code: &Code) {
    let reported = if code.kind == TextKind::Program { code.len } else { 4096 };
    let change = |unregister| KsymChange {
        addr: code.start,
        len: reported,
        name: code.name.as_bytes(),
        ksym_type: KSYMBOL_BPF,
        unregister,
        origin: 1,
        loader: None,
    };
    match event.what {
        What::Came => drop(t.apply(event.time, &change(false))),
        What::Went => drop(t.apply(event.time, &change(true))),
        What::Freed => {
            let seen = Seen {
                addr: code.start,
                len: code.len,
                name: code.name.as_bytes(),
                kind: code.kind,
                tag: None,
                id: None,
                function: None,
                loader: None,
            };
            assert!(t.freed(event.time, &seen).is_some());
        }
    }
}

/// What somebody sees who asks for all programs at this time.
fn scan(t: &mut Timeline, time: u64, all: &[Code]) {
    let there = all.iter().enumerate().filter(|(_, code)| code.kind == TextKind::Program);
    let there = there.filter(|(_, code)| code.born <= time && time < code.gone);
    let known: Vec<Seen<'_>> = there
        .map(|(i, code)| Seen {
            addr: code.start,
            len: code.len,
            name: code.name.as_bytes(),
            kind: code.kind,
            tag: None,
            id: Some(i as u32 + 1),
            function: Some(0),
            loader: None,
        })
        .collect();
    t.rescan(time, &known, &[TextKind::Program]);
}

/// As a recorder does it: in each pass the records that are not lost, ring by ring; then what was freed, and what somebody saw
/// who asked, by time.
fn told_with_losses(all: &[Code], events: &[Event], pass: usize, lost: &[usize], scans: &[usize]) -> Timeline {
    let mut t = Timeline::new();
    for (first, chunk) in (0..).step_by(pass).zip(events.chunks(pass)) {
        let numbered = || (first..).zip(chunk);
        for ring in 0..3 {
            let mut missing = false;
            for (i, event) in numbered().filter(|(_, e)| e.ring == ring && !matches!(e.what, What::Freed)) {
                if lost.contains(&i) {
                    missing = true;
                    continue;
                }
                // The kernel tells of a loss before the next record for which there is room.
                if std::mem::take(&mut missing) {
                    t.lost(event.time);
                }
                tell(&mut t, event, &all[event.code]);
            }
            if missing {
                t.lost(chunk.last().map_or(0, |event| event.time));
            }
        }
        for (i, event) in numbered() {
            if matches!(event.what, What::Freed) {
                tell(&mut t, event, &all[event.code]);
            }
            if scans.contains(&i) {
                scan(&mut t, event.time + 1, all);
            }
        }
    }
    t
}

/// Addresses of a text that are worth a look.
fn places(code: &Code) -> [u64; 3] {
    [code.start, code.start + u64::from(code.len) / 2, code.start + u64::from(code.len) - 1]
}

/// What a text is told by: classic programs have no name, but there is one free of each.
fn is_this(t: &Timeline, addr: u64, time: u64, code: &Code) -> bool {
    t.lookup(addr, time).is_some_and(|hit| {
        let text = t.text(hit.text).unwrap();
        let lives = text.kind != TextKind::Cbpf || text.gone == Some(code.gone);
        text.name == code.name && text.kind == code.kind && lives && hit.offset == addr - code.start
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_lost_everything_known(script in scripts(), pass in 1usize..30) {
        let (all, events) = run(&script);
        let mut t = Timeline::new();
        mixed(&events, pass).into_iter().for_each(|event| tell(&mut t, event, &all[event.code]));
        // What no record told of and what still lives cannot be known.
        for code in all.iter().filter(|code| code.kind != TextKind::Cbpf || code.gone != u64::MAX) {
            let last = if code.gone == u64::MAX { code.born + 100_000 } else { code.gone - 1 };
            for time in [code.born, code.born.midpoint(last), last] {
                for addr in places(code) {
                    let told = || {
                        let at = |code: &Code| code.start <= addr && addr < code.start + u64::from(code.len);
                        let told: Vec<_> = mixed(&events, pass).into_iter().filter(|e| at(&all[e.code])).map(|e| (e.time, e.what, &*all[e.code].name)).collect();
                        let texts: Vec<_> = t.texts().filter(|(_, text)| text.addr <= addr && addr < text.addr + u64::from(text.len)).map(|(_, text)| (text.name, text.born, text.gone)).collect();
                        (told, texts)
                    };
                    prop_assert!(is_this(&t, addr, time, code), "{:?} at {:#x} {}: {:?}", code, addr, time, told());
                }
            }
            let text = t.texts().map(|(_, text)| text).find(|text| text.name == code.name && text.addr == code.start && text.gone.unwrap_or(u64::MAX) == code.gone).unwrap();
            prop_assert!(!text.uncertain, "{:?} {:?}", text, mixed(&events, pass).into_iter().filter(|e| all[e.code].start == text.addr).map(|e| (e.time, e.what, &*all[e.code].name)).collect::<Vec<_>>());
            let exact = code.kind != TextKind::Trampoline || code.gone != u64::MAX;
            prop_assert_eq!(text.length, exact.then_some(code.len));
        }
        prop_assert_eq!(t.len(), all.iter().filter(|code| code.kind != TextKind::Cbpf || code.gone != u64::MAX).count());

        // To the file and back, and all records again.
        let mut read = Timeline::new();
        prop_assert_eq!(read.adopt(&t.describe()), t.len());
        prop_assert_eq!(read.describe(), t.describe());
        events.iter().filter(|e| !matches!(e.what, What::Freed)).for_each(|event| tell(&mut read, event, &all[event.code]));
        prop_assert_eq!(read.len(), t.len(), "the records told of nothing new");
        for code in all.iter().filter(|code| code.gone != u64::MAX) {
            for addr in places(code) {
                prop_assert!(is_this(&read, addr, code.gone - 1, code), "{:?}", code);
            }
        }

        // All that has gone by then leaves.
        let middle = events.get(events.len() / 2).map_or(0, |event| event.time);
        let gone = all.iter().filter(|code| code.gone <= middle).count();
        let retired = t.retire(middle);
        prop_assert_eq!(retired.len(), gone);
        for code in all.iter().filter(|code| code.gone != u64::MAX && code.gone > middle) {
            prop_assert!(is_this(&t, code.start, code.gone - 1, code), "{:?} is still known", code);
        }
        t.retire(u64::MAX - 1);
        prop_assert_eq!(t.len(), all.iter().filter(|code| code.gone == u64::MAX && code.kind != TextKind::Cbpf).count());
    }

    /// Records of programs are lost here and there: who is taken for somebody else is marked.
    #[test]
    fn what_was_lost_leaves_doubt(script in scripts(), lost in prop::collection::vec(any::<prop::sample::Index>(), 1..8)) {
        let (all, events) = run(&script);
        let mut t = Timeline::new();
        let lost: Vec<usize> = lost.iter().filter(|_| !events.is_empty()).map(|index| index.index(events.len())).collect();
        for (i, event) in events.iter().enumerate() {
            if lost.contains(&i) && !matches!(event.what, What::Freed) {
                t.lost(event.time);
            } else {
                tell(&mut t, event, &all[event.code]);
            }
        }
        for code in all.iter().filter(|code| code.kind == TextKind::Program) {
            let last = if code.gone == u64::MAX { code.born + 100_000 } else { code.gone - 1 };
            for (addr, time) in [(code.start, code.born), (code.start, last), (code.start + u64::from(code.len) - 1, last)] {
                let Some(hit) = t.lookup(addr, time) else { continue };
                let text = t.text(hit.text).unwrap();
                // How far a trampoline reaches is known only when it is freed.
                let doubtful = text.uncertain || text.length.is_none();
                prop_assert!(text.name == code.name || doubtful, "{:?} at {} is called {:?}", code, time, text);
            }
        }
    }

    /// However many records were lost, and whenever somebody looked what there is: no text is told of as two.
    #[test]
    fn losses_and_scans_make_no_second_text(
        script in scripts(),
        pass in 1usize..30,
        lost in prop::collection::vec(any::<prop::sample::Index>(), 0..60),
        scans in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let (all, events) = run(&script);
        let at = |indices: Vec<prop::sample::Index>| -> Vec<usize> {
            indices.iter().filter(|_| !events.is_empty()).map(|index| index.index(events.len())).collect()
        };
        let (lost, scans) = (at(lost), at(scans));
        let t = told_with_losses(&all, &events, pass, &lost, &scans);
        for (i, code) in all.iter().enumerate().filter(|(_, code)| code.kind == TextKind::Program) {
            let texts: Vec<_> = t.texts().filter(|(_, text)| text.name == code.name).map(|(_, text)| text).collect();
            let freed = events.iter().any(|event| event.code == i && matches!(event.what, What::Freed));
            let story = || {
                let here = |e: &(usize, &Event)| all[e.1.code].start == code.start;
                events.iter().enumerate().filter(here).map(|(i, e)| (i, e.time, e.what, &*all[e.code].name, lost.contains(&i))).collect::<Vec<_>>()
            };
            prop_assert!(texts.len() <= 1 && (texts.len() == 1 || !freed), "{:?} is {:#?}: {:?}, scans {:?} in passes of {}", code, texts, story(), scans, pass);
        }
    }
}
