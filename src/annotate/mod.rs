//! `afterimage annotate`: the instructions of functions, with the share of samples of each, and their source.

mod args;
mod choose;
mod code;
mod json;
mod listing;
mod source;
mod stdio;

pub(crate) use args::AnnotateArgs;

use std::io::Write;

use afterimage_profile::{EventProfile, ReplayOptions, Resolver, Thing, Things, Weight, annotate_from};

use crate::disasm;
use crate::exit::{Exit, Problem};
use crate::input::Input;
use crate::out;
use crate::refused;
use crate::say::Say;
use choose::{Chosen, Narrow, Wanted, choose, place};
use code::Sources;
use listing::{How, Listing, Maker};
use source::Texts;

/// Things of one name that are shown one after the other; more are only listed.
const MOST_OF_ONE_NAME: usize = 16;

/// What an instruction's percentage is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    LocalPeriod,
    LocalHits,
    GlobalPeriod,
    GlobalHits,
}

impl Share {
    fn parse(word: &str) -> Option<Share> {
        [Share::LocalPeriod, Share::LocalHits, Share::GlobalPeriod, Share::GlobalHits].into_iter().find(|share| {
            let (of, what) = share.words();
            word == format!("{of}-{what}") || word == format!("{what}-{of}")
        })
    }

    fn words(self) -> (&'static str, &'static str) {
        match self {
            Share::LocalPeriod => ("local", "period"),
            Share::LocalHits => ("local", "hits"),
            Share::GlobalPeriod => ("global", "period"),
            Share::GlobalHits => ("global", "hits"),
        }
    }

    /// As perf prints it.
    fn key(self) -> String {
        let (of, what) = self.words();
        format!("{of} {what}")
    }

    /// The part that `weight` is of a thing's own samples, or of all of its event.
    fn percent(self, weight: Weight, own: Weight, total: Weight) -> f64 {
        let (part, whole) = match self {
            Share::LocalPeriod => (weight.period, own.period),
            Share::LocalHits => (weight.samples, own.samples),
            Share::GlobalPeriod => (weight.period, total.period),
            Share::GlobalHits => (weight.samples, total.samples),
        };
        if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
    }
}

/// What the options ask for, checked.
pub(crate) struct Plan {
    wanted: Option<Wanted>,
    narrow: Narrow,
    how: How,
    share: Share,
    json: bool,
    asm_raw: bool,
    show_samples: bool,
    show_period: bool,
}

impl Plan {
    fn of(args: &AnnotateArgs) -> anyhow::Result<Plan> {
        let wanted = args.symbol.as_deref().or(args.name.as_deref()).map(Wanted::parse).transpose()?;
        let style = args
            .disassembler_style
            .parse::<disasm::Style>()
            .map_err(|()| Problem::usage(format!("-M {}: there are att and intel", args.disassembler_style)))?;
        let at = args.at.as_deref().map(time).transpose()?;
        let least = args.percent_limit.trim_end_matches('%').parse::<f64>().ok().filter(|p| (0.0..=100.0).contains(p));
        let least =
            least.ok_or_else(|| Problem::usage(format!("--percent-limit {}: not a percentage", args.percent_limit)))?;
        let share = Share::parse(&args.percent_type).ok_or_else(|| {
            Problem::usage(format!("--percent-type {}: no such type", args.percent_type))
                .hint("there are local-period, local-hits, global-period and global-hits")
        })?;
        let dsos = args.dsos.iter().flat_map(|list| list.split(',')).filter(|dso| !dso.is_empty());
        Ok(Plan {
            wanted,
            narrow: Narrow { dsos: dsos.map(str::to_owned).collect(), at, events: None, least },
            how: How { style, source: !args.no_source, insns: args.insns, at },
            share,
            json: args.json,
            asm_raw: args.asm_raw,
            show_samples: args.show_nr_samples,
            show_period: args.show_total_period,
        })
    }
}

