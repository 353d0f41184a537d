//! Stacks, each distinct one once: first by their raw bytes, then by the places of their addresses.

use std::hash::Hasher;

use afterimage_perf_data::{Callchain, context};
use hashbrown::HashTable;
use rustc_hash::FxHasher;

use crate::loc::CpuMode;
use crate::sample::TimedSample;
use crate::state::{State, walk_chain};

/// A raw stack as it lies in the file; 0 is the empty one.
pub(crate) type ChainId = u32;

struct Chain<'f> {
    chain: Callchain<'f>,
    hash: u64,
    /// Whether it has user addresses, whose meaning depends on what the process had mapped.
    user: bool,
    /// Lowest and highest kernel address in it, to see cheaply whether text that comes and goes may be among them.
    kernel: Option<(u64, u64)>,
    /// What its kernel addresses meant, and the version of the timeline at which that was looked up.
    bound: Option<(u64, u32)>,
}

/// All distinct raw stacks, borrowed from the file.
pub(crate) struct Chains<'f> {
    chains: Vec<Chain<'f>>,
    table: HashTable<u32>,
    /// Distinct meanings of kernel addresses of a stack: the texts that they were in.
    bindings: rustc_hash::FxHashMap<Box<[u32]>, u32>,
    texts: Vec<u32>,
}

/// What a stack depends on beside its bytes.
pub(crate) struct Interned {
    pub(crate) id: ChainId,
    pub(crate) user: bool,
}

#[inline]
fn hash_of(bytes: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(bytes);
    hasher.finish()
}

impl<'f> Chains<'f> {
    pub(crate) fn new() -> Chains<'f> {
        Chains {
            chains: vec![Chain { chain: Callchain::default(), hash: 0, user: false, kernel: None, bound: None }],
            table: HashTable::new(),
            bindings: rustc_hash::FxHashMap::default(),
            texts: Vec::new(),
        }
    }

    /// The number of a sample's stack.
    #[inline]
    pub(crate) fn intern(&mut self, sample: &TimedSample<'f>) -> Interned {
        if sample.chain.is_empty() {
            return Interned { id: 0, user: false };
        }
        let bytes = sample.chain.bytes();
        let hash = hash_of(bytes);
        let chains = &self.chains;
        let found = self.table.find(hash, |id| chains.get(*id as usize).is_some_and(|c| c.chain.bytes() == bytes));
        match found.and_then(|id| Some((*id, chains.get(*id as usize)?))) {
            Some((id, chain)) => Interned { id, user: chain.user },
            None => self.add(sample, hash),
        }
    }

    fn add(&mut self, sample: &TimedSample<'f>, hash: u64) -> Interned {
        let id = u32::try_from(self.chains.len()).unwrap_or(u32::MAX);
        let mut user = false;
        let mut kernel: Option<(u64, u64)> = None;
        // What stands before the first marker has the mode of the sample, which another sample may not share.
        walk_chain(sample.chain, CpuMode::Unknown, 0, |addr, mode, _| {
            user |= matches!(mode, CpuMode::User | CpuMode::Unknown);
            if matches!(mode, CpuMode::Kernel | CpuMode::Unknown) {
                kernel = Some(kernel.map_or((addr, addr), |(low, high)| (low.min(addr), high.max(addr))));
            }
        });
        self.chains.push(Chain { chain: sample.chain, hash, user, kernel, bound: None });
        let chains = &self.chains;
        self.table.insert_unique(hash, id, |id| chains.get(*id as usize).map_or(0, |chain| chain.hash));
        Interned { id, user }
    }

    /// A number for what the kernel addresses of a sample mean now: 0 unless text that comes and goes is among them.
    #[inline]
    pub(crate) fn binding(&mut self, id: ChainId, state: &State, sample: &TimedSample<'f>) -> u32 {
        let timeline = state.kernel();
        let Some(chain) = self.chains.get(id as usize) else { return 0 };
        let covered = match chain.kernel {
            // Without a kernel part of the stack the sample's own address is all there is.
            None => sample.mode() == CpuMode::Kernel && timeline.may_overlap(sample.ip, sample.ip),
            Some((low, high)) => timeline.may_overlap(low, high),
        };
        match chain.bound {
            _ if !covered => 0,
            Some((version, bound)) if version == timeline.version() => bound,
            _ => self.bind(id, state, sample),
        }
    }

    #[inline(never)]
    fn bind(&mut self, id: ChainId, state: &State, sample: &TimedSample<'f>) -> u32 {
        let texts = &mut self.texts;
        texts.clear();
        walk_chain(sample.chain, sample.mode(), sample.ip, |addr, mode, caller| {
            if mode == CpuMode::Kernel {
                if let Some(text) = state.kernel_text_at(addr.wrapping_sub(u64::from(caller))) {
                    texts.push(u32::try_from(text.index()).unwrap_or(u32::MAX));
                }
            }
        });
        let bound = match self.bindings.get(&**texts) {
            _ if texts.is_empty() => 0,
            Some(bound) => *bound,
            None => {
                let bound = u32::try_from(self.bindings.len()).map_or(u32::MAX, |n| n.saturating_add(1));
                self.bindings.insert(texts.as_slice().into(), bound);
                bound
            }
        };
        match self.chains.get_mut(id as usize) {
            // Without a kernel part it is the meaning of one sample's address only.
            Some(chain) if chain.kernel.is_some() => chain.bound = Some((state.kernel().version(), bound)),
            _ => {}
        }
        bound
    }
}

/// What the user part of a stack is like, if it has one. Code without frame pointers leaves the kernel one or two frames
/// to find, so its callers are missing. Looks at the last values only: user addresses are those of the lower half.
#[inline]
pub(crate) fn user_part(chain: Callchain<'_>) -> Option<UserPart> {
    let mut last = None;
    for value in chain.iter().rev().take(FEW + 1) {
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
