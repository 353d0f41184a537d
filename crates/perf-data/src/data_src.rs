//! `union perf_mem_data_src` (linux/perf_event.h): what a memory access was, and where its data came from.

use std::fmt;

/// The data source of a sample. Its fields are the same bits in both byte orders.
///
/// As text it is what perf prints of it, with `|` before each part:
/// `|OP LOAD|LVL L1 or L1 hit|SNP None|TLB L1 or L2 hit|LCK No|BLK  N/A`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct DataSrc(pub u64);

/// A part of [`DataSrc`] and the words for its bits, from the lowest.
const LEVELS: [&str; 14] = [
    "N/A",
    // Hit and miss stand behind the levels.
    "",
    "",
    "L1",
    "LFB/MAB",
    "L2",
    "L3",
    "Local RAM",
    "Remote RAM (1 hop)",
    "Remote RAM (2 hops)",
    "Remote Cache (1 hop)",
    "Remote Cache (2 hops)",
    "I/O",
    "Uncached",
];

/// `PERF_MEM_LVLNUM_*`; 0 says nothing.
const NUMBERS: [&str; 16] = [
    "",
    "L1",
    "L2",
    "L3",
    "L4",
    "L2 MHB",
    "Memory-side Cache",
    "L7",
    "Uncached",
    "CXL",
    "I/O",
    "Any cache",
    "LFB/MAB",
    "RAM",
    "PMEM",
    "N/A",
];

/// `PERF_MEM_HOPS_*`; 0 says nothing.
const HOPS: [&str; 8] =
    ["", "core, same node ", "node, same socket ", "socket, same board ", "board ", "5 hops ", "6 hops ", "7 hops "];

const SNOOPS: [&str; 7] = ["N/A", "None", "Hit", "Miss", "HitM", "Fwd", "Peer"];

const TLBS: [&str; 7] = ["N/A", "", "", "L1", "L2", "Walker", "Fault"];

/// Hit and miss, in levels as in translations.
const HIT: u64 = 1 << 1;
const MISS: u64 = 1 << 2;

impl DataSrc {
    fn bits(self, from: u32, count: u32) -> u64 {
        (self.0 >> from) & ((1 << count) - 1)
    }

    /// What the instruction did: `LOAD`, `STORE`, `PFETCH`, `EXEC`; `N/A` or `No` where that is not known.
    pub fn operation(self) -> &'static str {
        let op = self.bits(0, 5);
        let names = ["N/A", "LOAD", "STORE", "PFETCH", "EXEC"];
        names.iter().enumerate().find(|(bit, _)| op >> bit & 1 != 0).map_or("No", |(_, name)| name)
    }

    /// The level of the memory hierarchy that had the data, and whether that was a hit.
    pub fn level(self) -> impl fmt::Display {
        let level = self.bits(5, 14);
        let remote = if self.bits(37, 1) != 0 { "Remote " } else { "" };
        let hops = HOPS[self.bits(43, 3) as usize];
        let number = NUMBERS[self.bits(33, 4) as usize];
        let words = Words { bits: level & !(HIT | MISS), names: &LEVELS, more: number };
        let nothing = remote.is_empty() && hops.is_empty() && words.is_empty();
        joined(move |f| {
            write!(f, "{remote}{hops}{}", if nothing { "N/A" } else { "" })?;
            write!(f, "{words}{}", outcome(level))
        })
    }

    /// What other caches answered.
    pub fn snoop(self) -> impl fmt::Display {
        let words = Words { bits: self.bits(19, 5) | self.bits(38, 2) << 5, names: &SNOOPS, more: "" };
        joined(move |f| if words.is_empty() { f.write_str("N/A") } else { write!(f, "{words}") })
    }

    /// Where the address was translated.
    pub fn translation(self) -> impl fmt::Display {
        let tlb = self.bits(26, 7);
        let words = Words { bits: tlb & !(HIT | MISS), names: &TLBS, more: "" };
        joined(move |f| {
            let nothing = if words.is_empty() { "N/A" } else { "" };
            write!(f, "{nothing}{words}{}", outcome(tlb))
        })
    }

    /// Whether the instruction was locked: `Yes`, `No` or `N/A`.
    pub fn locked(self) -> &'static str {
        match self.bits(24, 2) {
            lock if lock & 1 != 0 => "N/A",
            0 => "No",
            _ => "Yes",
        }
    }

    /// What the access was blocked by: ` Data`, ` Addr`, both, or ` N/A`; each with a blank before it.
    pub fn blocked(self) -> &'static str {
        match self.bits(40, 3) {
            0b010 => " Data",
            0b100 => " Addr",
            0b110 => " Data Addr",
            _ => " N/A",
        }
    }
}

