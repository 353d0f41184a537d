//! The timeline against cases from the kernel and against a slow reference.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use afterimage_kernel_text::{BpfProgram, KSYMBOL_BPF, KSYMBOL_OUT_OF_LINE, KsymChange, TextKind, Timeline};
use proptest::prelude::*;

fn change(addr: u64, len: u32, name: &str, unregister: bool) -> KsymChange<'_> {
    KsymChange { addr, len, name: name.as_bytes(), ksym_type: KSYMBOL_BPF, unregister, origin: 7, loader: None }
}

fn name_at(timeline: &Timeline, addr: u64, time: u64) -> Option<(String, u64)> {
    let hit = timeline.lookup(addr, time)?;
    Some((timeline.text(hit.text).unwrap().name.to_string(), hit.offset))
}

#[test]
fn an_address_used_again_has_two_names() {
    let mut t = Timeline::new();
    t.apply(10, &change(0x1000, 64, "bpf_prog_a", false));
    t.apply(20, &change(0x1000, 64, "bpf_prog_a", true));
    t.apply(20, &change(0x1000, 128, "bpf_prog_b", false));
    assert_eq!(name_at(&t, 0x1010, 9), None);
    assert_eq!(name_at(&t, 0x1010, 10), Some(("bpf_prog_a".into(), 16)));
    assert_eq!(name_at(&t, 0x1010, 19), Some(("bpf_prog_a".into(), 16)));
    assert_eq!(name_at(&t, 0x1010, 20), Some(("bpf_prog_b".into(), 16)));
    assert_eq!(name_at(&t, 0x1070, 15), None, "past the first one's end");
    assert_eq!(name_at(&t, 0x1070, 25), Some(("bpf_prog_b".into(), 0x70)));
    let lives: Vec<_> = t.texts().map(|(_, text)| (text.born, text.gone)).collect();
    assert_eq!(lives, [(10, Some(20)), (20, None)]);
}

#[test]
fn a_lost_unregistration_ends_with_the_next_registration() {
    let mut t = Timeline::new();
    t.apply(10, &change(0x1000, 64, "bpf_prog_a", false));
    t.apply(30, &change(0x1000, 64, "bpf_prog_b", false));
    assert_eq!(name_at(&t, 0x1000, 29).unwrap().0, "bpf_prog_a");
    assert_eq!(name_at(&t, 0x1000, 30).unwrap().0, "bpf_prog_b");
}

#[test]
fn a_trampolines_reported_page_ends_at_the_next_text() {
    let mut t = Timeline::new();
    t.apply(1, &change(0x1000, 4096, "bpf_trampoline_1", false));
    t.apply(2, &change(0x1100, 64, "bpf_prog_a", false));
    assert_eq!(name_at(&t, 0x1080, 3).unwrap().0, "bpf_trampoline_1");
    assert_eq!(name_at(&t, 0x1120, 3).unwrap(), ("bpf_prog_a".into(), 0x20));
    assert_eq!(name_at(&t, 0x1150, 3), None, "behind the program nothing is known");
    assert_eq!(name_at(&t, 0x1150, 1).unwrap().0, "bpf_trampoline_1", "before the program came");
    t.apply(4, &change(0x1100, 64, "bpf_prog_a", true));
    assert_eq!(name_at(&t, 0x1120, 5).unwrap().0, "bpf_trampoline_1");
    assert!(!t.texts().next().unwrap().1.kind.length_is_exact());
}

#[test]
fn the_scan_and_the_record_of_one_load_are_one_text() {
    for order in [[0, 50], [50, 0]] {
        let mut t = Timeline::new();
        for time in order {
            t.apply(time, &change(0x1000, 64, "bpf_prog_a", false));
        }
        assert_eq!(t.len(), 1, "{order:?}");
        assert_eq!(t.texts().next().unwrap().1.born, 50);
        assert_eq!(name_at(&t, 0x1000, 49), None, "the record says when it came");
        assert_eq!(name_at(&t, 0x1000, 50).unwrap().0, "bpf_prog_a");
    }
    let mut t = Timeline::new();
    t.apply(0, &change(0x1000, 64, "bpf_prog_a", false));
    assert_eq!(name_at(&t, 0x1000, 3).unwrap().0, "bpf_prog_a", "there was no other");
}

