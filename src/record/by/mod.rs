//! `record --by`: samples counted by keys in the kernel, and what was counted on standard output.

mod folded;
mod json;
mod table;

use std::io::{self, Write};
use std::time::Duration;

use afterimage_perf_data::RecordingTally;
use afterimage_recorder::by::{By, Key, Options, Readout, Value};

use super::args::ByArgs;
use crate::exit::{Problem, not_yet};

/// The form in which rows are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Table,
    Json,
    Folded,
}

/// Shows what was counted.
#[derive(Clone, Debug)]
pub(super) struct Show {
    keys: Vec<Key>,
    value: Value,
    form: Form,
    interval: bool,
}

/// What was asked for; `None` without `--by`.
pub(super) fn plan(args: &ByArgs, events: usize) -> anyhow::Result<Option<By>> {
    let Some(list) = &args.by else { return Ok(None) };
    let (keys, value) = (keys(list)?, value(&args.value)?);
    let options = Options { keys, value, entries: args.entries, ..Options::default() };
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

fn keys(list: &str) -> anyhow::Result<Vec<Key>> {
    let mut keys = Vec::new();
    for word in list.split(',').map(str::trim) {
        if word.starts_with("label:") {
            return Err(not_yet("--by label:NAME"));
        }
        let key = word.parse().map_err(|_| {
            let known = Key::ALL.map(Key::name).join(", ");
            Problem::usage(format!("--by {list}: no key is called {word:?}")).hint(format!("there are {known}"))
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
    Ok(keys)
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
        Show { keys: by.options.keys.clone(), value: by.options.value, form, interval: by.interval.is_some() }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn error<T>(result: anyhow::Result<T>) -> String {
        result.err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn lists_of_keys() {
        assert_eq!(keys("comm, kstack").unwrap(), [Key::Comm, Key::Kstack]);
        assert_eq!(error(keys("comm,")), "--by comm,: no key is called \"\"");
        assert_eq!(error(keys("pid,pid")), "--by pid,pid: pid is named twice");
        assert_eq!(error(keys("ustack,stack")), "--by ustack,stack: ustack is a part of stack");
        assert_eq!(error(keys("comm,label:request")), "--by label:NAME: not supported yet");
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
