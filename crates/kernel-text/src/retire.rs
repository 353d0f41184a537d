//! Texts leave the timeline again, so that one that runs for ever stays small.

use afterimage_perf_data::TextDesc;

use crate::rows::{NEVER, flag};
use crate::text::TextId;
use crate::timeline::Timeline;

impl Timeline {
    /// Takes out what had gone by `before`: the texts, and what is kept of changes and losses before that time. Looks at
    /// every text. A look-up of an earlier time no longer finds them, so it is for those who will make none: a recorder
    /// that has read all records up to then.
    pub fn retire(&mut self, before: u64) -> Vec<TextDesc> {
        let gone = |id: &TextId| self.rows.get(*id).is_some_and(|row| row.gone <= before && row.gone != NEVER);
        let ids: Vec<TextId> = self.rows.ids().filter(gone).collect();
        self.forget(before);
        ids.into_iter().filter_map(|id| self.take_out(id)).collect()
    }

    /// Takes one text out, with all that was known of it.
    pub(crate) fn take_out(&mut self, id: TextId) -> Option<TextDesc> {
        let desc = self.desc(id)?;
        let row = self.rows.get(id)?;
        let (addr, gone, orphan) = (row.addr, row.gone, row.has(flag::ORPHAN));
        // Ends that stand alone up to its own have told all that they can.
        self.starts.retain(addr, |life| life.text != id && (!life.is_end_alone() || life.gone > gone));
        let only_ends =
            self.starts.get(addr).is_some_and(|lives| lives.as_slice().iter().all(|life| life.is_end_alone()));
        if only_ends {
            self.starts.retain(addr, |_| false);
        }
        self.orphans -= usize::from(orphan);
        self.rows.take(id);
        Some(desc)
    }

    /// Forgets changes before a time, and losses and scans but for the last of each.
    pub(crate) fn forget(&mut self, before: u64) {
        self.pokes.forget(before);
        self.forget_losses(before);
    }

    /// Forgets losses and scans before a time, but for the last of each.
    pub(crate) fn forget_losses(&mut self, before: u64) {
        let scans = self.scans.partition_point(|scan| *scan < before);
        self.scans.drain(..scans.saturating_sub(1));
        let losses = self.losses.partition_point(|loss| *loss < before);
        // Texts that have lived since then are in doubt for good.
        let last = self.losses.get(losses.saturating_sub(1)).copied().filter(|_| losses > 0);
        self.losses.drain(..losses);
        if let Some(last) = last {
            self.losses.insert(0, last);
        }
    }
}
