//! Every state that can be reached, shortest ways first.

use std::collections::{HashSet, VecDeque};
use std::fmt::Write as _;
use std::hash::{Hash, Hasher};
use std::string::String;
use std::vec::Vec;

/// What a step did, in words, where somebody wants to read it.
pub(super) struct Log(Option<String>);

impl Log {
    pub(super) const fn nothing() -> Log {
        Log(None)
    }

    pub(super) const fn words() -> Log {
        Log(Some(String::new()))
    }

    pub(super) fn into_words(self) -> String {
        self.0.unwrap_or_default()
    }

    pub(super) fn say(&mut self, words: std::fmt::Arguments<'_>) {
        if let Some(log) = &mut self.0 {
            write!(log, "{words}").unwrap();
        }
    }
}

/// Something that can be in one of finitely many states.
pub(super) trait Model {
    type State: Clone + Hash;
    type Step: Copy;

    fn start(&self) -> Self::State;

    /// What can happen in this state.
    fn steps(&self, state: &Self::State, steps: &mut Vec<Self::Step>);

    /// Lets it happen. An error is a fault of what is examined.
    fn step(&self, state: &mut Self::State, step: Self::Step, log: &mut Log) -> Result<(), String>;

    /// Whether this state is one in which all may stay; the error says why not.
    fn settles(&self, state: &Self::State) -> Result<(), String>;
}

/// What was found.
pub(super) struct Explored {
    pub(super) states: usize,
    pub(super) steps: usize,
    /// Steps of the longest of the shortest ways to a state.
    pub(super) depth: usize,
    /// The shortest way to a fault, a line a step.
    pub(super) fault: Option<Vec<String>>,
}

/// A state was reached from another one by a step.
struct Reached<S> {
    from: u32,
    step: Option<S>,
    depth: u32,
}

/// Visits all states, or those up to the first fault. Of a state that was seen 128 bits of hash are kept: among 10⁸ states
/// two that are taken for one have a probability of 10⁻²³.
pub(super) fn explore<M: Model>(model: &M) -> Explored {
    let start = model.start();
    let mut seen = HashSet::from([fingerprint(&start)]);
    let mut reached = Vec::from([Reached { from: 0, step: None, depth: 0 }]);
    let mut next = VecDeque::from([(0_u32, start)]);
    let (mut possible, mut steps) = (Vec::new(), 0);
    while let Some((index, state)) = next.pop_front() {
        let depth = reached[index as usize].depth;
        let explored = |fault| Explored { states: seen.len(), steps, depth: depth as usize, fault };
        if let Err(why) = model.settles(&state) {
            return explored(Some(way(model, &reached, index, None, why)));
        }
        possible.clear();
        model.steps(&state, &mut possible);
        for &step in &possible {
            let mut after = state.clone();
            steps += 1;
            if let Err(why) = model.step(&mut after, step, &mut Log::nothing()) {
                let fault = Some(way(model, &reached, index, Some(step), why));
                return Explored { states: seen.len(), steps, depth: depth as usize + 1, fault };
            }
            if seen.insert(fingerprint(&after)) {
                reached.push(Reached { from: index, step: Some(step), depth: depth + 1 });
                next.push_back((reached.len() as u32 - 1, after));
            }
        }
    }
    let depth = reached.last().map_or(0, |last| last.depth as usize);
    Explored { states: seen.len(), steps, depth, fault: None }
}

fn fingerprint(state: &impl Hash) -> u128 {
    let mut mix = Mix(0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344);
    state.hash(&mut mix);
    mix.write_u64(0);
    u128::from(mix.0) << 64 | u128::from(mix.1)
}

/// Two sums of folded products: quick also where nothing is optimized.
struct Mix(u64, u64);

impl Hasher for Mix {
    fn write_u64(&mut self, word: u64) {
        let fold = |sum: u64, factor: u64| {
            let product = u128::from(sum ^ word).wrapping_mul(u128::from(factor));
            (product as u64 ^ (product >> 64) as u64).wrapping_add(factor).rotate_left(23)
        };
        (self.0, self.1) = (fold(self.0, 0x9e37_79b9_7f4a_7c15), fold(self.1, 0xd6e8_feb8_6659_fd93));
    }

    fn write_u8(&mut self, byte: u8) {
        self.write_u64(byte.into());
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            self.write_u64(chunk.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)));
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Walks the way to a state again and writes down what happens.
fn way<M: Model>(model: &M, reached: &[Reached<M::Step>], to: u32, last: Option<M::Step>, why: String) -> Vec<String> {
    let mut steps = Vec::from_iter(last);
    let mut at = &reached[to as usize];
    while let Some(step) = at.step {
        steps.push(step);
        at = &reached[at.from as usize];
    }
    let mut state = model.start();
    let mut lines = Vec::new();
    for step in steps.into_iter().rev() {
        let mut log = Log::words();
        let _fault_at_the_end = model.step(&mut state, step, &mut log);
        lines.push(log.into_words());
    }
    lines.extend(why.lines().map(String::from));
    lines
}
