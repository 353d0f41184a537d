//! The report as text: for each event its head in `#` lines, its rows, and the call chains under them.

use std::cmp::Reverse;
use std::io::{self, Write};

use afterimage_profile::{EventProfile, Key, Profile, Row, SortKey, TallySource};

use super::Plan;
use super::branch::{Least, branches};
use super::graph::{Drawing, Form, percent_of, share};
use super::table::{Column, Side, Table};
use crate::text::{clean, grouped};

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
    }
    for (nth, &event) in chosen.iter().enumerate() {
        if nth > 0 {
            write!(out, "\n\n")?;
        }
        let draw = plan.draws_chains() && chains.get(event).copied().unwrap_or(false);
        one_event(out, profile, plan, event, draw)?;
    }
    if !plan.quiet {
        unresolved(out, profile)?;
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

fn to_the_last_pass(complete: bool) -> &'static str {
    if complete { "" } else { " (to the last pass)" }
}

fn one_event(out: &mut dyn Write, profile: &Profile, plan: &Plan, event: usize, draw: bool) -> io::Result<()> {
    if !plan.quiet {
        event_head(out, profile, event)?;
    }
    let (rows, cells) = rows(profile, plan, event);
    let table = Table::fit(columns(plan), &cells);
    if !plan.quiet {
        table.head(out)?;
    }
    for (row, cells) in rows.iter().zip(&cells) {
        table.row(out, cells)?;
        if draw {
            draw_chains(out, profile, plan, event, row)?;
        }
    }
    Ok(())
}

fn event_head(out: &mut dyn Write, profile: &Profile, event: usize) -> io::Result<()> {
    let shown = &profile.events[event];
    writeln!(out, "# Samples: {}  of event '{}'", shown.total.samples, clean(&shown.name))?;
    writeln!(out, "# Event count (approx.): {}", shown.total.period)?;
    if let Some(tally) = tally_of(profile, event) {
        writeln!(out, "# Tally: {}{}", tally.sum.human(), to_the_last_pass(profile.tally.complete))?;
    }
    short_stacks(out, shown)?;
    writeln!(out, "#")
}

/// The tally of an event: the one of its name, counted off where several events are called the same.
pub(crate) fn tally_of(profile: &Profile, event: usize) -> Option<&afterimage_perf_data::EventTally> {
    let name = &profile.events.get(event)?.name;
    let before = profile.events[..event].iter().filter(|e| e.name == *name).count();
    profile.tally.events.iter().filter(|t| *t.name == **name).nth(before)
}

/// Stacks of code without frame pointers end after a frame or two; the reader has to know.
fn short_stacks(out: &mut dyn Write, event: &EventProfile) -> io::Result<()> {
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
    if short.saturating_mul(10) >= all {
        writeln!(out, "#   hint: such code keeps no frame pointers (compile it with -fno-omit-frame-pointer)")?;
    }
    Ok(())
}

/// The rows that are shown with their cells, heaviest first; of equal weight, in the order of their names.
fn rows(profile: &Profile, plan: &Plan, event: usize) -> (Vec<Row>, Vec<Vec<String>>) {
    let total = profile.events[event].total.period;
    let rows = profile.rows(event).into_iter().filter(|row| above(row, plan, total));
    let mut both: Vec<(Row, Vec<String>)> =
        rows.map(|row| (cells(&row, plan, total), row)).map(|(c, r)| (r, c)).collect();
    let weight = |row: &Row| (Reverse(row.children.period), Reverse(row.own.period));
    both.sort_by(|a, b| {
        let names = |cells: &[String]| cells.len().saturating_sub(plan.sort.len());
        weight(&a.0).cmp(&weight(&b.0)).then_with(|| a.1[names(&a.1)..].cmp(&b.1[names(&b.1)..]))
    });
    both.into_iter().unzip()
}

