//! What tells samples apart beside their task and their place: numbers that few samples have, kept once for each
//! combination.

use std::hash::Hasher;

use afterimage_perf_data::Features;
use afterimage_perf_data::record::{BranchEntry, Sample};
use hashbrown::HashTable;
use rustc_hash::FxHasher;

use super::labels::LabelsId;
use super::places::LocId;
use super::{AggregateOptions, SortKey};
use crate::sample::TimedSample;
use crate::state::State;

/// Number of a combination of values in [`More`]; 0 is that of none at all.
pub(crate) type MoreId = u32;

/// The value of what a sample does not have.
pub(crate) const NONE: u64 = u64::MAX;

/// Values that a view reads out of samples itself, to tell rows apart by [`SortKey::Column`].
pub trait Columns {
    /// The number of the value of a column, the same for the same values; `None` where the sample has none.
    fn value(&mut self, nth: u8, state: &State, sample: &TimedSample<'_>) -> Option<u32>;
}

/// No columns.
pub(crate) struct NoColumns;

impl Columns for NoColumns {
    fn value(&mut self, _: u8, _: &State, _: &TimedSample<'_>) -> Option<u32> {
        None
    }
}

/// Combinations of values.
#[derive(Debug, Default)]
pub(crate) struct More {
    /// The keys whose values are here, and where each begins in a combination.
    keys: Vec<(SortKey, usize)>,
    width: usize,
    /// The combinations one after the other.
    values: Vec<u64>,
    table: HashTable<(u64, MoreId)>,
    quantum: u64,
    decodes: bool,
    /// By CPU, the processor that it is on.
    sockets: Vec<u32>,
}

/// Bytes of a line of the cache, on every CPU that records data addresses.
const CACHE_LINE: u64 = 64;

/// How many values a key has; 0 where it has none here.
fn width(key: SortKey) -> usize {
    match key {
        SortKey::Comm
        | SortKey::Dso
        | SortKey::Sym
        | SortKey::Srcline
        | SortKey::Srcfile
        | SortKey::SymbolSize
        | SortKey::DsoSize
        | SortKey::Text
        | SortKey::Pid
        | SortKey::Tid
        | SortKey::Cpu
        | SortKey::Event
        | SortKey::Cgroup
        | SortKey::Container
        | SortKey::Parent => 0,
        // An address and its place; device and inode.
        SortKey::SymbolDaddr | SortKey::AddrFrom | SortKey::AddrTo | SortKey::CgroupId => 2,
        _ => 1,
    }
}

fn takes_decoding(key: SortKey) -> bool {
    matches!(
        key,
        SortKey::Weight
            | SortKey::LocalWeight
            | SortKey::InsLat
            | SortKey::LocalInsLat
            | SortKey::Mem
            | SortKey::Snoop
            | SortKey::Tlb
            | SortKey::Locked
            | SortKey::Blocked
            | SortKey::PhysDaddr
            | SortKey::DataPageSize
            | SortKey::CodePageSize
            | SortKey::Transaction
    )
}

/// What the values of a sample are read from.
pub(crate) struct Sampled<'s> {
    pub(crate) state: &'s State,
    pub(crate) sample: &'s TimedSample<'s>,
    pub(crate) all: Option<&'s Sample<'s>>,
    /// The branch that is looked at, with the places that it led from and to.
    pub(crate) branch: Option<(BranchEntry, LocId, LocId)>,
    pub(crate) labels: LabelsId,
}

impl More {
    /// Of a recording that says this of its machine.
    pub(crate) fn new(options: &AggregateOptions, features: &Features) -> More {
        let mut more = More { quantum: options.time_quantum, ..More::default() };
        if let (true, Some(topology)) = (options.sort.contains(&SortKey::Socket), &features.cpu_topology) {
            more.sockets = topology.cpus.iter().map(|(_, socket)| *socket).collect();
        }
        for key in &options.sort {
            // All labels are one combination.
            let key = if matches!(key, SortKey::Label(_)) { SortKey::Label(0) } else { *key };
            if width(key) != 0 && more.slot(key).is_none() {
                more.keys.push((key, more.width));
                more.width += width(key);
                more.decodes |= takes_decoding(key);
            }
        }
        more.values = vec![NONE; more.width];
        more
    }

