//! `record --by`: samples counted by keys in the kernel, and what was counted on standard output.

mod folded;
mod json;
mod table;

use std::io::{self, Write};
use std::time::Duration;

use afterimage_perf_data::RecordingTally;
use afterimage_recorder::Handler;
use afterimage_recorder::by::{By, GivenBy, Key, Labelled, Options, Readout, Value};

use super::args::ByArgs;
use crate::exit::Problem;

/// The form in which rows are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Table,
    Json,
    Folded,
}

/// Bytes of the longest name of a label.
const LABEL_MAX: usize = 31;

/// Shows what was counted.
#[derive(Clone, Debug)]
pub(super) struct Show {
    keys: Vec<Key>,
    /// The keys as they are written.
    names: Vec<String>,
    value: Value,
    form: Form,
    interval: bool,
}

/// What was asked for; `None` without `--by`. A handler gives the label that is a key, and is then taken.
pub(super) fn plan(args: &ByArgs, events: usize, handler: &mut Option<Handler>) -> anyhow::Result<Option<By>> {
    let Some(list) = &args.by else { return Ok(None) };
    let (keys, label) = keys(list)?;
    let label = label.map(|name| given_by(name, handler)).transpose()?;
    if let Some(handler) = handler {
        let problem = Problem::usage(format!("--handler {}: --by runs a handler only for a label", handler.name()));
        return Err(problem.hint("samples are counted by what it labels them with: --by label:NAME").into());
    }
    let options = Options { keys, value: value(&args.value)?, entries: args.entries, label, ..Options::default() };
    let interval = args.interval.as_deref().map(interval).transpose()?;
    if args.folded && !matches!(options.value, Value::Count | Value::Sum(_)) {
        let problem = Problem::usage(format!("--folded: lines of {} would be added up", options.value));
        return Err(problem.hint("count and sum(FIELD) can be").into());
    }
    if args.folded && events > 1 {
        let problem = Problem::usage("--folded: events are never added together");
        return Err(problem.hint("choose one with -e").into());
    }
    Ok(Some(By { options, interval }))
}

/// The object that gives a label.
fn given_by(name: String, handler: &mut Option<Handler>) -> anyhow::Result<GivenBy> {
    let needs = || {
        let problem = Problem::usage(format!("--by label:{name}: a handler of your own has to give that label"));
        problem.hint("--handler FILE.o, which calls ai_label; docs/by.md has an example")
    };
    let Some(Handler::Object { object, .. }) = handler.take() else { return Err(needs().into()) };
    object.gives_label(&name).map_err(|error| Problem::usage(format!("--by label:{name}: {error}")))?;
    Ok(GivenBy { name, object })
}

/// The keys, and which label is one of them.
fn keys(list: &str) -> anyhow::Result<(Vec<Key>, Option<String>)> {
    let (mut keys, mut label) = (Vec::new(), None);
    for word in list.split(',').map(str::trim) {
        if let Some(name) = word.strip_prefix("label:") {
            if name.is_empty() || name.len() > LABEL_MAX {
                let text = format!("--by {list}: the name of a label has 1 to {LABEL_MAX} bytes");
                return Err(Problem::usage(text).into());
            }
            if label.replace(name.to_owned()).is_some() {
                return Err(Problem::usage(format!("--by {list}: one label can be a key")).into());
            }
            keys.push(Key::Label);
            continue;
        }
        let key = word.parse().map_err(|_| {
            let known = Key::ALL.map(Key::name).join(", ");
            let hint = format!("there are {known}, and label:NAME");
            Problem::usage(format!("--by {list}: no key is called {word:?}")).hint(hint)
        })?;
        if keys.contains(&key) {
            return Err(Problem::usage(format!("--by {list}: {key} is named twice")).into());
        }
        keys.push(key);
    }
    let stack = keys.contains(&Key::Stack);
    if let Some(part) = keys.iter().find(|key| stack && matches!(key, Key::Kstack | Key::Ustack)) {
        return Err(Problem::usage(format!("--by {list}: {part} is a part of stack")).into());
    }
    Ok((keys, label))
}

