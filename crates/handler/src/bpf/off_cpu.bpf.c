// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Time that threads spend on no CPU, added up in the kernel by thread, stack and reason.
 *
 * What a thread waits with is kept from where it leaves a CPU to where it comes back to one, which may be another. There the
 * interval goes into the table of that CPU (table.bpf.h), which no other program of ours writes: the scheduler switches with
 * interrupts off and one switch after the other.
 */
#include "table.bpf.h"
#include "walk.bpf.h"
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Why a thread is on no CPU. The names are shown. */
enum ai_state {
	AI_RUNNABLE = 0, /* it could run: another one took the CPU */
	AI_INTERRUPTIBLE = 1,
	AI_UNINTERRUPTIBLE = 2,
	AI_KILLABLE = 3,
	AI_IDLE = 4,
	AI_STOPPED = 5,
	AI_TRACED = 6,
	AI_PARKED = 7,
	AI_OTHER = 8,
	AI_STARTING = 9, /* it is new and has not run yet */
	AI_BEFORE = 10,  /* it had left before anybody looked */
};

/* Bits of task_struct.__state, include/linux/sched.h. */
enum {
	AI_TASK_INTERRUPTIBLE = 0x1,
	AI_TASK_UNINTERRUPTIBLE = 0x2,
	AI_TASK_STOPPED = 0x4,
	AI_TASK_TRACED = 0x8,
	AI_TASK_PARKED = 0x40,
	AI_TASK_DEAD = 0x80,
	AI_TASK_WAKEKILL = 0x100,
	AI_TASK_NOLOAD = 0x400,
};

#define AI_PF_KTHREAD 0x00200000

/* Intervals, and how long they were together. */
struct ai_waits {
	__u64 waits;
	__u64 ns;
};

/* Of each CPU. Written by the program on it alone. */
struct ai_wait_counts {
	struct ai_waits ended;
	struct ai_waits stored;
	struct ai_waits below; /* the least that is wanted */
	struct ai_waits lost_full;
	struct ai_waits lost_collision;
	__u64 lost_threads; /* there was no room for the thread: nobody knows how long it waited */
	__u64 no_stack;     /* stored without a stack */
	__u64 switches;     /* seen, of whatever thread */
	/* Of those stored, where wakers are wanted: those in the table of wakers, those that found no room there, and those
	 * that nobody was seen to end. */
	struct ai_waits woken;
	struct ai_waits woken_lost;
	struct ai_waits woken_by_nobody;
	__u64 reserved[5];
};

/* Written by user space, but for `missed`. */
struct ai_watch {
	__u64 on;
	__u64 since;  /* when the recording began: ns of CLOCK_MONOTONIC */
	__u64 missed; /* when a thread found no room last: one of before that may have been away, and nobody knows since when */
};

enum {
	AI_EVERYBODY = 0,
	AI_PROCESSES = 1,
	AI_THREADS = 2,
};

const volatile __u32 ai_whose = AI_EVERYBODY;
const volatile __u64 ai_min_ns = 0;
const volatile bool ai_wakers = false;
const volatile __u32 ai_nr_tables = 1; /* of waits; as many of wakers stand behind them */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* set by the loader */
	__type(key, __u32);
	__type(value, struct ai_left);
} ai_threads SEC(".maps");

/* Who woke a thread that is not on a CPU yet: what the waker is, by the thread. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* set by the loader */
	__type(key, __u32);
	__type(value, struct ai_left);
} ai_wakes SEC(".maps");

/* Processes or threads that are looked at, unless everybody is. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* set by the loader */
	__type(key, __u32);
	__type(value, __u8);
} ai_targets SEC(".maps");

/* What a new thread begins with; nobody writes it. And where the iterator puts one together that was never seen. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct ai_left);
} ai_blank SEC(".maps");

/* By CPU: the number of its table plus one; 0 without one. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set by the loader */
	__type(key, __u32);
	__type(value, __u32);
} ai_table_numbers SEC(".maps");

AI_ARRAY(ai_watches, struct ai_watch);
AI_ARRAY(ai_wait_cpus, struct ai_wait_counts); /* by CPU */

static __always_inline struct ai_watch *ai_the_watch(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&ai_watches, &zero);
}

static __always_inline void ai_add(struct ai_waits *waits, __u64 ns)
{
	waits->waits++;
	waits->ns += ns;
}

