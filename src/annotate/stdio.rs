//! A listing as text, in the layout of `perf annotate --stdio`: the share of each instruction, a colon, the instruction,
//! and before it the source that it comes from.

use std::io::{self, Write};

use afterimage_profile::Weight;

use super::code::Code;
use super::listing::{Listing, Row};
use super::source::{Origin, short};
use super::{Plan, Share};
use crate::terminal::{clean, grouped};

/// The event that a listing is shown for.
pub(super) struct Shown<'e> {
    /// Its index in the recording.
    pub(super) event: usize,
    pub(super) name: &'e str,
    /// All its samples.
    pub(super) total: Weight,
}

/// Writes a listing for one event.
pub(super) fn write(out: &mut dyn Write, listing: &Listing<'_>, plan: &Plan, shown: &Shown<'_>) -> io::Result<()> {
    let own = listing.thing.weight(Some(shown.event));
    let title = format!(
        " {}|      Source code & Disassembly of {} for {} ({} samples, percent: {})",
        columns(plan),
        clean(&listing.thing.name),
        clean(shown.name),
        grouped(own.samples),
        plan.share.key(),
    );
    writeln!(out, "{title}")?;
    writeln!(out, "{}", "-".repeat(title.chars().count()))?;
    let blank = " ".repeat(columns(plan).len() + 1);
    for line in about(listing, own, shown) {
        writeln!(out, "{blank}: {}", clean(&line))?;
    }
    writeln!(out, "{blank}:")?;
    let mut before: &[Origin] = &[];
    for row in &listing.rows {
        if !same_lines(&row.origins, before) {
            source(out, &blank, row, before)?;
            before = &row.origins;
        }
        if let Some((start, count)) = row.insns {
            for (number, text) in listing.insns.iter().skip(start).take(count) {
                writeln!(out, "{blank}: {number:>6}: (bpf) {}", clean(text))?;
            }
        }
        instruction(out, listing, row, plan, own, shown)?;
    }
    if let Some(why) = listing.no_insns {
        writeln!(out, "{blank}: no BPF instructions: {why}")?;
    }
    writeln!(out)
}

fn columns(plan: &Plan) -> String {
    let mut text = "Percent ".to_owned();
    if plan.show_samples {
        text.push_str("     Samples ");
    }
    if plan.show_period {
        text.push_str("          Period ");
    }
    text
}

fn instruction(
    out: &mut dyn Write,
    listing: &Listing<'_>,
    row: &Row,
    plan: &Plan,
    own: Weight,
    shown: &Shown<'_>,
) -> io::Result<()> {
    let weight = row.weights.get(&shown.event).copied().unwrap_or_default();
    write!(out, " {:>7.2} ", plan.share.percent(weight, own, shown.total))?;
    if plan.show_samples {
        write!(out, "{:>12} ", weight.samples)?;
    }
    if plan.show_period {
        write!(out, "{:>16} ", weight.period)?;
    }
    let address = listing.thing.start.wrapping_add(row.offset);
    write!(out, ": {address:>8x}:")?;
    if plan.asm_raw {
        let bytes: Vec<String> = row.bytes.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        write!(out, "   {:<30}", bytes.join(" "))?;
    }
    match &row.text {
        Some(text) => writeln!(out, "   {}", spaced(text)),
        None => writeln!(out, "   ?"),
    }
}

/// Mnemonic, operands and remark in columns.
fn spaced(text: &str) -> String {
    let mut parts = text.split('\t');
    let mnemonic = parts.next().unwrap_or_default();
    let rest: Vec<_> = parts.map(clean).collect();
    match rest.is_empty() {
        true => clean(mnemonic).into_owned(),
        false => format!("{:<6} {}", clean(mnemonic), rest.join("        ")),
    }
}

/// Whether two instructions come from the same lines, whatever the columns.
fn same_lines(a: &[Origin], b: &[Origin]) -> bool {
    let key = |o: &Origin| (o.line, o.file.clone(), o.function.clone());
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| key(a) == key(b))
}

