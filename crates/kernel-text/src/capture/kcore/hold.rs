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

/// How things stood when a pass began.
#[derive(Clone, Copy, Debug, Default)]
struct Begun {
    /// ns of CLOCK_MONOTONIC.
    time: u64,
    query: Option<Query>,
}

/// How things stood at the questions that decide over the copies of a pass.
///
/// A record that pass *n* reads was made after the last complete pass before it had looked at its ring, and what it tells of
/// goes later still. So all that counts for a text whose end a record tells happened between the question at the beginning
/// of that complete pass and the one after the copies of pass *n*, and no call was made meanwhile but the one at the end of
/// the complete pass, which lets nothing go that was freed after its beginning.
///
/// News of the capture can be older than that: where pieces of them were lost, they are given up passes later. They carry
/// the time before which the text was not freed, and that has to be no earlier than that beginning.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Questions {
    /// At the beginning of the last complete pass before this one, and of this one.
    complete: Begun,
    begun: Begun,
}

impl Questions {
    /// From now on there is a guarantee, or there is none. Whatever is told of comes later.
    pub(super) fn joined(query: Option<Query>) -> Questions {
        let joined = Begun { time: 0, query };
        Questions { complete: joined, begun: joined }
    }

    /// A pass begins at this time.
    pub(super) fn begin(&mut self, time: u64, query: Option<Query>) {
        self.begun = Begun { time, query };
    }

    /// There was no guarantee at the end of this pass; whoever calls begins a new one. What was freed until then may have gone.
    pub(super) fn broken(&mut self) {
        self.begun.query = None;
    }

    /// It has ended, as one in which every reader answered or not.
    pub(super) fn end(&mut self, complete: bool) {
        if complete {
            self.complete = self.begun;
        }
    }

    /// Texts that waited when the pass began.
    pub(super) fn waiting(&self) -> u64 {
        self.begun.query.map_or(0, |query| query.waiting)
    }

    /// From when on what was freed is held in this pass.
    pub(super) fn since(&self) -> u64 {
        self.complete.time
    }

    /// Whether nothing that was freed from then on has been let go.
    pub(super) fn all_kept(&self, now: Option<Query>) -> bool {
        let all = [self.complete.query, self.begun.query, now];
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

    /// The next pass, in which all answer.
    fn next(questions: &mut Questions, time: u64, query: Query) {
        questions.end(true);
        questions.begin(time, Some(query));
    }

    #[test]
    fn a_broken_guarantee_counts_from_the_beginning_of_the_pass_before() {
        let broken = Query { broken: 3, ..GOOD };
        let mut questions = Questions::joined(Some(GOOD));
        questions.begin(10, Some(GOOD));
        assert!(questions.all_kept(Some(GOOD)));
        assert!(!questions.all_kept(Some(broken)), "broken while the pass copied");
        // The text whose end the next pass reads may have been among those that this pass did not know of yet.
        next(&mut questions, 20, broken);
        assert!(!questions.all_kept(Some(broken)));
        next(&mut questions, 30, broken);
        assert!(questions.all_kept(Some(broken)), "two passes later nothing is in doubt any more");
    }

    /// What comes with the pass after one that was not answered may be as old as the one before that.
    #[test]
    fn a_pass_that_is_not_complete_proves_nothing_of_the_next() {
        let broken = Query { broken: 3, ..GOOD };
        let mut questions = Questions::joined(Some(GOOD));
        questions.begin(10, Some(GOOD));
        next(&mut questions, 20, GOOD);
        assert_eq!(questions.since(), 10);
        questions.end(false);
        questions.begin(30, Some(broken));
        assert_eq!(questions.since(), 10, "the one that began at 20 read not all rings");
        questions.end(false);
        questions.begin(40, Some(broken));
        assert!(!questions.all_kept(Some(broken)), "the text may have been freed between 10 and 30");
        next(&mut questions, 50, broken);
        assert_eq!(questions.since(), 40);
        assert!(questions.all_kept(Some(broken)));
    }

    /// A module that was taken away and came back counts anew, and a call makes it promise anew.
    #[test]
    fn a_promise_that_was_made_anew_is_none_for_what_was_freed_before() {
        let fresh = Query { version: 1, guaranteed: 1, ..Query::default() };
        let mut questions = Questions::joined(Some(fresh));
        questions.begin(10, Some(fresh));
        // The module goes and comes back, and has freed nothing yet.
        questions.broken();
        next(&mut questions, 20, fresh);
        assert!(!questions.all_kept(Some(fresh)));
        next(&mut questions, 30, fresh);
        assert!(questions.all_kept(Some(fresh)));
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
        questions.begin(10, None);
        assert!(!questions.all_kept(Some(GOOD)));
        assert_eq!((questions.waiting(), Questions::joined(Some(GOOD)).waiting()), (0, 3));
    }
}