#[test]
fn what_was_there_before_the_recording_is_known_by_its_end() {
    let mut t = Timeline::new();
    t.apply(40, &change(0x1000, 64, "bpf_prog_a", true));
    assert_eq!(name_at(&t, 0x1000, 39).unwrap().0, "bpf_prog_a");
    assert_eq!(name_at(&t, 0x1000, 40), None);
    // Its registration was only read later: one text, born then.
    t.apply(30, &change(0x1000, 64, "bpf_prog_a", false));
    assert_eq!(name_at(&t, 0x1000, 29), None);
    assert_eq!(t.len(), 1);
    assert_eq!((t.texts().next().unwrap().1.born, t.texts().next().unwrap().1.gone), (30, Some(40)));
    // A second end of the same text is of no use, and said so.
    assert_eq!(t.apply(45, &change(0x1000, 64, "bpf_prog_a", true)), None);
    assert_eq!(t.ignored(), 1);
}

#[test]
fn lengths_that_cannot_be_are_ignored() {
    let mut t = Timeline::new();
    assert_eq!(t.apply(1, &change(0x1000, 0, "", false)), None);
    assert_eq!(t.apply(1, &change(u64::MAX - 3, 64, "bpf_prog_a", false)), None);
    assert_eq!((t.ignored(), t.version()), (2, 0));
    assert_eq!(t.lookup(u64::MAX, 5), None);
}

#[test]
fn functions_belong_to_the_load_that_follows_on_their_thread() {
    let mut t = Timeline::new();
    let other = t.apply(1, &change(0x500, 64, "bpf_prog_00000000000000aa_failed", false)).unwrap();
    let main = t.apply(2, &change(0x1000, 64, "bpf_prog_0102030405060708_main", false)).unwrap();
    let sub = t.apply(3, &change(0x1100, 64, "bpf_prog_ffffffffffffffff_sub", false)).unwrap();
    let program = BpfProgram { id: 12, tag: [1, 2, 3, 4, 5, 6, 7, 8] };
    t.program_loaded(4, 8, program);
    assert_eq!(t.text(main).unwrap().program, None, "another thread's load");
    t.program_loaded(4, 7, program);
    assert_eq!(t.text(main).unwrap().program, Some(program));
    assert_eq!(t.text(sub).unwrap().program, Some(BpfProgram { id: 12, tag: [0xff; 8] }));
    assert_eq!(t.text(other).unwrap().program, None);
}

