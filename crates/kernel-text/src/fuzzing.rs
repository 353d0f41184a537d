//! What the fuzz target does with its input. Here so that a plain test can replay its corpus; no part of the API.

use afterimage_perf_data::TextDesc;

use crate::lives::Life;
use crate::rows::NEVER;
use crate::text::{Loader, TextKind};
use crate::timeline::{KsymChange, Seen, Timeline};

/// Few addresses, so that everything meets everything.
const BASE: u64 = 0xffff_ffff_c000_0000;
const NAMES: [&str; 4] = ["bpf_prog_1_a", "bpf_prog_2_b", "bpf_trampoline_3", ""];

/// Steps of six bytes: what, time, place, length, name, and one more. A first byte of 255 makes them descriptions of texts
/// that are adopted.
///
/// Beside "no panic" it asserts that the lives at each start follow each other, that a hit lies in its text, and that
/// texts that went to a file and back are the same.
pub fn timeline(data: &[u8]) {
    let mut t = Timeline::new();
    match data.split_first() {
        Some((255, rest)) => {
            let texts: Vec<TextDesc> = steps(rest).enumerate().map(|(i, step)| described(i, step)).collect();
            t.adopt(&texts);
        }
        _ => steps(data).for_each(|step| tell(&mut t, step)),
    }
    check(&t);
    let described = t.describe();
    let mut again = Timeline::new();
    again.adopt(&described);
    check(&again);
    let same =
        |(a, b): (&TextDesc, &TextDesc)| TextDesc { number: 0, ..a.clone() } == TextDesc { number: 0, ..b.clone() };
    let read = again.describe();
    assert!(read.len() == described.len() && read.iter().zip(&described).all(same), "{read:#?} was {described:#?}");
}

fn steps(data: &[u8]) -> impl Iterator<Item = [u8; 6]> {
    data.chunks_exact(6).filter_map(|step| step.try_into().ok())
}

fn tell(t: &mut Timeline, [what, time, place, len, name, more]: [u8; 6]) {
    let time = u64::from(time % 64);
    let addr = BASE + u64::from(place % 32) * 64;
    let len = u32::from(len) * 8;
    let name = NAMES.get(usize::from(name % 4)).copied().unwrap_or_default().as_bytes();
    let change = |unregister| KsymChange {
        addr,
        len,
        name,
        ksym_type: u16::from(more % 3),
        unregister,
        origin: u32::from(more),
        loader: Some(Loader { pid: more.into(), comm: "loader" }),
    };
    let kind = TextKind::ALL.get(usize::from(more) % TextKind::ALL.len()).copied().unwrap_or(TextKind::Unknown);
    let id = (more > 128).then_some(more.into());
    let seen = Seen { addr, len, name, kind, tag: None, id, function: None, loader: None };
    match what % 10 {
        0 | 1 => drop(t.apply(time, &change(false))),
        2 | 3 => drop(t.apply(time, &change(true))),
        4 => drop(t.freed(time, &seen)),
        5 => drop(t.came(time, &seen)),
        6 => t.lost(time),
        7 => t.rescan(time, &[seen], &TextKind::ALL),
        8 => t.poke(time, addr, name, &[more; 3]),
        _ => drop(t.retire(time)),
    }
}

fn described(i: usize, [kind, born, place, len, name, gone]: [u8; 6]) -> TextDesc {
    TextDesc {
        number: i as u64,
        kind: TextKind::ALL.get(usize::from(kind) % 16).map_or("other", |kind| kind.key()).to_owned(),
        name: NAMES.get(usize::from(name % 4)).filter(|name| !name.is_empty()).map(|name| (*name).to_owned()),
        address: if place == 255 { u64::MAX - 9 } else { BASE + u64::from(place % 32) * 64 },
        length: (len % 2 == 0).then_some(u32::from(len)),
        length_reported: (len % 3 == 0).then_some(u32::from(len) * 4),
        born_ns: (born != 0).then_some(born.into()),
        gone_ns: (gone != 255).then_some(gone.into()),
        ..TextDesc::default()
    }
}

fn check(t: &Timeline) {
    t.starts.over(0, u64::MAX, |start, lives| {
        let follow =
            |pair: &[Life]| pair.first().zip(pair.last()).is_none_or(|(a, b)| a.born <= a.gone && a.gone <= b.born);
        assert!(lives.windows(2).all(follow), "{lives:?} at {start:#x}");
        assert!(lives.iter().all(|life| life.is_end_alone() || t.rows.get(life.text).is_some()), "{lives:?}");
    });
    let images = crate::Images::new();
    for place in 0..70 {
        for time in (0..66).step_by(5).chain([NEVER]) {
            let addr = BASE + place * 40;
            let _ = std::hint::black_box(t.bytes(&images, addr, 20, time));
            let Some(hit) = t.lookup(addr, time) else { continue };
            let text = t.text(hit.text);
            assert!(
                text.is_some_and(|text| text.addr + hit.offset == addr && text.born <= time),
                "{text:?} at {addr:#x}"
            );
        }
    }
}
