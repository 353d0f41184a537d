//! Which things are annotated: `SYMBOL[@WHICH…]`, `-d`, `--at`, or everything that is heavy enough.

use afterimage_kernel_text::Text;
use afterimage_profile::{BpfPrograms, Subject, Thing, Things};

use crate::exit::Problem;

/// What `-s` asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    name: String,
    which: Vec<String>,
}

impl Wanted {
    /// Reads `SYMBOL[@WHICH…]`. Names may hold an `@` themselves (`memcpy@plt`), so that the whole is a name, too.
    pub(super) fn parse(text: &str) -> anyhow::Result<Wanted> {
        if text.is_empty() {
            return Err(Problem::usage("-s: no name").into());
        }
        let mut parts = text.split('@').map(str::to_owned);
        let name = parts.next().unwrap_or_default();
        Ok(Wanted { name, which: parts.collect() })
    }

    fn whole(&self) -> String {
        std::iter::once(&self.name).chain(&self.which).map(String::as_str).collect::<Vec<_>>().join("@")
    }

    fn takes(&self, thing: &Thing, program: Option<u32>) -> bool {
        if *thing.name == *self.whole() {
            return true;
        }
        (self.name.is_empty() || is_called(&thing.name, &self.name))
            && self.which.iter().all(|which| is_that(which, thing, program))
    }
}

impl Wanted {
    /// Whether a text may be one of those, as far as its name says.
    pub(super) fn may_be(&self, text: &Text<'_>) -> bool {
        self.name.is_empty() && !self.which.is_empty()
            || *text.name == *self.whole()
            || is_called(text.name, &self.name)
    }
}

/// Whether a thing goes by that name: its whole symbol, or tag or own name of `bpf_prog_<tag>_<name>`.
fn is_called(symbol: &str, name: &str) -> bool {
    let parts = || {
        let (tag, rest) = symbol.strip_prefix("bpf_prog_")?.split_at_checked(16)?;
        Some((tag, rest.strip_prefix('_').unwrap_or(rest)))
    };
    symbol == name || parts().is_some_and(|(tag, own)| tag == name || own == name)
}

/// Whether one `@WHICH` speaks of a thing: the number of its program, its address, its file's name or build ID.
fn is_that(which: &str, thing: &Thing, program: Option<u32>) -> bool {
    if let Some(hex) = which.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).is_ok_and(|address| address == thing.start);
    }
    if program.is_some_and(|program| which.parse() == Ok(program)) {
        return true;
    }
    let build_id = thing.dso.build_id.map(|id| id.to_string());
    // Few digits could be a program's number as well.
    let by_id = which.len() >= 7 && build_id.is_some_and(|id| id.starts_with(which));
    by_id || (!which.is_empty() && (thing.dso.short == which || thing.dso.long == which))
}

/// What narrows the choice beside a name.
#[derive(Clone, Debug, Default)]
pub(super) struct Narrow {
    /// Only these objects, by short or long name; none: all.
    pub(super) dsos: Vec<String>,
    /// Only what was there then, ns.
    pub(super) at: Option<u64>,
    /// Only these events, by index; none: all.
    pub(super) events: Option<Vec<usize>>,
    /// The least share of an event, percent.
    pub(super) least: f64,
}

/// What was chosen.
#[derive(Debug, Default)]
pub(super) struct Chosen<'t> {
    /// The things, heaviest first.
    pub(super) things: Vec<&'t Thing>,
    /// How many more have samples and are too light.
    pub(super) lighter: usize,
}

