//! `afterimage report`: where the time went, as a table or as JSON.

mod branch;
mod graph;
mod json;
mod stats;
mod stdio;

use std::io::Write as _;

use afterimage_perf_data::{FileReader, LabelPayload, Private, SampleType};
use afterimage_profile::{AggregateOptions, Order, ReplayOptions, Resolver, Row, SortKey, aggregate_from, replay_from};

use crate::cli::ReportArgs;
use crate::events;
use crate::exit::{Exit, Problem};
use crate::input::Input;
use crate::out;
use crate::refused;
use crate::say::Say;
use crate::terminal::clean;
use graph::{Form, GraphOptions};

/// What the options ask for, checked.
pub(crate) struct Plan {
    sort: Vec<SortKey>,
    /// The names of the labels among the keys, by their number.
    labels: Vec<String>,
    children: bool,
    graph: GraphOptions,
    percent_limit: f64,
    show_samples: bool,
    show_period: bool,
    event: Option<String>,
    json: bool,
    header: bool,
    quiet: bool,
}

impl Plan {
    fn of(args: &ReportArgs, say: &Say) -> anyhow::Result<Self> {
        let percent_limit = graph::percent(&args.percent_limit)
            .ok_or_else(|| Problem::usage(format!("--percent-limit {}: not a percentage", args.percent_limit)))?;
        let mut graph = GraphOptions::parse(args.call_graph.as_deref().unwrap_or_default())?;
        if args.inverted {
            graph.order = Some(Order::Caller);
        }
        let (sort, labels) = sort_keys(&args.sort)?;
        Ok(Plan {
            sort,
            labels,
            children: args.children,
            graph,
            percent_limit,
            show_samples: args.show_nr_samples,
            show_period: args.show_total_period,
            event: args.event.clone(),
            json: args.json,
            header: args.header,
            quiet: say.is_quiet(),
        })
    }

    /// Callers of a function stand under it, unless its callees count for it: then it stands over them.
    fn order(&self) -> Order {
        self.graph.order.unwrap_or(if self.children { Order::Caller } else { Order::Callee })
    }

    /// What a row weighs in this report.
    fn period(&self, row: &Row) -> u64 {
        if self.children { row.children.period } else { row.own.period }
    }

    /// Whether a row of an event of `total` is heavy enough to be shown.
    fn shows(&self, row: &Row, total: u64) -> bool {
        graph::percent_of(self.period(row), total) >= self.percent_limit
    }

    fn draws_chains(&self) -> bool {
        self.graph.form != Form::None && !self.json
    }
}

