//! Call chains as branches: runs of frames without a fork, under the least share that is shown.

use afterimage_profile::{ChainKey, Node, Profile, SortKey, Tree, Weight};

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
    /// How many samples go through.
    pub(crate) total_samples: u64,
    /// How many samples' chains end here.
    pub(crate) own_samples: u64,
    /// Heaviest first.
    pub(crate) branches: Vec<Branch>,
}

impl Branch {
    /// A run of these names, what goes through it and what ends in it.
    pub(super) fn of(names: Vec<String>, total: Weight, own: Weight, branches: Vec<Branch>) -> Branch {
        Branch {
            names,
            total: total.period,
            own: own.period,
            total_samples: total.samples,
            own_samples: own.samples,
            branches,
        }
    }
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
    /// The least period below a node of so much.
    pub(super) fn below(self, parent: u64) -> u64 {
        match self {
            Least::Period(period) => period,
            // A float holds any period closely enough for a threshold.
            Least::Share(share) => (parent as f64 * share).ceil() as u64,
        }
    }
}

/// The branches of a tree. Runs are joined before anything is left out, so that a percentage stands at every fork that
/// was there.
pub(crate) fn branches(profile: &Profile, tree: &Tree<'_>, total: u64, least: Least) -> Vec<Branch> {
    forks(profile, &tree.nodes, total, least)
}

fn forks(profile: &Profile, nodes: &[Node<'_>], parent: u64, least: Least) -> Vec<Branch> {
    let floor = least.below(parent);
    nodes.iter().filter(|node| node.total.period >= floor).map(|node| run(profile, node, least)).collect()
}

fn run(profile: &Profile, first: &Node<'_>, least: Least) -> Branch {
    let mut names = vec![name(profile, first)];
    let mut last = first;
    while let ([only], 0) = (last.nodes.as_slice(), last.own.records) {
        names.push(name(profile, only));
        last = only;
    }
    let below = last.total.period.saturating_sub(last.own.period);
    let branches = forks(profile, &last.nodes, below, least);
    Branch::of(names, last.total, last.own, branches)
}

/// The symbol; with the program's id, the line or the offset, where those tell rows or frames apart.
pub(super) fn name(profile: &Profile, node: &Node<'_>) -> String {
    let mut name = clean(&node.frame.name()).into_owned();
    let text = node.frame.text.filter(|_| profile.sort().contains(&SortKey::Text));
    if let Some(program) = text.and_then(|id| profile.state.kernel().text(id)?.program) {
        name += &format!("@{}", program.id);
    }
    // What was inlined begins nowhere.
    if profile.chain_key() == ChainKey::Address && node.frame.symbol.is_ok() && !node.frame.inlined {
        name += &format!("+{:#x}", node.frame.offset);
    }
    // Lines are known only where rows or frames are told apart by them.
    if let Some(line) = profile.source_line(node.frame) {
        name += &format!(" {}", clean(&line.to_string()));
    }
    name
}
