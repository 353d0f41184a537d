//! The report as text: for each event its head in `#` lines, its rows, and the call chains under them.

use std::fmt::Write as _;
use std::io::{self, Write};

use afterimage_perf_data::off_cpu::duration;
use afterimage_perf_data::tally::Audit;
use afterimage_profile::{EventProfile, FilterKind, Profile, Reason, Row, SortKey, TallySource, Trees, Weight};

use super::Plan;
use super::branch::{Branch, Least, branches};
use super::cell::{cell, title};
use super::columns::TraceColumns;
use super::graph::{Drawing, Form, percent_of, share};
use super::keys::Shown;
use super::{order, unwound};
use crate::events::{off_cpu_of, tally_of, wakers_of};
use crate::filters;
use crate::table::{Cells, Column, Side, Table};
use crate::terminal::{clean, grouped};

/// Writes the chosen events; `chains` says which events have call chains.
pub(super) fn write(
    out: &mut dyn Write,
    profile: &Profile,
    plan: &Plan,
    chosen: &[usize],
    chains: &[bool],
) -> io::Result<()> {
    if !plan.quiet {
        head(out, profile)?;
        unwound::head(out, &profile.stats.stack_ends)?;
    }
    let draws = |event: usize| plan.draws_chains() && chains.get(event).copied().unwrap_or(false);
    let mut trees = chosen.iter().any(|event| draws(*event)).then(|| profile.trees());
    for (nth, &event) in chosen.iter().enumerate() {
        if nth > 0 {
            write!(out, "\n\n")?;
        }
        let trees = trees.as_mut().filter(|_| draws(event));
        one_event(out, profile, plan, event, trees)?;
    }
    if !plan.quiet {
        unresolved(out, &profile.unresolved)?;
    }
    Ok(())
}

/// What holds for the whole recording.
fn head(out: &mut dyn Write, profile: &Profile) -> io::Result<()> {
    if profile.tally_source == TallySource::Records {
        let lost = if profile.stats.lost_samples > 0 { profile.stats.lost_samples } else { profile.stats.lost };
        writeln!(out, "# Total Lost Samples: {lost}")?;
        writeln!(out, "#")?;
    } else if profile.tally.events.len() > 1 {
        writeln!(out, "# All events: {}{}", profile.tally.total().human(), to_the_last_pass(profile.tally.complete))?;
        writeln!(out, "#")?;
    }
    Ok(())
}

pub(super) fn to_the_last_pass(complete: bool) -> &'static str {
    if complete { "" } else { " (to the last pass)" }
}

fn one_event<'p>(
    out: &mut dyn Write,
    profile: &'p Profile,
    plan: &Plan,
    event: usize,
    mut trees: Option<&mut Trees<'p>>,
) -> io::Result<()> {
    if !plan.quiet {
        event_head(out, profile, plan, event)?;
    }
    let of = profile.events[event].event;
    let shown = shown(plan, profile.events[event].off_cpu, |nth| plan.columns.shows(nth, of));
    let (rows, cells, order) = rows(profile, plan, event, &shown);
    let table = Table::fit(columns(plan, &shown), &cells);
    if !plan.quiet {
        table.head(out)?;
    }
    for nth in order {
        table.row(out, &cells, nth)?;
        if let Some(trees) = trees.as_deref_mut() {
            draw_chains(out, (profile, trees), plan, event, &rows[nth])?;
        }
    }
    Ok(())
}

fn event_head(out: &mut dyn Write, profile: &Profile, plan: &Plan, event: usize) -> io::Result<()> {
    let shown = &profile.events[event];
    let whole = plan.whole(shown);
    writeln!(out, "# Samples: {}  of event '{}'", whole.samples, clean(&shown.name))?;
    write_weight(out, whole.period, shown.off_cpu)?;
    left_out(out, plan, shown.recorded(), &shown.left_out)?;
    if plan.branches {
        branches_of(out, branch_samples(shown))?;
    }
    if let Some(tally) = tally_of(profile, event) {
        writeln!(out, "# Tally: {}{}", tally.sum.human(), to_the_last_pass(profile.tally.complete))?;
    }
    if let Some(off_cpu) = off_cpu_of(profile, event) {
        writeln!(out, "# Tally: {}{}", off_cpu.human(), to_the_last_pass(profile.tally.complete))?;
    }
    if let Some(wakers) = wakers_of(profile, event) {
        writeln!(out, "# Tally: {}{}", wakers.human(), to_the_last_pass(profile.tally.complete))?;
    }
    if let Some(audit) = tally_of(profile, event).and_then(|tally| tally.audit) {
        writeln!(out, "# {}", first_seconds(&audit))?;
    }
    said(out, profile, shown.event)?;
    short_stacks(out, shown, profile.stats.stack_ends.total() > 0)?;
    writeln!(out, "#")
}

/// Of an event, the samples that have branches, those that have none, and those that filters left out before.
pub(super) fn branch_samples(event: &EventProfile) -> [u64; 3] {
    let (with, without) = (event.with_branches, event.without_branches);
    [with, without, event.read.samples.saturating_sub(with).saturating_sub(without)]
}

