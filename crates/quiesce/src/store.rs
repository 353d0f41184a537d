//! Where the nodes are: with whoever uses the queue.

/// Where the links between nodes are kept, and what is known of each node.
///
/// The queue calls this with its own state whole, before or after a change, and never by way of anything that could
/// come back to it. What a store answers is not trusted further than to give the wrong node or to end a list early.
pub trait Store {
    /// Names a node: an index, or a pointer.
    type Node: Copy;

    /// The node that [`Store::set_next`] last put behind this one.
    fn next(&self, node: Self::Node) -> Option<Self::Node>;

    /// Puts a node, or nothing, behind this one.
    fn set_next(&mut self, node: Self::Node, next: Option<Self::Node>);

    /// How many bytes stay occupied while the node waits. The same each time as long as it does.
    fn bytes(&self, node: Self::Node) -> u64 {
        let _ = node;
        0
    }

    /// When the node was handed over, in the unit of [`Limits::age`](crate::Limits::age). Never less than that of the
    /// node before it; a node that is given as older than it is goes sooner.
    fn since(&self, node: Self::Node) -> u64 {
        let _ = node;
        0
    }
}
