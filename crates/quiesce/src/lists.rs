//! The queue as its only user sees it, where there is one reader that always reads and nothing bounds it.

use crate::{Limits, NotHeld, Opener, Queue, Store};

/// What waits for the one reader there is: it has joined from the start.
#[derive(Debug)]
pub struct Lists<N> {
    queue: Queue<N, 1>,
    reader: Opener,
}

impl<N> Lists<N> {
    /// Lists with nothing in them.
    pub fn new() -> Lists<N> {
        let mut lists = Lists { queue: Queue::new(Limits::NONE), reader: Opener::default() };
        // The first opener of a queue for one finds room.
        let _joined = lists.queue.qc(&mut lists.reader);
        lists
    }

    /// How many nodes wait.
    pub const fn len(&self) -> u64 {
        self.queue.len()
    }

    /// Whether none waits.
    pub const fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

impl<N> Default for Lists<N> {
    fn default() -> Self {
        Lists::new()
    }
}

impl<N: Copy> Lists<N> {
    /// Takes over a node that has gone, as [`Queue::defer`] does.
    ///
    /// # Errors
    /// When the lists were closed: the node is still the caller's.
    pub fn defer(&mut self, store: &mut impl Store<Node = N>, node: N) -> Result<(), NotHeld> {
        self.queue.defer(store, node)
    }

    /// A complete pass has ended: [`Lists::pop`] has what was handed over before the last pass but one began.
    pub fn advance(&mut self) {
        if self.queue.is_asked() {
            // It has joined, so this only advances.
            let _joined = self.queue.qc(&mut self.reader);
        }
    }

    /// Nobody reads any more: [`Lists::pop`] has everything, and nothing is taken over from now on.
    pub fn close(&mut self) {
        self.queue.close(self.reader);
    }

    /// Takes out the oldest node that may be freed, until there is none.
    #[must_use = "what is given back has to be freed"]
    pub fn pop(&mut self, store: &mut impl Store<Node = N>) -> Option<N> {
        self.queue.pop(store, 0).map(|(node, _)| node)
    }
}