impl fmt::Display for DataSrc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (level, snoop, translation) = (self.level(), self.snoop(), self.translation());
        write!(f, "|OP {}|LVL {level}|SNP {snoop}|TLB {translation}", self.operation())?;
        write!(f, "|LCK {}|BLK {}", self.locked(), self.blocked())
    }
}

fn outcome(bits: u64) -> &'static str {
    match (bits & HIT != 0, bits & MISS != 0) {
        (true, true) => " hit miss",
        (true, false) => " hit",
        (false, true) => " miss",
        (false, false) => "",
    }
}

/// The names of bits, and one more, with ` or ` between them.
#[derive(Clone, Copy)]
struct Words {
    bits: u64,
    names: &'static [&'static str],
    more: &'static str,
}

impl Words {
    fn is_empty(&self) -> bool {
        self.bits == 0 && self.more.is_empty()
    }
}

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = self.names.iter().enumerate().filter(|(bit, _)| self.bits >> bit & 1 != 0).map(|(_, name)| *name);
        let mut separator = "";
        for name in named.chain((!self.more.is_empty()).then_some(self.more)) {
            write!(f, "{separator}{name}")?;
            separator = " or ";
        }
        Ok(())
    }
}

/// What a closure writes.
struct Joined<F>(F);

fn joined<F: Fn(&mut fmt::Formatter<'_>) -> fmt::Result>(write: F) -> Joined<F> {
    Joined(write)
}

impl<F: Fn(&mut fmt::Formatter<'_>) -> fmt::Result> fmt::Display for Joined<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.0)(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What perf 6.1 prints of the same values.
    #[test]
    fn the_words_are_those_of_perf() {
        let (lvl, snp, lck, tlb, num, rem, snx, blk, hops) = (5, 19, 24, 26, 33, 37, 38, 40, 43);
        for (bits, text) in [
            (0, "|OP No|LVL N/A|SNP N/A|TLB N/A|LCK No|BLK  N/A"),
            (0x118_6810_0242, "|OP LOAD|LVL LFB/MAB or LFB/MAB hit|SNP None|TLB L1 or L2 hit|LCK No|BLK  N/A"),
            (0x102_6a10_0142, "|OP LOAD|LVL L1 or L1 hit|SNP None|TLB L1 or L2 hit|LCK Yes|BLK  N/A"),
            (0x1f, "|OP N/A|LVL N/A|SNP N/A|TLB N/A|LCK No|BLK  N/A"),
            (4, "|OP STORE|LVL N/A|SNP N/A|TLB N/A|LCK No|BLK  N/A"),
            (3 << lvl, "|OP No|LVL N/A hit|SNP N/A|TLB N/A|LCK No|BLK  N/A"),
            (0x2c << lvl | 3 << num, "|OP No|LVL L1 or L2 or L3 miss|SNP N/A|TLB N/A|LCK No|BLK  N/A"),
            (1 << rem, "|OP No|LVL Remote |SNP N/A|TLB N/A|LCK No|BLK  N/A"),
            (
                2 << lvl | 1 << num | 1 << rem | 2 << hops,
                "|OP No|LVL Remote node, same socket L1 hit|SNP N/A|TLB N/A|LCK No|BLK  N/A",
            ),
            (1 << hops, "|OP No|LVL core, same node |SNP N/A|TLB N/A|LCK No|BLK  N/A"),
            (4 << snp | 1 << snx, "|OP No|LVL N/A|SNP Hit or Fwd|TLB N/A|LCK No|BLK  N/A"),
            (3 << lck, "|OP No|LVL N/A|SNP N/A|TLB N/A|LCK N/A|BLK  N/A"),
            (0xe << tlb, "|OP No|LVL N/A|SNP N/A|TLB L1 hit miss|LCK No|BLK  N/A"),
            (6 << tlb, "|OP No|LVL N/A|SNP N/A|TLB N/A hit miss|LCK No|BLK  N/A"),
            (6 << blk, "|OP No|LVL N/A|SNP N/A|TLB N/A|LCK No|BLK  Data Addr"),
            (7 << blk, "|OP No|LVL N/A|SNP N/A|TLB N/A|LCK No|BLK  N/A"),
        ] {
            assert_eq!(DataSrc(bits).to_string(), text, "{bits:#x}");
        }
    }

    #[test]
    fn any_bits_have_words() {
        for bit in 0..64 {
            assert!(DataSrc(1 << bit).to_string().starts_with("|OP "));
        }
        assert!(DataSrc(u64::MAX).to_string().contains("7 hops"));
    }
}
