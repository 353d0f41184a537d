//! `--sort` and `--fields`: the keys, the columns, and what rows are ordered by.

use afterimage_perf_data::LabelPayload;
use afterimage_profile::{Row, SortKey};

use crate::exit::Problem;

/// One column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// The share with what was called.
    Children,
    /// The share.
    Overhead,
    /// The share of what ran in this mode.
    Mode(Mode),
    /// The number of samples.
    Samples,
    /// The sum of the periods.
    Period,
    /// The same as time off CPU.
    Time,
    /// The key of this number.
    Key(usize),
}

/// What ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Kernel,
    User,
    GuestKernel,
    GuestUser,
}

impl Mode {
    /// What of a row was in it.
    pub(super) fn of(self, row: &Row) -> u64 {
        match self {
            Mode::Kernel => row.modes.kernel,
            Mode::User => row.modes.user,
            Mode::GuestKernel => row.modes.guest_kernel,
            Mode::GuestUser => row.modes.guest_user,
        }
    }

    /// The title of its column, as perf has it.
    pub(super) fn title(self) -> &'static str {
        match self {
            Mode::Kernel => "sys",
            Mode::User => "usr",
            Mode::GuestKernel => "guest sys",
            Mode::GuestUser => "guest usr",
        }
    }
}

/// What `--sort` asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Keys {
    pub(super) sort: Vec<SortKey>,
    /// The names of the labels among the keys, by their number.
    pub(super) labels: Vec<String>,
    /// Fields of tracepoints among the keys, as they were asked for: words that are no key of another kind.
    pub(super) fields: Vec<String>,
    /// The columns from the left: shares first, as in perf, unless `--fields` says otherwise.
    pub(super) shown: Vec<Shown>,
    /// What rows are ordered by, the first first; of equal ones the texts of their keys decide.
    pub(super) order: Vec<Shown>,
}

/// Where nothing is asked for.
pub(super) const USUAL: &str = "comm,dso,sym";
/// Of branches, as in perf.
pub(super) const OF_BRANCHES: &str = "comm,dso_from,symbol_from,symbol_to,cycles";
/// Where chains begin with branches, as in perf.
pub(super) const OF_HISTORY: &str = "srcline,sym,dso";
/// Of accesses to memory, as in perf.
pub(super) const OF_MEMORY: &str =
    "local_weight,mem,sym,dso,symbol_daddr,dso_daddr,snoop,tlb,locked,blocked,local_ins_lat";

impl Keys {
    /// Reads the words of both as perf does. Of `usual` keys where none are asked for, and `+KEYS` adds to them.
    pub(super) fn parse(sort: Option<&str>, fields: Option<&str>, usual: &str, children: bool) -> anyhow::Result<Keys> {
        // Fields that are not added to the usual ones take their place: then nothing stands there that was not asked for.
        let only_fields = fields.is_some_and(|fields| !fields.starts_with('+'));
        let words = match (sort.and_then(|sort| sort.strip_prefix('+')), sort) {
            (Some(more), _) => format!("{usual},{more}"),
            (None, Some(sort)) => sort.to_owned(),
            (None, None) if only_fields => String::new(),
            (None, None) => usual.to_owned(),
        };
        let mut keys = Keys::default();
        let mut order = keys.read("--sort", &words, children)?;
        if !only_fields {
            if keys.sort.is_empty() {
                return Err(Problem::usage(format!("--sort {words}: no key")).into());
            }
            let at = order.iter().position(|shown| shown.is_share()).unwrap_or(0);
            order.retain(|shown| !shown.is_share());
            keys.shown = if children { vec![Shown::Children, Shown::Overhead] } else { vec![Shown::Overhead] };
            order.splice(at..at, keys.shown.iter().copied());
        }
        if let Some(fields) = fields {
            let asked = keys.read("--fields", fields.trim_start_matches('+'), children)?;
            if asked.is_empty() {
                return Err(Problem::usage(format!("--fields {fields}: no field")).into());
            }
            asked.into_iter().for_each(|shown| put(&mut keys.shown, shown));
        }
        order.iter().for_each(|shown| put(&mut keys.shown, *shown));
        keys.shown.iter().for_each(|shown| put(&mut order, *shown));
        // What stands behind the last number are texts, which decide where all else is equal.
        let is_text = |shown: &Shown| matches!(shown, Shown::Key(nth) if keys.sort.get(*nth).is_some_and(is_name));
        if let Some(last) = order.iter().rposition(|shown| !is_text(shown)) {
            order.truncate(last + 1);
        }
        keys.order = order;
        Ok(keys)
    }