/// The things that are asked for.
///
/// # Errors
/// When none goes by the name: then with what is called alike.
pub(super) fn choose<'t>(
    found: &'t Things,
    programs: &BpfPrograms<'_>,
    wanted: Option<&Wanted>,
    narrow: &Narrow,
) -> anyhow::Result<Chosen<'t>> {
    let mut chosen = Chosen::default();
    for thing in found.things.iter().filter(|thing| narrow.takes(found, thing)) {
        let program = program_of(found, programs, thing);
        match wanted {
            Some(wanted) if wanted.takes(thing, program) => chosen.things.push(thing),
            Some(_) => {}
            None if narrow.is_heavy(found, thing) => chosen.things.push(thing),
            None => chosen.lighter += 1,
        }
    }
    match wanted {
        Some(wanted) if chosen.things.is_empty() => Err(none_of(found, programs, wanted, narrow)),
        _ => Ok(chosen),
    }
}

/// The text that a thing is.
pub(super) fn text_of<'t>(found: &'t Things, thing: &Thing) -> Option<Text<'t>> {
    match thing.subject {
        Subject::Text(id) => found.state.kernel().text(id),
        _ => None,
    }
}

/// The id of the BPF program that a thing is part of: as the records have it, or the only info that fits.
pub(super) fn program_of(found: &Things, programs: &BpfPrograms<'_>, thing: &Thing) -> Option<u32> {
    let text = text_of(found, thing)?;
    let told = text.program.map(|program| program.id).filter(|id| *id != 0);
    told.or_else(|| programs.function_of(&text).map(|of| of.info.id()))
}

impl Narrow {
    fn takes(&self, found: &Things, thing: &Thing) -> bool {
        let of_dso =
            self.dsos.is_empty() || self.dsos.iter().any(|dso| thing.dso.short == *dso || thing.dso.long == *dso);
        let there = |at: u64| {
            text_of(found, thing).is_none_or(|text| text.born <= at && text.gone.is_none_or(|gone| at < gone))
        };
        let has_event =
            |events: &Vec<usize>| thing.hits.is_empty() || thing.hits.keys().any(|event| events.contains(event));
        of_dso && self.at.is_none_or(there) && self.events.as_ref().is_none_or(has_event)
    }

    fn is_heavy(&self, found: &Things, thing: &Thing) -> bool {
        found.events.iter().filter(|event| self.events.as_ref().is_none_or(|e| e.contains(&event.event))).any(|event| {
            let period = thing.weight(Some(event.event)).period;
            let total = event.total.period;
            period > 0 && 100.0 * period as f64 >= self.least * total as f64
        })
    }
}

fn none_of(found: &Things, programs: &BpfPrograms<'_>, wanted: &Wanted, narrow: &Narrow) -> anyhow::Error {
    let named: Vec<&Thing> =
        found.things.iter().filter(|t| *t.name == *wanted.name || is_called(&t.name, &wanted.name)).collect();
    let problem = Problem::usage(format!("-s {}: no such symbol has samples", wanted.whole()));
    if !named.is_empty() {
        let narrowed = if wanted.which.is_empty() && narrow.at.is_some() { "at that time" } else { "of that kind" };
        let all: Vec<String> = named.iter().take(8).map(|thing| place(found, programs, thing)).collect();
        return problem.hint(format!("there is none {narrowed}; of that name there are {}", all.join(", "))).into();
    }
    let part = wanted.name.to_lowercase();
    let alike: Vec<&str> =
        found.things.iter().map(|t| &*t.name).filter(|n| n.to_lowercase().contains(&part)).take(8).collect();
    match alike.is_empty() {
        true => problem.hint("afterimage report shows what has samples").into(),
        false => problem.hint(format!("what has samples and is called alike: {}", alike.join(", "))).into(),
    }
}

/// What tells a thing from others of its name, as `-s` takes it.
pub(super) fn place(found: &Things, programs: &BpfPrograms<'_>, thing: &Thing) -> String {
    match (program_of(found, programs, thing), thing.subject) {
        (Some(program), _) => format!("{}@{program}", thing.name),
        (None, Subject::Text(_)) => format!("{}@{:#x}", thing.name, thing.start),
        (None, _) => match thing.dso.build_id {
            Some(id) => format!("{}@{:.12}", thing.name, id.to_string()),
            None => format!("{}@{}", thing.name, thing.dso.short),
        },
    }
}
