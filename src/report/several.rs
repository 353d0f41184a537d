//! One report over several recordings: rows that look alike are one, with the periods of all; each file keeps its tally.
//!
//! Recordings are of different times and machines, so nothing is put together before it has its name: each file is read
//! by itself, and rows and chains are joined by what is shown of them. The files stand in the order in which they were
//! given.

use std::cmp::Reverse;
use std::io::{self, Write};

use afterimage_perf_data::FileReader;
use afterimage_profile::{FilterKind, Key, Node, Profile, Reason, Resolver, Row, Tree, Trees, Weight, aggregate_with};
use rustc_hash::FxHashMap;
use serde_json::{Map, Value, json};

use super::branch::{Branch, Least, name};
use super::cell::cell;
use super::columns::TraceColumns;
use super::keys::Shown;
use super::{Plan, has_chains, json as one_json, stdio};
use crate::cli::ReportArgs;
use crate::exit::{Exit, Problem};
use crate::filters;
use crate::input::Input;
use crate::out;
use crate::refused;
use crate::say::Say;
use crate::table::{Cells, Table};
use crate::terminal::clean;

/// One recording, read.
struct OneFile {
    name: String,
    profile: Profile,
    columns: TraceColumns,
    /// By event of the profile, whether it has call chains.
    chains: Vec<bool>,
    /// What was there and named nothing, as `--json` has it.
    not_used: Value,
}

/// The events of one name: each with its file, and its number there.
struct Event {
    name: String,
    of: Vec<(usize, usize)>,
}

/// The rows of an event.
#[derive(Default)]
struct Rows {
    /// The values of the first file's row, and the weights of all.
    rows: Vec<Row>,
    /// By row: the rows that it is made of, each with its file.
    parts: Vec<Vec<(usize, Row)>>,
}

/// Shows the report of several recordings.
pub(super) fn run(args: &ReportArgs, plan: &Plan, say: &Say) -> anyhow::Result<Exit> {
    for (given, option) in [(args.stats, "--stats"), (args.header_only, "--header-only")] {
        if given {
            return Err(Problem::usage(format!("{option} is of one recording")).hint("give one -i").into());
        }
    }
    let mut to = out::stdout()?;
    let (mut files, mut exit) = (Vec::new(), Exit::Done);
    for path in &args.input.input {
        let input = Input::of(path, &args.input)?;
        let reader = input.reader()?;
        let file = read(plan, &input, &reader, say)?;
        if plan.header && !plan.json {
            crate::header::write(&mut to, &reader, &file.profile.stats)?;
        }
        if input.end(&reader, &file.profile.stats, say) != Exit::Done {
            exit = Exit::Partly;
        }
        files.push(file);
    }
    let events = events(&files, plan)?;
    if plan.json {
        write_json(&mut to, plan, &files, &events)?;
    } else {
        write(&mut to, plan, &files, &events)?;
    }
    out::flush(&mut to)?;
    // The process ends now: giving millions of small pieces back one by one would only cost time.
    std::mem::forget(files);
    Ok(exit)
}

fn read(plan: &Plan, input: &Input, reader: &FileReader<'_>, say: &Say) -> anyhow::Result<OneFile> {
    let mut options = plan.options();
    filters::place(&mut options.filters, input, reader)?;
    let mut resolver = Resolver::new(reader, input.resolve_options());
    let mut columns = TraceColumns::new(&plan.keys.fields, reader)?;
    let profile = aggregate_with(reader, &mut input.source(reader)?, &options, &mut resolver, &mut columns);
    refused::say(input.name(), resolver.refused(), say);
    let not_used = refused::json(resolver.refused());
    std::mem::forget(resolver);
    let chains = profile.events.iter().map(|event| has_chains(reader, event.event)).collect();
    Ok(OneFile { name: input.name().to_owned(), profile, columns, chains, not_used })
}

