//! Learning what the kernel allows of each event, by opening it once where it will be opened later.

use std::io;

use afterimage_perf_data::{Attr, AttrFlags, ReadFormat};

use super::{Note, OpenError, Target, files};
use crate::cgroup::Cgroup;
use crate::facts::Facts;
use crate::spec::{EventClass, EventSpec, kind, software};
use crate::sys::Kernel;

/// Bends each event to what this kernel and these privileges allow.
///
/// - A hardware event that does not exist becomes cpu-clock.
/// - Where only user code may be sampled, `:u` is added.
/// - A frequency above the kernel's limit is lowered to it.
/// - Stacks deeper than the kernel's limit are cut to it.
/// - `:P` becomes the highest precision that opens.
/// - Losses per event are left out where the kernel does not count them (before Linux 6.0).
///
/// # Errors
/// When an event cannot be opened in any of these ways.
pub fn settle(
    kernel: &dyn Kernel,
    facts: &Facts,
    specs: &mut [EventSpec],
    target: &Target,
) -> Result<Vec<Note>, OpenError> {
    let places = target.places();
    let mut notes = Vec::new();
    for spec in &mut *specs {
        lower_frequency(facts, spec, &mut notes);
        lower_depth(facts, spec, &mut notes);
        let cgroup = spec.cgroup.clone();
        Settling { kernel, facts, places: &places, target, cgroup: cgroup.as_ref() }.one(spec, &mut notes)?;
    }
    notes.extend(stand_ins(specs));
    Ok(notes)
}

/// One line for each event that stands in for others.
fn stand_ins(specs: &[EventSpec]) -> Vec<Note> {
    let mut found: Vec<(&str, Vec<&str>)> = Vec::new();
    for spec in specs {
        let Some(asked) = &spec.fallback_from else { continue };
        match found.iter_mut().find(|(name, _)| *name == spec.name) {
            Some((_, for_these)) => for_these.push(asked),
            None => found.push((&spec.name, vec![asked])),
        }
    }
    let line = |(name, asked): (&str, Vec<&str>)| {
        let plural = if asked.len() == 1 { "" } else { "s" };
        let asked = asked.join(", ");
        Note(format!("{asked}: this machine has no such hardware event{plural}; {name} is sampled instead"))
    };
    found.into_iter().map(line).collect()
}

/// Leaves out stand-ins that are equal to an event before them or stand for one that is: they would sample the same
/// twice. A leader of others stays.
pub(super) fn without_twins(specs: Vec<EventSpec>) -> Vec<EventSpec> {
    let leads = |specs: &[EventSpec], index: usize| {
        specs.iter().enumerate().any(|(other, spec)| other != index && spec.group == Some(index))
    };
    let mut kept: Vec<EventSpec> = Vec::new();
    let mut places = Vec::new();
    for (index, spec) in specs.iter().enumerate() {
        let is_twin = |other: &EventSpec| {
            let stands_in = spec.fallback_from.is_some() || other.fallback_from.is_some();
            stands_in && (&spec.name, &spec.attr, &spec.cgroup) == (&other.name, &other.attr, &other.cgroup)
        };
        let twin = kept.iter().any(is_twin) && !leads(&specs, index);
        places.push(kept.len());
        if !twin {
            kept.push(spec.clone());
        }
    }
    if kept.len() == specs.len() {
        return specs;
    }
    for spec in &mut kept {
        spec.group = spec.group.and_then(|leader| places.get(leader).copied());
    }
    for index in 0..kept.len() {
        // What is left of a group may be its leader alone.
        if kept[index].group == Some(index) && !leads(&kept, index) {
            kept[index].group = None;
        }
    }
    kept
}

struct Settling<'a> {
    kernel: &'a dyn Kernel,
    facts: &'a Facts,
    places: &'a [(i32, i32)],
    target: &'a Target,
    cgroup: Option<&'a Cgroup>,
}