fn above(row: &Row, plan: &Plan, total: u64) -> bool {
    let period = if plan.children { row.children.period } else { row.own.period };
    percent_of(period, total) >= plan.percent_limit
}

fn columns(plan: &Plan) -> Vec<Column> {
    let mut columns = if plan.children {
        vec![Column::new("Children", 8, Side::Right), Column::new("Self", 8, Side::Right)]
    } else {
        vec![Column::new("Overhead", 8, Side::Right)]
    };
    if plan.show_samples {
        columns.push(Column::new("Samples", 12, Side::Right));
    }
    if plan.show_period {
        columns.push(Column::new("Period", 12, Side::Right));
    }
    columns.extend(plan.sort.iter().map(|key| Column::new(title(*key), 0, Side::Left)));
    columns
}

fn title(key: SortKey) -> &'static str {
    match key {
        SortKey::Comm => "Command",
        SortKey::Dso => "Shared Object",
        SortKey::Sym => "Symbol",
        SortKey::Pid => "    Pid:Command",
        SortKey::Tid => "    Tid:Command",
        SortKey::Cpu => "CPU",
        SortKey::Event => "Event",
        SortKey::Cgroup => "Cgroup",
    }
}

fn cells(row: &Row, plan: &Plan, total: u64) -> Vec<String> {
    let mut cells = Vec::with_capacity(plan.sort.len() + 4);
    if plan.children {
        cells.push(share(row.children.period, total));
    }
    cells.push(share(row.own.period, total));
    if plan.show_samples {
        cells.push(row.own.samples.to_string());
    }
    if plan.show_period {
        cells.push(row.own.period.to_string());
    }
    cells.extend(row.keys.iter().map(cell));
    cells
}

fn cell(key: &Key) -> String {
    match key {
        Key::Comm(name) | Key::Event(name) | Key::Cgroup(name) => clean(name).into_owned(),
        Key::Dso(dso) => clean(&dso.short).into_owned(),
        Key::Sym(frame) => format!("[{}] {}", frame.level(), clean(&frame.name())),
        Key::Pid(id, comm) | Key::Tid(id, comm) => format!("{id:>7}:{}", clean(comm)),
        Key::Cpu(Some(cpu)) => format!("{cpu:03}"),
        Key::Cpu(None) => "-".into(),
    }
}

fn draw_chains(out: &mut dyn Write, profile: &Profile, plan: &Plan, event: usize, row: &Row) -> io::Result<()> {
    let event_total = profile.events[event].total.period;
    let row_total = if plan.children { row.children.period } else { row.own.period };
    let least = plan.graph.least_of(event_total);
    // No branch weighs more than its row: most rows are too light for any, and need no tree.
    if matches!(least, Least::Period(period) if row_total < period) {
        return Ok(());
    }
    let tree = profile.tree(row, plan.order());
    let mut branches = branches(&tree, row_total, least);
    // Where the symbol leads the row, it need not stand again as the first of its chain.
    let starts_with_row = plan.order() == afterimage_profile::Order::Callee && plan.sort.first() == Some(&SortKey::Sym);
    if let ([root], true) = (branches.as_mut_slice(), starts_with_row) {
        root.names.remove(0);
    }
    if let ([only], true) = (branches.as_slice(), matches!(plan.graph.form, Form::Graph | Form::Fractal)) {
        // A chain of the row's own symbol alone says nothing.
        if only.names.is_empty() && only.branches.is_empty() {
            return Ok(());
        }
    }
    Drawing { out, form: plan.graph.form, limit: plan.graph.limit, event_total }.draw(&branches, row_total)
}

/// Why addresses have no name, at the end, where it does not push the table away.
fn unresolved(out: &mut dyn Write, profile: &Profile) -> io::Result<()> {
    if profile.unresolved.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n#\n# Samples at addresses without a name:")?;
    for (reason, samples) in &profile.unresolved {
        writeln!(out, "# {:>10}  {reason}", grouped(*samples))?;
    }
    Ok(())
}
