//! The events of a profile: by the name that `--event` gives, and with their tallies.

use afterimage_perf_data::off_cpu::WakersTally;
use afterimage_perf_data::{EventTally, OffCpuTally};
use afterimage_profile::Profile;

use crate::exit::Problem;

/// The indexes of the events of that name: at least one, several where a recording has several that are called the same.
pub(crate) fn called(profile: &Profile, name: &str) -> anyhow::Result<Vec<usize>> {
    let names: Vec<&str> = profile.events.iter().map(|event| &*event.name).collect();
    let found: Vec<usize> = (0..names.len()).filter(|index| names[*index] == name).collect();
    if found.is_empty() {
        let problem = Problem::usage(format!("--event {name}: not in the recording"));
        return Err(problem.hint(format!("it holds {}", names.join(", "))).into());
    }
    Ok(found)
}

/// The tally of an event: the one of its name, counted off where several events are called the same.
pub(crate) fn tally_of(profile: &Profile, event: usize) -> Option<&EventTally> {
    let name = &profile.events.get(event)?.name;
    let before = profile.events[..event].iter().filter(|e| e.name == *name).count();
    profile.tally.events.iter().filter(|t| *t.name == **name).nth(before)
}

/// What became of every wait, if the event is that of time off CPU.
pub(crate) fn off_cpu_of(profile: &Profile, event: usize) -> Option<&OffCpuTally> {
    let event = profile.events.get(event)?;
    profile.tally.off_cpu.as_ref().filter(|off_cpu| event.off_cpu && off_cpu.event == event.event)
}

/// The same of the event of who ended waits.
pub(crate) fn wakers_of(profile: &Profile, event: usize) -> Option<&WakersTally> {
    let event = profile.events.get(event)?;
    profile.tally.off_cpu.as_ref()?.wakers.as_ref().filter(|wakers| event.off_cpu && wakers.event == event.event)
}