/// Where the next instructions come from: what was inlined into what when that changes, then the line.
fn source(out: &mut dyn Write, blank: &str, row: &Row, before: &[Origin]) -> io::Result<()> {
    let Some((innermost, outer)) = row.origins.split_first() else {
        return writeln!(out, "{blank}:");
    };
    let chain = |origins: &[Origin]| -> Vec<(Option<String>, u32)> {
        origins.iter().skip(1).map(|o| (o.function.clone(), o.line)).collect()
    };
    if !outer.is_empty() && (chain(&row.origins) != chain(before)) {
        let inlined = innermost.function.as_deref().unwrap_or("?");
        let into: Vec<String> =
            outer.iter().map(|o| format!("{} ({})", o.function.as_deref().unwrap_or("?"), place(o))).collect();
        writeln!(out, "{blank}: {} inlined into {}", clean(inlined), clean(&into.join(", ")))?;
    }
    let text = innermost.text.as_deref().unwrap_or_default().replace('\t', "    ");
    let line = format!("{}  {}", place(innermost), text.trim_end());
    writeln!(out, "{blank}: {}", clean(line.trim_end()))
}

fn place(origin: &Origin) -> String {
    let file = origin.file.as_deref().map_or("?", short);
    match origin.line {
        0 => file.to_owned(),
        line => format!("{file}:{line}"),
    }
}

/// What is known of the thing, in front of its code.
fn about(listing: &Listing<'_>, own: Weight, shown: &Shown<'_>) -> Vec<String> {
    let (thing, about) = (listing.thing, &listing.about);
    let mut first = format!("{} at {:#x}", about.kind.replace('_', " "), thing.start);
    if let Ok(code) = &listing.code {
        first.push_str(&format!(", {} bytes", code.bytes.len()));
    }
    if thing.dso.long != *thing.name {
        first.push_str(&format!(", {}", thing.dso.long));
    }
    if let Some(id) = thing.dso.build_id {
        first.push_str(&format!(", build ID {id}"));
    }
    let share = Share::GlobalPeriod.percent(own, own, shown.total);
    let mut lines = vec![first, format!("{share:.2}% of the event")];
    if let Some(id) = about.id {
        let function = about.function.map(|function| format!(", function {function}")).unwrap_or_default();
        let tag = about.tag.as_deref().map(|tag| format!(", tag {tag}")).unwrap_or_default();
        lines.push(format!("BPF program {id}{tag}{function}"));
    }
    if about.born.is_some() || about.gone.is_some() {
        let born = about.born.map_or("before the recording".to_owned(), seconds);
        let gone = about.gone.map_or("the end".to_owned(), seconds);
        let doubt = if about.uncertain { " (uncertain: records were lost)" } else { "" };
        lines.push(format!("there from {born} to {gone}{doubt}"));
    }
    if let Some((pid, comm)) = &about.loader {
        lines.push(format!("loaded by {comm} (pid {pid})"));
    }
    match &listing.code {
        Ok(code) => lines.push(origin(code)),
        Err(tried) => {
            lines.push("no code:".to_owned());
            lines.extend(tried.iter().map(|tried| format!("  {}: {}", tried.way, tried.why)));
        }
    }
    lines
}

fn origin(code: &Code) -> String {
    let what = match code.way.as_str() {
        "info" => "code as the kernel showed it by the program's id".to_owned(),
        "file" => "code from the file".to_owned(),
        "vmlinux" => "code from the kernel's file: what the kernel patched while it started is not in it,".to_owned(),
        way => format!("code kept by the recording ({way})"),
    };
    let proven = match code.proven {
        Some(true) => ", proven",
        Some(false) => ", not proven: something else may have been there",
        None => "",
    };
    let file = code.file.as_ref().map(|file| format!(" {}", file.display())).unwrap_or_default();
    let at = code.at_ns.map(|at| format!(", read at {}", seconds(at))).unwrap_or_default();
    format!("{what}{file}{at}{proven}")
}

/// A time as script prints it.
fn seconds(ns: u64) -> String {
    format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}