impl Settling<'_> {
    fn one(&self, spec: &mut EventSpec, notes: &mut Vec<Note>) -> Result<(), OpenError> {
        if spec.precise_max {
            spec.attr.set_precise_ip(3);
        }
        // Each step below happens at most once, precision at most three times, so this ends.
        loop {
            let (tid, cpu, cause) = match self.try_open(&spec.attr) {
                Ok(()) => return Ok(()),
                Err(refusal) => refusal,
            };
            let code = cause.raw_os_error().unwrap_or(0);
            let bent = match code {
                libc::EACCES | libc::EPERM => self.user_only(spec, notes),
                // The kernel may have lowered its limit since it was read.
                libc::EINVAL => {
                    lower_frequency(self.facts, spec, notes)
                        || self.no_lost_count(spec, notes)
                        || self.less_precise(spec)
                }
                libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP => self.less_precise(spec) || self.clock_instead(spec),
                _ => false,
            };
            if !bent {
                return Err(OpenError::classify(spec, tid, cpu, cause));
            }
        }
    }

    /// Opens and closes it in the first place that is there.
    fn try_open(&self, attr: &Attr) -> Result<(), (i32, i32, io::Error)> {
        let mut attr = attr.clone();
        self.target.mark(&mut attr, false);
        let mut last = (-1, -1, io::Error::from_raw_os_error(libc::ENODEV));
        for &(tid, cpu) in self.places {
            let cause = match files::open(self.kernel, &attr, self.cgroup, tid, cpu, None) {
                Ok(_) => return Ok(()),
                Err(cause) => cause,
            };
            let elsewhere = match cause.raw_os_error() {
                Some(libc::ENODEV) => !self.is_online(cpu),
                Some(libc::EBUSY) => cpu >= 0,
                Some(libc::ESRCH) => true,
                _ => false,
            };
            last = (tid, cpu, cause);
            if !elsewhere {
                break;
            }
        }
        Err(last)
    }

    fn is_online(&self, cpu: i32) -> bool {
        let online = self.facts.online_cpus().unwrap_or_default();
        cpu < 0 || online.iter().any(|&n| i64::from(n) == i64::from(cpu))
    }

    /// Leaves the kernel out, where that is not what the event was about.
    fn user_only(&self, spec: &mut EventSpec, notes: &mut Vec<Note>) -> bool {
        let flags = spec.attr.flags;
        let kernel_only = flags.contains(AttrFlags::EXCLUDE_USER);
        if flags.contains(AttrFlags::EXCLUDE_KERNEL) || kernel_only || spec.class == EventClass::Tracepoint {
            return false;
        }
        let mut attr = spec.attr.clone();
        attr.flags |= AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV;
        if self.try_open(&attr).is_err_and(|(_, _, e)| matches!(e.raw_os_error(), Some(libc::EACCES | libc::EPERM))) {
            return false;
        }
        spec.attr = attr;
        let old = spec.name.clone();
        let separator = if old.contains(':') || old.contains('/') { "" } else { ":" };
        spec.name = format!("{old}{separator}u");
        let level = self.facts.paranoid().map_or_else(String::new, |n| format!(" (kernel.perf_event_paranoid is {n})"));
        push_once(notes, format!("{old}: only user code is sampled, as {}, without CAP_PERFMON{level}", spec.name));
        true
    }

    /// Without the count of losses that Linux 6.0 brought.
    fn no_lost_count(&self, spec: &mut EventSpec, notes: &mut Vec<Note>) -> bool {
        if !spec.attr.read_format.contains(ReadFormat::LOST) {
            return false;
        }
        let mut attr = spec.attr.clone();
        attr.read_format -= ReadFormat::LOST;
        if self.try_open(&attr).is_err_and(|(_, _, e)| e.raw_os_error() == Some(libc::EINVAL)) {
            return false;
        }
        spec.attr = attr;
        push_once(notes, "this kernel does not count losses per event (Linux 6.0 does)".to_owned());
        true
    }

    /// One step less precise, where the user left the level to us.
    fn less_precise(&self, spec: &mut EventSpec) -> bool {
        let level = spec.attr.precise_ip();
        if !spec.precise_max || level == 0 {
            return false;
        }
        spec.attr.set_precise_ip(level - 1);
        true
    }

    /// cpu-clock for a hardware event that this machine does not have.
    fn clock_instead(&self, spec: &mut EventSpec) -> bool {
        if spec.class != EventClass::Hardware {
            return false;
        }
        let asked = spec.name.clone();
        let modifiers = asked.rsplit_once(':').map_or("", |(_, m)| m);
        let kept: String = modifiers.chars().filter(|c| matches!(c, 'u' | 'k' | 'h')).collect();
        let colon = if kept.is_empty() || asked.contains('/') { "" } else { ":" };
        spec.name = if asked.contains('/') { "cpu-clock".to_owned() } else { format!("cpu-clock{colon}{kept}") };
        spec.attr.kind = kind::SOFTWARE;
        spec.attr.config = software::CPU_CLOCK;
        (spec.attr.config1, spec.attr.config2, spec.attr.config3) = (0, 0, 0);
        spec.attr.set_precise_ip(0);
        spec.precise_max = false;
        spec.class = EventClass::Clock;
        spec.fallback_from = Some(asked);
        true
    }
}

/// The kernel refuses frequencies above kernel.perf_event_max_sample_rate, which it lowers itself under load.
/// Returns whether the event's had to be lowered.
fn lower_frequency(facts: &Facts, spec: &mut EventSpec, notes: &mut Vec<Note>) -> bool {
    let Some(limit) = facts.max_sample_rate().filter(|limit| *limit > 0) else { return false };
    let asked = spec.attr.period_or_freq;
    if !spec.attr.flags.contains(AttrFlags::FREQ) || asked <= limit {
        return false;
    }
    spec.attr.period_or_freq = limit;
    push_once(notes, format!("{asked} Hz is more than kernel.perf_event_max_sample_rate allows: {limit} Hz is used"));
    true
}

/// The kernel refuses stacks deeper than kernel.perf_event_max_stack.
fn lower_depth(facts: &Facts, spec: &mut EventSpec, notes: &mut Vec<Note>) {
    let Some(limit) = facts.max_stack().and_then(|limit| u16::try_from(limit).ok()) else { return };
    let asked = spec.attr.sample_max_stack;
    if asked > limit {
        spec.attr.sample_max_stack = limit;
        push_once(
            notes,
            format!("stacks of {asked} are more than kernel.perf_event_max_stack allows: {limit} are taken"),
        );
    }
}

fn push_once(notes: &mut Vec<Note>, text: String) {
    let note = Note(text);
    if !notes.contains(&note) {
        notes.push(note);
    }
}