static __always_inline bool ai_is_target(const struct task_struct *task)
{
	__u32 id = ai_whose == AI_PROCESSES ? task->tgid : task->pid;

	return ai_whose == AI_EVERYBODY || bpf_map_lookup_elem(&ai_targets, &id);
}

static __always_inline __u32 ai_state_of(bool preempt, __u32 state)
{
	if (preempt || !state)
		return AI_RUNNABLE;
	if (state & AI_TASK_INTERRUPTIBLE)
		return AI_INTERRUPTIBLE;
	if (state & AI_TASK_STOPPED)
		return AI_STOPPED;
	if (state & AI_TASK_TRACED)
		return AI_TRACED;
	if (state & AI_TASK_PARKED)
		return AI_PARKED;
	if (!(state & AI_TASK_UNINTERRUPTIBLE))
		return AI_OTHER;
	if (state & AI_TASK_NOLOAD)
		return AI_IDLE;
	return state & AI_TASK_WAKEKILL ? AI_KILLABLE : AI_UNINTERRUPTIBLE;
}

static __always_inline void ai_name(struct ai_left *left, const struct task_struct *task)
{
	left->pid = task->tgid;
	left->tid = task->pid;
	left->exec_id = task->self_exec_id;
	left->comm[0] = *(__u64 *)&task->comm[0];
	left->comm[1] = *(__u64 *)&task->comm[8];
}

/* What is known of a thread; null where that is nothing, or of another one that had its number. */
static __always_inline struct ai_left *ai_known(struct task_struct *task)
{
	__u32 tid = task->pid;
	struct ai_left *left = bpf_map_lookup_elem(&ai_threads, &tid);

	return left && left->born == task->start_time ? left : 0;
}

/* A place for a thread that has none; null without room. */
static __always_inline struct ai_left *ai_new(void *map, __u32 tid)
{
	__u32 zero = 0;
	struct ai_left *blank = bpf_map_lookup_elem(&ai_blank, &zero);

	if (!blank || bpf_map_update_elem(map, &tid, blank, 0))
		return 0;
	return bpf_map_lookup_elem(map, &tid);
}

/* Threads of the kernel wait for work by nature, and the idle ones are what runs when nobody does. */
static __always_inline bool ai_is_none(const struct task_struct *task)
{
	return !task->pid || (task->flags & AI_PF_KTHREAD);
}

/* A thread that nobody has seen leave: it waits since the recording began, or since it is there. */
static __always_inline void ai_first_seen(struct ai_left *left, struct task_struct *task, __u64 began)
{
	__u64 born = task->start_time;
	long bytes;

	ai_name(left, task);
	left->cpu = bpf_core_field_exists(task->thread_info.cpu) ? task->thread_info.cpu : 0;
	left->since = born > began ? born : began;
	left->state = born > began ? AI_STARTING : AI_BEFORE;
	left->nr = 0;
	bytes = bpf_get_task_stack(task, &left->word[1], AI_KERNEL_WORDS * sizeof(__u64), 0);
	if (bytes >= (long)sizeof(__u64)) {
		left->word[0] = PERF_CONTEXT_KERNEL;
		left->nr = 1 + ((__u64)bytes >> 3);
	}
}

static __always_inline enum ai_outcome ai_put_wait(struct ai_table *table, __u32 key, const struct ai_left *left,
						   __u64 now, __u64 ns, const __u64 *with)
{
	struct ai_entry want = { .count = 1 };
	struct ai_chain *chain;
	struct ai_half half;
	__u64 at, nr, hash;

	if (!ai_open_half(table, key, &half))
		return AI_FULL;
	at = half.used->words;
	chain = ai_arena_at(half.arena, at);
	if (!chain)
		return AI_FULL;
	nr = left->nr;
	barrier_var(nr);
	if (nr > AI_LEFT_WORDS)
		return AI_FULL;
	if (nr && bpf_probe_read_kernel(chain->word, nr * sizeof(__u64), left->word))
		return AI_FULL;
	chain->word[nr] = 0;
	/* The interval ends now: whatever was to be told of its addresses has been. */
	want.first_time = now;
	want.value = ns;
	want.nr = nr;
	want.pid = left->pid;
	want.tid = left->tid;
	want.exec_id = left->exec_id;
	want.comm[0] = left->comm[0];
	want.comm[1] = left->comm[1];
	want.bucket = left->state;
	/* These stand for nothing else here. */
	want.ip = with[0];
	want.cgroup = with[1];
	hash = ai_mix(ai_mix(want.comm[0], want.comm[1]), (__u64)want.pid << 32 | want.tid);
	hash = ai_mix(ai_mix(hash, want.exec_id), want.bucket);
	hash = ai_mix(ai_mix(hash, want.ip), want.cgroup);
	want.hash = ai_hash_chain(chain, nr, hash);
	return ai_put(&half, &want, chain, at, false);
}

