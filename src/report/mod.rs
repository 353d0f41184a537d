//! `afterimage report`: where the time went, as a table or as JSON.

mod branch;
mod graph;
mod json;
mod stdio;

use afterimage_perf_data::{FileReader, SampleType};
use afterimage_profile::{AggregateOptions, Order, Resolver, Row, SortKey, aggregate};

use crate::cli::ReportArgs;
use crate::events;
use crate::exit::{Exit, Problem};
use crate::input::Input;
use crate::out;
use crate::say::Say;
use graph::{Form, GraphOptions};

/// What the options ask for, checked.
pub(crate) struct Plan {
    sort: Vec<SortKey>,
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
        Ok(Plan {
            sort: sort_keys(&args.sort)?,
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

/// Reads `--sort`.
fn sort_keys(text: &str) -> anyhow::Result<Vec<SortKey>> {
    let mut keys: Vec<SortKey> = Vec::new();
    for word in text.split(',').map(str::trim).filter(|w| !w.is_empty()) {
        // perf prints the share in any case; as a key it changes nothing.
        if matches!(word, "overhead" | "overhead_children" | "sample" | "period") {
            continue;
        }
        let key = word.parse::<SortKey>().map_err(|_| {
            Problem::usage(format!("--sort {word}: no such key"))
                .hint("there are comm, dso, sym, srcline, text, pid, tid, cpu, event and cgroup")
        })?;
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    if keys.is_empty() {
        return Err(Problem::usage(format!("--sort {text}: no key")).into());
    }
    Ok(keys)
}

/// Shows the report of a recording.
pub(crate) fn run(args: &ReportArgs, say: &Say) -> anyhow::Result<Exit> {
    let plan = Plan::of(args, say)?;
    let input = Input::open(&args.input)?;
    let reader = input.reader()?;
    let mut resolver = Resolver::new(&reader, input.resolve_options());
    let options = AggregateOptions {
        sort: plan.sort.clone(),
        chains: plan.draws_chains() || plan.children,
        children: plan.children,
        ..AggregateOptions::default()
    };
    let profile = aggregate(&reader, &options, &mut resolver);
    let chosen = match &plan.event {
        Some(name) => events::called(&profile, name)?,
        None => (0..profile.events.len()).collect(),
    };
    let mut to = out::stdout()?;
    if plan.json {
        json::write(&mut to, &profile, &plan, &chosen)?;
    } else {
        if plan.header {
            crate::header::write(&mut to, &reader, &profile.stats)?;
        }
        let chains: Vec<bool> = profile.events.iter().map(|e| has_chains(&reader, e.event)).collect();
        stdio::write(&mut to, &profile, &plan, &chosen, &chains)?;
    }
    out::flush(&mut to)?;
    let exit = input.end(&reader, &profile.stats, say);
    // The process ends now: giving millions of small pieces back one by one would only cost time.
    std::mem::forget((profile, resolver));
    Ok(exit)
}

fn has_chains(reader: &FileReader<'_>, event: usize) -> bool {
    reader.events().get(event).is_some_and(|event| event.attr.sample_type.contains(SampleType::CALLCHAIN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_perfs_and_stand_once() {
        assert_eq!(sort_keys("comm,dso,symbol,comm").unwrap(), [SortKey::Comm, SortKey::Dso, SortKey::Sym]);
        assert_eq!(sort_keys("overhead,sym").unwrap(), [SortKey::Sym]);
        assert_eq!(sort_keys("srcline,text").unwrap(), [SortKey::Srcline, SortKey::Text]);
        assert_eq!(sort_keys("comm,weight").unwrap_err().to_string(), "--sort weight: no such key");
        assert_eq!(sort_keys(" , ").unwrap_err().to_string(), "--sort  , : no key");
    }
}
