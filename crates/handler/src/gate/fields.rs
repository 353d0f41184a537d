//! What of a sample an expression can name.

/// A number that every sample has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    Pid,
    Tid,
    Cpu,
    Ip,
    Addr,
    Period,
    Cgroup,
    /// 1 for code of user space, 0 for the kernel's.
    User,
    Time,
    Uid,
    Ppid,
    Nspid,
}

impl Field {
    pub(crate) const ALL: [Field; 12] = [
        Field::Pid,
        Field::Tid,
        Field::Cpu,
        Field::Ip,
        Field::Addr,
        Field::Period,
        Field::Cgroup,
        Field::User,
        Field::Time,
        Field::Uid,
        Field::Ppid,
        Field::Nspid,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Field::Pid => "pid",
            Field::Tid => "tid",
            Field::Cpu => "cpu",
            Field::Ip => "ip",
            Field::Addr => "addr",
            Field::Period => "period",
            Field::Cgroup => "cgroup",
            Field::User => "user",
            Field::Time => "time",
            Field::Uid => "uid",
            Field::Ppid => "ppid",
            Field::Nspid => "nspid",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Field> {
        Field::ALL.into_iter().find(|field| field.name() == name)
    }

    /// The highest value that it can have.
    pub(crate) fn max(self) -> u64 {
        match self {
            Field::User => 1,
            Field::Pid | Field::Tid | Field::Cpu | Field::Uid | Field::Ppid | Field::Nspid => u32::MAX.into(),
            Field::Ip | Field::Addr | Field::Period | Field::Cgroup | Field::Time => u64::MAX,
        }
    }
}

/// Every word that has a meaning, for guesses.
pub(crate) const WORDS: [&str; 16] = [
    "comm", "pid", "tid", "cpu", "ip", "addr", "period", "cgroup", "user", "kernel", "time", "uid", "ppid", "nspid",
    "symbol", "dso",
];

/// The word that somebody may have meant.
pub(crate) fn near(word: &str) -> Option<&'static str> {
    let wanted = word.to_ascii_lowercase();
    let limit = (wanted.len() / 3).clamp(1, 2);
    let best = WORDS.into_iter().map(|known| (distance(wanted.as_bytes(), known.as_bytes()), known)).min()?;
    (best.0 <= limit).then_some(best.1)
}

/// Letters to add, drop or change.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().take(32).enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let change = corner + usize::from(x != y);
            corner = row[j + 1];
            row[j + 1] = change.min(corner + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_were_meant() {
        assert_eq!(near("pdi"), None, "two letters of three may be anything");
        assert_eq!(near("conm"), Some("comm"));
        assert_eq!(near("PID"), Some("pid"));
        assert_eq!(near("cgruop"), Some("cgroup"));
        assert_eq!(near("kernal"), Some("kernel"));
        assert_eq!(near("xyzzy"), None);
        assert_eq!(near(&"p".repeat(5000)), None);
    }

    #[test]
    fn fields_have_names_of_their_own() {
        for field in Field::ALL {
            assert_eq!(Field::named(field.name()), Some(field));
            assert!(WORDS.contains(&field.name()));
        }
    }
}
