//! The report as text: for each event its head in `#` lines, its rows, and the call chains under them.

use std::cmp::Reverse;
use std::fmt::{self, Write as _};
use std::io::{self, Write};

use afterimage_perf_data::tally::Audit;
use afterimage_profile::{EventProfile, Key, Profile, Row, SortKey, TallySource, Trees};

use super::Plan;
use super::branch::{Least, branches};
use super::graph::{Drawing, Form, percent_of, share};
use crate::events::tally_of;
use crate::table::{Cells, Column, Side, Table};
use crate::terminal::{clean, grouped};
use crate::texts::label;

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
    let (rows, cells, order) = rows(profile, plan, event);
    let table = Table::fit(columns(plan), &cells);
    if !plan.quiet {
        table.head(out)?;
    }
    let mut trees = draw.then(|| profile.trees());
    for nth in order {
        table.row(out, &cells, nth)?;
        if let Some(trees) = &mut trees {
            draw_chains(out, (profile, trees), plan, event, &rows[nth])?;
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
    if let Some(audit) = tally_of(profile, event).and_then(|tally| tally.audit) {
        writeln!(out, "# {}", first_seconds(&audit))?;
    }
    said(out, profile, shown.event)?;
    short_stacks(out, shown)?;
    writeln!(out, "#")
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

/// The rows that are shown, their cells, and their order: heaviest first; of equal weight, by their names.
fn rows(profile: &Profile, plan: &Plan, event: usize) -> (Vec<Row>, Cells, Vec<usize>) {
    let total = profile.events[event].total.period;
    let rows: Vec<Row> = profile.rows(event).into_iter().filter(|row| plan.shows(row, total)).collect();
    let columns = columns(plan).len();
    let mut all = Cells::new(columns);
    rows.iter().for_each(|row| cells(&mut all, row, plan, total));
    let names = columns - plan.sort.len();
    let mut order: Vec<usize> = (0..rows.len()).collect();
    let weight = |row: usize| (Reverse(rows[row].children.period), Reverse(rows[row].own.period));
    order.sort_by(|a, b| weight(*a).cmp(&weight(*b)).then_with(|| all.tail(*a, names).cmp(all.tail(*b, names))));
    (rows, all, order)
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
    columns.extend(plan.sort.iter().map(|key| match key {
        SortKey::Label(nth) => {
            let name = plan.labels.get(usize::from(*nth)).map_or("", |name| name);
            Column::new(&format!("label:{}", clean(name)), 0, Side::Left)
        }
        key => Column::new(title(*key), 0, Side::Left),
    }));
    columns
}

fn title(key: SortKey) -> &'static str {
    match key {
        SortKey::Comm => "Command",
        SortKey::Dso => "Shared Object",
        SortKey::Sym => "Symbol",
        SortKey::Srcline => "Source:Line",
        SortKey::Text => "Text",
        SortKey::Pid => "    Pid:Command",
        SortKey::Tid => "    Tid:Command",
        SortKey::Cpu => "CPU",
        SortKey::Event => "Event",
        SortKey::Cgroup => "Cgroup",
        SortKey::Label(_) => "Label",
    }
}

fn cells(to: &mut Cells, row: &Row, plan: &Plan, total: u64) {
    if plan.children {
        to.push(|text| text.write_str(&share(row.children.period, total)));
    }
    to.push(|text| text.write_str(&share(row.own.period, total)));
    if plan.show_samples {
        to.push(|text| write!(text, "{}", row.own.samples));
    }
    if plan.show_period {
        to.push(|text| write!(text, "{}", row.own.period));
    }
    row.keys.iter().for_each(|key| to.push(|text| cell(text, key)));
}

fn cell(to: &mut String, key: &Key) -> fmt::Result {
    match key {
        Key::Comm(name) | Key::Event(name) | Key::Cgroup(name) => to.write_str(&clean(name)),
        Key::Dso(dso) => to.write_str(&clean(&dso.short)),
        Key::Sym(frame) => write!(to, "[{}] {}", frame.level(), clean(&frame.name())),
        // As perf writes it.
        Key::Srcline(None) => to.write_str("??:0"),
        Key::Srcline(Some(line)) => to.write_str(&clean(&line.to_string())),
        Key::Text(None) => to.write_str("-"),
        Key::Text(Some(text)) => to.write_str(&clean(&label(text))),
        Key::Pid(id, comm) | Key::Tid(id, comm) => write!(to, "{id:>7}:{}", clean(comm)),
        Key::Cpu(Some(cpu)) => write!(to, "{cpu:03}"),
        Key::Cpu(None) => to.write_str("-"),
        Key::Label(_, None) => to.write_str("(none)"),
        Key::Label(_, Some(value)) => to.write_str(&clean(&value.text)),
    }
}

fn draw_chains(
    out: &mut dyn Write,
    (profile, trees): (&Profile, &mut Trees<'_>),
    plan: &Plan,
    event: usize,
    row: &Row,
) -> io::Result<()> {
    let event_total = profile.events[event].total.period;
    let row_total = plan.period(row);
    let least = plan.graph.least_of(event_total);
    // No branch weighs more than its row: most rows are too light for any, and need no tree.
    if matches!(least, Least::Period(period) if row_total < period) {
        return Ok(());
    }
    let tree = trees.of(row, plan.order());
    let mut branches = branches(profile, &tree, row_total, least);
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
