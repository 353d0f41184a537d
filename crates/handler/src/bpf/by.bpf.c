// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * The handler `by`: samples are counted in the kernel under the keys that the user names, in the table of `count`. Which
 * keys those are is a constant of the load, so that the verifier takes away what the others would need.
 */
#define AFTERIMAGE_LABELS
#include "internal.bpf.h"
#include "sample.bpf.h"
#include "count.bpf.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Parts of the key. The CPU is none: each has a table of its own. */
enum {
	AI_BY_COMM = 1 << 0,
	AI_BY_PID = 1 << 1,
	AI_BY_TID = 1 << 2,
	AI_BY_CGROUP = 1 << 3,
	AI_BY_IP = 1 << 4,
	AI_BY_KSTACK = 1 << 5, /* the kernel part of a stack */
	AI_BY_USTACK = 1 << 6, /* the user part */
};

/* What becomes of the field of each sample. */
enum {
	AI_BY_COUNT = 0, /* there is none */
	AI_BY_SUM = 1,
	AI_BY_MAX = 2,
	AI_BY_HIST = 3, /* its bucket is a part of the key; and the sum */
};

enum {
	AI_BY_PERIOD = 0,
	AI_BY_ADDR = 1,
	AI_BY_WEIGHT = 2,
};

const volatile __u32 ai_by_keys = 0;
const volatile __u32 ai_by_value = AI_BY_COUNT;
const volatile __u32 ai_by_field = AI_BY_PERIOD;
const volatile bool ai_by_label = false; /* a label is a part of the key */

#define AI_PF_KTHREAD 0x00200000

static __always_inline __u64 ai_by_measure_kern(struct bpf_perf_event_data *ctx)
{
	struct perf_sample_data *data = ai_data(ctx);

	/* The event asks for the field, so that it is there. */
	if (ai_by_field == AI_BY_ADDR)
		return data->sample_flags & PERF_SAMPLE_ADDR ? data->addr : 0;
	if (ai_by_field == AI_BY_WEIGHT)
		return data->sample_flags & (PERF_SAMPLE_WEIGHT | PERF_SAMPLE_WEIGHT_STRUCT) ? data->weight.full : 0;
	return data->period;
}

static __always_inline __u64 ai_by_measure(struct bpf_perf_event_data *ctx, bool kernel_context)
{
	__u64 addr, period;

	if (kernel_context)
		return ai_by_measure_kern(ctx);
	/* Both loaded, for a load from either of two places would need a pointer into the context. */
	addr = ctx->addr;
	period = ctx->sample_period;
	barrier_var(addr);
	barrier_var(period);
	return ai_by_field == AI_BY_ADDR ? addr : period;
}

/*
 * The bits that a number needs: 0 for 0, 1 for 1, 2 for 2 and 3, up to 64. With external linkage, so that its ways are not
 * multiplied with those of its caller.
 */
__noinline __u32 ai_bits(__u64 number)
{
	__u32 bits = 0;

	for (__u32 step = 32; step; step >>= 1) {
		if (number >> step) {
			number >>= step;
			bits += step;
		}
	}
	return bits + (number != 0);
}

/*
 * Whether a part of the stack is missing that has to be there: the kernel's of a sample in the kernel, the user's of
 * whatever is no thread of the kernel.
 */
static __always_inline bool ai_by_stack_failed(const struct task_struct *task, const struct ai_sample *sample, bool user)
{
	if (sample->nr)
		return false;
	return ((ai_by_keys & AI_BY_KSTACK) && !user) || ((ai_by_keys & AI_BY_USTACK) && !(task->flags & AI_PF_KTHREAD));
}

/* Puts the label behind the chain, where it is hashed and compared with it. */
static __always_inline void ai_by_add_label(__u64 *to)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct ai_label_seen *seen = bpf_map_lookup_elem(&ai_labels, &cpu);
	bool given = seen && seen->size;

	to[0] = given ? (__u64)seen->size << 32 | seen->type : 0;
	for (int i = 0; i < AI_LABEL_BYTES / 8; i++)
		to[1 + i] = given ? ((__u64 *)seen->bytes)[i] : 0;
}