/// The events of all files, those of one name together, in the order in which they come first.
fn events(files: &[OneFile], plan: &Plan) -> anyhow::Result<Vec<Event>> {
    let mut events: Vec<Event> = Vec::new();
    for (file, of) in files.iter().enumerate() {
        for (nth, event) in of.profile.events.iter().enumerate() {
            // Of several events of one name the first goes with the first.
            let free = |known: &&mut Event| known.of.last().is_none_or(|(last, _)| *last != file);
            match events.iter_mut().filter(free).find(|known| *known.name == *event.name) {
                Some(known) => known.of.push((file, nth)),
                None => events.push(Event { name: event.name.to_string(), of: vec![(file, nth)] }),
            }
        }
    }
    if let Some(wanted) = &plan.event {
        let names: Vec<String> = events.iter().map(|event| event.name.clone()).collect();
        events.retain(|event| event.name == *wanted);
        if events.is_empty() {
            let problem = Problem::usage(format!("--event {wanted}: not in the recordings"));
            return Err(problem.hint(format!("they hold {}", names.join(", "))).into());
        }
    }
    Ok(events)
}

impl Event {
    /// The sum of something over the files.
    fn sum(&self, files: &[OneFile], of: impl Fn(&afterimage_profile::EventProfile) -> Weight) -> Weight {
        let mut sum = Weight::default();
        self.of.iter().for_each(|(file, event)| sum.add(of(&files[*file].profile.events[*event])));
        sum
    }

    fn left_out(&self, files: &[OneFile]) -> Vec<(FilterKind, Weight)> {
        let of = |kind: FilterKind| {
            let in_event = |event: &afterimage_profile::EventProfile| {
                event.left_out.iter().find(|(of, _)| *of == kind).map(|(_, weight)| *weight).unwrap_or_default()
            };
            (kind, self.sum(files, in_event))
        };
        FilterKind::ALL.into_iter().map(of).filter(|(_, weight)| weight.records != 0).collect()
    }

    /// The rows that are heavy enough, heaviest first.
    fn rows(&self, files: &[OneFile], plan: &Plan) -> Rows {
        let whole = self.sum(files, |event| plan.whole(event)).period;
        let mut all = Rows::default();
        let mut known: FxHashMap<String, usize> = FxHashMap::default();
        for (file, event) in &self.of {
            let OneFile { profile, columns, .. } = &files[*file];
            for row in profile.rows(*event) {
                let at = *known.entry(looks(&row, columns)).or_insert(all.rows.len());
                match all.rows.get_mut(at) {
                    Some(joined) => {
                        joined.own.add(row.own);
                        joined.children.add(row.children);
                    }
                    None => {
                        all.rows.push(row.clone());
                        all.parts.push(Vec::new());
                    }
                }
                all.parts[at].push((*file, row));
            }
        }
        let mut both: Vec<(Row, Vec<(usize, Row)>)> = all.rows.into_iter().zip(all.parts).collect();
        both.retain(|(row, _)| plan.shows(row, whole));
        both.sort_by_key(|(row, _)| Reverse((row.children.period, row.own.period)));
        let (rows, parts) = both.into_iter().unzip();
        Rows { rows, parts }
    }
}

/// What is shown of a row's keys.
fn looks(row: &Row, columns: &TraceColumns) -> String {
    let mut text = String::new();
    for key in &row.keys {
        // Writing to a String does not fail.
        let _ = match key {
            // What is shown of these depends on how many samples a row has.
            Key::Number(key, value) => std::fmt::Write::write_fmt(&mut text, format_args!("{key}{value:?}")),
            key => cell(&mut text, key, row, columns),
        };
        text.push('\0');
    }
    text
}

fn write(out: &mut dyn Write, plan: &Plan, files: &[OneFile], events: &[Event]) -> io::Result<()> {
    if !plan.quiet {
        writeln!(out, "# Files: {}", files.len())?;
        for file in files {
            let end = stdio::to_the_last_pass(file.profile.tally.complete);
            writeln!(out, "#   {}: {}{end}", clean(&file.name), file.profile.tally.total().human())?;
        }
        writeln!(out, "#")?;
    }
    for (nth, event) in events.iter().enumerate() {
        if nth > 0 {
            write!(out, "\n\n")?;
        }
        one_event(out, plan, files, event)?;
    }
    if !plan.quiet {
        stdio::unresolved(out, &unresolved(files))?;
    }
    Ok(())
}

