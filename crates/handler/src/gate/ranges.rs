//! Sets of numbers, as ranges.

/// A set of numbers: ranges from a first to a last, ascending, neither touching nor overlapping.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    pub(crate) fn new(mut list: Vec<(u64, u64)>) -> Ranges {
        list.retain(|(first, last)| first <= last);
        list.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::with_capacity(list.len());
        for (first, last) in list {
            match merged.last_mut() {
                Some((_, end)) if first <= end.saturating_add(1) => *end = (*end).max(last),
                _ => merged.push((first, last)),
            }
        }
        Ranges(merged)
    }

    pub(crate) fn one(number: u64) -> Ranges {
        Ranges(vec![(number, number)])
    }

    /// Everything from 0 to `max`.
    pub(crate) fn up_to(max: u64) -> Ranges {
        Ranges(vec![(0, max)])
    }

    pub(crate) fn as_slice(&self) -> &[(u64, u64)] {
        &self.0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn contains(&self, number: u64) -> bool {
        let after = self.0.partition_point(|&(first, _)| first <= number);
        after.checked_sub(1).is_some_and(|at| number <= self.0[at].1)
    }

    pub(crate) fn union(&self, other: &Ranges) -> Ranges {
        Ranges::new(self.0.iter().chain(&other.0).copied().collect())
    }

    pub(crate) fn intersect(&self, other: &Ranges) -> Ranges {
        let mut both = Vec::new();
        let (mut a, mut b) = (0, 0);
        while let (Some(&(first, last)), Some(&(start, end))) = (self.0.get(a), other.0.get(b)) {
            both.push((first.max(start), last.min(end)));
            if last < end { a += 1 } else { b += 1 }
        }
        Ranges::new(both)
    }

    /// What is not in it, from 0 to `max`.
    pub(crate) fn complement(&self, max: u64) -> Ranges {
        let mut gaps = Vec::with_capacity(self.0.len() + 1);
        let mut next = Some(0);
        for &(first, last) in &self.0 {
            if let (Some(start), Some(end)) = (next, first.checked_sub(1)) {
                gaps.push((start, end));
            }
            next = last.checked_add(1);
        }
        if let Some(start) = next {
            gaps.push((start, u64::MAX));
        }
        Ranges::new(gaps).intersect(&Ranges::up_to(max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_behave() {
        let a = Ranges::new(vec![(5, 9), (1, 1), (2, 3), (8, 12), (7, 6)]);
        assert_eq!(a.as_slice(), [(1, 3), (5, 12)]);
        for n in 0..20 {
            assert_eq!(a.contains(n), (1..=3).contains(&n) || (5..=12).contains(&n), "{n}");
        }
        assert_eq!(a.complement(u64::MAX).as_slice(), [(0, 0), (4, 4), (13, u64::MAX)]);
        assert_eq!(a.complement(8).as_slice(), [(0, 0), (4, 4)]);
        assert_eq!(a.complement(20).complement(20), a);
        let b = Ranges::new(vec![(3, 5), (11, u64::MAX)]);
        assert_eq!(a.intersect(&b).as_slice(), [(3, 3), (5, 5), (11, 12)]);
        assert_eq!(a.union(&b).as_slice(), [(1, u64::MAX)]);
        assert!(Ranges::up_to(u64::MAX).complement(u64::MAX).is_empty());
        assert_eq!(Ranges::default().complement(9), Ranges::up_to(9));
    }
}
