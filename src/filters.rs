//! Filters of the command line: which samples a view looks at, and how those that it does not are told of.

use afterimage_perf_data::{FileReader, SampleType};
use afterimage_profile::{
    FilterKind, Filters, Frame, Loc, Names, Numbers, SampleFilter, State, TimedSample, Times, sample_times,
};
use rustc_hash::FxHashMap;

use crate::cli::FilterArgs;
use crate::exit::Problem;
use crate::input::Input;
use crate::say::Say;
use crate::terminal::grouped;

/// Reads the options. Parts of a recording's time are placed by [`place`], once it is open.
pub(crate) fn read(args: &FilterArgs) -> anyhow::Result<Filters> {
    Ok(Filters {
        times: given(&args.time, "time", Times::parse)?,
        cpus: given(&args.cpu, "cpu", Numbers::parse)?,
        pids: given(&args.pid, "pid", Numbers::parse)?,
        tids: given(&args.tid, "tid", Numbers::parse)?,
        comms: given(&args.comms, "comms", names)?,
        dsos: given(&args.dsos, "dsos", names)?,
        symbols: given(&args.symbols, "symbols", names)?,
        ..Filters::default()
    })
}

fn names(text: &str) -> Result<Names, String> {
    let names = Names::parse(text).map_err(|error| error.to_string())?;
    if names.is_empty() { Err("no name".to_owned()) } else { Ok(names) }
}

fn given<T, E: std::fmt::Display>(
    text: &Option<String>,
    option: &str,
    parse: impl Fn(&str) -> Result<T, E>,
) -> anyhow::Result<Option<T>> {
    let read =
        |text: &String| parse(text).map_err(|error| Problem::usage(format!("--{option} {text}: {error}")).into());
    text.as_ref().map(read).transpose()
}

/// Finds when the parts of a recording's time are that `--time` speaks of, and that its samples say on which CPU they were
/// taken, if that is asked.
pub(crate) fn place(filters: &mut Filters, input: &Input, reader: &FileReader<'_>) -> anyhow::Result<()> {
    let says_cpu = || reader.events().iter().any(|event| event.attr.sample_type.contains(SampleType::CPU));
    if filters.cpus.is_some() && !says_cpu() {
        let what = format!("{}: its samples do not say on which CPU they were taken: --cpu finds none", input.name());
        return Err(Problem::failed(what).hint("leave --cpu out").into());
    }
    let Some(times) = filters.times.as_ref().filter(|times| times.needs_span()) else { return Ok(()) };
    let said = reader.features().sample_time.filter(|times| *times != (0, 0));
    let span = match said {
        Some(span) => Some(span),
        None if input.is_stream() => {
            let problem = Problem::failed(format!(
                "{}: which part of its time a sample is in is known at its end alone, and it comes but once",
                input.name()
            ));
            return Err(problem.hint("write it to a file, or give --time in seconds").into());
        }
        None => sample_times(reader, &mut input.source(reader)?),
    };
    let no_times = || Problem::failed(format!("{}: its samples have no times, so --time has no parts", input.name()));
    let (first, last) = span.ok_or_else(no_times)?;
    filters.times = Some(times.of(first, last));
    Ok(())
}

/// `9 of 12 samples: 6 by --comms, 3 by --dsos`; `what` is what there is of them: `sample` or `branch`.
pub(crate) fn told(all: u64, what: &str, left_out: &[(FilterKind, u64)]) -> String {
    let sum = left_out.iter().fold(0_u64, |sum, (_, samples)| sum.saturating_add(*samples));
    let by: Vec<String> =
        left_out.iter().map(|(kind, samples)| format!("{} by --{}", grouped(*samples), kind.option())).collect();
    let s = match what {
        _ if all == 1 => "",
        "branch" => "es",
        _ => "s",
    };
    format!("{} of {} {what}{s}: {}", grouped(sum), grouped(all), by.join(", "))
}

/// The filters of a view that shows samples one by one. It counts what it leaves out.
pub(crate) struct Sieve {
    filters: Filters,
    samples: SampleFilter,
    by_place: FxHashMap<Loc, Option<FilterKind>>,
    left_out: [u64; FilterKind::ALL.len()],
    all: u64,
}

impl Sieve {
    /// Of filters that are [placed](place).
    pub(crate) fn new(filters: Filters) -> Self {
        let samples = SampleFilter::new(&filters);
        Sieve { filters, samples, by_place: FxHashMap::default(), left_out: [0; FilterKind::ALL.len()], all: 0 }
    }

    /// What leaves a sample out, without counting it. `name` finds the name of a place, where that is asked for.
    #[inline]
    pub(crate) fn left_out<'r>(
        &mut self,
        state: &State,
        sample: &TimedSample<'_>,
        name: impl FnOnce(Loc) -> &'r Frame,
    ) -> Option<FilterKind> {
        match self.samples.left_out(state, sample) {
            None if self.filters.ask_places() => {
                let (loc, filters) = (state.locate(sample.process, sample.mode(), sample.ip), &self.filters);
                *self.by_place.entry(loc).or_insert_with(|| filters.left_out_at(name(loc)))
            }
            kind => kind,
        }
    }

    /// Counts a sample, and tells whether it is left out.
    #[inline]
    pub(crate) fn leaves_out<'r>(
        &mut self,
        state: &State,
        sample: &TimedSample<'_>,
        name: impl FnOnce(Loc) -> &'r Frame,
    ) -> bool {
        self.all = self.all.saturating_add(sample.count);
        let Some(kind) = self.left_out(state, sample, name) else { return false };
        let left_out = &mut self.left_out[kind as usize];
        *left_out = left_out.saturating_add(sample.count);
        true
    }

    /// Says what was left out, if filters were given.
    pub(crate) fn tell(&self, say: &Say) {
        if self.filters.is_empty() {
            return;
        }
        let left_out: Vec<_> =
            FilterKind::ALL.into_iter().zip(self.left_out).filter(|(_, count)| *count != 0).collect();
        match left_out.as_slice() {
            [] => say.note("filters left out no sample"),
            left_out => say.note(format!("left out {}", told(self.all, "sample", left_out))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_adds_up() {
        let left_out = [(FilterKind::Time, 1200), (FilterKind::Comm, 34)];
        assert_eq!(told(5000, "sample", &left_out), "1,234 of 5,000 samples: 1,200 by --time, 34 by --comms");
        assert_eq!(told(1, "sample", &[(FilterKind::Dso, 1)]), "1 of 1 sample: 1 by --dsos");
        assert_eq!(told(2, "branch", &[(FilterKind::Pid, 1)]), "1 of 2 branches: 1 by --pid");
    }

    #[test]
    fn what_cannot_be_read_names_its_option() {
        let said = |args: FilterArgs| read(&args).unwrap_err().to_string();
        let cpu = FilterArgs { cpu: Some("0-".into()), ..FilterArgs::default() };
        assert_eq!(said(cpu), "--cpu 0-: \"0-\" is no number and no range FIRST-LAST");
        let comms = FilterArgs { comms: Some("a,/[/".into()), ..FilterArgs::default() };
        assert_eq!(said(comms), "--comms a,/[/: /[/: unclosed character class");
    }
}
