//! Deferred freeing by passes: what has gone is held until nothing that can still be read speaks of it.
//!
//! A producer hands over nodes that are over ([`Lists::defer`]). A reader drains all of its rings, again and again; each
//! complete drain is a **pass**, and at its end the reader calls [`Lists::advance`], which gives back the nodes that may
//! be freed now. [`Lists::close`] gives back all at once, when there is no reader any more.
//!
//! # The argument
//!
//! ```text
//!    defer ──▶ [ new ] ──advance──▶ [ old ] ──advance──▶ [ oldest ] ──advance──▶ freed
//! ```
//!
//! Let a node be deferred at time *t*, inside of pass *j* (a pass snapshots the head of every ring when it begins, and
//! reads up to there). A record that speaks of the node was published before *t*: what has gone is no longer spoken of.
//!
//! 1. The record may have been published after pass *j* took its snapshot of that ring. So the end of pass *j* proves
//!    nothing, and freeing there, as one list would, is wrong.
//! 2. Pass *j + 1* snapshots every ring after pass *j* has ended, thus after *t*. It reads every record that speaks of the
//!    node, whichever ring it is in. If whatever is done for a record (copying the text that it names) is done before its
//!    pass ends, then nobody needs the node after the end of pass *j + 1*: two lists are enough.
//! 3. The third list is for work that a record of pass *j + 1* starts and that ends one pass later, and for passes that
//!    are not the same moment for all: a ring that is read by another thread, late by less than one pass.
//!
//! A node is freed at the end of pass *j + 2*. What it takes: **passes are of all rings and all readers** (one that did
//! not answer ends no pass); a pass that is not complete must not call `advance`; skipping `advance` only delays. If
//! records were lost, those of the node may be among them: what was lost is not waited for, the rest holds as above.
//!
//! # Nodes
//!
//! The crate allocates nothing, never panics, has no unsafe code and needs no `std`, so that the same code can run in a
//! kernel. Its lists are intrusive: each node holds the link to the next, and a [`Store`] says where. A node is in one
//! list at most, and must stay where it is until it was given back. Only the order of the calls is the crate's concern;
//! whoever shares lists between threads puts a lock around them, and frees outside of it: a [`Chain`] that was given back
//! is no longer part of the lists.
#![no_std]
#![forbid(unsafe_code)]

/// Where the links between nodes are kept.
pub trait Store {
    /// Names a node: an index, or a pointer.
    type Node: Copy;

    /// The node that [`Store::set_next`] last put behind this one.
    fn next(&self, node: Self::Node) -> Option<Self::Node>;

    /// Puts a node, or nothing, behind this one.
    fn set_next(&mut self, node: Self::Node, next: Option<Self::Node>);
}

/// Nodes in the order in which they were put in.
#[derive(Debug)]
struct List<N> {
    /// First, last, and how many.
    ends: Option<(N, N)>,
    len: usize,
}

impl<N> List<N> {
    const EMPTY: List<N> = List { ends: None, len: 0 };
}

impl<N: Copy> List<N> {
    fn push(&mut self, store: &mut impl Store<Node = N>, node: N) {
        store.set_next(node, None);
        self.ends = match self.ends {
            Some((first, last)) => {
                store.set_next(last, Some(node));
                Some((first, node))
            }
            None => Some((node, node)),
        };
        self.len = self.len.saturating_add(1);
    }
}

/// The three lists of nodes that wait.
#[derive(Debug)]
pub struct Lists<N> {
    new: List<N>,
    old: List<N>,
    oldest: List<N>,
    closed: bool,
}

/// The lists are closed: nobody reads, so the node can be freed at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

impl<N> Lists<N> {
    /// Lists with nothing in them.
    pub const fn new() -> Lists<N> {
        Lists { new: List::EMPTY, old: List::EMPTY, oldest: List::EMPTY, closed: false }
    }

    /// How many nodes wait.
    pub fn len(&self) -> usize {
        self.new.len.saturating_add(self.old.len).saturating_add(self.oldest.len)
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<N> Default for Lists<N> {
    fn default() -> Self {
        Lists::new()
    }
}

impl<N: Copy> Lists<N> {
    /// Takes over a node that has gone. It must be in no list.
    ///
    /// # Errors
    /// When the lists were closed: the node is still the caller's.
    pub fn defer(&mut self, store: &mut impl Store<Node = N>, node: N) -> Result<(), Closed> {
        if self.closed {
            return Err(Closed);
        }
        self.new.push(store, node);
        Ok(())
    }

    /// A complete pass has ended: what was handed over before the last pass but one began may be freed.
    #[must_use = "what is given back has to be freed"]
    pub fn advance(&mut self) -> Chain<N> {
        let new = core::mem::replace(&mut self.new, List::EMPTY);
        let old = core::mem::replace(&mut self.old, new);
        Chain([core::mem::replace(&mut self.oldest, old), List::EMPTY, List::EMPTY])
    }

    /// Nobody reads any more: all may be freed, and nothing is taken over from now on.
    #[must_use = "what is given back has to be freed"]
    pub fn close(&mut self) -> Chain<N> {
        self.closed = true;
        Chain([&mut self.oldest, &mut self.old, &mut self.new].map(|list| core::mem::replace(list, List::EMPTY)))
    }
}

/// Nodes that were given back, oldest first.
#[derive(Debug)]
pub struct Chain<N>([List<N>; 3]);

impl<N: Copy> Chain<N> {
    /// Takes the next node out; the caller may free it.
    pub fn pop(&mut self, store: &mut impl Store<Node = N>) -> Option<N> {
        let list = self.0.iter_mut().find(|list| list.ends.is_some())?;
        let (first, last) = list.ends?;
        list.len = list.len.saturating_sub(1);
        // By the count, not by the link: what a store makes of a link is not believed further than that.
        list.ends = store.next(first).filter(|_| list.len > 0).map(|next| (next, last));
        store.set_next(first, None);
        Some(first)
    }

    /// How many are left.
    pub fn len(&self) -> usize {
        self.0.iter().fold(0, |all, list| all.saturating_add(list.len))
    }

    /// Whether none is left.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
