//! What an expression means, and the plain interpreter of it.

use super::ast::{Op, Relation};
use super::fields::Field;
use super::glob::{COMM, Glob};
use super::ranges::Ranges;

/// A condition, with every name looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tree {
    Const(bool),
    Not(Box<Tree>),
    All(Vec<Tree>),
    Any(Vec<Tree>),
    Compare(Relation, Value, Value),
    In(Value, Ranges),
    Comm(Glob),
}

/// A number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Number(u64),
    Field(Field),
    /// Id of the cgroup's ancestor of this level, or its own where it has that level; 0 where it is above.
    Ancestor(u32),
    /// The lot of the sample, of so many.
    Lot(u32),
    Arithmetic(Op, Box<Value>, Box<Value>),
}

/// The values of one sample, for [`crate::gate::Gate::passes`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Name of the task, padded with NULs.
    pub comm: [u8; COMM],
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// CPU.
    pub cpu: u32,
    /// Address of the code.
    pub ip: u64,
    /// Address of the data; 0 where the sample has none.
    pub addr: u64,
    /// Period.
    pub period: u64,
    /// Ids of the cgroup (version 2) and all above it, the root first.
    pub cgroups: Vec<u64>,
    /// Whether the code is of user space.
    pub user: bool,
    /// Time in ns, on the event's clock.
    pub time: u64,
    /// Real user id.
    pub uid: u32,
    /// Process id of the parent.
    pub ppid: u32,
    /// Process id in the process's own pid namespace.
    pub nspid: u32,
    /// Number of the sample on its CPU, as the stub counts.
    pub seq: u64,
}

impl Sample {
    fn field(&self, field: Field) -> u64 {
        match field {
            Field::Pid => self.pid.into(),
            Field::Tid => self.tid.into(),
            Field::Cpu => self.cpu.into(),
            Field::Ip => self.ip,
            Field::Addr => self.addr,
            Field::Period => self.period,
            Field::Cgroup => self.cgroups.last().copied().unwrap_or(0),
            Field::User => self.user.into(),
            Field::Time => self.time,
            Field::Uid => self.uid.into(),
            Field::Ppid => self.ppid.into(),
            Field::Nspid => self.nspid.into(),
        }
    }
}

/// Spreads numbers that follow each other; two rounds of multiplying and folding.
pub(crate) const SPREAD: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93];

/// The lot of a sample: 0 to `of` - 1, each about as often. All lots of one sample come from one number, so that what is
/// among one of 100 is also among one of 10.
pub(crate) fn lot(seq: u64, of: u32) -> u64 {
    let mut mixed = seq;
    for factor in SPREAD {
        mixed = mixed.wrapping_mul(factor);
        mixed ^= mixed >> 32;
    }
    ((mixed & u64::from(u32::MAX)) * u64::from(of)) >> 32
}

impl Value {
    fn of(&self, sample: &Sample) -> u64 {
        match self {
            Value::Number(number) => *number,
            Value::Field(field) => sample.field(*field),
            Value::Ancestor(level) => sample.cgroups.get(*level as usize).copied().unwrap_or(0),
            Value::Lot(of) => lot(sample.seq, *of),
            Value::Arithmetic(op, a, b) => op.apply(a.of(sample), b.of(sample)),
        }
    }
}

impl Tree {
    /// Whether it holds for a sample.
    pub(crate) fn holds(&self, sample: &Sample) -> bool {
        match self {
            Tree::Const(value) => *value,
            Tree::Not(inner) => !inner.holds(sample),
            Tree::All(parts) => parts.iter().all(|part| part.holds(sample)),
            Tree::Any(parts) => parts.iter().any(|part| part.holds(sample)),
            Tree::Compare(relation, a, b) => relation.holds(a.of(sample), b.of(sample)),
            Tree::In(value, ranges) => ranges.contains(value.of(sample)),
            Tree::Comm(glob) => glob.matches(&sample.comm),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lots_are_fair_and_nested() {
        for of in [1u32, 2, 3, 10, 100, 1000] {
            let hits = (0..100_000u64).filter(|&seq| lot(seq, of) == 0).count() as f64;
            let wanted = 100_000.0 / f64::from(of);
            assert!((hits - wanted).abs() < 5.0 * wanted.sqrt().max(1.0), "1/{of}: {hits}");
        }
        // Every second or third sample, as two events on one CPU may share the numbers, is drawn as often.
        for step in [2, 3, 7] {
            let hits = (0..50_000u64).filter(|n| lot(n * step, 10) == 0).count();
            assert!((4_500..5_500).contains(&hits), "step {step}: {hits}");
        }
        assert!((0..100_000u64).filter(|&seq| lot(seq, 100) == 0).all(|seq| lot(seq, 10) == 0));
        assert!((0..1000).all(|seq| lot(seq, 7) < 7));
    }
}
