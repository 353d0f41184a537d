//! Stacks, each distinct one once, by their raw bytes.

use std::hash::Hasher;

use afterimage_perf_data::{Callchain, context};
use hashbrown::HashTable;
use rustc_hash::{FxHashMap, FxHasher};

use crate::loc::CpuMode;
use crate::sample::TimedSample;
use crate::state::{State, walk_chain};

/// A distinct raw stack, borrowed from the file. It lies in the hash table itself: a sample costs one cache line of the
/// table beside the bytes to compare.
#[derive(Debug, Default)]
pub(crate) struct Chain<'f> {
    bytes: &'f [u8],
    hash: u64,
    /// Its number; 0 is the empty stack.
    pub(crate) id: u32,
    /// The entry that had this stack last: most often the next sample's too.
    pub(crate) last_entry: u32,
    /// Whether it has user addresses, whose meaning depends on what the process had mapped.
    pub(crate) user: bool,
    /// Lowest and highest kernel address in it, to see cheaply whether text that comes and goes may be among them.
    kernel: Option<(u64, u64)>,
    /// What its kernel addresses meant, and the version of the timeline at which that was looked up.
    bound: Option<(u64, u32)>,
}

/// All distinct raw stacks.
pub(crate) struct Chains<'f> {
    table: HashTable<Chain<'f>>,
    /// The stack of samples without one, and of all samples where stacks are not asked for.
    none: Chain<'f>,
}

/// Distinct meanings of the kernel addresses of a stack: the texts that they were in.
#[derive(Debug, Default)]
pub(crate) struct Bindings {
    known: FxHashMap<Box<[u32]>, u32>,
    texts: Vec<u32>,
}

#[inline]
fn hash_of(bytes: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(bytes);
    hasher.finish()
}

impl<'f> Chains<'f> {
    pub(crate) fn new() -> Chains<'f> {
        Chains { table: HashTable::new(), none: Chain { last_entry: u32::MAX, ..Chain::default() } }
    }

    /// The stack of samples without one.
    #[inline]
    pub(crate) fn none(&mut self) -> &mut Chain<'f> {
        &mut self.none
    }

    /// A sample's stack.
    #[inline]
    pub(crate) fn intern(&mut self, chain: Callchain<'f>) -> &mut Chain<'f> {
        let bytes = chain.bytes();
        if bytes.is_empty() {
            return &mut self.none;
        }
        let hash = hash_of(bytes);
        let next = u32::try_from(self.table.len()).map_or(u32::MAX, |n| n.saturating_add(1));
        self.table
            .entry(hash, |known| known.hash == hash && known.bytes == bytes, |known| known.hash)
            .or_insert_with(|| Chain::new(chain, hash, next))
            .into_mut()
    }
}

impl<'f> Chain<'f> {
    #[inline(never)]
    fn new(chain: Callchain<'f>, hash: u64, id: u32) -> Chain<'f> {
        let mut user = false;
        let mut kernel: Option<(u64, u64)> = None;
        // What stands before the first marker has the mode of the sample, which another sample may not share.
        walk_chain(chain, CpuMode::Unknown, 0, |addr, mode, _| {
            user |= matches!(mode, CpuMode::User | CpuMode::Unknown);
            if matches!(mode, CpuMode::Kernel | CpuMode::Unknown) {
                kernel = Some(kernel.map_or((addr, addr), |(low, high)| (low.min(addr), high.max(addr))));
            }
        });
        Chain { bytes: chain.bytes(), hash, id, last_entry: u32::MAX, user, kernel, bound: None }
    }

    /// A number for what the kernel addresses of a sample mean now: 0 unless text that comes and goes is among them.
    #[inline]
    pub(crate) fn binding(&mut self, bindings: &mut Bindings, state: &State, sample: &TimedSample<'f>) -> u32 {
        let timeline = state.kernel();
        let covered = match self.kernel {
            // Without a kernel part of the stack the sample's own address is all there is.
            None => sample.mode() == CpuMode::Kernel && timeline.may_overlap(sample.ip, sample.ip),
            Some((low, high)) => timeline.may_overlap(low, high),
        };
        match self.bound {
            _ if !covered => 0,
            Some((version, bound)) if version == timeline.version() => bound,
            _ => {
                let stack = if self.id == 0 { Callchain::default() } else { sample.chain };
                let bound = bindings.of(state, sample, stack);
                // Without a kernel part it is the meaning of one sample's address only.
                if self.kernel.is_some() {
                    self.bound = Some((timeline.version(), bound));
                }
                bound
            }
        }
    }
}

impl Bindings {
    #[inline(never)]
    fn of(&mut self, state: &State, sample: &TimedSample<'_>, stack: Callchain<'_>) -> u32 {
        let texts = &mut self.texts;
        texts.clear();
        walk_chain(stack, sample.mode(), sample.ip, |addr, mode, caller| {
            if mode == CpuMode::Kernel {
                if let Some(text) = state.kernel_text_at(addr.wrapping_sub(u64::from(caller))) {
                    texts.push(u32::try_from(text.index()).unwrap_or(u32::MAX));
                }
            }
        });
        match self.known.get(&**texts) {
            _ if texts.is_empty() => 0,
            Some(bound) => *bound,
            None => {
                let bound = u32::try_from(self.known.len()).map_or(u32::MAX, |n| n.saturating_add(1));
                self.known.insert(texts.as_slice().into(), bound);
                bound
            }
        }
    }
}

/// What the user part of a stack is like, if it has one. Code without frame pointers leaves the kernel one or two frames
/// to find, so its callers are missing. Looks at the first and last values only: user addresses are those of the lower
/// half.
#[inline]
pub(crate) fn user_part(chain: Callchain<'_>) -> Option<UserPart> {
    let values = chain.iter();
    // The end of a long stack may be far from its beginning, which is at hand.
    if values.len() > FEW + 1 && values.clone().next() == Some(context::USER) {
        return Some(UserPart::Long);
    }
    let mut last = None;
    for value in values.rev().take(FEW + 1) {
        if context::is_marker(value) {
            return (value == context::USER).then_some(UserPart::Short);
        }
        last = last.or(Some(value));
    }
    last.filter(|addr| addr >> 63 == 0).map(|_| UserPart::Long)
}

/// Frames of a user part that are suspiciously few.
const FEW: usize = 2;

/// The user part of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UserPart {
    /// Ends within two frames.
    Short,
    /// Goes on.
    Long,
}
