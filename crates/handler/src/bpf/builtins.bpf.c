// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * The programs that stand in the slots: the built-in handlers `emit` and `count`, each once for kernels that show a program
 * its sample and once for those that do not.
 */
#include "internal.bpf.h"
#include "sample.bpf.h"
#include "count.bpf.h"
#include "outputs.bpf.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* What the built-in handlers return: chain to the sampling ring, or drop. */
const volatile bool ai_chain = false;

/* ---- emit ---- */

struct ai_emit {
	struct ai_hdr hdr;
	__u32 pid;
	__u32 tid;
	__u64 period;
	__u64 nr;
	struct ai_chain chain;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* CPUs: set by the loader */
	__type(key, __u32);
	__type(value, struct ai_emit);
} ai_scratch SEC(".maps");

static __always_inline int ai_emit_sample(struct bpf_perf_event_data *ctx, bool kernel_context)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct ai_cpu *cell = ai_this_cpu();
	struct ai_emit *out = bpf_map_lookup_elem(&ai_scratch, &cpu);
	struct ai_counters *counters;
	struct ai_sample sample;
	__u64 nr, size;

	if (!cell || !out)
		return 1;
	counters = ai_these_counters(cell);
	if (!counters)
		return 1;

	if (kernel_context)
		ai_read_kern(ctx, &sample, cell->flags, &out->chain);
	else
		ai_read_plain(ctx, &sample, cell->flags, &out->chain);
	nr = sample.nr;
	size = __builtin_offsetof(struct ai_emit, chain) + nr * sizeof(__u64);
	if ((cell->flags & AI_STACK) && !nr)
		counters->stack_failed++;

	out->hdr.version = AI_VERSION;
	out->hdr.size = size;
	out->hdr.kind = AI_KIND_EMIT;
	out->hdr.handler = AI_HANDLER_EMIT;
	out->hdr.generation = cell->generation;
	out->hdr.cpu = cpu;
	out->hdr.time = sample.time;
	out->hdr.ip = sample.ip;
	out->hdr.seq = cell->seq;
	out->pid = sample.pid;
	out->tid = sample.tid;
	out->period = sample.period;
	out->nr = nr;

	cell->flags |= AI_OUTPUT;
	counters->emitted++;
	barrier_var(size);
	if (size > sizeof(*out) ||
	    bpf_perf_event_output(ctx, &ai_outputs, cell->event * ai_nr_cpus + cpu, out, size))
		counters->emit_lost++;
	return ai_chain;
}

SEC("perf_event")
int ai_emit_kern(struct bpf_perf_event_data *ctx)
{
	return ai_emit_sample(ctx, true);
}

SEC("perf_event")
int ai_emit_plain(struct bpf_perf_event_data *ctx)
{
	return ai_emit_sample(ctx, false);
}

/* ---- count ---- */

static __always_inline enum ai_outcome ai_count_in(struct bpf_perf_event_data *ctx, struct ai_table *table, __u32 key,
						   struct ai_cpu *cell, struct ai_counters *counters,
						   bool kernel_context)
{
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
	if ((cell->flags & AI_STACK) && !nr)
		counters->stack_failed++;
	barrier_var(nr);
	if (nr >= AI_CHAIN_WORDS)
		return AI_FULL;
	chain->word[nr] = 0;

	want.ip = sample.ip;
	want.first_time = sample.time ? sample.time : bpf_ktime_get_ns();
	want.value = sample.period;
	want.pid = sample.pid;
	want.tid = sample.tid;
	want.nr = nr;
	task = bpf_get_current_task_btf();
	want.exec_id = task->self_exec_id;
	/* Sixteen bytes, padded with NULs by whoever set them. */
	want.comm[0] = *(__u64 *)&task->comm[0];
	want.comm[1] = *(__u64 *)&task->comm[8];
	hash = ai_mix(ai_mix(want.comm[0], want.comm[1]), (__u64)want.pid << 32 | want.tid);
	hash = ai_mix(ai_mix(hash, want.exec_id), want.ip);
	want.hash = ai_hash_chain(chain, nr, hash);
	return ai_put(&half, &want, chain, at, false);
}

SEC("perf_event")
int ai_count_kern(struct bpf_perf_event_data *ctx)
{
	ai_count_by(ctx, true, ai_count_in);
	return ai_chain;
}

SEC("perf_event")
int ai_count_plain(struct bpf_perf_event_data *ctx)
{
	ai_count_by(ctx, false, ai_count_in);
	return ai_chain;
}