/// Of how many samples the branches are.
pub(super) fn branches_of(out: &mut dyn Write, [with, without, left_out]: [u64; 3]) -> io::Result<()> {
    write!(out, "# Branches of: {} of {} samples", grouped(with), grouped(with.saturating_add(without)))?;
    match left_out {
        0 => writeln!(out),
        more => writeln!(out, ", and filters left out {} more", grouped(more)),
    }
}

/// What the samples of an event weigh, in its unit.
pub(super) fn write_weight(out: &mut dyn Write, period: u64, off_cpu: bool) -> io::Result<()> {
    match off_cpu {
        true => writeln!(out, "# Time off CPU: {}", duration(period)),
        false => writeln!(out, "# Event count (approx.): {period}"),
    }
}

/// What filters left out, if any were given.
pub(super) fn left_out(
    out: &mut dyn Write,
    plan: &Plan,
    recorded: Weight,
    left_out: &[(FilterKind, Weight)],
) -> io::Result<()> {
    if plan.filters.is_empty() {
        return Ok(());
    }
    let left_out: Vec<_> = left_out.iter().map(|(kind, weight)| (*kind, weight.samples)).collect();
    let what = if plan.branches { "branch" } else { "sample" };
    match left_out.as_slice() {
        [] => writeln!(out, "# Left out: nothing"),
        left_out => writeln!(out, "# Left out: {}", filters::told(recorded.samples, what, left_out)),
    }
}

/// What an audit of the first seconds says.
fn first_seconds(audit: &Audit) -> String {
    let seconds = audit.ns as f64 / 1e9;
    let skipped = audit.control.saturating_sub(audit.handled);
    let (all, skipped_samples) = (grouped(audit.control.max(audit.handled)), grouped(skipped));
    match audit.control {
        0 => format!("Audit: of the first {seconds:.1} s, no overflow"),
        _ => {
            let percent = 100.0 * skipped as f64 / audit.control.max(audit.handled) as f64;
            format!(
                "Audit: in the first {seconds:.1} s the kernel skipped {skipped_samples} of {all} overflows ({percent:.1}%)"
            )
        }
    }
}

