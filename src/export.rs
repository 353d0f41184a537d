//! `afterimage export`: the stacks of one event in a format of other tools.

use std::io::Write;

use afterimage_export::svg::Caption;
use afterimage_export::{Error, folded, profile::ProfileStacks, profile::WeightOf, svg};
use afterimage_perf_data::FileReader;
use afterimage_profile::{AggregateOptions, Profile, Resolver, SortKey, aggregate_from};
use anyhow::Context;

use crate::cli::{ExportArgs, Format, WeightBy};
use crate::events;
use crate::exit::Exit;
use crate::input::Input;
use crate::out;
use crate::refused;
use crate::report::label_key;
use crate::say::Say;

/// Writes the stacks of one event of a recording.
pub(crate) fn run(args: &ExportArgs, say: &Say) -> anyhow::Result<Exit> {
    let input = Input::open(&args.input)?;
    let reader = input.reader()?;
    let mut resolver = Resolver::new(&reader, input.resolve_options());
    let mut options = AggregateOptions { sort: vec![SortKey::Comm], chains: true, ..AggregateOptions::default() };
    for name in &args.label {
        options.sort.extend(label_key(&format!("--label {name}"), name, &mut options.labels)?);
    }
    let profile = aggregate_from(&reader, &mut input.source(&reader)?, &options, &mut resolver);
    let event = choose(&profile, args.event.as_deref(), say)?;
    // The file is made only now, so that a recording that cannot be read leaves none behind.
    let mut to = out::create(&args.output)?;
    let weight = match args.weight {
        WeightBy::Period => WeightOf::Period,
        WeightBy::Samples => WeightOf::Samples,
    };
    let stacks = ProfileStacks { profile: &profile, event, weight };
    let written = match args.format {
        Format::Folded => folded::write(&stacks, &mut to),
        Format::Svg => svg::write(&stacks, &caption(args, &profile, event, &reader), &mut to),
    };
    match written {
        Err(Error::NoSamples) => say.warn(format!("{}: nothing to draw: no samples", input.name())),
        written => written.with_context(|| args.output.display().to_string())?,
    }
    to.flush().with_context(|| args.output.display().to_string())?;
    refused::say(input.name(), resolver.refused(), say);
    let exit = input.end(&reader, &profile.stats, say);
    // The process ends now: giving millions of small pieces back one by one would only cost time.
    std::mem::forget((profile, resolver));
    Ok(exit)
}

/// The event that is drawn. Events are never added together: their weights count different things.
fn choose(profile: &Profile, name: Option<&str>, say: &Say) -> anyhow::Result<usize> {
    let names: Vec<&str> = profile.events.iter().map(|e| &*e.name).collect();
    if let Some(name) = name {
        let called = events::called(profile, name)?;
        return Ok(called.first().copied().unwrap_or(0));
    }
    let with_samples: Vec<usize> = (0..names.len()).filter(|i| profile.events[*i].total.samples > 0).collect();
    let first = with_samples.first().copied().unwrap_or(0);
    if with_samples.len() > 1 {
        let others: Vec<&str> = with_samples[1..].iter().map(|i| names[*i]).collect();
        say.note(format!("drawn is {}; --event takes one of the others: {}", names[first], others.join(", ")));
    }
    Ok(first)
}

fn caption(args: &ExportArgs, profile: &Profile, event: usize, reader: &FileReader<'_>) -> Caption {
    let shown = profile.events.get(event);
    let name = shown.map_or("no event", |e| &*e.name);
    let host = reader.features().hostname.as_ref().map(|host| format!(" on {host}")).unwrap_or_default();
    let title = args.title.clone().unwrap_or_else(|| format!("{name}{host}"));
    let samples = shown.map_or(0, |e| e.total.samples);
    let subtitle = match (events::tally_of(profile, event), events::off_cpu_of(profile, event)) {
        (Some(tally), _) => tally.sum.human(),
        (None, Some(off_cpu)) => off_cpu.human(),
        (None, None) => format!("{} samples", crate::terminal::grouped(samples)),
    };
    let unit = match (args.weight, shown.and_then(|event| event.unit.symbol())) {
        (WeightBy::Samples, _) => "samples".to_owned(),
        (WeightBy::Period, Some(unit)) => unit.to_owned(),
        (WeightBy::Period, None) => name.to_owned(),
    };
    Caption { title, subtitle, unit }
}
