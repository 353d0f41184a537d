//! The lists against a model that remembers when each node was handed over, and against readers that lag.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::collections::VecDeque;

use afterimage_quiesce::{Lists, NotHeld, Store};
use proptest::prelude::*;

/// Links by index.
#[derive(Default)]
struct Links(Vec<Option<usize>>);

impl Store for Links {
    type Node = usize;

    fn next(&self, node: usize) -> Option<usize> {
        self.0[node]
    }

    fn set_next(&mut self, node: usize, next: Option<usize>) {
        self.0[node] = next;
    }
}

fn due(lists: &mut Lists<usize>, links: &mut Links) -> Vec<usize> {
    let before = lists.len();
    let nodes: Vec<usize> = std::iter::from_fn(|| lists.pop(links)).collect();
    assert_eq!(lists.len() + nodes.len() as u64, before);
    nodes
}

fn advance(lists: &mut Lists<usize>, links: &mut Links) -> Vec<usize> {
    lists.advance();
    due(lists, links)
}

fn close(lists: &mut Lists<usize>, links: &mut Links) -> Vec<usize> {
    lists.close();
    due(lists, links)
}

#[test]
fn a_node_is_given_back_by_the_third_pass_that_ends_after_it() {
    let (mut lists, mut links) = (Lists::new(), Links(vec![None; 3]));
    lists.defer(&mut links, 0).unwrap();
    assert_eq!(advance(&mut lists, &mut links), []);
    lists.defer(&mut links, 1).unwrap();
    assert_eq!(advance(&mut lists, &mut links), []);
    assert_eq!(lists.len(), 2);
    assert_eq!(advance(&mut lists, &mut links), [0]);
    lists.defer(&mut links, 0).unwrap();
    assert_eq!(advance(&mut lists, &mut links), [1]);
    assert_eq!(close(&mut lists, &mut links), [0]);
    assert_eq!(lists.defer(&mut links, 2), Err(NotHeld));
    assert!(lists.is_empty());
}

#[derive(Clone, Debug)]
enum Step {
    Defer,
    Advance,
    Close,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![6 => Just(Step::Defer), 3 => Just(Step::Advance), 1 => Just(Step::Close)];
    prop::collection::vec(step, 0..200)
}

proptest! {
    #[test]
    fn equals_the_model(steps in steps()) {
        let (mut lists, mut links) = (Lists::new(), Links::default());
        // Nodes that wait, each with how many passes had ended when it was handed over.
        let mut model: VecDeque<(usize, u32)> = VecDeque::new();
        let (mut passes, mut closed) = (0, false);
        for step in steps {
            match step {
                Step::Defer => {
                    links.0.push(None);
                    let node = links.0.len() - 1;
                    prop_assert_eq!(lists.defer(&mut links, node).is_err(), closed);
                    if !closed {
                        model.push_back((node, passes));
                    }
                }
                Step::Advance => {
                    passes += 1;
                    let due = model.iter().take_while(|(_, at)| at + 3 <= passes).count();
                    let due: Vec<usize> = model.drain(..due).map(|(node, _)| node).collect();
                    prop_assert_eq!(advance(&mut lists, &mut links), due);
                }
                Step::Close => {
                    closed = true;
                    let due: Vec<usize> = model.drain(..).map(|(node, _)| node).collect();
                    prop_assert_eq!(close(&mut lists, &mut links), due);
                }
            }
            prop_assert_eq!(lists.len(), model.len() as u64);
        }
    }

    /// Whatever the order, no record that is read names a node that was freed.
    #[test]
    fn no_record_names_what_was_freed(script in prop::collection::vec((0_usize..4, 0_usize..3), 1..300)) {
        prop_assert!(read_only_what_is_there(&script, 1));
    }
}

/// Rings of three CPUs, each read up to where it stood when the pass began. Steps: 0 and 1, a node comes and goes, its
/// record first, on the CPU of that number; 2, a pass begins; 3, it ends. The lists advance so often at the end of each
/// pass. Answers whether every record that was read named a node that was not freed.
fn read_only_what_is_there(script: &[(usize, usize)], advances: u32) -> bool {
    let mut rings: [VecDeque<usize>; 3] = Default::default();
    let (mut lists, mut links) = (Lists::new(), Links::default());
    let mut freed = Vec::new();
    let mut heads = None;
    for (what, ring) in script {
        match what {
            0 | 1 => {
                links.0.push(None);
                freed.push(false);
                rings[*ring].push_back(freed.len() - 1);
                lists.defer(&mut links, freed.len() - 1).unwrap();
            }
            2 => heads = heads.or_else(|| Some(rings.each_ref().map(VecDeque::len))),
            _ => {
                let Some(heads) = heads.take() else { continue };
                let mut read = rings.iter_mut().zip(heads).flat_map(|(ring, head)| ring.drain(..head));
                if read.any(|node| freed[node]) {
                    return false;
                }
                drop(read);
                for _ in 0..advances {
                    advance(&mut lists, &mut links).into_iter().for_each(|node| freed[node] = true);
                }
            }
        }
    }
    true
}

/// Why one list is too few: the record came behind the head that the pass had looked at.
#[test]
fn with_fewer_lists_a_record_would_name_what_was_freed() {
    let script = [(2, 0), (0, 1), (3, 0), (2, 0), (3, 0)];
    assert!(!read_only_what_is_there(&script, 3));
    assert!(read_only_what_is_there(&script, 1));
}
