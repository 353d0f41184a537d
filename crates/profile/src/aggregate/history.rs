//! Stacks that begin with the branches that led to the sample (perf's `--branch-history`): more of the way than callers tell.

use afterimage_perf_data::context;
use afterimage_perf_data::record::BranchStack;

use super::collect::mode_of;
use super::places::{LocId, Places};
use crate::loc::CpuMode;
use crate::sample::TimedSample;
use crate::state::State;

/// Most branches of a sample, as in perf: more are damage.
const MOST: usize = 127;

/// The longest call instruction: a branch that ends at most so many bytes before a return address is its call.
const CALL: u64 = 8;

/// Room that is used again for each sample.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// From where to where, the newest first.
    branches: Vec<(u64, u64)>,
}

impl History {
    /// The places of both ends of each branch, the newest first, then those of the frames of the call chain that the
    /// branches do not tell of, to `to`. `false` where there are no branches: then nothing is there.
    pub(crate) fn places(
        &mut self,
        to: &mut Vec<LocId>,
        places: &mut Places,
        state: &State,
        sample: &TimedSample<'_>,
        branches: &BranchStack<'_>,
    ) -> bool {
        if branches.is_empty() || branches.len() > MOST {
            return false;
        }
        self.branches.clear();
        self.branches.extend(branches.iter().map(|branch| (branch.from, branch.to)));
        let told = self.told(sample);
        without_loops(&mut self.branches);
        to.clear();
        for (from, into) in &self.branches {
            for addr in [*into, *from] {
                to.push(places.of(state, sample, mode_of(sample, addr), addr, false));
            }
        }
        let (mut mode, mut is_caller, mut calls) = (sample.mode(), false, true);
        for (nth, value) in sample.chain.iter().enumerate() {
            if value == context::USER_DEFERRED {
                break;
            }
            if context::is_marker(value) {
                if let Some(new) = CpuMode::of_marker(value) {
                    mode = new;
                    (is_caller, calls) = (false, value != context::UNWOUND);
                }
                continue;
            }
            if nth >= told {
                to.push(places.of(state, sample, mode, value, is_caller));
            }
            is_caller = calls;
        }
        true
    }

    /// How many words of the call chain the branches tell of: each goes past one marker, or one address that it is the call of.
    fn told(&self, sample: &TimedSample<'_>) -> usize {
        let (mut told, mut words) = (0, sample.chain.iter().peekable());
        for (from, _) in &self.branches {
            let is_told = |word: &u64| context::is_marker(*word) || (from < word && *from >= word.saturating_sub(CALL));
            told += usize::from(words.next_if(is_told).is_some());
        }
        told
    }
}

/// Of branches that go round in a loop one round stays, as in perf.
fn without_loops(branches: &mut Vec<(u64, u64)>) {
    let mut at = 0;
    while let Some((from, _)) = branches.get(at).copied() {
        let first = branches.iter().take(at).position(|(known, _)| *known == from);
        if let Some((round, rest)) = first.and_then(|first| Some((branches.get(first..at)?, branches.get(at..)?))) {
            let length = round.len().min(rest.len());
            if round.iter().zip(rest).all(|(one, other)| one.0 == other.0) {
                branches.drain(at..at + length);
            }
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_loop_one_round_stays() {
        let left = |froms: &[u64]| {
            let mut branches: Vec<(u64, u64)> = froms.iter().map(|from| (*from, 0)).collect();
            without_loops(&mut branches);
            branches.into_iter().map(|(from, _)| from).collect::<Vec<_>>()
        };
        assert_eq!(left(&[1, 2, 1, 2, 3]), [1, 2, 3]);
        assert_eq!(left(&[1, 2, 3, 1, 4]), [1, 2, 3, 1, 4]);
        assert_eq!(left(&[5, 5, 6]), [5, 6]);
        assert_eq!(left(&[1, 2, 3]), [1, 2, 3]);
        assert!(left(&[]).is_empty());
    }
}