fn one_event(out: &mut dyn Write, plan: &Plan, files: &[OneFile], event: &Event) -> io::Result<()> {
    let whole = event.sum(files, |event| plan.whole(event));
    if !plan.quiet {
        writeln!(out, "# Samples: {}  of event '{}'", whole.samples, clean(&event.name))?;
        writeln!(out, "# Event count (approx.): {}", whole.period)?;
        let recorded = event.sum(files, afterimage_profile::EventProfile::recorded);
        stdio::left_out(out, plan, recorded, &event.left_out(files))?;
        writeln!(out, "#")?;
    }
    let is_there = |nth: u8| {
        event.of.iter().any(|(file, of)| {
            let OneFile { profile, columns, .. } = &files[*file];
            columns.shows(nth, profile.events[*of].event)
        })
    };
    let shown: Vec<Shown> = stdio::shown(plan, is_there);
    let Rows { rows, parts } = event.rows(files, plan);
    let mut cells = Cells::new(shown.len());
    for (row, parts) in rows.iter().zip(&parts) {
        let columns = parts.first().map(|(file, _)| &files[*file].columns).unwrap_or(&plan.columns);
        stdio::cells(&mut cells, row, whole.period, &shown, columns);
    }
    let table = Table::fit(stdio::columns(plan, &shown), &cells);
    if !plan.quiet {
        table.head(out)?;
    }
    let draws = |file: &usize| {
        let of = event.of.iter().find(|(of, _)| of == file).map(|(_, event)| *event);
        of.and_then(|event| files[*file].chains.get(event)).copied().unwrap_or(false)
    };
    let mut trees: Vec<Option<Trees<'_>>> =
        files.iter().map(|file| plan.draws_chains().then(|| file.profile.trees())).collect();
    for nth in stdio::order(plan, &rows, &cells, &shown) {
        table.row(out, &cells, nth)?;
        if plan.draws_chains() {
            let parts: Vec<&(usize, Row)> = parts[nth].iter().filter(|(file, _)| draws(file)).collect();
            chains(out, plan, files, &mut trees, &rows[nth], (&parts, whole.period))?;
        }
    }
    Ok(())
}

/// Draws the chains of a row, those of all files as one.
fn chains<'f>(
    out: &mut dyn Write,
    plan: &Plan,
    files: &'f [OneFile],
    trees: &mut [Option<Trees<'f>>],
    row: &Row,
    (parts, whole): (&[&(usize, Row)], u64),
) -> io::Result<()> {
    let (row_total, least) = (plan.period(row), plan.graph.least_of(whole));
    if parts.is_empty() || matches!(least, Least::Period(period) if row_total < period) {
        return Ok(());
    }
    let tree = |(file, row): &&(usize, Row)| Some((*file, trees[*file].as_mut()?.of(row, plan.order())));
    let trees: Vec<(usize, Tree<'f>)> = parts.iter().filter_map(tree).collect();
    let roots = trees.iter().flat_map(|(file, tree)| tree.nodes.iter().map(move |node| (*file, node)));
    let branches = forks(files, roots.collect(), row_total, least);
    stdio::draw(out, plan, branches, (row_total, whole), least)
}

/// Nodes of trees of several files that have one name, and one parent.
struct Same<'t> {
    name: String,
    own: Weight,
    total: Weight,
    nodes: Vec<(usize, &'t Node<'t>)>,
}

impl<'t> Same<'t> {
    fn below(&self) -> Vec<(usize, &'t Node<'t>)> {
        self.nodes.iter().flat_map(|(file, node)| node.nodes.iter().map(move |below| (*file, below))).collect()
    }
}

/// Nodes put together by their names, heaviest first.
fn level<'t>(files: &[OneFile], nodes: Vec<(usize, &'t Node<'t>)>) -> Vec<Same<'t>> {
    let mut level: Vec<Same<'t>> = Vec::new();
    let mut known: FxHashMap<String, usize> = FxHashMap::default();
    for (file, node) in nodes {
        let name = name(&files[file].profile, node);
        let at = *known.entry(name.clone()).or_insert(level.len());
        if at == level.len() {
            level.push(Same { name, own: Weight::default(), total: Weight::default(), nodes: Vec::new() });
        }
        let same = &mut level[at];
        same.own.add(node.own);
        same.total.add(node.total);
        same.nodes.push((file, node));
    }
    level.sort_by_key(|same| Reverse(same.total.period));
    level
}