    /// The columns that words ask for, each once. Keys among them are added to the keys.
    fn read(&mut self, option: &str, text: &str, children: bool) -> anyhow::Result<Vec<Shown>> {
        let mut columns = Vec::new();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let shown = match word {
                "overhead_children" if children => Shown::Children,
                "overhead" | "overhead_children" => Shown::Overhead,
                "overhead_sys" => Shown::Mode(Mode::Kernel),
                "overhead_us" => Shown::Mode(Mode::User),
                "overhead_guest_sys" => Shown::Mode(Mode::GuestKernel),
                "overhead_guest_us" => Shown::Mode(Mode::GuestUser),
                "sample" => Shown::Samples,
                "period" => Shown::Period,
                _ => Shown::Key(self.add(option, word)?),
            };
            put(&mut columns, shown);
        }
        Ok(columns)
    }

    /// Takes a column away, and its part in the order.
    pub(super) fn without(&mut self, shown: Shown) {
        self.shown.retain(|of| *of != shown);
        self.order.retain(|of| *of != shown);
    }

    /// Puts a column behind the shares, unless it is there.
    pub(super) fn show_with_shares(&mut self, shown: Shown) {
        if !self.shown.contains(&shown) {
            let is_key = |of: &Shown| matches!(of, Shown::Key(_));
            let at = self.shown.iter().position(is_key).unwrap_or(self.shown.len());
            self.shown.insert(at, shown);
        }
    }

    /// The number of the key that a word names, which may be new.
    fn add(&mut self, option: &str, word: &str) -> anyhow::Result<usize> {
        let key = if let Some(name) = word.strip_prefix("label:") {
            match self.labels.iter().position(|known| known == name).and_then(|at| u8::try_from(at).ok()) {
                Some(at) => SortKey::Label(at),
                None => label_key(&format!("{option} {word}"), name, &mut self.labels)?.unwrap_or(SortKey::Label(0)),
            }
        } else if let Ok(key) = word.parse::<SortKey>() {
            key
        } else {
            let field = word.strip_prefix("trace:").unwrap_or(word);
            let known = self.fields.iter().position(|known| known == field);
            let number = u8::try_from(known.unwrap_or(self.fields.len()));
            let number = number.map_err(|_| Problem::usage(format!("{option} {word}: too many fields")))?;
            if known.is_none() {
                self.fields.push(field.to_owned());
            }
            SortKey::Column(number)
        };
        let known = self.sort.iter().position(|of| *of == key);
        Ok(known.unwrap_or_else(|| {
            self.sort.push(key);
            self.sort.len() - 1
        }))
    }
}

/// Whether the values of a key are names, which are ordered as they are shown.
fn is_name(key: &SortKey) -> bool {
    matches!(key, SortKey::Comm | SortKey::Dso | SortKey::Sym | SortKey::Event | SortKey::Cgroup | SortKey::Parent)
}

/// Puts a column behind the others, unless it is there.
fn put(columns: &mut Vec<Shown>, shown: Shown) {
    if !columns.contains(&shown) {
        columns.push(shown);
    }
}

