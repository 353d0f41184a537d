//! What was not kept of kernel text, in words.

use afterimage_kernel_text::capture::Stats;

/// What was not kept, a line each. `at_end`: texts are copied at their end, and those at the free come on top of it; `late` of
/// these copies were of texts that were told of too late.
pub(crate) fn lines(stats: &Stats, at_end: bool, late: u64, functions_left_out: usize) -> Vec<String> {
    let (ring_full, dropped) = match at_end {
        false => (
            "kernel texts went without a copy: the ring of the capture was full",
            "kernel texts went without a copy: more came than is kept between two passes",
        ),
        true => (
            "kernel texts went unseen, for the ring of the capture was full: classic filters and modules among them have \
             no copy",
            "copies that were made as kernel texts went were dropped: more came than is kept between two passes",
        ),
    };
    let lines = [
        (stats.ring_full, ring_full),
        (stats.dropped, dropped),
        (stats.unreadable, "kernel texts could not be read as they went"),
        (stats.kcore_unproven, "copies of kernel text are not proven: the kernel held less text than it promised"),
        (late, "copies of kernel text are not proven: that it went was told too late for the kernel to hold it"),
        (
            stats.skipped,
            "times a program that copies what goes was skipped by the kernel, and what went then may have no copy",
        ),
        (stats.by_id_skipped, "programs have no source lines: more came than are read in a second"),
        (functions_left_out as u64, "kernel functions that got samples are left out: they are too many or too long"),
    ];
    lines.into_iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect()
}

/// Why a text that went has no image, where nobody tried to make one.
pub(crate) fn reason(stats: &Stats, at_end: bool, absent: Option<&str>) -> String {
    match absent {
        Some(absent) => format!("nothing is captured: {absent}"),
        // The others would only have come on top of it.
        None if at_end => "nobody told in time that it went".to_owned(),
        None if stats.ring_full > 0 => "the ring of the capture was full".to_owned(),
        None if stats.dropped > 0 => "more came than is kept between two passes".to_owned(),
        None => "no way of capture saw it".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_ring_takes_no_copies_from_what_is_copied_at_its_end() {
        let stats = Stats { ring_full: 2, dropped: 3, ..Stats::default() };
        let without = |at_end| lines(&stats, at_end, 0, 0).iter().filter(|line| line.contains("went without")).count();
        assert_eq!((without(false), without(true)), (2, 0));
        let held = lines(&stats, true, 4, 0);
        assert!(held[0].starts_with("2 ") && held[0].contains("classic filters and modules among them have no copy"));
        assert!(held[1].starts_with("3 copies ") && held[2].starts_with("4 copies "), "{held:?}");
        assert_eq!(reason(&stats, false, None), "the ring of the capture was full");
        assert_eq!(reason(&stats, true, None), "nobody told in time that it went");
        assert_eq!(reason(&Stats::default(), false, None), "no way of capture saw it");
        assert_eq!(reason(&stats, true, Some("off")), "nothing is captured: off");
        assert!(lines(&Stats::default(), true, 0, 0).is_empty());
    }
}
