//! The queue against a reference that keeps, for each node, how often each opener has called since, and against stores
//! that lie.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::collections::BTreeMap;

use afterimage_quiesce::{Limits, NotHeld, Opener, Place, Queue, Slab, Standing, Store, TooMany, Why};
use proptest::prelude::*;

const OPENERS: usize = 3;

type Places<'a> = Slab<&'a mut [Place<u32>]>;

#[derive(Clone, Debug)]
enum Step {
    /// So many bytes, so much later.
    Defer(u64, u64),
    Qc(usize),
    Close(usize),
    /// Time goes by.
    Wait(u64),
    Limit(Limits),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let limits = (0_u64..20, 0_u64..200, 0_u64..60).prop_map(|(items, bytes, age)| Limits { items, bytes, age });
    let step = prop_oneof![
        8 => (0_u64..40, 0_u64..4).prop_map(|(bytes, later)| Step::Defer(bytes, later)),
        // One more than there is room for.
        6 => (0..=OPENERS).prop_map(Step::Qc),
        1 => (0..=OPENERS).prop_map(Step::Close),
        1 => (0_u64..30).prop_map(Step::Wait),
        1 => prop_oneof![Just(Limits::NONE), limits].prop_map(Step::Limit),
    ];
    prop::collection::vec(step, 0..300)
}

struct Node {
    item: u32,
    bytes: u64,
    since: u64,
    /// The openers that may rely on it, and how often each has called.
    calls: BTreeMap<usize, u32>,
}

/// A plain list of all that waits, looked through from one end to the other for everything.
struct Reference {
    waiting: Vec<Node>,
    /// Nodes that each opener lost.
    joined: BTreeMap<usize, u64>,
    limits: Limits,
    now: u64,
}

impl Reference {
    fn pop(&mut self) -> Option<(u32, Why)> {
        let oldest = self.waiting.first()?;
        let bytes: u64 = self.waiting.iter().map(|node| node.bytes).sum();
        let why = if oldest.calls.values().all(|calls| *calls >= 3) {
            Why::Passed
        } else if self.waiting.len() as u64 > self.limits.items {
            Why::Items
        } else if bytes > self.limits.bytes {
            Why::Bytes
        } else if self.now - oldest.since > self.limits.age {
            Why::Age
        } else {
            return None;
        };
        let oldest = self.waiting.remove(0);
        for (opener, _) in oldest.calls.iter().filter(|(_, calls)| **calls < 3) {
            *self.joined.get_mut(opener).unwrap() += 1;
        }
        Some((oldest.item, why))
    }

    fn standing(&self, opener: usize) -> Option<Standing> {
        let waits = |node: &&Node| node.calls.get(&opener).is_some_and(|calls| *calls < 3);
        let broken = *self.joined.get(&opener)?;
        Some(Standing { waiting: self.waiting.iter().filter(waits).count() as u64, broken })
    }

    fn qc(&mut self, opener: usize) -> Result<(), TooMany> {
        if !self.joined.contains_key(&opener) {
            if self.joined.len() == OPENERS {
                return Err(TooMany);
            }
            self.joined.insert(opener, 0);
        }
        self.waiting.iter_mut().filter_map(|node| node.calls.get_mut(&opener)).for_each(|calls| *calls += 1);
        Ok(())
    }

    fn close(&mut self, opener: usize) {
        self.joined.remove(&opener);
        for node in &mut self.waiting {
            node.calls.remove(&opener);
        }
    }
}

fn defer(queue: &mut Queue<u32, OPENERS>, slab: &mut Places<'_>, reference: &mut Reference, node: Node) {
    let (item, held) = (node.item, !reference.joined.is_empty());
    let place = slab.take(item, node.bytes, node.since).unwrap();
    let taken = queue.defer(slab, place);
    assert_eq!(taken, if held { Ok(()) } else { Err(NotHeld) });
    if held {
        reference.waiting.push(node);
    } else {
        assert_eq!(slab.give_back(place), Some(item));
    }
}

