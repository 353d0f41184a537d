//! The stacks of one event of a profile.

use afterimage_profile::{Frame, Label, Profile, Weight};

use crate::Stacks;
use crate::name::unnamed;

/// What a stack weighs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightOf {
    /// The sum of its periods.
    Period,
    /// The number of its samples.
    Samples,
}

impl WeightOf {
    fn of(self, weight: Weight) -> u64 {
        match self {
            WeightOf::Period => weight.period,
            WeightOf::Samples => weight.samples,
        }
    }
}

/// One event of a profile as stacks: the command, the labels that tell rows apart, then the frames from the outermost in.
#[derive(Clone, Copy)]
pub struct ProfileStacks<'p> {
    /// The profile, aggregated with chains.
    pub profile: &'p Profile,
    /// Which of its events.
    pub event: usize,
    /// What a stack weighs.
    pub weight: WeightOf,
}

impl Stacks for ProfileStacks<'_> {
    fn visit(&self, take: &mut dyn FnMut(&[&str], u64)) {
        if self.event >= self.profile.events.len() {
            return;
        }
        for stack in self.profile.stacks(self.event) {
            let names: Vec<std::borrow::Cow<'_, str>> = stack.frames.iter().map(|frame| name(frame)).collect();
            let label = |(name, value): &(&str, Option<&Label>)| match value {
                Some(value) => format!("{name}={}", value.text),
                None => format!("{name}=(none)"),
            };
            let labels: Vec<String> = stack.labels.iter().map(label).collect();
            let mut frames: Vec<&str> = Vec::with_capacity(names.len() + labels.len() + 1);
            frames.push(stack.comm);
            frames.extend(labels.iter().map(String::as_str));
            frames.extend(names.iter().map(AsRef::as_ref));
            take(&frames, self.weight.of(stack.weight));
        }
    }
}

/// A frame's name in a stack: the symbol, or the file where the symbol is not known.
pub fn name(frame: &Frame) -> std::borrow::Cow<'_, str> {
    match &frame.symbol {
        Ok(name) => (&**name).into(),
        Err(_) => unnamed(Some(&frame.dso.short)).into(),
    }
}
