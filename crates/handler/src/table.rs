//! The count tables: how large they are, and how a half is emptied while the program fills the other.

use std::os::fd::BorrowedFd;
use std::ptr::addr_of_mut;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use afterimage_perf_data::context;

use crate::Result;
use crate::mapping::Mapping;
use crate::skeleton::builtins::types::{ai_chain, ai_entry, ai_table};

/// Samples that were counted together: one task, one stack, one image (an exec or a new name begins another entry).
#[derive(Clone, Copy, Debug)]
pub struct CountEntry<'a> {
    /// Process id, in the pid namespace of whoever opened the event.
    pub pid: u32,
    /// Thread id, likewise.
    pub tid: u32,
    /// The thread's name, NUL-terminated.
    pub comm: [u8; 16],
    /// How often the task had called exec.
    pub exec_id: u64,
    /// Where the samples were taken.
    pub ip: u64,
    /// How many samples.
    pub count: u64,
    /// The sum of their periods; of [`by`](crate::by), what was asked for.
    pub period: u64,
    /// Their cgroup, where that is a key.
    pub cgroup: u64,
    /// The bucket of a histogram.
    pub bucket: u32,
    /// Time of the first of them, ns on the event's clock.
    pub first_time: u64,
    /// The stack, with context markers, as a CALLCHAIN holds it. Empty where none was asked for or none could be read.
    pub chain: &'a [u64],
    /// The label, where that is a key of [`by`](crate::by): see [`by::Label`](crate::by::Label).
    pub label: &'a [u64],
}

impl<'a> CountEntry<'a> {
    /// The kernel part of the stack, innermost first, without markers.
    pub fn kernel(&self) -> &'a [u64] {
        self.part(context::KERNEL)
    }

    /// The user part of the stack, innermost first, without markers.
    pub fn user(&self) -> &'a [u64] {
        self.part(context::USER)
    }

    fn part(&self, marker: u64) -> &'a [u64] {
        let Some(at) = self.chain.iter().rposition(|&word| word == marker) else { return &[] };
        let frames = &self.chain[at + 1..];
        let end = frames.iter().position(|&word| context::is_marker(word)).unwrap_or(frames.len());
        &frames[..end]
    }
}

/// What a drain brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DrainStats {
    /// Entries handed out.
    pub entries: u64,
    /// The sum of their counts.
    pub samples: u64,
    /// A program was in the idle half and did not leave it in time: what is there was not handed out, the next drain will.
    pub busy: bool,
}

/// Sizes of one half of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Distinct entries, below 65,536.
    pub(crate) entries: u32,
    /// Words of the index, a power of two.
    pub(crate) index: u32,
    /// Words of the arena that stacks are kept in.
    pub(crate) arena: u32,
}

/// All tables together take no more than this.
const BUDGET: u64 = 128 << 20;
const MOST_ENTRIES: u32 = 1 << 15;
const FEWEST_ENTRIES: u32 = 64;
const DEFAULT_ENTRIES: u32 = 4096;
/// Words of stack for each entry, on average.
const WORDS_PER_ENTRY: u32 = 32;

impl Sizes {
    /// For `tables` tables; `entries` as asked for.
    pub(crate) fn choose(entries: Option<u32>, tables: u64) -> Sizes {
        let with = |entries: u32| Sizes { entries, index: entries * 2, arena: entries * WORDS_PER_ENTRY };
        if let Some(entries) = entries {
            return with(entries.clamp(FEWEST_ENTRIES, MOST_ENTRIES).next_power_of_two());
        }
        let mut sizes = with(DEFAULT_ENTRIES);
        while sizes.bytes() * 2 * tables > BUDGET && sizes.entries > FEWEST_ENTRIES {
            sizes = with(sizes.entries / 2);
        }
        sizes
    }

    pub(crate) fn index_bytes(self) -> usize {
        self.index as usize * size_of::<u32>()
    }

    pub(crate) fn entries_bytes(self) -> usize {
        self.entries as usize * size_of::<ai_entry>()
    }

    pub(crate) fn arena_bytes(self) -> usize {
        // Behind it a whole chain, where a stack is read to before it is known whether it fits.
        self.arena as usize * size_of::<u64>() + size_of::<ai_chain>()
    }

    fn bytes(self) -> u64 {
        (self.index_bytes() + self.entries_bytes() + self.arena_bytes()) as u64
    }
}

/// The four maps of all tables. Keys of the last three are `2 * table + half`.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) states: Mapping<ai_table>,
    pub(crate) index: Mapping<u32>,
    pub(crate) entries: Mapping<ai_entry>,
    pub(crate) arena: Mapping<u64>,
    /// Tables whose idle half still holds entries that were not handed out.
    pub(crate) pending: Vec<bool>,
}