/// The thread may move to another CPU in between, whose ring is read first.
#[test]
fn functions_find_their_load_whatever_is_told_first() {
    enum Told {
        Function(u64, u64, &'static str),
        Load(u64, u32, u64),
    }
    use Told::{Function, Load};
    let told = [
        Function(10, 0x1000, "bpf_prog_00000000000000a1_main"),
        Function(11, 0x1100, "bpf_prog_00000000000000a2_sub"),
        Load(12, 21, 0xa1),
        Function(20, 0x2000, "bpf_prog_00000000000000b1_main"),
        Function(21, 0x2100, "bpf_prog_00000000000000b2_sub"),
        Load(22, 22, 0xbb),
    ];
    // Every order of the six.
    for mut order in 0..720 {
        let mut left: Vec<usize> = (0..told.len()).collect();
        let mut t = Timeline::new();
        let mut said = Vec::new();
        for choices in (1..=told.len()).rev() {
            let next = left.remove(order % choices);
            order /= choices;
            said.push(next);
            match told[next] {
                Function(time, addr, name) => drop(t.apply(time, &change(addr, 64, name, false))),
                Load(time, id, tag) => t.program_loaded(time, 7, BpfProgram { id, tag: tag.to_be_bytes() }),
            }
        }
        // A load takes what came before it; what its first program had taken late is that one's.
        let program = |addr: u64| {
            let text = t.text(t.lookup_now(addr).unwrap().text).unwrap();
            text.program.map(|program| (program.id, text.function.unwrap()))
        };
        let all = [program(0x1000), program(0x1100), program(0x2000), program(0x2100)];
        assert_eq!(all, [Some((21, 0)), Some((21, 1)), Some((22, 0)), Some((22, 1))], "{said:?}");
    }
}

/// A function whose load was told long ago is not given to another program.
#[test]
fn a_function_that_is_told_much_too_late_has_no_program() {
    let mut t = Timeline::new();
    let tag = |id: u32| (u64::from(id) | 0xee00).to_be_bytes();
    t.program_loaded(11, 7, BpfProgram { id: 1, tag: tag(1) });
    let mut others = Vec::new();
    for id in 2..100 {
        let time = u64::from(id) * 100;
        others.push(t.apply(time, &change(0x1000 + time, 64, "bpf_prog_00000000000000c1_main", false)).unwrap());
        t.program_loaded(time + 1, 7, BpfProgram { id, tag: tag(id) });
    }
    let late = t.apply(10, &change(0x500, 64, "bpf_prog_00000000000000a1_main", false)).unwrap();
    assert_eq!(t.text(late).unwrap().program, None);
    for (other, id) in others.iter().zip(2..) {
        let text = t.text(*other).unwrap();
        assert_eq!((text.program.unwrap().id, text.function), (id, Some(0)));
    }
}

/// The tag of a program with subprograms is that of no function's name.
#[test]
fn functions_without_the_programs_tag_are_all_of_it() {
    let mut t = Timeline::new();
    let load = |t: &mut Timeline, at: u64| {
        let trampoline = t.apply(at, &change(0x500 + at, 64, "bpf_trampoline_6442512522", false)).unwrap();
        let main = t.apply(at, &change(0x1000 + at, 64, "bpf_prog_0102030405060708_main", false)).unwrap();
        let sub = t.apply(at, &change(0x1100 + at, 64, "bpf_prog_1112131415161718_sub", false)).unwrap();
        [trampoline, main, sub]
    };
    let [trampoline, main, sub] = load(&mut t, 1000);
    t.program_loaded(1001, 7, BpfProgram { id: 12, tag: [9; 8] });
    assert_eq!(t.text(trampoline).unwrap().program, None);
    let (main, sub) = (t.text(main).unwrap(), t.text(sub).unwrap());
    assert_eq!((main.program, main.function), (Some(BpfProgram { id: 12, tag: [9; 8] }), Some(0)));
    let tag = [0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18];
    assert_eq!(
        (sub.program, sub.function, sub.kind),
        (Some(BpfProgram { id: 12, tag }), Some(1), TextKind::Subprogram)
    );

    // Where records were lost, what waits may be of another program.
    let [_, main, _] = load(&mut t, 5000);
    t.lost(5001);
    t.program_loaded(5002, 7, BpfProgram { id: 13, tag: [8; 8] });
    assert_eq!(t.text(main).unwrap().program, None);
}

#[test]
fn kinds_follow_the_kernels_names() {
    let of = TextKind::of;
    assert_eq!(of(KSYMBOL_BPF, b"bpf_prog_1_x"), TextKind::Program);
    assert_eq!(of(KSYMBOL_BPF, b"bpf_dispatcher_xdp"), TextKind::Dispatcher);
    assert_eq!(of(KSYMBOL_BPF, b"bpf__tcp_congestion_ops_init"), TextKind::StructOps);
    assert_eq!(of(KSYMBOL_OUT_OF_LINE, b"kprobe_insn_page"), TextKind::KprobeSlots);
    assert_eq!(of(9, b"x"), TextKind::Unknown);
}

#[derive(Clone, Debug)]
struct Step {
    time: u64,
    start: u64,
    len: u32,
    name: String,
    unregister: bool,
}

#[derive(Clone, Debug)]
struct Life {
    born: u64,
    /// Whether `born` was told.
    told: bool,
    gone: u64,
    /// Whether `gone` was told.
    ended: bool,
    step: Step,
}

/// All lives at one start from its steps in time order, with a look at the last one only.
fn lives_at(steps: &[&Step]) -> Vec<Life> {
    let mut lives: Vec<Life> = Vec::new();
    let mut last_end = 0;
    for step in steps {
        let step = (*step).clone();
        let time = step.time;
        let same = |life: &Life| (life.step.name == step.name) && life.step.len == step.len;
        let told_twice = lives.last().is_some_and(|last| same(last) && last.told && last.born == time);
        let ended_twice = lives.iter().any(|life| same(life) && life.ended && life.gone == time);
        let is_same = lives.last().map(same);
        let alive = lives.last_mut().filter(|last| last.gone == u64::MAX);
        match (step.unregister, alive, is_same) {
            (false, _, _) if told_twice => continue,
            (true, _, _) if ended_twice => continue,
            (false, alive, _) => {
                if let Some(last) = alive {
                    last.gone = time;
                }
                lives.push(Life { born: time, told: true, gone: u64::MAX, ended: false, step });
                continue;
            }
            (true, Some(last), Some(true)) => (last.gone, last.ended) = (time, true),
            (true, Some(last), _) => {
                last.gone = time;
                lives.push(Life { born: time, told: false, gone: time, ended: true, step });
            }
            (true, None, Some(true)) => {}
            (true, None, _) => lives.push(Life { born: last_end, told: false, gone: time, ended: true, step }),
        }
        last_end = time;
    }
    lives
}

/// The closest start at or below the address with a life at the time.
fn slow_lookup(steps: &[Step], addr: u64, time: u64) -> Option<(String, u64)> {
    let mut starts: Vec<u64> = steps.iter().map(|s| s.start).filter(|s| *s <= addr).collect();
    starts.sort_unstable();
    starts.dedup();
    for start in starts.into_iter().rev() {
        let mut here: Vec<&Step> = steps.iter().filter(|s| s.start == start).collect();
        here.sort_by_key(|s| (s.time, !s.unregister));
        let lives = lives_at(&here);
        if let Some(life) = lives.iter().find(|life| life.born <= time && time < life.gone) {
            return (addr - start < u64::from(life.step.len)).then(|| (life.step.name.clone(), addr - start));
        }
    }
    None
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (1u64..30, 0u64..12, 1u32..5, 0u8..3, any::<bool>()).prop_map(|(time, slot, len, name, unregister)| {
        Step { time, start: 0x1000 + slot * 64, len: len * 48, name: format!("bpf_prog_{name}"), unregister }
    });
    prop::collection::vec(step, 0..40)
}

/// For each start: whether a text was there before, then texts that come and go, one of them maybe at the very time at which
/// the one before it goes; the last may stay.
fn histories() -> impl Strategy<Value = Vec<Step>> {
    let start = (prop::collection::vec((0u8..3, 0u64..4, 1u64..4), 1..5), any::<bool>(), any::<bool>());
    prop::collection::vec(start, 1..4).prop_map(|starts| {
        let mut steps = Vec::new();
        for (slot, (texts, before, stays)) in (0..).zip(starts) {
            let mut time = 1 + slot;
            for (i, (name, pause, life)) in texts.iter().enumerate() {
                let name = format!("bpf_prog_{name}");
                let step = |time, unregister| Step {
                    time,
                    start: 0x1000 + slot * 64,
                    len: 192,
                    name: name.clone(),
                    unregister,
                };
                if i > 0 || !before {
                    time += pause;
                    steps.push(step(time, false));
                }
                time += life;
                if i + 1 < texts.len() || !stays || (i == 0 && before) {
                    steps.push(step(time, true));
                }
            }
        }
        steps
    })
}

fn told(steps: &[Step]) -> Timeline {
    let mut t = Timeline::new();
    for step in steps {
        t.apply(step.time, &change(step.start, step.len, &step.name, step.unregister));
    }
    t
}

/// For each start: texts that come and go there again and again, with a pause or without.
fn many_at_a_start() -> impl Strategy<Value = Vec<Step>> {
    let start = prop::collection::vec((0u64..3, 1u64..4), 1..80);
    prop::collection::vec(start, 1..4).prop_map(|starts| {
        let mut steps = Vec::new();
        for (slot, texts) in (0..).zip(starts) {
            let mut time = 1 + slot;
            for (i, (pause, life)) in texts.into_iter().enumerate() {
                let name = format!("bpf_prog_{slot}_{i}");
                let [born, gone] = [time + pause, time + pause + life];
                let step = |time, unregister| Step {
                    time,
                    start: 0x1000 + slot * 64,
                    len: 64 + (i as u32 % 3) * 48,
                    name: name.clone(),
                    unregister,
                };
                steps.extend([step(born, false), step(gone, true)]);
                time = gone;
            }
        }
        steps
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// Told in any order, and again once a part of them was retired.
    #[test]
    fn a_start_that_is_used_again_many_times_has_each_text_at_its_time(
        (steps, mixed) in many_at_a_start().prop_flat_map(|steps| (Just(steps.clone()), Just(steps).prop_shuffle())),
        kept in 0u64..400,
    ) {
        let mut t = told(&mixed);
        let end = steps.iter().map(|step| step.time).max().unwrap_or(0) + 2;
        let places = [0x1000, 0x103f, 0x1040, 0x1090, 0x10ff];
        let all = |t: &Timeline, from| -> Vec<_> {
            (from..end).flat_map(|time| places.map(|addr| name_at(t, addr, time))).collect()
        };
        let slow: Vec<_> =
            (0..end).flat_map(|time| places.map(|addr| slow_lookup(&steps, addr, time))).collect();
        prop_assert_eq!(all(&t, 0), &slow[..]);
        let kept = kept.min(end);
        t.retire(kept);
        prop_assert_eq!(all(&t, kept), &slow[kept as usize * places.len()..]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is told, in time order; of a place and a time at most one end and one beginning, for it has one text at a
    /// time.
    #[test]
    fn equals_the_slow_reference(mut steps in steps(), probes in prop::collection::vec((0u64..1100, 0u64..32), 40)) {
        let place = |step: &Step| (step.time, !step.unregister, step.start);
        steps.sort_by_key(place);
        steps.dedup_by_key(|step| place(step));
        let t = told(&steps);
        for (addr, time) in probes {
            let addr = 0xff0 + addr;
            prop_assert_eq!(name_at(&t, addr, time), slow_lookup(&steps, addr, time), "{:#x} at {}", addr, time);
        }
        for (_, text) in t.texts() {
            prop_assert!(text.gone.is_none_or(|gone| text.born <= gone));
        }
    }

    /// What can have happened, told in any order: the answer is that of the right order.
    #[test]
    fn the_order_of_telling_makes_no_difference(
        (steps, mixed) in histories().prop_flat_map(|steps| (Just(steps.clone()), Just(steps).prop_shuffle())),
    ) {
        let t = told(&mixed);
        for time in 0..40 {
            for addr in (0x1000..0x1200).step_by(16) {
                prop_assert_eq!(name_at(&t, addr, time), slow_lookup(&steps, addr, time), "{:#x} at {}", addr, time);
            }
        }
        let ends = |steps: &[Step]| -> Vec<(u64, Option<u64>)> {
            let t = told(steps);
            let mut ends: Vec<_> = t.texts().filter(|(_, text)| text.gone != Some(text.born)).map(|(_, text)| (text.born, text.gone)).collect();
            ends.sort_unstable();
            ends
        };
        prop_assert_eq!(ends(&steps), ends(&mixed));
        prop_assert!(t.texts().all(|(_, text)| !text.uncertain), "nothing is missing");
    }
}