proptest! {
    #[test]
    fn equals_the_reference(steps in steps()) {
        let mut memory = vec![Place::default(); steps.len()];
        let mut slab: Places<'_> = Slab::new(&mut memory);
        let mut queue: Queue<u32, OPENERS> = Queue::new(Limits::NONE);
        let mut openers = [Opener::default(); OPENERS + 1];
        let mut reference = Reference { waiting: Vec::new(), joined: BTreeMap::new(), limits: Limits::NONE, now: 0 };
        let mut freed = 0;
        for (item, step) in (0..).zip(steps) {
            match step {
                Step::Defer(bytes, later) => {
                    reference.now += later;
                    let calls = reference.joined.keys().map(|opener| (*opener, 0)).collect();
                    let node = Node { item, bytes, since: reference.now, calls };
                    defer(&mut queue, &mut slab, &mut reference, node);
                }
                Step::Qc(at) => prop_assert_eq!(queue.qc(&mut openers[at]), reference.qc(at)),
                Step::Close(at) => {
                    // What is left of it afterwards is good for nothing, and joins as if it were new.
                    queue.close(openers[at]);
                    reference.close(at);
                }
                Step::Wait(time) => reference.now += time,
                Step::Limit(limits) => {
                    queue.limit(limits);
                    reference.limits = limits;
                }
            }
            loop {
                let due = reference.pop();
                let before = openers.map(|opener| queue.standing(opener));
                let popped = queue.pop(&mut slab, reference.now);
                prop_assert_eq!(popped.map(|(place, why)| (slab.give_back(place).unwrap(), why)), due);
                // Nobody pays for a bound but who has more waiting than may.
                let after = openers.map(|opener| queue.standing(opener));
                for (before, after) in before.iter().zip(after).filter_map(|(before, after)| before.zip(after)) {
                    let paid = due.is_some_and(|(_, why)| why == Why::Items) && after.broken > before.broken;
                    prop_assert!(!paid || before.waiting > reference.limits.items);
                }
                if due.is_none() {
                    break;
                }
                freed += 1;
            }
            prop_assert_eq!((queue.len(), queue.freed()), (reference.waiting.len() as u64, freed));
            prop_assert_eq!(queue.bytes(), reference.waiting.iter().map(|node| node.bytes).sum::<u64>());
            prop_assert_eq!(u64::from(slab.taken()), queue.len());
            prop_assert_eq!(queue.is_asked(), !reference.joined.is_empty());
            for (at, opener) in openers.iter().enumerate() {
                prop_assert_eq!(queue.standing(*opener), reference.standing(at));
            }
        }
        openers.into_iter().for_each(|opener| queue.close(opener));
        while let Some((place, why)) = queue.pop(&mut slab, reference.now) {
            prop_assert_eq!(why, Why::Passed);
            slab.give_back(place);
        }
        prop_assert!(queue.is_empty() && slab.into_places().is_ok());
    }

    /// A store that answers anything: no panic, and no more comes out than went in.
    #[test]
    fn a_store_that_lies_ends_nothing(answers in prop::collection::vec(any::<u64>(), 1..64), puts in 0_u32..40) {
        let mut store = Liar { answers, at: 0.into() };
        let mut queue: Queue<u32, 1> = Queue::new(Limits { items: 30, bytes: u64::MAX / 2, age: 1 << 60 });
        let mut opener = Opener::default();
        queue.qc(&mut opener).unwrap();
        (0..puts).for_each(|node| queue.defer(&mut store, node).unwrap());
        let mut out = 0;
        while queue.pop(&mut store, u64::MAX).is_some() {
            out += 1;
        }
        queue.close(opener);
        while queue.pop(&mut store, u64::MAX).is_some() {
            out += 1;
        }
        prop_assert!(out <= puts && queue.is_empty() && queue.bytes() == 0);
    }
}

struct Liar {
    answers: Vec<u64>,
    at: std::cell::Cell<usize>,
}

impl Liar {
    fn answer(&self) -> u64 {
        self.at.set(self.at.get() + 1);
        self.answers[self.at.get() % self.answers.len()]
    }
}

impl Store for Liar {
    type Node = u32;

    fn next(&self, _: u32) -> Option<u32> {
        let answer = self.answer();
        (answer % 8 != 0).then_some(answer as u32)
    }

    fn set_next(&mut self, _: u32, _: Option<u32>) {}

    fn bytes(&self, _: u32) -> u64 {
        self.answer()
    }

    fn since(&self, _: u32) -> u64 {
        self.answer()
    }
}

