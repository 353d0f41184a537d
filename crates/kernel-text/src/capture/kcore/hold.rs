//! What the kernel promises of freed text (`KCORE_QC`), and when a pass ends with a call.

use afterimage_perf_event::sys::kcore::{Query, VERSION};

/// What a pass read, as far as it decides whether it ends with a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// A text was unregistered.
    pub unregistered: bool,
    /// A text was freed that no record tells of: a module, a classic filter.
    pub freed: bool,
    /// Records were lost, which may have told of either.
    pub lost: bool,
}

/// Whether the pass ends with `KCORE_QC`: a complete one that held an end of text, or might have, or one that found
/// text waiting when it began, since one call moves what waits by one list only, and not every free is announced.
pub(super) fn is_due(complete: bool, heard: Heard, waiting: u64) -> bool {
    complete && (heard.unregistered || heard.freed || heard.lost || waiting > 0)
}

/// Whether no text was freed early between two questions.
pub(super) fn is_kept(from: &Query, to: &Query) -> bool {
    let promised = |query: &Query| query.version == VERSION && query.guaranteed == 1;
    // A module that was taken away and came back counts anew.
    let same = to.freed >= from.freed && to.broken == from.broken && to.missed == from.missed;
    promised(from) && promised(to) && same
}

/// How things stood at the questions that decide over the copies of a pass.
///
/// A text whose end is read in pass *n* was freed after pass *n-1* had looked at the rings, so all that counts happened
/// between the question at the beginning of pass *n-1* and the one after the copies of pass *n*.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Questions {
    /// At the beginning of the pass before, and of this one.
    before: Option<Query>,
    begun: Option<Query>,
}

impl Questions {
    /// From now on there is a guarantee, or there is none.
    pub(super) fn joined(query: Option<Query>) -> Questions {
        Questions { before: query, begun: query }
    }

    /// A pass begins.
    pub(super) fn begin(&mut self, query: Option<Query>) {
        self.before = std::mem::replace(&mut self.begun, query);
    }

    /// Texts that waited when the pass began.
    pub(super) fn waiting(&self) -> u64 {
        self.begun.map_or(0, |query| query.waiting)
    }

    /// Whether what was copied in this pass cannot have been freed before.
    pub(super) fn all_kept(&self, now: Option<Query>) -> bool {
        let all = [self.before, self.begun, now];
        all.windows(2).all(|two| matches!(two, [Some(from), Some(to)] if is_kept(from, to)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Query =
        Query { version: 1, guaranteed: 1, waiting: 3, broken: 2, items: 9, bytes: 900, freed: 50, missed: 1 };

    #[test]
    fn a_call_ends_a_complete_pass_with_a_reason() {
        let none = Heard::default();
        for heard in [Heard { unregistered: true, ..none }, Heard { freed: true, ..none }, Heard { lost: true, ..none }]
        {
            assert!(is_due(true, heard, 0), "{heard:?}");
            assert!(!is_due(false, heard, 7), "a reader that did not answer ends no pass: {heard:?}");
        }
        assert!(is_due(true, none, 1), "what nobody announced must not stay");
        assert!(!is_due(true, none, 0));
    }

    #[test]
    fn a_broken_guarantee_counts_from_the_beginning_of_the_pass_before() {
        let broken = Query { broken: 3, ..GOOD };
        let mut questions = Questions::joined(Some(GOOD));
        questions.begin(Some(GOOD));
        assert!(questions.all_kept(Some(GOOD)));
        assert!(!questions.all_kept(Some(broken)), "broken while the pass copied");
        // The text whose end the next pass reads may have been among those that this pass did not know of yet.
        questions.begin(Some(broken));
        assert!(!questions.all_kept(Some(broken)));
        questions.begin(Some(broken));
        assert!(questions.all_kept(Some(broken)), "two passes later nothing is in doubt any more");
    }

    #[test]
    fn whatever_is_not_known_is_no_promise() {
        let others = [
            Query { missed: 2, ..GOOD },
            Query { guaranteed: 0, ..GOOD },
            Query { version: 2, ..GOOD },
            // Taken away and loaded again.
            Query { freed: 10, ..GOOD },
            Query { freed: 0, broken: 0, missed: 0, waiting: 0, ..GOOD },
        ];
        for other in others {
            assert!(!is_kept(&GOOD, &other), "{other:?}");
        }
        assert!(is_kept(&GOOD, &Query { freed: 99, waiting: 0, items: 0, bytes: 0, ..GOOD }));
        let mut questions = Questions::joined(Some(GOOD));
        assert!(!questions.all_kept(None));
        questions.begin(None);
        assert!(!questions.all_kept(Some(GOOD)));
        assert_eq!((questions.waiting(), Questions::joined(Some(GOOD)).waiting()), (0, 3));
    }
}
