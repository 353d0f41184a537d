//! The user part of stacks from copies of registers and stack memory, made while the samples go by.
//!
//! ```text
//!   SAMPLE: KERNEL k k, registers, stack copy ──▶ KERNEL k k | UNWOUND u u u ──▶ the sink, as any other stack
//! ```
//!
//! What a recorder took by frame pointers of a sample that has a copy is left out: perf makes such chains the same way.

mod files;

use afterimage_perf_data::record::{Regs, StackUser};
use afterimage_perf_data::{AnySource, Callchain, Endian, FileReader, RawRecord, SampleType, context};
use afterimage_unwind::{Arch, Registers, StackCopy, StackEnd, Walker};

use crate::replay::{ReplayOptions, Replayed, Sink, replay_from};
use crate::resolve::Resolver;
use crate::said::Said;
use crate::sample::TimedSample;
use crate::state::State;
pub(crate) use files::arch_of;
use files::{Files, View};

/// A sink that has a resolver: the files that hold unwind tables are found as those that hold names.
pub trait NamingSink: Sink {
    /// The resolver of this replay.
    fn resolver(&mut self) -> &mut Resolver;

    /// Whether the stack of a sample with copies is wanted. If not, the sample comes as it was recorded, and is not among the
    /// stacks that were unwound.
    fn wants_stack(&mut self, state: &State, sample: &TimedSample<'_>) -> bool {
        let _ = (state, sample);
        true
    }
}

/// A sink with a resolver beside it.
pub(crate) struct Naming<'r, S> {
    pub(crate) sink: S,
    pub(crate) resolver: &'r mut Resolver,
}

impl<S: Sink> Sink for Naming<'_, S> {
    #[inline]
    fn sample(&mut self, state: &State, sample: &TimedSample<'_>) {
        self.sink.sample(state, sample);
    }

    #[inline]
    fn said(&mut self, state: &State, sample: &TimedSample<'_>, said: &[Said<'_>]) {
        self.sink.said(state, sample, said);
    }

    fn record(&mut self, state: &State, time: u64, raw: &RawRecord<'_>) {
        self.sink.record(state, time, raw);
    }
}

impl<S: Sink> NamingSink for Naming<'_, S> {
    fn resolver(&mut self) -> &mut Resolver {
        self.resolver
    }
}

/// [`replay_from`], with the user parts of stacks unwound where samples have copies of registers and stack.
pub fn replay_unwinding<S: NamingSink>(
    reader: &FileReader<'_>,
    source: &mut AnySource<'_>,
    options: &ReplayOptions,
    sink: &mut S,
) -> Replayed {
    let mut unwound = Unwound { sink, unwinding: Unwinding::of(reader) };
    let mut replayed = replay_from(reader, source, options, &mut unwound);
    if let Some(unwinding) = unwound.unwinding {
        replayed.stats.stack_ends = unwinding.ends;
    }
    replayed
}

/// How many stacks ended for each reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackEnds([u64; StackEnd::ALL.len()]);

impl StackEnds {
    fn add(&mut self, end: StackEnd) {
        if let Some(count) = self.0.get_mut(end as usize) {
            *count += 1;
        }
    }

    /// Every reason that there was, with how many stacks ended for it.
    pub fn iter(&self) -> impl Iterator<Item = (StackEnd, u64)> {
        StackEnd::ALL.into_iter().zip(self.0).filter(|(_, count)| *count != 0)
    }

    /// All stacks that were unwound.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Those that ended with their outermost frame.
    pub fn complete(&self) -> u64 {
        self.iter().find(|(end, _)| *end == StackEnd::Complete).map_or(0, |(_, count)| count)
    }
}

/// The sink between the replay and the one that wants stacks.
struct Unwound<'s, S> {
    sink: &'s mut S,
    /// `None` where no event takes copies.
    unwinding: Option<Unwinding>,
}

impl<S: NamingSink> Unwound<'_, S> {
    /// Calls `then` with the sample: with its stack unwound where it has copies.
    #[inline]
    fn with_stack(&mut self, state: &State, sample: &TimedSample<'_>, then: impl FnOnce(&mut S, &TimedSample<'_>)) {
        match &mut self.unwinding {
            Some(unwinding) if sample.has_copies() && self.sink.wants_stack(state, sample) => {
                let Some(end) = unwinding.unwind(state, sample, self.sink.resolver()) else {
                    return then(self.sink, sample);
                };
                let chain = Callchain::new(&unwinding.words, Endian::Little);
                then(self.sink, &TimedSample { chain, stack_end: Some(end), ..*sample });
            }
            _ => then(self.sink, sample),
        }
    }
}

