//! Call chains as branches: runs of frames without a fork, under the least share that is shown.

use afterimage_profile::{Node, Tree};

use crate::terminal::clean;

/// Frames that every sample below shares, then what forks off.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Branch {
    /// The names along the run; never empty.
    pub(crate) names: Vec<String>,
    /// The period of all samples that go through.
    pub(crate) total: u64,
    /// The period of the samples whose chain ends here.
    pub(crate) own: u64,
    /// Heaviest first.
    pub(crate) branches: Vec<Branch>,
}

/// The least period that is shown, below a node of `total`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Least {
    /// The same everywhere.
    Period(u64),
    /// A share of the branch that it forks from.
    Share(f64),
}

impl Least {
    fn below(self, parent: u64) -> u64 {
        match self {
            Least::Period(period) => period,
            // A float holds any period closely enough for a threshold.
            Least::Share(share) => (parent as f64 * share).ceil() as u64,
        }
    }
}

/// The branches of a tree. Runs are joined before anything is left out, so that a percentage stands at every fork that
/// was there.
pub(crate) fn branches(tree: &Tree, total: u64, least: Least) -> Vec<Branch> {
    forks(&tree.nodes, total, least)
}

fn forks(nodes: &[Node], parent: u64, least: Least) -> Vec<Branch> {
    let floor = least.below(parent);
    nodes.iter().filter(|node| node.total.period >= floor).map(|node| run(node, least)).collect()
}

fn run(first: &Node, least: Least) -> Branch {
    let mut names = vec![name(first)];
    let mut last = first;
    while let ([only], 0) = (last.nodes.as_slice(), last.own.records) {
        names.push(name(only));
        last = only;
    }
    let below = last.total.period.saturating_sub(last.own.period);
    Branch { names, total: last.total.period, own: last.own.period, branches: forks(&last.nodes, below, least) }
}

fn name(node: &Node) -> String {
    clean(&node.frame.name()).into_owned()
}
