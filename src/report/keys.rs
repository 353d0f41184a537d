//! `--sort`: the keys, and the order of the columns.

use afterimage_perf_data::LabelPayload;
use afterimage_profile::SortKey;

use crate::exit::Problem;

/// One column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// The share with what was called.
    Children,
    /// The share.
    Overhead,
    /// The number of samples.
    Samples,
    /// The sum of the periods.
    Period,
    /// The key of this number.
    Key(usize),
}

/// What `--sort` asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Keys {
    pub(super) sort: Vec<SortKey>,
    /// The names of the labels among the keys, by their number.
    pub(super) labels: Vec<String>,
    /// Fields of tracepoints among the keys, as they were asked for: words that are no key of another kind.
    pub(super) fields: Vec<String>,
    /// The columns from the left: shares first, as in perf.
    pub(super) shown: Vec<Shown>,
    /// The keys that stand before the share among the words: rows are in their order first.
    pub(super) before_shares: Vec<usize>,
}

/// Where nothing is asked for.
pub(super) const USUAL: &str = "comm,dso,sym";
/// Of branches, as in perf.
pub(super) const OF_BRANCHES: &str = "comm,dso_from,symbol_from,symbol_to,cycles";
/// Of accesses to memory, as in perf.
pub(super) const OF_MEMORY: &str =
    "local_weight,mem,sym,dso,symbol_daddr,dso_daddr,snoop,tlb,locked,blocked,local_ins_lat";

impl Keys {
    /// Reads the words.
    pub(super) fn parse(text: &str, children: bool) -> anyhow::Result<Keys> {
        let mut keys = Keys::default();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            match word {
                "overhead" | "overhead_children" => {
                    if keys.before_shares.is_empty() {
                        keys.before_shares = (0..keys.sort.len()).collect();
                    }
                }
                "sample" => keys.show(Shown::Samples),
                "period" => keys.show(Shown::Period),
                _ => keys.add(word)?,
            }
        }
        if keys.sort.is_empty() {
            return Err(Problem::usage(format!("--sort {text}: no key")).into());
        }
        keys.shown.insert(0, Shown::Overhead);
        if children {
            keys.shown.insert(0, Shown::Children);
        }
        Ok(keys)
    }

    fn show(&mut self, shown: Shown) {
        if !self.shown.contains(&shown) {
            self.shown.push(shown);
        }
    }

    /// Puts a column behind the shares, unless it is there.
    pub(super) fn show_with_shares(&mut self, shown: Shown) {
        if !self.shown.contains(&shown) {
            let is_key = |of: &Shown| matches!(of, Shown::Key(_));
            let at = self.shown.iter().position(is_key).unwrap_or(self.shown.len());
            self.shown.insert(at, shown);
        }
    }

    fn add(&mut self, word: &str) -> anyhow::Result<()> {
        let key = if let Some(name) = word.strip_prefix("label:") {
            let Some(key) = label_key(&format!("--sort {word}"), name, &mut self.labels)? else { return Ok(()) };
            key
        } else if let Ok(key) = word.parse::<SortKey>() {
            key
        } else {
            let field = word.strip_prefix("trace:").unwrap_or(word);
            if self.fields.iter().any(|known| known == field) {
                return Ok(());
            }
            let number = u8::try_from(self.fields.len());
            let number = number.map_err(|_| Problem::usage(format!("--sort {word}: too many fields")))?;
            self.fields.push(field.to_owned());
            SortKey::Column(number)
        };
        if !self.sort.contains(&key) {
            self.shown.push(Shown::Key(self.sort.len()));
            self.sort.push(key);
        }
        Ok(())
    }
}

/// The key of a label; `None` where it stands there already.
///
/// `asked` is how the user asked for it.
pub(crate) fn label_key(asked: &str, name: &str, labels: &mut Vec<String>) -> anyhow::Result<Option<SortKey>> {
    if name.is_empty() || name.len() > LabelPayload::KEY_MAX {
        let problem = Problem::usage(format!("{asked}: a label's name has 1 to {} bytes", LabelPayload::KEY_MAX));
        return Err(problem.into());
    }
    if labels.iter().any(|known| known == name) {
        return Ok(None);
    }
    let number = u8::try_from(labels.len()).map_err(|_| Problem::usage(format!("{asked}: too many labels")))?;
    labels.push(name.to_owned());
    Ok(Some(SortKey::Label(number)))
}

/// That a word of `--sort` is none of a key.
pub(super) fn no_such_key(word: &str) -> anyhow::Error {
    let names: Vec<&str> = SortKey::names().collect();
    let problem = Problem::usage(format!("--sort {word}: no such key"));
    problem.hint(format!("there are {}, label:NAME, trace and fields of tracepoints", names.join(", "))).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sort(text: &str) -> Vec<SortKey> {
        Keys::parse(text, false).unwrap().sort
    }

    #[test]
    fn labels_have_names() {
        let keys = Keys::parse("label:tier,sym,label:depth,label:tier", false).unwrap();
        assert_eq!(keys.sort, [SortKey::Label(0), SortKey::Sym, SortKey::Label(1)]);
        assert_eq!(keys.labels, ["tier", "depth"]);
        let error = Keys::parse("label:", false).unwrap_err();
        assert_eq!(error.to_string(), "--sort label:: a label's name has 1 to 32 bytes");
        assert!(Keys::parse(&format!("label:{}", "x".repeat(33)), false).is_err());
    }

    #[test]
    fn keys_are_perfs_and_stand_once() {
        assert_eq!(sort("comm,dso,symbol,comm"), [SortKey::Comm, SortKey::Dso, SortKey::Sym]);
        assert_eq!(sort("overhead,sym"), [SortKey::Sym]);
        assert_eq!(sort("srcline,text"), [SortKey::Srcline, SortKey::Text]);
        assert_eq!(Keys::parse(" , ", false).unwrap_err().to_string(), "--sort  , : no key");
        for keys in [USUAL, OF_BRANCHES, OF_MEMORY] {
            assert!(Keys::parse(keys, false).unwrap().fields.is_empty(), "{keys}");
        }
    }

    #[test]
    fn other_words_are_fields() {
        let keys = Keys::parse("comm,next_pid,trace:sched_switch.prev_comm,trace,trace:next_pid", false).unwrap();
        assert_eq!(keys.fields, ["next_pid", "sched_switch.prev_comm", "trace"]);
        assert_eq!(keys.sort, [SortKey::Comm, SortKey::Column(0), SortKey::Column(1), SortKey::Column(2)]);
    }

    #[test]
    fn columns_stand_as_they_are_asked_for() {
        use Shown::*;
        let shown = |text, children| Keys::parse(text, children).unwrap().shown;
        assert_eq!(shown("comm,sym", false), [Overhead, Key(0), Key(1)]);
        assert_eq!(shown("time,overhead,sym", false), [Overhead, Key(0), Key(1)]);
        assert_eq!(shown("comm,sample,period", true), [Children, Overhead, Key(0), Samples, Period]);
        let mut keys = Keys::parse("comm", true).unwrap();
        keys.show_with_shares(Samples);
        keys.show_with_shares(Period);
        assert_eq!(keys.shown, [Children, Overhead, Samples, Period, Key(0)]);
        assert_eq!(Keys::parse("time,comm,overhead,sym", false).unwrap().before_shares, [0, 1]);
        assert_eq!(keys.before_shares.len(), 0);
    }
}