fn forks<'t>(files: &[OneFile], nodes: Vec<(usize, &'t Node<'t>)>, parent: u64, least: Least) -> Vec<Branch> {
    let floor = least.below(parent);
    let level = level(files, nodes).into_iter().filter(|same| same.total.period >= floor);
    level.map(|same| joined(files, same, least)).collect()
}

fn joined(files: &[OneFile], first: Same<'_>, least: Least) -> Branch {
    let mut names = vec![first.name.clone()];
    let mut last = first;
    while last.own.records == 0 {
        let mut below = level(files, last.below());
        let (Some(only), true) = (below.pop(), below.is_empty()) else { break };
        names.push(only.name.clone());
        last = only;
    }
    let below = last.total.period.saturating_sub(last.own.period);
    let branches = forks(files, last.below(), below, least);
    Branch::of(names, last.total, last.own, branches)
}

/// Why addresses have no name, over all files.
fn unresolved(files: &[OneFile]) -> Vec<(Reason, u64)> {
    let mut all: Vec<(Reason, u64)> = Vec::new();
    for (reason, samples) in files.iter().flat_map(|file| &file.profile.unresolved) {
        match all.iter_mut().find(|(known, _)| known == reason) {
            Some((_, sum)) => *sum = sum.saturating_add(*samples),
            None => all.push((*reason, *samples)),
        }
    }
    all.sort_by_key(|(reason, samples)| (Reverse(*samples), *reason));
    all
}

const OWN_TALLY: &str = "each file has its own";

fn write_json(out: &mut dyn Write, plan: &Plan, files: &[OneFile], events: &[Event]) -> io::Result<()> {
    let file = |file: &OneFile| {
        let profile = &file.profile;
        json!({
            "name": file.name,
            "tally": profile.tally.total(),
            "tally_source": one_json::source(profile.tally_source),
            "complete": profile.tally.complete && profile.stats.finished,
            "error": profile.stats.error.as_ref().map(ToString::to_string),
            "not_used": file.not_used,
        })
    };
    let complete = files.iter().all(|file| file.profile.tally.complete && file.profile.stats.finished);
    let mut object = Map::new();
    object.insert("schema".into(), "afterimage/report/1".into());
    object.insert("tally".into(), Value::Null);
    object.insert("reason".into(), OWN_TALLY.into());
    object.insert("files".into(), files.iter().map(file).collect());
    object.insert("complete".into(), complete.into());
    object.insert("events".into(), events.iter().map(|event| json_event(plan, files, event)).collect());
    let unresolved = unresolved(files);
    let unresolved = unresolved.iter().map(|(reason, samples)| json!({"reason": reason.key(), "samples": samples}));
    object.insert("unresolved".into(), unresolved.collect());
    serde_json::to_writer(&mut *out, &Value::Object(object))?;
    writeln!(out)
}

fn json_event(plan: &Plan, files: &[OneFile], event: &Event) -> Value {
    let (total, whole) = (event.sum(files, |event| event.total), event.sum(files, |event| plan.whole(event)));
    let Rows { rows, parts } = event.rows(files, plan);
    let row = |(row, parts): (&Row, &Vec<(usize, Row)>)| {
        let columns = parts.first().map(|(file, _)| &files[*file].columns).unwrap_or(&plan.columns);
        one_json::one_row(row, plan, whole.period, columns)
    };
    let of_file = |(file, nth): &(usize, usize)| {
        let shown = &files[*file].profile.events[*nth];
        json!({"name": files[*file].name, "samples": shown.total.samples, "period": shown.total.period})
    };
    json!({
        "name": event.name,
        "samples": total.samples,
        "period": total.period,
        "left_out": one_json::left_out(&event.left_out(files)),
        "percent_of": {"samples": whole.samples, "period": whole.period},
        "tally": null,
        "reason": OWN_TALLY,
        "files": event.of.iter().map(of_file).collect::<Vec<_>>(),
        "rows": rows.iter().zip(&parts).map(row).collect::<Vec<_>>(),
    })
}
