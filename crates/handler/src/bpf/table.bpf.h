/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A table that only the program on one CPU fills: two halves, of which it fills one while user space empties the other.
 *
 * A half is an index of 32-bit words (open addressing, a 16-bit tag and the entry's number plus one), a dense array of
 * entries, and an arena of stacks. A new stack is read straight behind the arena's end; when it turns out to be known,
 * the end simply does not move.
 *
 * The flip: user space stores `active`, then waits until `seq` is even or has changed. The program makes `seq` odd with
 * a full barrier before it loads `active`, so either it sees the new half, or user space sees it at work.
 */
#ifndef AFTERIMAGE_TABLE_BPF_H
#define AFTERIMAGE_TABLE_BPF_H

#include "chain.bpf.h"

#define AI_PROBES 32

struct ai_used {
	__u64 entries;
	__u64 words;
};

struct ai_table {
	__u64 active; /* written by user space alone */
	__u64 reserved0[7];
	__u64 seq; /* odd while the program is in the table */
	struct ai_used used[2]; /* of each half; user space resets an idle one */
	__u64 reserved1[3];
};

struct ai_entry {
	__u64 hash;
	__u64 ip;
	__u64 first_time; /* of its first sample, ns on the event's clock */
	__u64 count;
	__u64 value; /* of `count`, the sum of the periods */
	__u64 exec_id; /* of the task: an exec ends an entry */
	__u64 cgroup;
	__u64 comm[2];
	__u32 pid;
	__u32 tid;
	__u32 stack; /* where the chain begins in the arena, in words */
	__u32 nr;    /* words of the chain, with context markers */
	__u32 position; /* in the index */
	__u32 bucket;
};

#define AI_ARRAY(name, type_of_value)                                                                                  \
	struct {                                                                                                       \
		__uint(type, BPF_MAP_TYPE_ARRAY);                                                                      \
		__uint(map_flags, BPF_F_MMAPABLE);                                                                     \
		__uint(max_entries, 1);                                                                                \
		__type(key, __u32);                                                                                    \
		__type(value, type_of_value);                                                                          \
	} name SEC(".maps")

/* The sizes of the last three are set by the loader, together with the constants below. */
AI_ARRAY(ai_tables, struct ai_table);
AI_ARRAY(ai_index, __u32);
AI_ARRAY(ai_entries, struct ai_entry);
AI_ARRAY(ai_arena, __u64);

const volatile __u32 ai_nr_entries = 1;  /* of a half, below 65536 */
const volatile __u32 ai_index_mask = 0;  /* words of the index minus one */
const volatile __u32 ai_arena_words = 1; /* of a half, without the struct ai_chain behind them */
const volatile bool ai_weak_order = false; /* whether plain stores may become visible out of order */

static __always_inline __u64 ai_mix(__u64 hash, __u64 value)
{
	hash = (hash ^ value) * 0x9e3779b97f4a7c15ULL;
	return hash ^ (hash >> 32);
}

/*
 * Points into the arena; null where there is no room for a whole chain. The bound is checked right here, on the value
 * itself: older verifiers forget what they knew of a value that was kept on the stack meanwhile.
 */
static __always_inline struct ai_chain *ai_arena_at(__u64 *arena, __u64 at)
{
	barrier_var(at);
	if (at > ai_arena_words)
		return 0;
	arena += at;
	barrier_var(arena);
	return (struct ai_chain *)arena;
}

/*
 * The two loops over a chain are functions with external linkage: such are verified once for themselves, and not again
 * for every way that leads to them and out of them. They are verified turn by turn, so their bound is no larger than
 * the chains of this machine ask for: that of the memory is several times as large.
 */
static __always_inline __u32 ai_chain_bound(void)
{
	__u32 words = 2 * ai_chain_max + AI_CHAIN_MORE;

	return words < AI_CHAIN_WORDS ? words : AI_CHAIN_WORDS;
}

/*
 * Two lanes, so that a multiplication need not wait for the one before. The word behind an odd chain is zero, so the
 * length goes in as well: the unwinder takes what it finds for a return address, and a chain may end in a zero.
 */
__noinline __u64 ai_hash_chain(const struct ai_chain *chain, __u64 nr, __u64 seed)
{
	__u64 a = seed, b = ~seed;
	__u32 bound = ai_chain_bound();

	if (!chain)
		return 0;
	for (__u32 i = 0; i < bound; i += 2) {
		if (i >= nr)
			break;
		a = ai_mix(a, chain->word[i]);
		b = ai_mix(b, chain->word[i + 1]);
	}
	/* Not a ^ b, which would be the same for every empty chain. */
	return ai_mix(ai_mix(a, nr), b);
}

/* Zero if the chains are the same. */
__noinline __u64 ai_differ(const struct ai_chain *one, const struct ai_chain *other, __u64 nr)
{
	__u64 differ = 0;
	__u32 bound = ai_chain_bound();

	if (!one || !other)
		return 1;
	for (__u32 i = 0; i < bound; i += 2) {
		if (i >= nr)
			break;
		differ |= one->word[i] ^ other->word[i];
		differ |= one->word[i + 1] ^ other->word[i + 1];
	}
	return differ;
}

enum ai_outcome { AI_STORED, AI_FULL, AI_COLLISION };

static __always_inline void ai_enter(struct ai_table *table)
{
	__u64 before = __sync_fetch_and_add(&table->seq, 1);

	barrier_var(before);
}

static __always_inline void ai_leave(struct ai_table *table)
{
	if (ai_weak_order) {
		ai_enter(table);
	} else {
		barrier();
		*(volatile __u64 *)&table->seq = table->seq + 1;
	}
}

/* The half of a table that is being filled. */
struct ai_half {
	__u32 *index;
	struct ai_entry *entries;
	__u64 *arena;
	struct ai_used *used;
};

/* False where there is no such table. */
static __always_inline bool ai_open_half(struct ai_table *table, __u32 key, struct ai_half *half)
{
	__u32 active = *(volatile __u64 *)&table->active & 1;

	half->used = active ? &table->used[1] : &table->used[0];
	key = key * 2 + active;
	half->index = bpf_map_lookup_elem(&ai_index, &key);
	half->entries = bpf_map_lookup_elem(&ai_entries, &key);
	half->arena = bpf_map_lookup_elem(&ai_arena, &key);
	return half->index && half->entries && half->arena;
}

static __always_inline struct ai_entry *ai_entry_at(struct ai_half *half, __u32 number)
{
	barrier_var(number);
	return number < ai_nr_entries ? &half->entries[number] : 0;
}

static __always_inline bool ai_same(struct ai_half *half, const struct ai_entry *entry, const struct ai_entry *want,
				    const struct ai_chain *chain)
{
	const struct ai_chain *other;

	if (entry->nr != want->nr || entry->ip != want->ip || entry->pid != want->pid || entry->tid != want->tid ||
	    entry->exec_id != want->exec_id || entry->comm[0] != want->comm[0] || entry->comm[1] != want->comm[1] ||
	    entry->cgroup != want->cgroup || entry->bucket != want->bucket)
		return false;
	other = ai_arena_at(half->arena, entry->stack);
	return other && !ai_differ(other, chain, want->nr);
}

/*
 * Finds the entry of `want`, whose chain stands at `at`, the arena's end, or makes it. Linear probing stops at a free
 * place or at an equal 64-bit hash, so that the chain is compared once at most. The values of an entry are added up, or
 * the `largest` is kept.
 */
static __always_inline enum ai_outcome ai_put(struct ai_half *half, struct ai_entry *want,
					      const struct ai_chain *chain, __u64 at, bool largest)
{
	__u32 tag = want->hash >> 48, position = 0, number;
	struct ai_entry *entry = 0;
	bool place = false;

	for (__u32 i = 0; i < AI_PROBES; i++) {
		__u32 word;

		position = ((__u32)want->hash + i) & ai_index_mask;
		word = half->index[position];
		if (!word) {
			place = true;
			break;
		}
		if (word >> 16 != tag)
			continue;
		entry = ai_entry_at(half, (word & 0xffff) - 1);
		if (entry && entry->hash == want->hash)
			break;
		entry = 0;
	}

	if (entry) {
		if (!ai_same(half, entry, want, chain))
			return AI_COLLISION;
		entry->count++;
		if (!largest)
			entry->value += want->value;
		else if (want->value > entry->value)
			entry->value = want->value;
		return AI_STORED;
	}

	number = half->used->entries;
	entry = ai_entry_at(half, number);
	if (!place || !entry || at + want->nr > ai_arena_words)
		return AI_FULL;
	want->stack = at;
	want->position = position;
	*entry = *want;
	barrier_var(position);
	half->index[position & ai_index_mask] = tag << 16 | (number + 1);
	half->used->entries = number + 1;
	/* A chain of odd length is followed by a zero word. */
	half->used->words = (at + want->nr + 1) & ~1ULL;
	return AI_STORED;
}

#endif
