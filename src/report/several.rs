//! One report over several recordings: rows that look alike are one, with the periods of all; each file keeps its tally.
//!
//! Recordings are of different times and machines, so nothing is put together before it has its name: each file is read
//! by itself, and rows and chains are joined by what is shown of them. The files stand in the order in which they were
//! given.

use std::cmp::Reverse;
use std::fmt::Write as _;
use std::io::{self, Write};

use afterimage_perf_data::{FileReader, Unit};
use afterimage_profile::{
    FilterKind, Frame, Key, Node, Profile, Reason, ReplayStats, Resolver, Row, Tree, Trees, Weight, aggregate_with,
};
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::{Map, Value, json};

use super::branch::{Branch, Least, name};
use super::cell::cell;
use super::columns::TraceColumns;
use super::keys::Shown;
use super::{Plan, count, gates as gates_of, has_chains, json as one_json, order, stdio};
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
    /// What samples had to fulfil, as the table tells it.
    told: Option<String>,
    /// The same as `--json` has it.
    gates: Value,
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
    let open = |path: &std::path::PathBuf| Input::of(path, &args.input);
    let inputs: Vec<Input> = args.input.input.iter().map(open).collect::<anyhow::Result<_>>()?;
    let readers: Vec<FileReader<'_>> = inputs.iter().map(Input::reader).collect::<anyhow::Result<_>>()?;
    let all = || inputs.iter().zip(&readers);
    let mut to = out::stdout()?;
    if args.header_only || args.stats {
        let exit = of_each(&mut to, args, all(), say)?;
        out::flush(&mut to)?;
        return Ok(exit);
    }
    let columns: Vec<TraceColumns> = readers.iter().map(|of| TraceColumns::new(&plan.keys.fields, of)).collect();
    TraceColumns::check(&plan.keys.fields, columns.iter())?;
    let (mut files, mut exit) = (Vec::new(), Exit::Done);
    for ((input, reader), columns) in all().zip(columns) {
        let file = read(plan, input, reader, columns, say)?;
        if plan.header && !plan.json {
            title(&mut to, input)?;
            crate::header::write(&mut to, reader, &file.profile.stats)?;
        }
        if input.end(reader, &file.profile.stats, say) != Exit::Done {
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

/// Shows what each recording says of itself, or how many records of each type it has, under its name.
fn of_each<'i, 'r: 'i>(
    to: &mut dyn Write,
    args: &ReportArgs,
    all: impl Iterator<Item = (&'i Input, &'i FileReader<'r>)>,
    say: &Say,
) -> anyhow::Result<Exit> {
    let mut exit = Exit::Done;
    for (nth, (input, reader)) in all.enumerate() {
        if nth > 0 && args.stats {
            writeln!(to)?;
        }
        title(to, input)?;
        if args.header_only {
            crate::header::write(to, reader, &ReplayStats::default())?;
        } else {
            let counted = count(to, input, reader)?;
            if input.end(reader, &counted, say) != Exit::Done {
                exit = Exit::Partly;
            }
        }
    }
    Ok(exit)
}

fn title(to: &mut dyn Write, input: &Input) -> io::Result<()> {
    writeln!(to, "# File: {}", clean(input.name()))
}

fn read(
    plan: &Plan,
    input: &Input,
    reader: &FileReader<'_>,
    mut columns: TraceColumns,
    say: &Say,
) -> anyhow::Result<OneFile> {
    let mut options = plan.options();
    filters::place(&mut options.filters, input, reader)?;
    let mut resolver = Resolver::new(reader, input.resolve_options());
    let profile = aggregate_with(reader, &mut input.source(reader)?, &options, &mut resolver, &mut columns);
    refused::say(input.name(), resolver.refused(), say);
    let not_used = refused::json(resolver.refused());
    std::mem::forget(resolver);
    let chains = profile.events.iter().map(|event| has_chains(plan, reader, event.event)).collect();
    let gates = reader.private().map_or(&[][..], |private| &private.gates);
    let (told, gates) = (gates_of(reader), json!(gates));
    Ok(OneFile { name: input.name().to_owned(), profile, columns, chains, not_used, told, gates })
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

    fn branch_samples(&self, files: &[OneFile]) -> [u64; 3] {
        let of = self.of.iter().map(|(file, event)| stdio::branch_samples(&files[*file].profile.events[*event]));
        of.fold([0; 3], |sums, of| std::array::from_fn(|nth| sums[nth].saturating_add(of[nth])))
    }

    /// What its periods count: in files of one unit that, in files of several nothing that can be named.
    fn unit(&self, files: &[OneFile]) -> Unit {
        let mut units = self.of.iter().map(|(file, event)| files[*file].profile.events[*event].unit);
        let first = units.next().unwrap_or_default();
        if units.all(|unit| unit == first) { first } else { Unit::Counts }
    }

    /// Whether it is of time off CPU.
    fn off_cpu(&self, files: &[OneFile]) -> bool {
        self.of.iter().any(|(file, event)| files[*file].profile.events[*event].off_cpu)
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
        let of_files: Vec<(usize, Vec<Row>)> =
            self.of.iter().map(|(file, event)| (*file, files[*file].profile.rows(*event))).collect();
        let ambiguous = ambiguous(files, &of_files);
        let mut known: FxHashMap<String, usize> = FxHashMap::default();
        for (file, rows) in of_files {
            let columns = &files[file].columns;
            for row in rows {
                let mut looks = looks(&row, columns);
                if ambiguous.contains(&looks) {
                    starts(&mut looks, &row);
                }
                let at = *known.entry(looks).or_insert(all.rows.len());
                match all.rows.get_mut(at) {
                    Some(joined) => {
                        joined.own.add(row.own);
                        joined.children.add(row.children);
                        joined.modes.add(row.modes);
                    }
                    None => {
                        all.rows.push(row.clone());
                        all.parts.push(Vec::new());
                    }
                }
                all.parts[at].push((file, row));
            }
        }
        let mut both: Vec<(Row, Vec<(usize, Row)>)> = all.rows.into_iter().zip(all.parts).collect();
        both.retain(|(row, _)| plan.shows(row, whole));
        both.sort_by_key(|(row, _)| Reverse((row.children.period, row.own.period)));
        let (rows, parts) = both.into_iter().unzip();
        Rows { rows, parts }
    }
}

/// What makes rows of several files one: what is shown of their keys, and of symbols the object, as symbols of one name in two
/// objects are two.
fn looks(row: &Row, columns: &TraceColumns) -> String {
    let mut text = String::new();
    for key in &row.keys {
        // Writing to a String does not fail.
        let _ = match key {
            // What is shown of these depends on how many samples a row has.
            Key::Number(key, value) => text.write_fmt(format_args!("{key}{value:?}")),
            key => cell(&mut text, key, row, columns),
        };
        text.push('\0');
        if let Some(frame) = symbol_of(key) {
            text.push_str(&frame.dso.short);
            text.push('\0');
        }
    }
    text
}

/// The frame whose symbol a key shows.
fn symbol_of(key: &Key) -> Option<&Frame> {
    match key {
        // Parents go by their names alone, as in perf.
        Key::Sym(frame) | Key::Place(_, Some((frame, _))) => Some(frame),
        _ => None,
    }
}

/// What rows look like of which one file has several: an object may have several functions of one name.
fn ambiguous(files: &[OneFile], of_files: &[(usize, Vec<Row>)]) -> FxHashSet<String> {
    let mut ambiguous = FxHashSet::default();
    for (file, rows) in of_files {
        let mut seen: FxHashSet<String> = FxHashSet::default();
        for row in rows.iter().filter(|row| row.keys.iter().any(|key| symbol_of(key).is_some())) {
            let looks = looks(row, &files[*file].columns);
            if !seen.contains(&looks) {
                seen.insert(looks);
            } else {
                ambiguous.insert(looks);
            }
        }
    }
    ambiguous
}

/// Adds where the symbols of a row begin, which is alike in files of one build.
fn starts(looks: &mut String, row: &Row) {
    for frame in row.keys.iter().filter_map(symbol_of) {
        // Writing to a String does not fail.
        let _ = looks.write_fmt(format_args!("{:x}\0", frame.addr.wrapping_sub(frame.offset)));
    }
}

fn write(out: &mut dyn Write, plan: &Plan, files: &[OneFile], events: &[Event]) -> io::Result<()> {
    if !plan.quiet {
        writeln!(out, "# Files: {}", files.len())?;
        for file in files {
            let end = stdio::to_the_last_pass(file.profile.tally.complete);
            writeln!(out, "#   {}: {}{end}", clean(&file.name), file.profile.tally.total().human())?;
            if let Some(gates) = &file.told {
                writeln!(out, "#     {gates}")?;
            }
        }
        writeln!(out, "#")?;
    }
    let mut trees: Vec<Option<Trees<'_>>> =
        files.iter().map(|file| plan.draws_chains().then(|| file.profile.trees())).collect();
    for (nth, event) in events.iter().enumerate() {
        if nth > 0 {
            write!(out, "\n\n")?;
        }
        one_event(out, plan, files, event, &mut trees)?;
    }
    if !plan.quiet {
        stdio::unresolved(out, &unresolved(files))?;
    }
    Ok(())
}

fn one_event<'f>(
    out: &mut dyn Write,
    plan: &Plan,
    files: &'f [OneFile],
    event: &Event,
    trees: &mut [Option<Trees<'f>>],
) -> io::Result<()> {
    let whole = event.sum(files, |event| plan.whole(event));
    if !plan.quiet {
        writeln!(out, "# Samples: {}  of event '{}'", whole.samples, clean(&event.name))?;
        stdio::write_weight(out, whole.period, event.off_cpu(files))?;
        let recorded = event.sum(files, afterimage_profile::EventProfile::recorded);
        stdio::left_out(out, plan, recorded, &event.left_out(files))?;
        if plan.branches {
            stdio::branches_of(out, event.branch_samples(files))?;
        }
        writeln!(out, "#")?;
    }
    let is_there = |nth: u8| {
        event.of.iter().any(|(file, of)| {
            let OneFile { profile, columns, .. } = &files[*file];
            columns.shows(nth, profile.events[*of].event)
        })
    };
    let shown: Vec<Shown> = stdio::shown(plan, event.off_cpu(files), is_there);
    let Rows { rows, parts } = event.rows(files, plan);
    let mut cells = Cells::new(shown.len());
    for (row, parts) in rows.iter().zip(&parts) {
        stdio::cells(&mut cells, row, whole.period, &shown, columns_of(plan, files, parts));
    }
    let table = Table::fit(stdio::columns(plan, &shown), &cells);
    if !plan.quiet {
        table.head(out)?;
    }
    let draws = |file: &usize| {
        let of = event.of.iter().find(|(of, _)| of == file).map(|(_, event)| *event);
        of.and_then(|event| files[*file].chains.get(event)).copied().unwrap_or(false)
    };
    let columns_of = |nth: usize| columns_of(plan, files, &parts[nth]);
    for nth in stdio::order(plan, &rows, &cells, &shown, columns_of) {
        table.row(out, &cells, nth)?;
        if plan.draws_chains() {
            let parts: Vec<&(usize, Row)> = parts[nth].iter().filter(|(file, _)| draws(file)).collect();
            chains(out, plan, files, trees, &rows[nth], (&parts, whole.period))?;
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
            "gates": file.gates,
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
    let columns_of = |nth: usize| columns_of(plan, files, &parts[nth]);
    let of = |nth: usize| (&rows[nth], columns_of(nth));
    let order = order::order(plan, &rows, columns_of, |a, b| order::by_texts(plan, of(a), of(b)));
    let row = |nth: usize| one_json::one_row(&rows[nth], plan, whole.period, columns_of(nth));
    let of_file = |(file, nth): &(usize, usize)| {
        let shown = &files[*file].profile.events[*nth];
        json!({"name": files[*file].name, "samples": shown.total.samples, "period": shown.total.period})
    };
    let mut object = json!({
        "name": event.name,
        "samples": total.samples,
        "period": total.period,
        "unit": event.unit(files).symbol(),
        "left_out": one_json::left_out(&event.left_out(files)),
        "percent_of": {"samples": whole.samples, "period": whole.period},
        "tally": null,
        "reason": OWN_TALLY,
        "files": event.of.iter().map(of_file).collect::<Vec<_>>(),
        "rows": order.into_iter().map(row).collect::<Vec<_>>(),
    });
    if plan.branches {
        object["branches_of"] = one_json::branches_of(event.branch_samples(files));
    }
    object
}

/// The columns of the file that a row's values are of.
fn columns_of<'f>(plan: &'f Plan, files: &'f [OneFile], parts: &[(usize, Row)]) -> &'f TraceColumns {
    parts.first().map_or(&plan.columns, |(file, _)| &files[*file].columns)
}