static __always_inline enum ai_outcome ai_by_in(struct bpf_perf_event_data *ctx, struct ai_table *table, __u32 key,
						struct ai_cpu *cell, struct ai_counters *counters, bool kernel_context)
{
	bool user = AI_REGS_USER(&ctx->regs), of_process;
	struct ai_entry want = { .count = 1 };
	struct task_struct *task;
	struct ai_sample sample;
	struct ai_chain *chain;
	struct ai_half half;
	__u64 at, nr, hash;

	if (!ai_open_half(table, key, &half))
		return AI_FULL;
	at = half.used->words;
	chain = ai_arena_at(half.arena, at);
	if (!chain)
		return AI_FULL;

	if (kernel_context)
		ai_read_kern(ctx, &sample, cell->flags, chain);
	else
		ai_read_plain(ctx, &sample, cell->flags, chain);
	nr = sample.nr;
	task = bpf_get_current_task_btf();
	if ((cell->flags & AI_STACK) && ai_by_stack_failed(task, &sample, user))
		counters->stack_failed++;
	barrier_var(nr);
	if (nr >= AI_CHAIN_WORDS - AI_LABEL_WORDS)
		return AI_FULL;
	if (ai_by_label) {
		ai_by_add_label(&chain->word[nr]);
		nr += AI_LABEL_WORDS;
	}
	chain->word[nr] = 0;

	want.first_time = sample.time ? sample.time : bpf_ktime_get_ns();
	want.nr = nr;
	if (ai_by_keys & AI_BY_IP)
		want.ip = sample.ip;
	/* User addresses mean something in one image of one process alone. */
	of_process = ((ai_by_keys & AI_BY_USTACK) && !(task->flags & AI_PF_KTHREAD)) || ((ai_by_keys & AI_BY_IP) && user);
	if ((ai_by_keys & AI_BY_PID) || of_process)
		want.pid = sample.pid;
	if (of_process)
		want.exec_id = task->self_exec_id;
	if (ai_by_keys & AI_BY_TID)
		want.tid = sample.tid;
	if (ai_by_keys & AI_BY_CGROUP)
		want.cgroup = bpf_get_current_cgroup_id();
	if (ai_by_keys & AI_BY_COMM) {
		want.comm[0] = *(__u64 *)&task->comm[0];
		want.comm[1] = *(__u64 *)&task->comm[8];
	}
	if (ai_by_value != AI_BY_COUNT)
		want.value = ai_by_measure(ctx, kernel_context);
	if (ai_by_value == AI_BY_HIST)
		want.bucket = ai_bits(want.value);

	hash = ai_mix(ai_mix(want.comm[0], want.comm[1]), (__u64)want.pid << 32 | want.tid);
	hash = ai_mix(ai_mix(hash, want.exec_id), want.ip);
	hash = ai_mix(ai_mix(hash, want.cgroup), want.bucket);
	want.hash = ai_hash_chain(chain, nr, hash);
	return ai_put(&half, &want, chain, at, ai_by_value == AI_BY_MAX);
}

SEC("perf_event")
int ai_by_kern(struct bpf_perf_event_data *ctx)
{
	ai_count_by(ctx, true, ai_by_in);
	return 0;
}

SEC("perf_event")
int ai_by_plain(struct bpf_perf_event_data *ctx)
{
	ai_count_by(ctx, false, ai_by_in);
	return 0;
}

/* Made from a function of its own, for the object's verdict to come back; see the stub. */
static __noinline int ai_run_labels(struct bpf_perf_event_data *ctx, __u32 slot, __u32 fall_through)
{
	bpf_tail_call(ctx, &ai_slots, slot);
	barrier_var(fall_through);
	return fall_through;
}

/* Where a label is a key: runs the object that gives it, and counts the sample unless the object drops it. */
SEC("perf_event")
int ai_by_labels(struct bpf_perf_event_data *ctx)
{
	__u32 cpu = bpf_get_smp_processor_id(), zero = 0, more;
	struct ai_control *control = bpf_map_lookup_elem(&ai_control, &zero);
	struct ai_label_seen *seen = bpf_map_lookup_elem(&ai_labels, &cpu);

	if (!control || !seen)
		return 0;
	seen->size = 0;
	/* A slot that is known only now is not patched into the code. */
	more = *(volatile __u64 *)&control->never;
	if (ai_run_labels(ctx, AI_LABEL_SLOT + more, *(volatile __u32 *)&control->fall_through))
		bpf_tail_call(ctx, &ai_slots, AI_BY_SLOT + more);
	return 0;
}