    /// Whether there is nothing to be kept.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Whether a sample has to be decoded for it.
    pub(crate) fn takes_decoding(&self) -> bool {
        self.decodes
    }

    fn slot(&self, key: SortKey) -> Option<usize> {
        self.keys.iter().find(|(known, _)| *known == key).map(|(_, slot)| *slot)
    }

    /// The keys, in the order of their values.
    pub(crate) fn keys(&self) -> impl Iterator<Item = SortKey> {
        self.keys.iter().map(|(key, _)| *key)
    }

    /// How many combinations there are.
    pub(crate) fn len(&self) -> usize {
        self.values.len().checked_div(self.width).unwrap_or(1)
    }

    /// The values of a sample to `to`; `place` finds the place of a data address.
    pub(crate) fn read(
        &self,
        to: &mut Vec<u64>,
        from: &Sampled<'_>,
        columns: &mut dyn Columns,
        mut place: impl FnMut(u64) -> LocId,
    ) {
        to.clear();
        let sample = from.sample;
        let weights = from.all.and_then(|all| all.weight);
        let local = weights.map(|word| if sample.has_weight_struct() { word & 0xffff_ffff } else { word });
        let latency = weights.filter(|_| sample.has_weight_struct()).map(|word| word >> 32 & 0xffff);
        let source = from.all.and_then(|all| all.data_src);
        for (key, _) in &self.keys {
            let value = match key {
                SortKey::Label(_) => Some(u64::from(from.labels)),
                SortKey::Weight | SortKey::LocalWeight => local,
                SortKey::InsLat | SortKey::LocalInsLat => latency,
                SortKey::Mem | SortKey::Snoop | SortKey::Tlb | SortKey::Locked | SortKey::Blocked => source,
                SortKey::SymbolDaddr => {
                    to.push(sample.addr.unwrap_or(NONE));
                    sample.addr.map(|addr| place(addr).into())
                }
                SortKey::DsoDaddr => sample.addr.map(|addr| place(addr).into()),
                SortKey::Dcacheline => sample.addr.map(|addr| place(addr & !(CACHE_LINE - 1)).into()),
                SortKey::PhysDaddr => from.all.and_then(|all| all.phys_addr),
                SortKey::Transaction => from.all.and_then(|all| all.transaction),
                SortKey::Socket => sample.cpu.and_then(|cpu| self.sockets.get(cpu as usize).copied()).map(u64::from),
                SortKey::DataPageSize => from.all.and_then(|all| all.data_page_size),
                SortKey::CodePageSize => from.all.and_then(|all| all.code_page_size),
                SortKey::Addr => Some(sample.ip),
                SortKey::NsPid => from.state.own_pid(sample.pid).map(u64::from),
                SortKey::Time => sample.time.map(|time| time - time.checked_rem(self.quantum).unwrap_or(0)),
                SortKey::CgroupId => {
                    let (dev, ino) = from.state.cgroup_namespace(sample.tid).unwrap_or((NONE, NONE));
                    to.push(dev);
                    Some(ino)
                }
                SortKey::Column(nth) => columns.value(*nth, from.state, sample).map(u64::from),
                SortKey::AddrFrom | SortKey::AddrTo => {
                    let ends = from.branch.as_ref().map(|(branch, from, to)| match key {
                        SortKey::AddrFrom => (branch.from, *from),
                        _ => (branch.to, *to),
                    });
                    to.push(ends.map_or(NONE, |(addr, _)| addr));
                    ends.map(|(_, place)| place.into())
                }
                key => from.branch.as_ref().and_then(|branch| of_branch(*key, branch)),
            };
            to.push(value.unwrap_or(NONE));
        }
    }