impl<S: NamingSink> Sink for Unwound<'_, S> {
    #[inline]
    fn sample(&mut self, state: &State, sample: &TimedSample<'_>) {
        self.with_stack(state, sample, |sink, sample| sink.sample(state, sample));
    }

    #[inline]
    fn said(&mut self, state: &State, sample: &TimedSample<'_>, said: &[Said<'_>]) {
        self.with_stack(state, sample, |sink, sample| sink.said(state, sample, said));
    }

    fn record(&mut self, state: &State, time: u64, raw: &RawRecord<'_>) {
        self.sink.record(state, time, raw);
    }
}

/// What unwinding needs through a whole replay.
struct Unwinding {
    /// The recorded machine's CPUs, if they are of a kind that can be unwound.
    arch: Option<Arch>,
    walker: Walker,
    files: Files,
    /// The stack of the current sample: u64 values, little-endian.
    words: Vec<u8>,
    ends: StackEnds,
}

impl Unwinding {
    fn of(reader: &FileReader<'_>) -> Option<Unwinding> {
        let copies = |sample_type: SampleType| sample_type.contains(COPIES);
        let masks: Vec<u64> = reader
            .events()
            .iter()
            .filter(|event| copies(event.attr.sample_type))
            .map(|event| event.attr.sample_regs_user)
            .collect();
        let mask = masks.iter().fold(0, |all, mask| all | mask);
        let arch = match reader.features().arch.as_deref() {
            Some("x86_64" | "amd64") => Some(Arch::X86_64),
            Some("aarch64" | "arm64") => Some(Arch::Aarch64),
            Some(_) => None,
            // Unfinished recordings do not say; 64-bit ARM has its program counter at bit 32, x86-64 has 24 registers.
            None if mask >> 32 & 1 == 1 => Some(Arch::Aarch64),
            None => (mask < 1 << 24).then_some(Arch::X86_64),
        };
        (!masks.is_empty()).then(|| Unwinding {
            arch,
            walker: Walker::new(),
            files: Files::default(),
            words: Vec::new(),
            ends: StackEnds::default(),
        })
    }

    /// Makes the stack of a sample. `None` if nothing of the user's was copied, as of threads of the kernel: then the
    /// recorded stack is all that there is.
    fn unwind(&mut self, state: &State, sample: &TimedSample<'_>, resolver: &mut Resolver) -> Option<StackEnd> {
        let all = sample.decode().ok()?;
        let (regs, stack) = (all.regs_user?, all.stack_user?);
        if regs.abi == 0 || stack.dyn_size == 0 || stack.bytes.is_empty() {
            return None;
        }
        self.words.clear();
        let kernel = sample.chain.iter().take_while(|word| !matches!(*word, context::USER | context::USER_DEFERRED));
        // Without a marker they would be the user's.
        let marked = sample.chain.iter().next().is_some_and(context::is_marker);
        kernel.filter(|_| marked).for_each(|word| self.words.extend_from_slice(&word.to_le_bytes()));
        self.words.extend_from_slice(&context::UNWOUND.to_le_bytes());
        let end = self.walk(state, sample, regs, stack, resolver);
        if end == StackEnd::NoRegisters {
            // What was recorded is all that there will be.
            self.words.clear();
            sample.chain.iter().for_each(|word| self.words.extend_from_slice(&word.to_le_bytes()));
        }
        self.ends.add(end);
        Some(end)
    }

    fn walk(
        &mut self,
        state: &State,
        sample: &TimedSample<'_>,
        regs: Regs<'_>,
        stack: StackUser<'_>,
        resolver: &mut Resolver,
    ) -> StackEnd {
        // PERF_SAMPLE_REGS_ABI_64
        let arch = self.arch.filter(|_| regs.abi == 2);
        let registers =
            arch.and_then(|arch| Registers::of_sample(arch, sample.layout.regs_user_mask, regs.values.iter()));
        let Some(registers) = registers else { return StackEnd::NoRegisters };
        let filled = usize::try_from(stack.dyn_size).unwrap_or(usize::MAX).min(stack.bytes.len());
        let copy = StackCopy { start: registers.sp(), bytes: stack.bytes.get(..filled).unwrap_or_default() };
        let mut view = View { files: &mut self.files, state, process: sample.process, resolver };
        let words = &mut self.words;
        self.walker.walk(&registers, &copy, &mut view, |address| words.extend_from_slice(&address.to_le_bytes()))
    }
}

/// What a sample needs to be unwound, and that somebody wants its stack.
pub(crate) const COPIES: SampleType = SampleType::REGS_USER.union(SampleType::STACK_USER).union(SampleType::CALLCHAIN);
