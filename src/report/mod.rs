//! `afterimage report`: where the time went, as a table or as JSON.

mod branch;
mod cell;
mod columns;
mod graph;
mod json;
mod keys;
mod order;
mod several;
mod stats;
mod stdio;
mod unwound;

use std::io::Write;

use afterimage_perf_data::{FileReader, Private, SampleType};
use afterimage_profile::{
    AggregateOptions, ChainKey, EventProfile, Filters, Order, Pattern, ReplayOptions, ReplayStats, Resolver, Row,
    SortKey, Weight, aggregate_with, replay_unwinding,
};

use crate::cli::{Percentage, ReportArgs};
use crate::events;
use crate::exit::{Exit, Problem};
use crate::filters;
use crate::input::Input;
use crate::out;
use crate::refused;
use crate::say::Say;
use crate::terminal::clean;
use columns::TraceColumns;
use graph::{Form, GraphOptions};
pub(crate) use keys::label_key;
use keys::{Keys, Mode, Shown};

/// What the options ask for, checked.
pub(crate) struct Plan {
    keys: Keys,
    columns: TraceColumns,
    inline: bool,
    branches: bool,
    branch_history: bool,
    by_weight: bool,
    time_quantum: u64,
    children: bool,
    graph: GraphOptions,
    percent_limit: f64,
    event: Option<String>,
    json: bool,
    header: bool,
    quiet: bool,
    filters: Filters,
    percentage: Percentage,
}