/// One opener sleeps, another goes on: the bound is met at the cost of the first.
#[test]
fn one_that_keeps_up_loses_nothing_to_one_that_does_not() {
    let mut memory = [Place::default(); 64];
    let mut slab = Slab::new(&mut memory[..]);
    let mut queue: Queue<u32, 2> = Queue::new(Limits { items: 12, ..Limits::NONE });
    let (mut awake, mut asleep) = (Opener::default(), Opener::default());
    queue.qc(&mut awake).unwrap();
    queue.qc(&mut asleep).unwrap();
    for round in 0..100 {
        // Four a pass: twelve are in the three lists, and at most as many are allowed.
        for item in 0..4 {
            let place = slab.take(item, 1, round).unwrap();
            queue.defer(&mut slab, place).unwrap();
            while let Some((place, why)) = queue.pop(&mut slab, round) {
                assert_eq!(why, Why::Items);
                slab.give_back(place).unwrap();
            }
        }
        queue.qc(&mut awake).unwrap();
        assert_eq!(queue.pop(&mut slab, round), None);
    }
    assert_eq!(queue.standing(awake), Some(Standing { waiting: 8, broken: 0 }));
    assert_eq!(queue.standing(asleep), Some(Standing { waiting: 12, broken: 388 }));
    queue.missed();
    assert_eq!([awake, asleep].map(|opener| queue.standing(opener).unwrap().broken), [1, 389]);
    queue.close(asleep);
    // Four are still its own: in the third list of the other, which is through with them now.
    assert_eq!(queue.due(), 4);
}

#[test]
fn what_has_waited_too_long_goes_at_its_time() {
    let mut slab = Slab::new([Place::default(); 4]);
    let mut queue: Queue<u32, 1> = Queue::new(Limits { age: 10, ..Limits::NONE });
    let mut opener = Opener::default();
    queue.qc(&mut opener).unwrap();
    assert_eq!(queue.expires(&slab), None);
    for since in [100, 105] {
        let place = slab.take('x', 1, since).unwrap();
        queue.defer(&mut slab, place).unwrap();
    }
    assert_eq!(queue.expires(&slab), Some(110));
    assert_eq!(queue.pop(&mut slab, 110), None);
    assert_eq!(queue.pop(&mut slab, 111), Some((0, Why::Age)));
    assert_eq!((queue.pop(&mut slab, 111), queue.expires(&slab)), (None, Some(115)));
    // A clock that goes back frees nothing.
    assert_eq!(queue.pop(&mut slab, 0), None);
}

#[test]
fn an_opener_that_was_closed_is_nobody() {
    let mut slab = Slab::new([Place::default(); 4]);
    let mut queue: Queue<u32, 1> = Queue::new(Limits::NONE);
    let (mut first, mut second, mut third) = (Opener::default(), Opener::default(), Opener::default());
    queue.qc(&mut first).unwrap();
    assert_eq!(queue.qc(&mut third), Err(TooMany));
    queue.close(first);
    queue.qc(&mut second).unwrap();
    let place = slab.take('x', 1, 0).unwrap();
    queue.defer(&mut slab, place).unwrap();
    // In the same slot, but not the same.
    queue.close(first);
    assert_eq!((queue.standing(first), queue.qc(&mut first)), (None, Err(TooMany)));
    assert_eq!(queue.standing(second), Some(Standing { waiting: 1, broken: 0 }));
    queue.close(third);
    assert_eq!(queue.pop(&mut slab, 0), None);
    queue.close(second);
    assert_eq!(queue.pop(&mut slab, 0), Some((place, Why::Passed)));
}

#[test]
fn places_are_taken_and_given_back_once() {
    let mut slab = Slab::new([Place::default(); 2]);
    let (one, two) = (slab.take('a', 1, 0).unwrap(), slab.take('b', 1, 0).unwrap());
    assert_eq!((slab.take('c', 1, 0), slab.item(one), slab.item(2)), (None, Some(&'a'), None));
    assert_eq!((slab.give_back(one), slab.give_back(one), slab.give_back(7)), (Some('a'), None, None));
    assert_eq!((slab.taken(), slab.item(one)), (1, None));
    let mut slab = slab.into_places().unwrap_err();
    assert_eq!((slab.take('c', 1, 0), slab.take('d', 1, 0)), (Some(one), None));
    assert_eq!((slab.give_back(two), slab.give_back(one)), (Some('b'), Some('c')));
    assert_eq!((slab.take('e', 1, 0), slab.take('f', 1, 0), slab.take('g', 1, 0)), (Some(one), Some(two), None));
    assert_eq!((slab.give_back(one), slab.give_back(two)), (Some('e'), Some('f')));
    assert!(slab.into_places().is_ok());
}
