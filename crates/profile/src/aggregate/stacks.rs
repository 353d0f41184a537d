//! Folded stacks: each distinct stack with its weight.

use super::collect::Entry;
use super::labels::Label;
use super::{Profile, Weight};
use crate::resolve::Frame;

/// A stack and what was sampled in it.
#[derive(Clone, Debug)]
pub struct Stack<'p> {
    /// The name that the threads had.
    pub comm: &'p str,
    /// The process, if processes tell rows apart.
    pub pid: Option<u32>,
    /// The thread, if threads tell rows apart.
    pub tid: Option<u32>,
    /// The labels that tell rows apart, in their order: name and value.
    pub labels: Vec<(&'p str, Option<&'p Label>)>,
    /// What was sampled in it.
    pub weight: Weight,
    /// Its frames, outermost first; the last one is where the samples were taken.
    pub frames: Vec<&'p Frame>,
}

impl Profile {
    /// The stacks of an event (an index into [`Profile::events`]), in the order of their first samples. Two may look
    /// the same: what differs is an address within a symbol, or a key that a row would show.
    pub fn stacks(&self, event: usize) -> impl Iterator<Item = Stack<'_>> {
        let has = |key| self.sort.contains(&key);
        let (pid, tid) = (has(super::SortKey::Pid), has(super::SortKey::Tid));
        self.entries_of(event).map(move |(_, entry)| Stack {
            comm: self.state.comm(entry.key.comm()),
            pid: pid.then_some(entry.key.pid),
            tid: tid.then_some(entry.key.tid),
            labels: self.labels_of(entry),
            weight: entry.weight,
            frames: self.frames_of(entry).rev().collect(),
        })
    }

    fn labels_of(&self, entry: &Entry) -> Vec<(&str, Option<&Label>)> {
        let label = |sort: &super::SortKey| match sort {
            super::SortKey::Label(nth) => {
                let nth = usize::from(*nth);
                Some((
                    &**self.label_names.get(nth)?,
                    self.labels.get(self.more.labels(entry.key.more), nth).map(|label| &**label),
                ))
            }
            _ => None,
        };
        self.sort.iter().filter_map(label).collect()
    }
}