fn value(text: &str) -> anyhow::Result<Value> {
    text.parse().map_err(|error: afterimage_handler::Error| Problem::usage(format!("--value: {error}")).into())
}

/// Seconds, or with a unit: `0.5`, `2s`, `250ms`.
fn interval(text: &str) -> anyhow::Result<Duration> {
    let (number, unit) = match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(number), _) => (number, 1e-3),
        (None, Some(number)) => (number, 1.0),
        (None, None) => (text, 1.0),
    };
    let seconds = number.parse::<f64>().ok().map(|number| number * unit);
    let interval = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let least = Duration::from_millis(10);
    interval.filter(|interval| *interval >= least && *interval <= super::plan::LONGEST).ok_or_else(|| {
        let problem = Problem::usage(format!("--interval {text}: not a time of 10 ms or more"));
        problem.hint("seconds, or with a unit: 0.5, 2s, 250ms").into()
    })
}

impl Show {
    pub(super) fn new(by: &By, args: &ByArgs) -> Show {
        let form = match (args.json, args.folded) {
            (true, _) => Form::Json,
            (_, true) => Form::Folded,
            _ => Form::Table,
        };
        let (keys, names) = (by.options.keys.clone(), by.keys());
        Show { keys, names, value: by.options.value, form, interval: by.interval.is_some() }
    }

    /// Writes one readout, and sees that it gets out.
    pub(super) fn write(
        &self,
        out: &mut dyn Write,
        readout: &Readout,
        tally: Option<&RecordingTally>,
    ) -> io::Result<()> {
        match self.form {
            Form::Table => table::write(out, self, readout)?,
            Form::Json => json::write(out, self, readout, tally)?,
            Form::Folded => folded::write(out, self, readout)?,
        }
        out.flush()
    }
}

/// A label in words: `(none)` where there is none.
fn label(label: &Labelled) -> String {
    match label {
        Labelled::Not => "(none)".to_owned(),
        Labelled::Value { text, .. } => text.clone(),
        Labelled::Unreadable(reason) => format!("({reason})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error<T>(result: anyhow::Result<T>) -> String {
        result.err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn lists_of_keys() {
        assert_eq!(keys("comm, kstack").unwrap(), (vec![Key::Comm, Key::Kstack], None));
        assert_eq!(keys("label:a b,comm").unwrap(), (vec![Key::Label, Key::Comm], Some("a b".to_owned())));
        assert_eq!(error(keys("comm,")), "--by comm,: no key is called \"\"");
        assert_eq!(error(keys("pid,pid")), "--by pid,pid: pid is named twice");
        assert_eq!(error(keys("ustack,stack")), "--by ustack,stack: ustack is a part of stack");
        assert_eq!(error(keys("label:a,label:b")), "--by label:a,label:b: one label can be a key");
        assert_eq!(error(keys("label:")), "--by label:: the name of a label has 1 to 31 bytes");
        let needs = "--by label:a: a handler of your own has to give that label";
        assert_eq!(error(given_by("a".to_owned(), &mut None)), needs);
    }

    #[test]
    fn intervals() {
        for (text, ms) in [("1", 1000), ("0.5", 500), ("2s", 2000), ("250ms", 250), ("10ms", 10)] {
            assert_eq!(interval(text).unwrap(), Duration::from_millis(ms), "{text}");
        }
        for bad in ["", "0", "9ms", "-1", "x", "1m", "nan", "inf", "1e300", "ms"] {
            assert!(interval(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn values() {
        assert_eq!(value("hist(addr)").unwrap().to_string(), "hist(addr)");
        assert_eq!(error(value("sum(x)")), "--value: value \"sum(x)\": the fields are period, addr and weight");
    }
}
