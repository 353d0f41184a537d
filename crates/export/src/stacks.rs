//! Weighted stacks: what every format of this crate is made from.

/// A source of weighted stacks of one event.
///
/// The same stack may be given more than once; formats add up.
pub trait Stacks {
    /// Gives each stack to `take`: its frames, root first (the command, then the outermost caller), and its weight.
    fn visit(&self, take: &mut dyn FnMut(&[&str], u64));
}

/// Stacks that are simply held.
#[derive(Clone, Debug, Default)]
pub struct Held {
    stacks: Vec<(Vec<String>, u64)>,
}

impl Held {
    /// Adds one stack, root first.
    pub fn push(&mut self, frames: Vec<String>, weight: u64) {
        self.stacks.push((frames, weight));
    }
}

impl Stacks for Held {
    fn visit(&self, take: &mut dyn FnMut(&[&str], u64)) {
        let mut frames: Vec<&str> = Vec::new();
        for (stack, weight) in &self.stacks {
            frames.clear();
            frames.extend(stack.iter().map(String::as_str));
            take(&frames, *weight);
        }
    }
}