/* Enters an interval in this CPU's table of waits (0) or of wakers (1), under the name of the other thread, `with`. */
static __noinline enum ai_outcome ai_enter_wait(const struct ai_left *left, __u32 which, __u64 now, __u64 ns,
						const __u64 *with)
{
	__u32 cpu = bpf_get_smp_processor_id(), *number = bpf_map_lookup_elem(&ai_table_numbers, &cpu), key;
	enum ai_outcome outcome;
	struct ai_table *table;

	if (!number || !*number)
		return AI_FULL;
	key = which * ai_nr_tables + *number - 1;
	table = bpf_map_lookup_elem(&ai_tables, &key);
	if (!table)
		return AI_FULL;
	ai_enter(table);
	outcome = ai_put_wait(table, key, left, now, ns, with);
	ai_leave(table);
	return outcome;
}

static __always_inline void ai_store(struct ai_wait_counts *counts, const struct ai_left *left,
				     const struct ai_left *waker, __u64 now, __u64 ns)
{
	__u64 with[2] = {};
	enum ai_outcome outcome;

	if (waker) {
		with[0] = waker->comm[0];
		with[1] = waker->comm[1];
	}
	outcome = ai_enter_wait(left, 0, now, ns, with);
	if (outcome == AI_FULL) {
		ai_add(&counts->lost_full, ns);
		return;
	}
	if (outcome == AI_COLLISION) {
		ai_add(&counts->lost_collision, ns);
		return;
	}
	ai_add(&counts->stored, ns);
	if (!left->nr)
		counts->no_stack++;
	if (!ai_wakers)
		return;
	if (!waker) {
		ai_add(&counts->woken_by_nobody, ns);
		return;
	}
	with[0] = left->comm[0];
	with[1] = left->comm[1];
	if (ai_enter_wait(waker, 1, now, ns, with) == AI_STORED)
		ai_add(&counts->woken, ns);
	else
		ai_add(&counts->woken_lost, ns);
}

static __always_inline void ai_leaves(void *ctx, struct ai_watch *watch, bool preempt, struct task_struct *task,
				      __u32 state, __u64 now)
{
	__u32 tid = task->pid;
	struct ai_left *left;
	__u64 nr = 0;

	if (ai_is_none(task))
		return;
	left = ai_known(task);
	if (state & AI_TASK_DEAD) {
		if (left)
			bpf_map_delete_elem(&ai_threads, &tid);
		if (left && ai_wakers)
			bpf_map_delete_elem(&ai_wakes, &tid);
		return;
	}
	if (!left) {
		if (!ai_is_target(task))
			return;
		left = ai_new(&ai_threads, tid);
		if (!left) {
			/* It is counted when it comes back. */
			watch->missed = now;
			return;
		}
		left->born = task->start_time;
	}
	ai_name(left, task);
	left->state = ai_state_of(preempt, state);
	left->cpu = bpf_get_smp_processor_id();
	nr = ai_kernel_part(ctx, left, task);
	nr = ai_user_part(ctx, left, task, nr);
	left->nr = nr;
	left->since = now;
}