/// Reads `--at`: seconds with a point, or nanoseconds with `ns` behind them.
fn time(text: &str) -> anyhow::Result<u64> {
    let bad = || Problem::usage(format!("--at {text}: no time")).hint("for example 1234.567890, or 1234567890000ns");
    if let Some(ns) = text.strip_suffix("ns") {
        return Ok(ns.parse().map_err(|_| bad())?);
    }
    let (seconds, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if seconds.is_empty() || part.len() > 9 || !digits(seconds) || !digits(part) {
        return Err(bad().into());
    }
    let part: u64 = format!("{part:0<9}").parse().map_err(|_| bad())?;
    let seconds: u64 = seconds.parse().map_err(|_| bad())?;
    Ok(seconds.checked_mul(1_000_000_000).and_then(|ns| ns.checked_add(part)).ok_or_else(bad)?)
}

/// Annotates a recording.
pub(crate) fn run(args: &AnnotateArgs, say: &Say) -> anyhow::Result<Exit> {
    let mut plan = Plan::of(args)?;
    let input = Input::open(&args.input)?;
    let reader = input.reader()?;
    let mut resolver = Resolver::new(&reader, input.resolve_options());
    let mut source = input.source(&reader)?;
    let mut found = annotate_from(&reader, &mut source, &ReplayOptions::default(), &mut resolver);
    if let Some(wanted) = &plan.wanted {
        found.add_texts(&mut resolver, |text| wanted.may_be(text));
    }
    if let Some(name) = &args.event {
        plan.narrow.events = Some(event_called(&found, name)?);
    }
    let mut sources = Sources::new(&reader);
    let chosen = choose(&found, &sources.programs, plan.wanted.as_ref(), &plan.narrow)?;
    let texts = Texts::default();
    let mut maker = Maker { found: &found, resolver: &mut resolver, sources: &mut sources, texts, how: plan.how };
    let mut to = out::stdout()?;
    if plan.json {
        let listings: Vec<Listing<'_>> = chosen.things.iter().map(|thing| maker.make(thing)).collect();
        json::write(&mut to, &found, &mut resolver, &listings, &plan)?;
    } else {
        text(&mut to, &found, &mut maker, &chosen, &plan)?;
    }
    out::flush(&mut to)?;
    if chosen.lighter > 0 && !plan.json {
        say.detail(format!("{} symbols below {}% of their event left out", chosen.lighter, plan.narrow.least));
    }
    refused::say(input.name(), resolver.refused(), say);
    Ok(input.end(&reader, &found.stats, say))
}

/// The events of that name, by their indexes in the recording.
fn event_called(found: &Things, name: &str) -> anyhow::Result<Vec<usize>> {
    let events: Vec<usize> = found.events.iter().filter(|e| *e.name == *name).map(|e| e.event).collect();
    if events.is_empty() {
        let names: Vec<&str> = found.events.iter().map(|event| &*event.name).collect();
        let problem = Problem::usage(format!("--event {name}: not in the recording"));
        return Err(problem.hint(format!("it holds {}", names.join(", "))).into());
    }
    Ok(events)
}

fn text<'t>(
    to: &mut dyn Write,
    found: &'t Things,
    maker: &mut Maker<'t, '_, '_>,
    chosen: &Chosen<'t>,
    plan: &Plan,
) -> anyhow::Result<()> {
    let several = plan.wanted.is_some() && chosen.things.len() > 1;
    if several {
        list(to, maker, &chosen.things)?;
        if chosen.things.len() > MOST_OF_ONE_NAME {
            writeln!(to, "# {} of one name: -s with the part behind the @ shows one", chosen.things.len())?;
            return Ok(());
        }
    }
    for thing in &chosen.things {
        let listing = maker.make(thing);
        // What has no samples is shown once, for the first event.
        let unsampled = thing.hits.is_empty();
        let of_thing = |event: &&EventProfile| unsampled || thing.hits.contains_key(&event.event);
        let wanted =
            |event: &&EventProfile| plan.narrow.events.as_ref().is_none_or(|events| events.contains(&event.event));
        let most = if unsampled { 1 } else { usize::MAX };
        for event in found.events.iter().filter(of_thing).filter(wanted).take(most) {
            let shown = stdio::Shown { event: event.event, name: &event.name, total: event.total };
            stdio::write(to, &listing, plan, &shown)?;
        }
    }
    Ok(())
}

/// Several of one name: what tells them apart.
fn list(to: &mut dyn Write, maker: &Maker<'_, '_, '_>, things: &[&Thing]) -> anyhow::Result<()> {
    writeln!(to, "# {} of that name:", things.len())?;
    for thing in things {
        let samples = thing.weight(None).samples;
        let place = place(maker.found, &maker.sources.programs, thing);
        writeln!(to, "#   {samples:>8} samples  {} at {:#x}", crate::terminal::clean(&place), thing.start)?;
    }
    writeln!(to, "#")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_or_nanoseconds() {
        assert_eq!(time("12.5").unwrap(), 12_500_000_000);
        assert_eq!(time("12").unwrap(), 12_000_000_000);
        assert_eq!(time("0.000000001").unwrap(), 1);
        assert_eq!(time("77ns").unwrap(), 77);
        for bad in ["", "x", "1.2.3", "-1", "1.0000000001", "99999999999999", "ns"] {
            assert!(time(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn types_of_percent_are_perfs() {
        assert_eq!(Share::parse("local-period"), Some(Share::LocalPeriod));
        assert_eq!(Share::parse("hits-global"), Some(Share::GlobalHits));
        assert_eq!(Share::parse("local"), None);
        let of = |period, samples| Weight { period, samples, records: samples };
        assert_eq!(Share::GlobalPeriod.percent(of(1, 2), of(4, 4), of(8, 16)), 12.5);
        assert_eq!(Share::LocalHits.percent(of(1, 2), of(4, 4), of(8, 16)), 50.0);
        assert_eq!(Share::LocalHits.percent(of(0, 0), of(0, 0), of(0, 0)), 0.0);
    }
}