    /// The number of a combination.
    pub(crate) fn number(&mut self, values: &[u64]) -> MoreId {
        if values.iter().all(|value| *value == NONE) {
            return 0;
        }
        let mut hasher = FxHasher::default();
        values.iter().for_each(|value| hasher.write_u64(*value));
        let hash = hasher.finish();
        let (all, width) = (&self.values, self.width);
        let at = |id: MoreId| all.get(id as usize * width..(id as usize + 1) * width);
        if let Some((_, id)) = self.table.find(hash, |(of, id)| *of == hash && at(*id) == Some(values)) {
            return *id;
        }
        let id = MoreId::try_from(self.len()).unwrap_or(MoreId::MAX);
        self.values.extend_from_slice(values);
        self.table.insert_unique(hash, (hash, id), |(hash, _)| *hash);
        id
    }

    /// The value of a key in a combination; the last one of a key that has two.
    pub(crate) fn get(&self, id: MoreId, key: SortKey) -> Option<u64> {
        self.pair(id, key).map(|(_, last)| last)
    }

    /// The first and the last value of a key.
    pub(crate) fn pair(&self, id: MoreId, key: SortKey) -> Option<(u64, u64)> {
        let from = (id as usize).checked_mul(self.width)?.checked_add(self.slot(key)?)?;
        let first = *self.values.get(from)?;
        let last = *self.values.get(from + width(key) - 1)?;
        (last != NONE).then_some((first, last))
    }

    /// The labels in a combination.
    pub(crate) fn labels(&self, id: MoreId) -> LabelsId {
        self.get(id, SortKey::Label(0)).and_then(|labels| LabelsId::try_from(labels).ok()).unwrap_or(0)
    }

    /// The places that keys of combinations speak of.
    pub(crate) fn places(&self) -> impl Iterator<Item = LocId> + use<'_> {
        let keys = self.keys.iter().filter(|(key, _)| key.is_place());
        let ids = || 0..MoreId::try_from(self.len()).unwrap_or(MoreId::MAX);
        keys.flat_map(move |(key, _)| ids().filter_map(|id| LocId::try_from(self.get(id, *key)?).ok()))
    }
}

fn of_branch(key: SortKey, (branch, from, to): &(BranchEntry, LocId, LocId)) -> Option<u64> {
    match key {
        SortKey::SymbolFrom | SortKey::DsoFrom | SortKey::SrclineFrom => Some(u64::from(*from)),
        SortKey::SymbolTo | SortKey::DsoTo | SortKey::SrclineTo => Some(u64::from(*to)),
        // Predicted rightly, wrongly, or it is not said.
        SortKey::Mispredict => match (branch.predicted(), branch.mispredicted()) {
            (true, _) => Some(0),
            (false, true) => Some(1),
            (false, false) => None,
        },
        SortKey::InTx => Some(branch.in_transaction().into()),
        SortKey::Abort => Some(branch.abort().into()),
        SortKey::Cycles => Some(u64::from(branch.cycles())).filter(|cycles| *cycles != 0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_combinations_have_one_number() {
        let sort = vec![SortKey::Weight, SortKey::Sym, SortKey::SymbolDaddr, SortKey::Label(1), SortKey::Label(0)];
        let mut more = More::new(&AggregateOptions { sort, ..AggregateOptions::default() }, &Features::default());
        assert_eq!((more.keys().count(), more.len()), (3, 1));
        let values = [[1, 0x1000, 7, 0], [1, 0x1000, 7, 2], [NONE; 4], [1, 0x1000, 7, 0]];
        let ids: Vec<_> = values.iter().map(|values| more.number(values)).collect();
        assert_eq!(ids, [1, 2, 0, 1]);
        assert_eq!(more.pair(1, SortKey::SymbolDaddr), Some((0x1000, 7)));
        assert_eq!((more.get(2, SortKey::Weight), more.labels(2), more.labels(0)), (Some(1), 2, 0));
        assert_eq!(more.get(0, SortKey::Weight), None);
        assert_eq!(more.places().collect::<Vec<_>>(), [7, 7]);
    }

    #[test]
    fn without_keys_there_is_one_combination() {
        let mut more = More::new(&AggregateOptions::default(), &Features::default());
        assert!(more.is_empty());
        assert_eq!((more.number(&[]), more.len()), (0, 1));
    }
}
