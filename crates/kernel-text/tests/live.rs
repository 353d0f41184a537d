//! A timeline that runs for ever: what changed is told once, and what is over leaves.
#![cfg(feature = "capture")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use afterimage_kernel_text::{Image, KSYMBOL_BPF, KsymChange, Live, Seen, TextKind, Way};
use afterimage_perf_data::{ImageId, TextDesc};

fn tell(live: &mut Live, time: u64, addr: u64, name: &str, unregister: bool) {
    let change = KsymChange {
        addr,
        len: 64,
        name: name.as_bytes(),
        ksym_type: KSYMBOL_BPF,
        unregister,
        origin: 1,
        loader: None,
    };
    assert!(live.timeline.apply(time, &change).is_some());
}

fn numbers(texts: &[TextDesc]) -> Vec<u64> {
    texts.iter().map(|text| text.number).collect()
}

#[test]
fn changes_are_told_once_and_texts_leave_three_passes_after_they_went() {
    let mut live = Live::new();
    tell(&mut live, 10, 0x1000, "bpf_prog_1_a", false);
    tell(&mut live, 11, 0x2000, "bpf_prog_2_b", false);
    assert_eq!(numbers(&live.pass(20).changed), [0, 1]);
    assert!(live.pass(30).changed.is_empty());

    tell(&mut live, 35, 0x1000, "bpf_prog_1_a", true);
    let hit = live.timeline.lookup(0x1000, 34).unwrap();
    live.timeline.image(hit.text, Image { id: ImageId::of(b"a"), at: 36, way: Way::FreeTime, proven: true });
    let passed = live.pass(40);
    assert_eq!((numbers(&passed.changed), passed.retired.len()), (vec![0], 0));
    assert_eq!((passed.changed[0].gone_ns, passed.changed[0].images.len()), (Some(35), 1));
    // A sample of another CPU's ring, read later.
    assert!(live.pass(50).retired.is_empty());
    assert_eq!(live.timeline.lookup(0x1010, 34).unwrap().text, hit.text);
    let passed = live.pass(60);
    assert_eq!((numbers(&passed.changed), numbers(&passed.retired)), (vec![], vec![0]));
    assert_eq!(passed.retired[0].images.len(), 1);
    assert_eq!((live.timeline.lookup(0x1010, 34), live.timeline.len()), (None, 1));

    // Numbers are not used again, and the end tells what the passes did not.
    tell(&mut live, 65, 0x1000, "bpf_prog_3_c", false);
    let (passed, timeline) = live.close();
    assert_eq!((numbers(&passed.changed), timeline.len()), (vec![2], 2));
}

/// Programs, classic ones and loads that are never told to end come and go: what the timeline holds is what lives and
/// what went in the last three passes.
#[test]
fn a_storm_leaves_nothing_behind() {
    let mut live = Live::new();
    let (mut told, mut retired, mut most) = (0, 0, 0);
    let mut held = Vec::new();
    for i in 0..60_000_u64 {
        let (time, addr) = (1000 + 10 * i, 0x10_0000 + (i * 7 % 300) * 128);
        let name = format!("bpf_prog_{i:016x}_storm");
        match i % 3 {
            0 => {
                tell(&mut live, time, addr, &name, false);
                tell(&mut live, time + 5, addr, &name, true);
            }
            // Another one takes its place, its own end is lost.
            1 => tell(&mut live, time, addr, &name, false),
            _ => {
                let seen = Seen {
                    addr,
                    len: 64,
                    name: b"",
                    kind: TextKind::Cbpf,
                    tag: None,
                    id: None,
                    function: None,
                    loader: None,
                };
                assert!(live.timeline.freed(time, &seen).is_some());
            }
        }
        live.timeline.poke(time, addr, &[1], &[2]);
        if i % 100 == 7 {
            live.timeline.lost(time + 6);
        }
        if i % 50 == 49 {
            let passed = live.pass(time);
            told += passed.changed.len();
            retired += passed.retired.len();
            most = most.max(live.timeline.len());
            held.push(live.timeline.heap_bytes());
        }
    }
    assert_eq!(retired + live.timeline.len(), 60_000);
    assert!(told >= 60_000, "{told}");
    // One may live at each of 300 starts, and 50 come in each of four passes.
    assert!(most <= 300 + 4 * 50, "{most} texts at a time");
    assert!(live.timeline.texts().any(|(_, text)| text.uncertain), "what lived when records were lost is in doubt");
    let (early, late) = (held[100..200].iter().max().unwrap(), held[held.len() - 100..].iter().max().unwrap());
    assert!(late <= &(early * 3 / 2), "{early} bytes early on, {late} at the end");
}