/// What handlers from objects wrote of the event: which labels there are to sort by.
fn said(out: &mut dyn Write, profile: &Profile, event: usize) -> io::Result<()> {
    for said in profile.said.iter().filter(|said| said.event == event) {
        let of_type = said.type_name.as_deref().unwrap_or("a type that is not known");
        let (what, name) = match &said.label {
            Some(label) => ("Label", format!("{} ({})", clean(label), clean(of_type))),
            None => ("Values", clean(of_type).into_owned()),
        };
        write!(out, "# {what}: {name}: {}", grouped(said.records))?;
        if said.unreadable > 0 {
            write!(out, ", {} of them unreadable", grouped(said.unreadable))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// Stacks of code without frame pointers end after a frame or two; the reader has to know.
fn short_stacks(out: &mut dyn Write, event: &EventProfile, unwound: bool) -> io::Result<()> {
    if event.user_stacks == 0 {
        return Ok(());
    }
    let (short, all) = (event.short_user_stacks, event.user_stacks);
    writeln!(
        out,
        "# User stacks ending early: {} of {} ({:.1}%)",
        grouped(short),
        grouped(all),
        percent_of(short, all)
    )?;
    if short.saturating_mul(10) >= all && !unwound && !event.off_cpu {
        writeln!(out, "#   hint: such code keeps no frame pointers (record it with --call-graph dwarf)")?;
    }
    Ok(())
}

/// The rows that are shown, their cells, and their order: heaviest first; of equal weight, by their names.
fn rows(profile: &Profile, plan: &Plan, event: usize, shown: &[Shown]) -> (Vec<Row>, Cells, Vec<usize>) {
    let total = plan.whole(&profile.events[event]).period;
    let rows: Vec<Row> = profile.rows(event).into_iter().filter(|row| plan.shows(row, total)).collect();
    let mut all = Cells::new(shown.len());
    rows.iter().for_each(|row| cells(&mut all, row, total, shown, &plan.columns));
    let order = order(plan, &rows, &all, shown, |_| &plan.columns);
    (rows, all, order)
}

/// The order of rows whose cells these are.
pub(super) fn order<'c>(
    plan: &Plan,
    rows: &[Row],
    all: &Cells,
    shown: &[Shown],
    columns: impl Fn(usize) -> &'c TraceColumns,
) -> Vec<usize> {
    let names = shown.iter().take_while(|shown| !matches!(shown, Shown::Key(_))).count().min(shown.len() - 1);
    order::order(plan, rows, columns, |a, b| all.tail(a, names).cmp(all.tail(b, names)))
}

/// The columns of an event: fields of tracepoints stand where the event has them, and time where it is of time off CPU.
pub(super) fn shown(plan: &Plan, off_cpu: bool, has_column: impl Fn(u8) -> bool) -> Vec<Shown> {
    let is_there = |shown: &&Shown| match shown {
        Shown::Key(nth) => match plan.keys.sort.get(*nth) {
            Some(SortKey::Column(nth)) => has_column(*nth),
            _ => true,
        },
        _ => true,
    };
    let mut shown: Vec<Shown> = plan.keys.shown.iter().filter(is_there).copied().collect();
    if off_cpu {
        let is_share = |shown: &&Shown| matches!(shown, Shown::Children | Shown::Overhead);
        shown.insert(shown.iter().take_while(is_share).count(), Shown::Time);
    }
    // Where fields alone are asked for, and the event has none of them.
    if shown.is_empty() { vec![Shown::Overhead] } else { shown }
}

pub(super) fn columns(plan: &Plan, shown: &[Shown]) -> Vec<Column> {
    let column = |shown: &Shown| match shown {
        Shown::Children => Column::new("Children", 8, Side::Right),
        Shown::Overhead if plan.children => Column::new("Self", 8, Side::Right),
        Shown::Overhead => Column::new("Overhead", 8, Side::Right),
        Shown::Mode(mode) => Column::new(mode.title(), 8, Side::Right),
        Shown::Samples => Column::new("Samples", 12, Side::Right),
        Shown::Period => Column::new("Period", 12, Side::Right),
        Shown::Time => Column::new("Off CPU", 10, Side::Right),
        Shown::Key(nth) => match plan.keys.sort.get(*nth) {
            Some(SortKey::Label(nth)) => {
                let name = plan.keys.labels.get(usize::from(*nth)).map_or("", |name| name);
                Column::new(&format!("label:{}", clean(name)), 0, Side::Left)
            }
            Some(SortKey::Column(nth)) => {
                let word = plan.keys.fields.get(usize::from(*nth)).map_or("", |word| word);
                Column::new(&clean(&super::columns::title(word)), 0, Side::Left)
            }
            Some(key) => Column::new(title(*key), 0, Side::Left),
            None => Column::new("", 0, Side::Left),
        },
    };
    shown.iter().map(column).collect()
}

pub(super) fn cells(to: &mut Cells, row: &Row, total: u64, shown: &[Shown], columns: &TraceColumns) {
    for shown in shown {
        to.push(|text| match shown {
            Shown::Children => text.write_str(&share(row.children.period, total)),
            Shown::Overhead => text.write_str(&share(row.own.period, total)),
            Shown::Mode(mode) => text.write_str(&share(mode.of(row), total)),
            Shown::Samples => write!(text, "{}", row.own.samples),
            Shown::Period => write!(text, "{}", row.own.period),
            Shown::Time => text.write_str(&duration(row.own.period)),
            Shown::Key(nth) => row.keys.get(*nth).map_or(Ok(()), |key| cell(text, key, row, columns)),
        });
    }
}

fn draw_chains(
    out: &mut dyn Write,
    (profile, trees): (&Profile, &mut Trees<'_>),
    plan: &Plan,
    event: usize,
    row: &Row,
) -> io::Result<()> {
    let event_total = plan.whole(&profile.events[event]).period;
    let row_total = plan.period(row);
    let least = plan.graph.least_of(event_total);
    // No branch weighs more than its row: most rows are too light for any, and need no tree.
    if matches!(least, Least::Period(period) if row_total < period) {
        return Ok(());
    }
    let tree = trees.of(row, plan.order());
    draw(out, plan, branches(profile, &tree, row_total, least), (row_total, event_total), least)
}

/// Draws the chains of a row of so much, in an event of so much.
pub(super) fn draw(
    out: &mut dyn Write,
    plan: &Plan,
    mut branches: Vec<Branch>,
    (row_total, event_total): (u64, u64),
    least: Least,
) -> io::Result<()> {
    // Where the symbol leads the row, it need not stand again as the first of its chain.
    let starts_with_row =
        plan.order() == afterimage_profile::Order::Callee && plan.keys.sort.first() == Some(&SortKey::Sym);
    let is_tree = matches!(plan.graph.form, Form::Graph | Form::Fractal);
    if let ([root], true) = (branches.as_mut_slice(), starts_with_row && is_tree && !plan.inline) {
        root.names.remove(0);
    }
    if let ([only], true) = (branches.as_slice(), is_tree) {
        // A chain of the row's own symbol alone says nothing.
        if only.names.is_empty() && only.branches.is_empty() {
            return Ok(());
        }
    }
    let (form, limit, said) = (plan.graph.form, plan.graph.limit, plan.graph.said);
    let least = match least {
        Least::Period(period) => period,
        Least::Share(_) => 0,
    };
    Drawing { out, form, limit, said, least, event_total }.draw(&branches, row_total)
}

/// Why addresses have no name, at the end, where it does not push the table away.
pub(super) fn unresolved(out: &mut dyn Write, all: &[(Reason, u64)]) -> io::Result<()> {
    if all.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n#\n# Samples at addresses without a name:")?;
    for (reason, samples) in all {
        writeln!(out, "# {:>10}  {reason}", grouped(*samples))?;
    }
    Ok(())
}
