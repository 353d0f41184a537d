//! The events of a profile: by the name that `--event` gives, and with their tallies.

use afterimage_perf_data::EventTally;
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
