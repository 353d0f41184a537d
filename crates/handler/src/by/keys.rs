//! What samples are counted by, and what is made of each: the words of the command line.

use std::fmt;
use std::str::FromStr;

use crate::{Error, ErrorKind};

/// A part of what samples are counted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// The thread's name.
    Comm,
    /// The process.
    Pid,
    /// The thread.
    Tid,
    /// The CPU.
    Cpu,
    /// The cgroup, of the unified hierarchy.
    Cgroup,
    /// The kernel part of the stack.
    Kstack,
    /// The user part of the stack.
    Ustack,
    /// The whole stack.
    Stack,
    /// The address that was hit.
    Ip,
    /// A label that a handler of an object gives; which one is [`Options::label`](super::Options::label).
    Label,
}

impl Key {
    /// All that are one word, as help texts list them; the other one is written `label:NAME`.
    pub const ALL: [Key; 9] =
        [Key::Comm, Key::Pid, Key::Tid, Key::Cpu, Key::Cgroup, Key::Kstack, Key::Ustack, Key::Stack, Key::Ip];

    /// Its name on the command line and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Key::Comm => "comm",
            Key::Pid => "pid",
            Key::Tid => "tid",
            Key::Cpu => "cpu",
            Key::Cgroup => "cgroup",
            Key::Kstack => "kstack",
            Key::Ustack => "ustack",
            Key::Stack => "stack",
            Key::Ip => "ip",
            Key::Label => "label",
        }
    }

    /// Whether it is a stack or a part of one.
    pub fn is_stack(self) -> bool {
        matches!(self, Key::Kstack | Key::Ustack | Key::Stack)
    }

    /// Whether it holds addresses, which have names.
    pub fn has_addresses(self) -> bool {
        self.is_stack() || self == Key::Ip
    }

    /// AI_BY_* in by.bpf.c.
    pub(crate) fn bits(self) -> u32 {
        match self {
            Key::Comm => 1 << 0,
            Key::Pid => 1 << 1,
            Key::Tid => 1 << 2,
            // Each CPU has a table of its own, and a label stands behind the stack.
            Key::Cpu | Key::Label => 0,
            Key::Cgroup => 1 << 3,
            Key::Ip => 1 << 4,
            Key::Kstack => 1 << 5,
            Key::Ustack => 1 << 6,
            Key::Stack => 1 << 5 | 1 << 6,
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Key {
    type Err = Error;

    fn from_str(name: &str) -> Result<Key, Error> {
        let known = || Key::ALL.map(Key::name).join(", ");
        Key::ALL
            .into_iter()
            .find(|key| key.name() == name)
            .ok_or_else(|| Error::new(ErrorKind::Options, format!("key {name:?}"), format!("not one of {}", known())))
    }
}

/// A number that each sample has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Field {
    /// What happened since the sample before: nanoseconds of clock events, else counts of the event.
    Period,
    /// The address of the data: of a page fault or a breakpoint, and of loads and stores that a counter unit samples.
    Addr,
    /// The cost of an access, as the counter unit weighs it (mostly cycles of latency).
    Weight,
}

impl Field {
    const ALL: [Field; 3] = [Field::Period, Field::Addr, Field::Weight];

    /// Its name on the command line and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Field::Period => "period",
            Field::Addr => "addr",
            Field::Weight => "weight",
        }
    }

    /// AI_BY_* in by.bpf.c.
    pub(crate) fn number(self) -> u32 {
        match self {
            Field::Period => 0,
            Field::Addr => 1,
            Field::Weight => 2,
        }
    }
}

/// What is made of the samples of one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Value {
    /// How many there are.
    #[default]
    Count,
    /// The sum of a field.
    Sum(Field),
    /// The largest value of a field.
    Max(Field),
    /// How many of them have a value within each power of two.
    Hist(Field),
}

impl Value {
    /// The field that it is made from.
    pub fn field(self) -> Option<Field> {
        match self {
            Value::Count => None,
            Value::Sum(field) | Value::Max(field) | Value::Hist(field) => Some(field),
        }
    }

    /// AI_BY_* in by.bpf.c.
    pub(crate) fn number(self) -> u32 {
        match self {
            Value::Count => 0,
            Value::Sum(_) => 1,
            Value::Max(_) => 2,
            Value::Hist(_) => 3,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Count => f.write_str("count"),
            Value::Sum(field) => write!(f, "sum({})", field.name()),
            Value::Max(field) => write!(f, "max({})", field.name()),
            Value::Hist(field) => write!(f, "hist({})", field.name()),
        }
    }
}

impl FromStr for Value {
    type Err = Error;

    fn from_str(text: &str) -> Result<Value, Error> {
        let bad = |cause: &str| Error::new(ErrorKind::Options, format!("value {text:?}"), cause);
        let Some((function, field)) = text.strip_suffix(')').and_then(|text| text.split_once('(')) else {
            let whole = "not one of count, sum(FIELD), max(FIELD), hist(FIELD)";
            return if text == "count" { Ok(Value::Count) } else { Err(bad(whole)) };
        };
        let field = Field::ALL.into_iter().find(|known| known.name() == field);
        let field = field.ok_or_else(|| bad("the fields are period, addr and weight"))?;
        match function {
            "sum" => Ok(Value::Sum(field)),
            "max" => Ok(Value::Max(field)),
            "hist" => Ok(Value::Hist(field)),
            _ => Err(bad("the functions are sum, max and hist")),
        }
    }
}

/// The values that a bucket of a histogram stands for, both ends included: bucket 0 is 0, bucket N begins at 2^(N-1).
pub fn bucket_range(bucket: u32) -> (u64, u64) {
    match bucket {
        0 => (0, 0),
        1..=63 => (1 << (bucket - 1), (1 << bucket) - 1),
        _ => (1 << 63, u64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_read_back() {
        for key in Key::ALL {
            assert_eq!(key.to_string().parse::<Key>().unwrap(), key);
        }
        for text in ["count", "sum(period)", "max(addr)", "hist(weight)"] {
            assert_eq!(text.parse::<Value>().unwrap().to_string(), text);
        }
        for bad in ["", "counts", "sum", "sum(", "sum()", "sum(ip)", "avg(period)", "count()", "sum(period) "] {
            assert!(bad.parse::<Value>().is_err(), "{bad}");
        }
        let refused = "Comm".parse::<Key>().unwrap_err().to_string();
        assert_eq!(refused, "key \"Comm\": not one of comm, pid, tid, cpu, cgroup, kstack, ustack, stack, ip");
    }

    #[test]
    fn buckets_cover_every_number_once() {
        let mut next = 0;
        for bucket in 0..=64 {
            let (first, last) = bucket_range(bucket);
            assert!(first == next && last >= first, "{bucket}");
            next = last.wrapping_add(1);
        }
        assert_eq!(next, 0);
    }
}