/// A half that no program will touch before the next flip.
struct IdleHalf {
    index: *mut u32,
    index_len: usize,
    entries: *mut ai_entry,
    used: usize,
    arena: *mut u64,
    arena_len: usize,
}

impl Tables {
    /// Swaps the halves of `table`, waits until no program is in the one it left, hands out its entries and empties it.
    pub(crate) fn drain(&mut self, table: usize, f: &mut dyn FnMut(&CountEntry<'_>)) -> DrainStats {
        // One that had to be left is an older half: what was counted meanwhile is in the other one.
        let left = self.pending.get(table) == Some(&true);
        let mut stats = self.drain_half(table, f);
        if left && !stats.busy {
            let more = self.drain_half(table, f);
            stats.entries += more.entries;
            stats.samples += more.samples;
            stats.busy = more.busy;
        }
        stats
    }

    fn drain_half(&mut self, table: usize, f: &mut dyn FnMut(&CountEntry<'_>)) -> DrainStats {
        let (Some(state), Some(pending)) = (self.states.get(table), self.pending.get(table).copied()) else {
            return DrainStats::default();
        };
        // SAFETY: `state` points at a whole ai_table for as long as the mapping lives, and is aligned to 8. The kernel
        // and we access these words at the same time: only as atomics.
        let (active, seq) = unsafe {
            (AtomicU64::from_ptr(addr_of_mut!((*state).active)), AtomicU64::from_ptr(addr_of_mut!((*state).seq)))
        };
        if !pending {
            active.store((active.load(Ordering::Relaxed) & 1) ^ 1, Ordering::SeqCst);
            self.pending[table] = true;
        }
        // Pairs with the full barrier between the program's write of seq and its read of active.
        fence(Ordering::SeqCst);
        if !left_by_program(seq) {
            return DrainStats { busy: true, ..DrainStats::default() };
        }
        let idle = (active.load(Ordering::Relaxed) & 1) as usize ^ 1;
        let mut stats = DrainStats::default();
        // SAFETY: as above; the counts of the idle half are written by nobody now.
        let (used_entries, used_words) = unsafe {
            let used = addr_of_mut!((*state).used[idle]);
            (AtomicU64::from_ptr(addr_of_mut!((*used).entries)), AtomicU64::from_ptr(addr_of_mut!((*used).words)))
        };
        if let Some(half) = self.half(2 * table + idle, used_entries.load(Ordering::Relaxed)) {
            half.hand_out(&mut stats, f);
            half.forget();
        }
        used_entries.store(0, Ordering::Relaxed);
        used_words.store(0, Ordering::Relaxed);
        self.pending[table] = false;
        stats
    }

    /// How full the halves are that are being filled: of the fullest one the share of entries or of stack words in use, in
    /// percent. Programs go on meanwhile.
    pub(crate) fn fill(&self) -> u64 {
        let of_table = |table: usize| {
            let state = self.states.get(table)?;
            // SAFETY: `state` points at a whole ai_table for as long as the mapping lives, and is aligned to 8. The program
            // writes these words meanwhile: only as atomics. `active` is 0 or 1, within the array.
            let (entries, words) = unsafe {
                let active = AtomicU64::from_ptr(addr_of_mut!((*state).active)).load(Ordering::Relaxed) & 1;
                let used = addr_of_mut!((*state).used[active as usize]);
                (AtomicU64::from_ptr(addr_of_mut!((*used).entries)), AtomicU64::from_ptr(addr_of_mut!((*used).words)))
            };
            let share = |used: &AtomicU64, of: usize| used.load(Ordering::Relaxed) * 100 / (of as u64).max(1);
            let words_of_arena = self.arena.len_of_value().saturating_sub(size_of::<ai_chain>() / size_of::<u64>());
            Some(share(entries, self.entries.len_of_value()).max(share(words, words_of_arena)))
        };
        (0..self.pending.len()).filter_map(of_table).max().unwrap_or(0)
    }

    fn half(&self, key: usize, used: u64) -> Option<IdleHalf> {
        Some(IdleHalf {
            index: self.index.get(key)?,
            index_len: self.index.len_of_value(),
            entries: self.entries.get(key)?,
            used: usize::try_from(used).unwrap_or(usize::MAX).min(self.entries.len_of_value()),
            arena: self.arena.get(key)?,
            arena_len: self.arena.len_of_value(),
        })
    }
}

/// Waits until the program that may have been at work when the halves were swapped is through. It runs for some
/// microseconds with interrupts off; only a CPU that is taken away for long (a guest's) makes us give up.
fn left_by_program(seq: &AtomicU64) -> bool {
    let seen = seq.load(Ordering::Acquire);
    if seen % 2 == 0 {
        return true;
    }
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(100) {
        for _ in 0..64 {
            if seq.load(Ordering::Acquire) != seen {
                return true;
            }
            std::hint::spin_loop();
        }
        std::thread::yield_now();
    }
    false
}

impl IdleHalf {
    fn hand_out(&self, stats: &mut DrainStats, f: &mut dyn FnMut(&CountEntry<'_>)) {
        for number in 0..self.used {
            // SAFETY: `used` is at most what the mapping holds, and nobody writes an idle half.
            let entry = unsafe { &*self.entries.add(number) };
            let (start, nr) = (entry.stack as usize, entry.nr as usize);
            let inside = start.checked_add(nr).is_some_and(|end| end <= self.arena_len);
            // SAFETY: within the arena, just checked; nobody writes an idle half.
            let chain = if inside { unsafe { std::slice::from_raw_parts(self.arena.add(start), nr) } } else { &[] };
            stats.entries += 1;
            stats.samples += entry.count;
            f(&CountEntry {
                pid: entry.pid,
                tid: entry.tid,
                comm: comm_bytes(entry.comm),
                exec_id: entry.exec_id,
                ip: entry.ip,
                count: entry.count,
                period: entry.value,
                cgroup: entry.cgroup,
                bucket: entry.bucket,
                first_time: entry.first_time,
                chain,
                label: &[],
            });
        }
    }

    /// Empties the index; only the places in use, not the whole of it.
    fn forget(&self) {
        for number in 0..self.used {
            // SAFETY: as in `hand_out`.
            let position = unsafe { (*self.entries.add(number)).position } as usize;
            if position < self.index_len {
                // SAFETY: within the index; nobody else accesses an idle half, and the next flip publishes the write.
                unsafe { self.index.add(position).write(0) };
            }
        }
    }
}

fn comm_bytes(words: [u64; 2]) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&words[0].to_ne_bytes());
    bytes[8..].copy_from_slice(&words[1].to_ne_bytes());
    bytes
}

/// A table's maps, opened from the descriptors that `fd` gives by name.
pub(crate) fn map_tables(fds: [BorrowedFd<'_>; 4], sizes: Sizes, tables: usize) -> Result<Tables> {
    let [states, index, entries, arena] = fds;
    Ok(Tables {
        states: Mapping::new("ai_tables", states, size_of::<ai_table>(), tables)?,
        index: Mapping::new("ai_index", index, sizes.index_bytes(), 2 * tables)?,
        entries: Mapping::new("ai_entries", entries, sizes.entries_bytes(), 2 * tables)?,
        arena: Mapping::new("ai_arena", arena, sizes.arena_bytes(), 2 * tables)?,
        pending: vec![false; tables],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_stay_within_the_budget() {
        let few = Sizes::choose(None, 2);
        assert_eq!(few.entries, DEFAULT_ENTRIES);
        let many = Sizes::choose(None, 512);
        assert!(many.bytes() * 2 * 512 <= BUDGET, "{many:?}");
        assert_eq!(Sizes::choose(Some(1000), 1).entries, 1024);
        assert_eq!(Sizes::choose(Some(u32::MAX), 1).entries, MOST_ENTRIES);
        assert_eq!(Sizes::choose(Some(0), 1).entries, FEWEST_ENTRIES);
    }

    #[test]
    fn parts_of_a_chain() {
        let entry = |chain| CountEntry {
            pid: 0,
            tid: 0,
            comm: [0; 16],
            exec_id: 0,
            ip: 0,
            count: 1,
            period: 1,
            cgroup: 0,
            bucket: 0,
            first_time: 0,
            chain,
            label: &[],
        };
        let both = [context::KERNEL, 1, 2, context::USER, 3];
        assert_eq!((entry(&both).kernel(), entry(&both).user()), (&both[1..3], &both[4..]));
        let twice = [context::KERNEL, context::KERNEL, 1, context::USER, context::USER, 3];
        assert_eq!((entry(&twice).kernel(), entry(&twice).user()), (&twice[2..3], &twice[5..]));
        let user = [context::USER, 3, 4];
        assert_eq!((entry(&user).kernel(), entry(&user).user()), (&[][..], &user[1..]));
        assert_eq!((entry(&[]).kernel(), entry(&[]).user()), (&[][..], &[][..]));
    }
}
