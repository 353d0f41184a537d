use super::Layout;
use crate::bytes::{Cursor, Out};
use crate::{Endian, Result, Words};

/// Last branches of a sample, newest first, borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct BranchStack<'a> {
    /// Where in the hardware's ring the newest stands.
    pub hw_index: Option<u64>,
    /// Three words an entry: from, to, flags.
    pub entries: Words<'a>,
    /// Event counts of each branch, one word an entry.
    pub counters: Option<Words<'a>>,
}

/// One branch (`struct perf_branch_entry`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct BranchEntry {
    /// The branch instruction.
    pub from: u64,
    /// Where it went.
    pub to: u64,
    flags: u64,
    endian: Endian,
}

impl BranchEntry {
    /// A field of the flags by its place in declaration order: such fields begin at the other end of the word on
    /// big-endian machines.
    fn bits(&self, first: u32, count: u32) -> u64 {
        let shift = match self.endian {
            Endian::Little => first,
            Endian::Big => 64 - first - count,
        };
        (self.flags >> shift) & ((1 << count) - 1)
    }

    /// The target was predicted wrongly.
    pub fn mispredicted(&self) -> bool {
        self.bits(0, 1) != 0
    }

    /// The target was predicted rightly.
    pub fn predicted(&self) -> bool {
        self.bits(1, 1) != 0
    }

    /// Inside a transaction.
    pub fn in_transaction(&self) -> bool {
        self.bits(2, 1) != 0
    }

    /// A transaction's abort.
    pub fn abort(&self) -> bool {
        self.bits(3, 1) != 0
    }

    /// CPU cycles since the branch before; 0 where the hardware does not say.
    pub fn cycles(&self) -> u16 {
        self.bits(4, 16) as u16
    }

    /// The kind of branch (`PERF_BR_*`).
    pub fn kind(&self) -> u8 {
        self.bits(20, 4) as u8
    }

    /// The name of the kind of branch as perf writes it; empty where the hardware does not say.
    pub fn kind_name(&self) -> &'static str {
        const KINDS: [&str; 15] = [
            "",
            "COND",
            "UNCOND",
            "IND",
            "CALL",
            "IND_CALL",
            "RET",
            "SYSCALL",
            "SYSRET",
            "COND_CALL",
            "COND_RET",
            "ERET",
            "IRQ",
            "SERROR",
            "NO_TX",
        ];
        // `PERF_BR_NEW_*`, which the last of the kinds above stands for.
        const NEW: [&str; 8] =
            ["FAULT_ALGN", "FAULT_DATA", "FAULT_INST", "ARCH_1", "ARCH_2", "ARCH_3", "ARCH_4", "ARCH_5"];
        let new = || NEW.get(self.bits(26, 4) as usize).copied().unwrap_or("N/A");
        KINDS.get(usize::from(self.kind())).copied().unwrap_or_else(new)
    }

    /// The flags as one word.
    pub fn raw_flags(&self) -> u64 {
        self.flags
    }
}

impl<'a> BranchStack<'a> {
    pub(super) fn decode(c: &mut Cursor<'a>, layout: &Layout) -> Result<Self> {
        const W: &str = "branch stack";
        let count = c.u64(W)?;
        let hw_index = if layout.branch_hw_index { Some(c.u64(W)?) } else { None };
        let entries = c.words(count.saturating_mul(3), W)?;
        let counters = if layout.branch_counters { Some(c.words(count, W)?) } else { None };
        Ok(Self { hw_index, entries, counters })
    }

    pub(super) fn encode(&self, layout: &Layout, o: &mut Out<'_>) {
        let count = self.len();
        o.u64(count as u64);
        if layout.branch_hw_index {
            o.u64(self.hw_index.unwrap_or(0));
        }
        self.entries.iter().take(3 * count).for_each(|w| o.u64(w));
        if layout.branch_counters {
            let counters = self.counters.unwrap_or_default();
            (0..count).for_each(|i| o.u64(counters.get(i).unwrap_or(0)));
        }
    }

    /// How many branches.
    pub fn len(&self) -> usize {
        self.entries.len() / 3
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The branches, newest first.
    pub fn iter(&self) -> impl Iterator<Item = BranchEntry> + use<'a> {
        let endian = self.entries.endian();
        let mut words = self.entries.iter();
        std::iter::from_fn(move || {
            Some(BranchEntry { from: words.next()?, to: words.next()?, flags: words.next()?, endian })
        })
    }
}