impl Plan {
    fn of(args: &ReportArgs, say: &Say) -> anyhow::Result<Self> {
        let percent_limit = graph::percent(&args.percent_limit)
            .ok_or_else(|| Problem::usage(format!("--percent-limit {}: not a percentage", args.percent_limit)))?;
        let mut graph = GraphOptions::parse(args.call_graph.as_deref().unwrap_or_default())?;
        if args.inverted {
            graph.order = Some(Order::Caller);
        }
        let usual = match (args.branch_stack, args.mem_mode) {
            (true, _) => keys::OF_BRANCHES,
            (false, true) => keys::OF_MEMORY,
            (false, false) if args.branch_history => keys::OF_HISTORY,
            (false, false) => keys::USUAL,
        };
        if args.branch_history && !args.call_graph.as_deref().is_some_and(graph::names_key) {
            // As in perf: a branch is from one place to another.
            graph.key = ChainKey::Address;
        }
        let fields = args.fields.as_deref();
        // perf's default is --children, so the field needs no more there.
        let asks = |text: &str| text.split(',').any(|word| word.trim_start_matches('+').trim() == "overhead_children");
        let children = args.children || !args.no_children && !args.branch_stack && fields.is_some_and(asks);
        let mut keys = Keys::parse(args.sort.as_deref(), fields, usual, children)?;
        let columns = [
            (args.show_cpu_utilization, Shown::Mode(Mode::Kernel)),
            (args.show_cpu_utilization, Shown::Mode(Mode::User)),
            (args.show_nr_samples, Shown::Samples),
            (args.show_total_period, Shown::Period),
        ];
        for (asked, shown) in columns {
            // As in perf, where fields stand in place of the usual columns.
            if asked && fields.is_none_or(|fields| fields.starts_with('+')) {
                keys.show_with_shares(shown);
            }
        }
        let branches = args.branch_stack || keys.sort.iter().any(|key| key.is_of_branches());
        if branches {
            // A branch has no callees.
            keys.without(Shown::Children);
        }
        if branches && args.mem_mode {
            return Err(
                Problem::usage("--mem-mode speaks of samples, and other keys or --branch-stack of branches").into()
            );
        }
        if branches && args.branch_history {
            let what = "--branch-history speaks of samples, and other keys or --branch-stack of branches";
            return Err(Problem::usage(what).into());
        }
        let parents = Pattern::parse(&args.parent)
            .map_err(|error| Problem::usage(format!("--parent {}: {}", args.parent, error.why)))?;
        let takes_parents = keys.sort.contains(&SortKey::Parent) || args.exclude_other;
        Ok(Plan {
            keys,
            columns: TraceColumns::default(),
            inline: args.inline,
            branches,
            branch_history: args.branch_history,
            by_weight: args.mem_mode,
            time_quantum: quantum(&args.time_quantum)?,
            children: children && !branches,
            graph,
            percent_limit,
            event: args.event.clone(),
            json: args.json,
            header: args.header,
            quiet: say.is_quiet(),
            filters: Filters {
                hide_unresolved: args.hide_unresolved,
                symbol_part: args.symbol_filter.clone(),
                parents: takes_parents.then_some(parents),
                exclude_other: args.exclude_other,
                ..filters::read(&args.filters)?
            },
            percentage: args.percentage,
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

    /// What the percentages of an event are of.
    fn whole(&self, event: &EventProfile) -> Weight {
        match self.percentage {
            Percentage::Relative => event.total,
            Percentage::Absolute => event.considered(),
        }
    }

    /// Whether a row of an event of `total` is heavy enough to be shown.
    fn shows(&self, row: &Row, total: u64) -> bool {
        graph::percent_of(self.period(row), total) >= self.percent_limit
    }

    /// What is asked of a profile.
    fn options(&self) -> AggregateOptions {
        AggregateOptions {
            sort: self.keys.sort.clone(),
            labels: self.keys.labels.clone(),
            inline: self.inline,
            branches: self.branches,
            branch_history: self.branch_history,
            by_weight: self.by_weight,
            time_quantum: self.time_quantum,
            chains: self.draws_chains() || self.children,
            chain_key: self.graph.key,
            children: self.children,
            filters: self.filters.clone(),
            ..AggregateOptions::default()
        }
    }

    fn draws_chains(&self) -> bool {
        self.graph.form != Form::None && !self.json && !self.branches
    }
}

/// Reads `--time-quantum`: a number with its unit, in ns.
fn quantum(text: &str) -> anyhow::Result<u64> {
    let units = [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];
    let read = |(unit, ns): &(&str, u64)| text.strip_suffix(unit)?.trim().parse::<u64>().ok()?.checked_mul(*ns);
    units.iter().find_map(read).filter(|ns| *ns > 0).ok_or_else(|| {
        Problem::usage(format!("--time-quantum {text}: not a time"))
            .hint("for example 100ms; there are s, ms, us and ns")
            .into()
    })
}

/// Shows the report of a recording.
pub(crate) fn run(args: &ReportArgs, say: &Say) -> anyhow::Result<Exit> {
    let mut plan = Plan::of(args, say)?;
    if args.input.input.len() > 1 {
        return several::run(args, &plan, say);
    }
    let input = Input::open(&args.input)?;
    let reader = input.reader()?;
    if args.header_only {
        let mut to = out::stdout()?;
        crate::header::write(&mut to, &reader, &ReplayStats::default())?;
        out::flush(&mut to)?;
        return Ok(Exit::Done);
    }
    if args.stats {
        let mut to = out::stdout()?;
        let counted = count(&mut to, &input, &reader)?;
        out::flush(&mut to)?;
        return Ok(input.end(&reader, &counted, say));
    }
    filters::place(&mut plan.filters, &input, &reader)?;
    let mut resolver = Resolver::new(&reader, input.resolve_options());
    let options = plan.options();
    let mut columns = TraceColumns::new(&plan.keys.fields, &reader);
    TraceColumns::check(&plan.keys.fields, std::iter::once(&columns))?;
    let profile = aggregate_with(&reader, &mut input.source(&reader)?, &options, &mut resolver, &mut columns);
    plan.columns = columns;
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
        let chains: Vec<bool> = profile.events.iter().map(|e| has_chains(&plan, &reader, e.event)).collect();
        if let (false, Some(gates)) = (plan.quiet, gates(&reader)) {
            writeln!(to, "# {gates}\n#")?;
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
fn count(to: &mut dyn Write, input: &Input, reader: &FileReader<'_>) -> anyhow::Result<ReplayStats> {
    let mut source = input.source(reader)?;
    let mut counted = stats::Counted(Resolver::new(reader, input.resolve_options()));
    let stats = replay_unwinding(reader, &mut source, &ReplayOptions::default(), &mut counted).stats;
    stats::write(to, reader, &stats)?;
    Ok(stats)
}

/// The expressions that samples had to fulfil to be in the recording, in the order in which they came, each once; `None`
/// where there were none.
fn gates(reader: &FileReader<'_>) -> Option<String> {
    let mut gates = Vec::new();
    for handler in reader.private().map_or(&[][..], |private| &private.handlers) {
        let gate = handler.gate.as_deref();
        if !gates.contains(&gate) {
            gates.push(gate);
        }
    }
    match gates.as_slice() {
        [] | [None] => None,
        [Some(gate)] => Some(format!("Where: {}", clean(gate))),
        several => {
            let several: Vec<_> = several.iter().map(|gate| gate.map_or("all".into(), clean)).collect();
            Some(format!("Where, one after the other: {}", several.join("; ")))
        }
    }
}

/// Whether samples of an event have something to draw: a call chain, or branches where those are drawn.
fn has_chains(plan: &Plan, reader: &FileReader<'_>, event: usize) -> bool {
    let drawn = if plan.branch_history { SampleType::BRANCH_STACK } else { SampleType::empty() };
    let drawn = drawn.union(SampleType::CALLCHAIN);
    reader.events().get(event).is_some_and(|event| event.attr.sample_type.intersects(drawn))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        for (text, ns) in [("100ms", 100_000_000), ("2s", 2_000_000_000), ("5us", 5000), ("7 ns", 7)] {
            assert_eq!(quantum(text).unwrap(), ns, "{text}");
        }
        for bad in ["", "0ms", "5", "ms", "-1s", "99999999999999s"] {
            assert!(quantum(bad).is_err(), "{bad}");
        }
    }
}
