//! The fields that a line may hold, by perf's names where perf has one.

use afterimage_perf_data::attr::SampleType;

use crate::exit::{Problem, not_yet};

/// One field of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    Comm,
    Pid,
    Tid,
    Cpu,
    Misc,
    Time,
    Period,
    Event,
    Flags,
    Trace,
    Addr,
    DataSrc,
    Weight,
    InsLat,
    RetireLat,
    Cgroup,
    Ip,
    Sym,
    SymOff,
    Dso,
    Iregs,
    Uregs,
    BrStack,
    BrStackSym,
    BpfOutput,
    PhysAddr,
    DataPageSize,
    CodePageSize,
    Srcline,
    // perf has no names for what follows.
    Read,
    UserStack,
    Aux,
    Transaction,
    Id,
    StreamId,
    Label,
    Value,
}

/// A field as it is known.
pub(super) struct Known {
    /// The name on the command line.
    pub(super) name: &'static str,
    pub(super) field: Field,
    /// The sample bits that it is made from; any of them is enough.
    pub(super) needs: SampleType,
    /// To ask for it where no sample has it is an error, as in perf.
    pub(super) refused: bool,
}

const fn known(name: &'static str, field: Field, needs: SampleType) -> Known {
    Known { name, field, needs, refused: false }
}

/// A field that is refused where the samples lack it.
const fn strict(name: &'static str, field: Field, needs: SampleType) -> Known {
    Known { name, field, needs, refused: true }
}

const WEIGHTS: SampleType = SampleType::WEIGHT.union(SampleType::WEIGHT_STRUCT);
const PLACES: SampleType = SampleType::IP.union(SampleType::ADDR);
const IDS: SampleType = SampleType::ID.union(SampleType::IDENTIFIER);

pub(super) const KNOWN: [Known; 37] = [
    known("comm", Field::Comm, SampleType::TID),
    known("pid", Field::Pid, SampleType::TID),
    known("tid", Field::Tid, SampleType::TID),
    strict("cpu", Field::Cpu, SampleType::CPU),
    known("misc", Field::Misc, SampleType::empty()),
    strict("time", Field::Time, SampleType::TIME),
    known("period", Field::Period, SampleType::empty()),
    known("event", Field::Event, SampleType::empty()),
    known("flags", Field::Flags, SampleType::empty()),
    known("trace", Field::Trace, SampleType::RAW),
    strict("addr", Field::Addr, SampleType::ADDR),
    strict("data_src", Field::DataSrc, SampleType::DATA_SRC),
    strict("weight", Field::Weight, WEIGHTS),
    strict("ins_lat", Field::InsLat, SampleType::WEIGHT_STRUCT),
    strict("retire_lat", Field::RetireLat, SampleType::WEIGHT_STRUCT),
    strict("cgroup", Field::Cgroup, SampleType::CGROUP),
    strict("ip", Field::Ip, SampleType::IP),
    known("sym", Field::Sym, PLACES),
    known("symoff", Field::SymOff, PLACES),
    known("dso", Field::Dso, PLACES),
    strict("iregs", Field::Iregs, SampleType::REGS_INTR),
    strict("uregs", Field::Uregs, SampleType::REGS_USER),
    known("brstack", Field::BrStack, SampleType::BRANCH_STACK),
    known("brstacksym", Field::BrStackSym, SampleType::BRANCH_STACK),
    known("bpf-output", Field::BpfOutput, SampleType::RAW),
    strict("phys_addr", Field::PhysAddr, SampleType::PHYS_ADDR),
    strict("data_page_size", Field::DataPageSize, SampleType::DATA_PAGE_SIZE),
    strict("code_page_size", Field::CodePageSize, SampleType::CODE_PAGE_SIZE),
    known("srcline", Field::Srcline, SampleType::IP),
    strict("read", Field::Read, SampleType::READ),
    strict("ustack", Field::UserStack, SampleType::STACK_USER),
    strict("aux", Field::Aux, SampleType::AUX),
    strict("transaction", Field::Transaction, SampleType::TRANSACTION),
    strict("id", Field::Id, IDS),
    strict("stream_id", Field::StreamId, SampleType::STREAM_ID),
    known("label", Field::Label, SampleType::empty()),
    known("value", Field::Value, SampleType::empty()),
];

/// Fields that perf knows and we do not print.
const LATER: [&str; 13] = [
    "brstackoff",
    "brstackinsn",
    "brstackinsnlen",
    "brstackdisasm",
    "callindent",
    "insn",
    "disasm",
    "insnlen",
    "synth",
    "metric",
    "srccode",
    "ipc",
    "tod",
];

/// The field of a name.
pub(super) fn named(word: &str) -> anyhow::Result<Field> {
    if let Some(known) = KNOWN.iter().find(|known| known.name == word) {
        return Ok(known.field);
    }
    if LATER.contains(&word) {
        return Err(not_yet(&format!("-F {word}")));
    }
    let names: Vec<&str> = KNOWN.iter().map(|known| known.name).collect();
    Err(Problem::usage(format!("-F {word}: no such field")).hint(format!("there are {}", names.join(", "))).into())
}

/// A set of fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fields(u64);

impl Fields {
    pub(crate) const fn of(fields: &[Field]) -> Self {
        let mut bits = 0;
        let mut i = 0;
        while i < fields.len() {
            bits |= 1 << fields[i] as u64;
            i += 1;
        }
        Fields(bits)
    }

    pub(crate) const fn has(self, field: Field) -> bool {
        self.0 & (1 << field as u64) != 0
    }

    /// Whether any of the others is in it.
    pub(crate) const fn any(self, others: Fields) -> bool {
        self.0 & others.0 != 0
    }

    pub(super) const fn plus(self, other: Fields) -> Self {
        Fields(self.0 | other.0)
    }

    pub(super) const fn minus(self, other: Fields) -> Self {
        Fields(self.0 & !other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_has_one_name() {
        let all = KNOWN.iter().fold(Fields::default(), |all, known| {
            let this = Fields::of(&[known.field]);
            assert!(!all.any(this), "{} is another's", known.name);
            all.plus(this)
        });
        assert_eq!(all.0, (1 << KNOWN.len()) - 1);
    }
}