static __always_inline void ai_comes(struct ai_watch *watch, struct ai_wait_counts *counts, struct task_struct *task,
				     __u64 now)
{
	__u32 tid = task->pid;
	struct ai_left *left, *waker = 0;
	__u64 ns;

	if (ai_is_none(task))
		return;
	left = ai_known(task);
	if (!left) {
		if (!ai_is_target(task))
			return;
		left = ai_new(&ai_threads, tid);
		if (!left) {
			watch->missed = now;
			counts->lost_threads++;
			return;
		}
		left->born = task->start_time;
		if (watch->missed && left->born <= watch->missed) {
			counts->lost_threads++;
			return;
		}
		ai_first_seen(left, task, watch->since);
	}
	if (!left->since)
		return;
	if (ai_wakers) {
		waker = bpf_map_lookup_elem(&ai_wakes, &tid);
		if (waker && !waker->since)
			waker = 0;
	}
	ns = now > left->since ? now - left->since : 0;
	ai_add(&counts->ended, ns);
	if (ns < ai_min_ns)
		ai_add(&counts->below, ns);
	else
		ai_store(counts, left, waker, now, ns);
	left->since = 0;
	if (waker)
		waker->since = 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(ai_switch, bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct ai_watch *watch = ai_the_watch();
	struct ai_wait_counts *counts;
	__u64 now;

	if (!watch || !*(volatile __u64 *)&watch->on)
		return 0;
	counts = bpf_map_lookup_elem(&ai_wait_cpus, &cpu);
	if (!counts)
		return 0;
	counts->switches++;
	now = bpf_ktime_get_ns();
	ai_leaves(ctx, watch, preempt, prev, prev_state, now);
	ai_comes(watch, counts, next, now);
	return 0;
}

/*
 * Somebody wakes a thread that waits: in the context of the waker, or of whoever was interrupted. Of several the first one
 * counts. The kernel holds a lock of the thread meanwhile, so that no other waker is here for the same one.
 */
SEC("tp_btf/sched_waking")
int BPF_PROG(ai_waking, struct task_struct *task)
{
	struct ai_watch *watch = ai_the_watch();
	struct ai_left *left, *waker;
	struct task_struct *current;
	__u32 tid = task->pid;
	__u64 nr;

	if (!watch || !*(volatile __u64 *)&watch->on)
		return 0;
	left = ai_known(task);
	if (!left || !left->since)
		return 0;
	waker = bpf_map_lookup_elem(&ai_wakes, &tid);
	if (!waker)
		waker = ai_new(&ai_wakes, tid);
	if (!waker || waker->since)
		return 0;
	current = bpf_get_current_task_btf();
	ai_name(waker, current);
	waker->state = AI_RUNNABLE;
	waker->cpu = bpf_get_smp_processor_id();
	/* Which thread a stack was walked of does not matter to who compares its words. */
	nr = ai_kernel_part(ctx, waker, current);
	waker->nr = ai_user_part(ctx, waker, current, nr);
	waker->since = bpf_ktime_get_ns();
	return 0;
}

/* What a process or thread starts belongs to it. */
SEC("tp_btf/sched_process_fork")
int BPF_PROG(ai_forked, struct task_struct *parent, struct task_struct *child)
{
	__u32 id = ai_whose == AI_PROCESSES ? child->tgid : child->pid;
	__u8 one = 1;

	if (!ai_is_none(parent) && ai_is_target(parent))
		bpf_map_update_elem(&ai_targets, &id, &one, 0);
	return 0;
}

/* The number of a thread or process that ends may be given to somebody else. */
SEC("tp_btf/sched_process_free")
int BPF_PROG(ai_ended, struct task_struct *task)
{
	__u32 id = task->pid;

	/* The first thread of a process goes last. */
	bpf_map_delete_elem(&ai_targets, &id);
	return 0;
}

/* Run after the end, over all threads: those that still wait, with 0 as `since` where that is not known. */
SEC("iter/task")
int ai_open_waits(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct ai_watch *watch = ai_the_watch();
	struct ai_left *left;
	__u32 one = 1;
	__u64 nr;

	if (!task || !watch)
		return 0;
	if (ai_is_none(task))
		return 0;
	left = ai_known(task);
	if (left && !left->since)
		return 0;
	if (!left) {
		/* One that never left a CPU and never came to one: it waits since the beginning, or is on one all the time. */
		if (!ai_is_target(task) || (task->__state & AI_TASK_DEAD))
			return 0;
		if (bpf_core_field_exists(task->on_cpu) && task->on_cpu)
			return 0;
		left = bpf_map_lookup_elem(&ai_blank, &one);
		if (!left)
			return 0;
		ai_first_seen(left, task, watch->since);
		left->state = ai_state_of(false, task->__state);
		/* Or it found no room as it left: then nobody knows since when. */
		if (watch->missed && task->start_time <= watch->missed)
			left->since = 0;
	}
	nr = left->nr;
	barrier_var(nr);
	if (nr > AI_LEFT_WORDS)
		return 0;
	bpf_seq_write(ctx->meta->seq, left, __builtin_offsetof(struct ai_left, word) + nr * sizeof(__u64));
	return 0;
}
