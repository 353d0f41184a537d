//! The argument of the crate, explored: every order in which text can come and go on two CPUs, and readers open, pass,
//! copy, call and close, around the queue as it is. No copy may get what was freed, and nothing may wait for ever.
//! `cargo test -p afterimage-quiesce --lib -- --nocapture` shows what was explored, and how each variant fails.
//! `AFTERIMAGE_LONG=1` explores more of it, for minutes.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod explore;
mod lock;
mod setup;
mod world;

use std::println;
use std::time::Instant;
use std::vec::Vec;

use explore::{Model, explore};
use lock::Sharing;
use setup::Kind::{Program, Silent, Trampoline};
use setup::{Loss, Setup, Skips};

use crate::Limits;

/// The recorder's rules: it asks at the begin of each pass, and ends it with a call if something waits.
const RULES: Setup = Setup {
    texts: &[Program],
    readers: 1,
    opens: 1,
    losses: 0,
    limits: Limits::NONE,
    lists: 3,
    threads: false,
    skips: Skips::Never,
    shared: false,
    early: false,
    late: false,
    unregister: 1,
    loss: Loss::Count,
    query: true,
};

const ONE_TEXT: Limits = Limits { items: 1, ..Limits::NONE };

/// Explores everything, says how much that was, and gives the shortest way to a fault.
fn run(what: &str, model: &impl Model) -> Option<Vec<std::string::String>> {
    let start = Instant::now();
    let found = explore(model);
    let seconds = start.elapsed().as_secs_f32();
    println!("{what}: {} states, {} steps, depth {}, {seconds:.1} s", found.states, found.steps, found.depth);
    found.fault
}

fn holds(what: &str, model: &impl Model) {
    let fault = run(what, model);
    assert_eq!(fault, None, "{what}");
}

/// Explores until the fault, shows it, and checks how it ends.
fn fails(what: &str, model: &impl Model, end: &str) {
    let way = run(what, model).unwrap_or_else(|| panic!("{what} has no fault"));
    way.iter().enumerate().for_each(|(at, line)| println!("  {:2}. {line}", at + 1));
    println!();
    assert!(way.last().is_some_and(|line| line.contains(end)), "{what}");
}

/// Whether there are minutes.
fn long() -> bool {
    std::env::var_os("AFTERIMAGE_LONG").is_some()
}

const COPIED: &str = "that was freed, though it was held for it";
const STAYS: &str = "still waits, and passes make no calls any more";

#[test]
fn one_reader_copies_only_what_is_there_and_nothing_stays() {
    holds("two programs", &Setup { texts: &[Program, Program], ..RULES });
    holds("all kinds: program, trampoline, filter", &Setup { texts: &[Program, Trampoline, Silent], ..RULES });
    holds("program, trampoline, with losses", &Setup { texts: &[Program, Trampoline], losses: 2, ..RULES });
    holds(
        "all kinds, of which one text may wait",
        &Setup { texts: &[Program, Trampoline, Silent], limits: ONE_TEXT, ..RULES },
    );
    holds("opened twice", &Setup { texts: &[Program, Trampoline], opens: 2, ..RULES });
    if long() {
        holds("all kinds with two losses", &Setup { texts: &[Program, Trampoline, Silent], losses: 2, ..RULES });
        let texts = &[Program, Program, Trampoline];
        holds("three texts with two losses", &Setup { texts, losses: 2, ..RULES });
        holds("three texts, late copies", &Setup { texts, late: true, ..RULES });
    }
}

#[test]
fn two_readers_do_no_harm_to_each_other() {
    holds("two readers, program", &Setup { readers: 2, ..RULES });
    holds("two readers, program, filter", &Setup { texts: &[Program, Silent], readers: 2, ..RULES });
    holds("two readers, a loss", &Setup { readers: 2, losses: 1, ..RULES });
    let limits = Limits { age: 0, ..Limits::NONE };
    holds("two readers, text gets too old", &Setup { texts: &[Trampoline, Silent], readers: 2, limits, ..RULES });
    holds(
        "two readers, one text may wait",
        &Setup { texts: &[Trampoline, Silent], readers: 2, limits: ONE_TEXT, ..RULES },
    );
    if long() {
        holds("two readers, two programs", &Setup { texts: &[Program, Program], readers: 2, ..RULES });
        holds("two readers, two losses", &Setup { texts: &[Program, Silent], readers: 2, losses: 2, ..RULES });
        let texts = &[Trampoline, Trampoline];
        holds("two readers that open twice", &Setup { texts, readers: 2, opens: 2, ..RULES });
        holds("two readers, three texts", &Setup { texts: &[Program, Trampoline, Silent], readers: 2, ..RULES });
    }
}

#[test]
fn threads_that_share_it_free_everything_once() {
    holds("hooks and openers under a lock", &Sharing { waits: true });
    fails("a first call that waits for no hook", &Sharing { waits: false }, "had been promised to find it");
}

#[test]
fn two_lists_are_enough_and_the_third_is_for_what_is_late() {
    let rules = Setup { texts: &[Program, Trampoline], early: true, ..RULES };
    holds("two lists", &Setup { lists: 2, ..rules });
    holds("late copies, three lists", &Setup { late: true, ..rules });
    fails("late copies, two lists", &Setup { late: true, lists: 2, ..rules }, COPIED);
    holds("a ring read one pass late, three lists", &Setup { skips: Skips::NotTwice, ..rules });
    fails("a ring read one pass late, two lists", &Setup { skips: Skips::NotTwice, lists: 2, ..rules }, COPIED);
}

#[test]
fn what_is_less_than_a_pass_protects_nobody() {
    let rules = Setup { early: true, ..RULES };
    // A single text does not show it: a call that was made because something waited has a whole pass before it.
    holds("one list, one text", &Setup { lists: 1, ..rules });
    fails("one list", &Setup { texts: &[Program, Trampoline], lists: 1, ..rules }, COPIED);
    fails("passes that may skip a ring", &Setup { skips: Skips::AtWill, ..rules }, COPIED);
    fails("calls by each thread", &Setup { threads: true, ..rules }, COPIED);
    fails("lists that two openers share", &Setup { readers: 2, shared: true, ..rules }, COPIED);
}

#[test]
fn without_the_query_something_stays() {
    let letter = Setup { query: false, loss: Loss::Ignored, early: true, ..RULES };
    fails("a call only after an unregister", &letter, STAYS);
    fails("the same, text without records", &Setup { texts: &[Silent], ..letter }, STAYS);
    // As many calls as there are lists, so that nothing else is to blame.
    let letter = Setup { unregister: 3, ..letter };
    fails("three calls after an unregister, freed later", &letter, STAYS);
    let at_once = Setup { texts: &[Trampoline, Trampoline], ..letter };
    holds("three calls after an unregister, freed at once", &at_once);
    fails("the same, no call after a loss", &Setup { losses: 1, ..at_once }, STAYS);
    fails("the same, calls after a record of a loss", &Setup { losses: 1, loss: Loss::Record, ..at_once }, STAYS);
    holds("the same, calls when the count of losses rose", &Setup { losses: 1, loss: Loss::Count, ..at_once });
}