impl Shown {
    /// Whether it is a share of the event.
    fn is_share(self) -> bool {
        matches!(self, Shown::Children | Shown::Overhead)
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

    fn parse(text: &str, children: bool) -> anyhow::Result<Keys> {
        Keys::parse(Some(text), None, USUAL, children)
    }

    fn sort(text: &str) -> Vec<SortKey> {
        parse(text, false).unwrap().sort
    }

    #[test]
    fn labels_have_names() {
        let keys = parse("label:tier,sym,label:depth,label:tier", false).unwrap();
        assert_eq!(keys.sort, [SortKey::Label(0), SortKey::Sym, SortKey::Label(1)]);
        assert_eq!(keys.labels, ["tier", "depth"]);
        let error = parse("label:", false).unwrap_err();
        assert_eq!(error.to_string(), "--sort label:: a label's name has 1 to 32 bytes");
        assert!(parse(&format!("label:{}", "x".repeat(33)), false).is_err());
    }

    #[test]
    fn keys_are_perfs_and_stand_once() {
        assert_eq!(sort("comm,dso,symbol,comm"), [SortKey::Comm, SortKey::Dso, SortKey::Sym]);
        assert_eq!(sort("overhead,sym"), [SortKey::Sym]);
        assert_eq!(sort("srcline,text"), [SortKey::Srcline, SortKey::Text]);
        assert_eq!(parse(" , ", false).unwrap_err().to_string(), "--sort  , : no key");
        for keys in [USUAL, OF_BRANCHES, OF_MEMORY] {
            assert!(parse(keys, false).unwrap().fields.is_empty(), "{keys}");
        }
    }

    #[test]
    fn other_words_are_fields() {
        let keys = parse("comm,next_pid,trace:sched_switch.prev_comm,trace,trace:next_pid", false).unwrap();
        assert_eq!(keys.fields, ["next_pid", "sched_switch.prev_comm", "trace"]);
        assert_eq!(keys.sort, [SortKey::Comm, SortKey::Column(0), SortKey::Column(1), SortKey::Column(2)]);
    }

    #[test]
    fn columns_stand_as_they_are_asked_for() {
        use Shown::*;
        let shown = |text, children| parse(text, children).unwrap().shown;
        assert_eq!(shown("comm,sym", false), [Overhead, Key(0), Key(1)]);
        assert_eq!(shown("time,overhead,sym", false), [Overhead, Key(0), Key(1)]);
        assert_eq!(shown("comm,sample,period", true), [Children, Overhead, Key(0), Samples, Period]);
        let mut keys = parse("comm", true).unwrap();
        keys.show_with_shares(Samples);
        keys.show_with_shares(Period);
        assert_eq!(keys.shown, [Children, Overhead, Samples, Period, Key(0)]);
    }

    #[test]
    fn rows_are_in_the_order_of_what_stands_before() {
        use Shown::*;
        let order = |text, children| parse(text, children).unwrap().order;
        assert_eq!(order("comm,sym", false), [Overhead]);
        assert_eq!(order("comm,sym", true), [Children, Overhead]);
        assert_eq!(order("comm,pid,sym", false), [Overhead, Key(0), Key(1)]);
        assert_eq!(order("time,comm,overhead,sym", false), [Key(0), Key(1), Overhead]);
        assert_eq!(order("time,overhead_children,sym", true), [Key(0), Children, Overhead]);
        assert_eq!(order("sample,overhead,sym", false), [Samples, Overhead]);
    }

    #[test]
    fn fields_are_the_columns() {
        use Shown::*;
        let parse = |sort: Option<&str>, fields| Keys::parse(sort, Some(fields), USUAL, false).unwrap();
        let of = |sort, fields| {
            let keys = parse(sort, fields);
            (keys.sort, keys.shown, keys.order)
        };
        let (comm, dso, sym, pid) = (SortKey::Comm, SortKey::Dso, SortKey::Sym, SortKey::Pid);
        assert_eq!(of(None, "comm,overhead"), (vec![comm], vec![Key(0), Overhead], vec![Key(0), Overhead]));
        assert_eq!(of(None, "sym,comm"), (vec![sym, comm], vec![Key(0), Key(1)], vec![Key(0), Key(1)]));
        // Keys that are not among the fields stand behind them, and order first.
        assert_eq!(
            of(Some("comm"), "overhead,sym"),
            (vec![comm, sym], vec![Overhead, Key(1), Key(0)], vec![Key(0), Overhead])
        );
        assert_eq!(
            of(None, "+period,pid"),
            (
                vec![comm, dso, sym, pid],
                vec![Overhead, Period, Key(3), Key(0), Key(1), Key(2)],
                vec![Overhead, Key(0), Key(1), Key(2), Period, Key(3)]
            )
        );
        assert_eq!(of(None, "overhead,sample").0, []);
        assert_eq!(Keys::parse(Some("+pid"), None, USUAL, false).unwrap().sort, [comm, dso, sym, pid]);
        let error = Keys::parse(None, Some("+"), USUAL, false).unwrap_err();
        assert_eq!(error.to_string(), "--fields +: no field");
    }
}