/// Reads `--sort`: the keys, and the names of the labels among them.
fn sort_keys(text: &str) -> anyhow::Result<(Vec<SortKey>, Vec<String>)> {
    let mut keys: Vec<SortKey> = Vec::new();
    let mut labels: Vec<String> = Vec::new();
    for word in text.split(',').map(str::trim).filter(|w| !w.is_empty()) {
        // perf prints the share in any case; as a key it changes nothing.
        if matches!(word, "overhead" | "overhead_children" | "sample" | "period") {
            continue;
        }
        if let Some(name) = word.strip_prefix("label:") {
            if let Some(key) = label_key(&format!("--sort {word}"), name, &mut labels)? {
                keys.push(key);
            }
            continue;
        }
        let key = word.parse::<SortKey>().map_err(|_| {
            Problem::usage(format!("--sort {word}: no such key"))
                .hint("there are comm, dso, sym, srcline, text, pid, tid, cpu, event, cgroup and label:NAME")
        })?;
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    if keys.is_empty() {
        return Err(Problem::usage(format!("--sort {text}: no key")).into());
    }
    Ok((keys, labels))
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

/// Shows the report of a recording.
pub(crate) fn run(args: &ReportArgs, say: &Say) -> anyhow::Result<Exit> {
    let plan = Plan::of(args, say)?;
    let input = Input::open(&args.input)?;
    let reader = input.reader()?;
    if args.stats {
        return count(&input, &reader, say);
    }
    let mut resolver = Resolver::new(&reader, input.resolve_options());
    let options = AggregateOptions {
        sort: plan.sort.clone(),
        labels: plan.labels.clone(),
        chains: plan.draws_chains() || plan.children,
        chain_key: plan.graph.key,
        children: plan.children,
        ..AggregateOptions::default()
    };
    let profile = aggregate_from(&reader, &mut input.source(&reader)?, &options, &mut resolver);
    let chosen = match &plan.event {
        Some(name) => events::called(&profile, name)?,
        None => (0..profile.events.len()).collect(),
    };
    let mut to = out::stdout()?;
    if plan.json {
        let none = Private::default();
        let not_used = refused::json(resolver.refused());
        json::write(&mut to, &profile, reader.private().unwrap_or(&none), &plan, &chosen, not_used)?;
    } else {
        if plan.header {
            crate::header::write(&mut to, &reader, &profile.stats)?;
        }
        let chains: Vec<bool> = profile.events.iter().map(|e| has_chains(&reader, e.event)).collect();
        let gates = if plan.quiet { Vec::new() } else { gates(&reader) };
        match gates.as_slice() {
            [] | [None] => (),
            [Some(gate)] => writeln!(to, "# Where: {}\n#", clean(gate))?,
            several => {
                let several: Vec<_> = several.iter().map(|gate| gate.map_or("all".into(), clean)).collect();
                writeln!(to, "# Where, one after the other: {}\n#", several.join("; "))?;
            }
        }
        stdio::write(&mut to, &profile, &plan, &chosen, &chains)?;
    }
    out::flush(&mut to)?;
    refused::say(input.name(), resolver.refused(), say);
    let exit = input.end(&reader, &profile.stats, say);
    // The process ends now: giving millions of small pieces back one by one would only cost time.
    std::mem::forget((profile, resolver));
    Ok(exit)
}

/// Shows how many records of each type a recording has.
fn count(input: &Input, reader: &FileReader<'_>, say: &Say) -> anyhow::Result<Exit> {
    let mut source = input.source(reader)?;
    let stats = replay_from(reader, &mut source, &ReplayOptions::default(), &mut stats::Counted).stats;
    let mut to = out::stdout()?;
    stats::write(&mut to, reader, &stats)?;
    out::flush(&mut to)?;
    Ok(input.end(reader, &stats, say))
}

/// The expressions that samples had to fulfil to be in the recording, in the order in which they came, each once; `None` for
/// none.
fn gates<'r>(reader: &'r FileReader<'_>) -> Vec<Option<&'r str>> {
    let mut gates = Vec::new();
    for handler in reader.private().map_or(&[][..], |private| &private.handlers) {
        let gate = handler.gate.as_deref();
        if !gates.contains(&gate) {
            gates.push(gate);
        }
    }
    gates
}

fn has_chains(reader: &FileReader<'_>, event: usize) -> bool {
    reader.events().get(event).is_some_and(|event| event.attr.sample_type.contains(SampleType::CALLCHAIN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_have_names() {
        let (keys, labels) = sort_keys("label:tier,sym,label:depth,label:tier").unwrap();
        assert_eq!(keys, [SortKey::Label(0), SortKey::Sym, SortKey::Label(1)]);
        assert_eq!(labels, ["tier", "depth"]);
        assert_eq!(sort_keys("label:").unwrap_err().to_string(), "--sort label:: a label's name has 1 to 32 bytes");
        assert!(sort_keys(&format!("label:{}", "x".repeat(33))).is_err());
    }

    #[test]
    fn keys_are_perfs_and_stand_once() {
        assert_eq!(sort_keys("comm,dso,symbol,comm").unwrap().0, [SortKey::Comm, SortKey::Dso, SortKey::Sym]);
        assert_eq!(sort_keys("overhead,sym").unwrap().0, [SortKey::Sym]);
        assert_eq!(sort_keys("srcline,text").unwrap().0, [SortKey::Srcline, SortKey::Text]);
        assert_eq!(sort_keys("comm,weight").unwrap_err().to_string(), "--sort weight: no such key");
        assert_eq!(sort_keys(" , ").unwrap_err().to_string(), "--sort  , : no key");
    }
}
