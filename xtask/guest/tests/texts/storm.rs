//! Many texts that live for next to no time.

use afterimage_kernel_text::Way;
use afterimage_testkit::{Need, has, turns};

use crate::support::{long, recorded, share, share_of_perf, turn};

const FILTERS: u32 = 300;

fn programs() -> u32 {
    turns(2000)
}

#[test]
fn of_programs_closed_at_once_every_image_is_kept() {
    if !has("of_programs_closed_at_once_every_image_is_kept", &[Need::Root, Need::Bpf]) {
        return;
    }
    let _turn = turn();
    let programs = programs();
    let load = format!("bpf --count {programs} --no-info");
    let (whole, _, all) = share(&recorded(&load, None).texts(), "load_bpf", programs);
    println!("{whole} of {all} functions of {programs} programs closed at once");
    assert_eq!(whole, all);
    if long() && Need::Perf.missing().is_none() {
        println!("perf: the code of {} of {programs} programs", share_of_perf(&load, "load_bpf"));
    }
}

#[test]
fn of_classic_filters_every_image_is_kept() {
    if !has("of_classic_filters_every_image_is_kept", &[Need::Root, Need::Bpf]) {
        return;
    }
    let _turn = turn();
    let first = 0x5b00_0000u32;
    let texts = recorded(&format!("cbpf --count {FILTERS} --first {first}"), None).texts();
    let filters: Vec<_> = texts.of_kind("cbpf").collect();
    // In the accumulator first, then added as an odd number.
    let kept = (first..first + FILTERS).filter(|n| filters.iter().any(|filter| texts.holds(filter, *n))).count();
    println!("{kept} of {FILTERS} filters, {} classic texts in all", filters.len());
    assert_eq!(kept, FILTERS as usize);
    assert!(filters.iter().all(|filter| filter.gone_ns.is_some()));
}

#[test]
fn longer_lives_change_nothing() {
    if !has("longer_lives_change_nothing", &[Need::Root, Need::Bpf]) {
        return;
    }
    let _turn = turn();
    let programs = turns(200);
    for life in ["100us", "1ms", "10ms"] {
        let load = format!("bpf --count {programs} --life {life}");
        let (whole, _, all) = share(&recorded(&load, None).texts(), "load_bpf", programs);
        println!("{life}: {whole} of {all} functions of {programs} programs");
        assert_eq!(whole, all, "{life}");
    }
}

/// Copies by address alone: they race with the kernel, so the share is only told; but none of them may claim to be proven
/// and be wrong.
#[test]
fn the_window_alone() {
    if !has("the_window_alone", &[Need::Root, Need::Bpf]) {
        return;
    }
    let _turn = turn();
    for life in ["closed", "100us", "1ms"] {
        let count = if long() { programs() } else { turns(500) };
        let load = format!("bpf --count {count} --no-info --life {life}");
        let texts = recorded(&load, Some(vec![Way::RcuWindow])).texts();
        let (whole, any, all) = share(&texts, "load_bpf", count);
        println!("{life}: {any} of {all} functions copied in the window, {whole} of them proven");
        assert!(any > 0);
        assert_eq!(whole, 0, "nothing proves a copy by address alone");
        assert!(
            texts.texts.iter().all(|text| text.gone_ns.is_none() || !text.images.is_empty() || text.reason.is_some())
        );
    }
}
