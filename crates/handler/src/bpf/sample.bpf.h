/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Reading the sample in flight, in one of two ways. With the kernel's own context (6.2 and later) every value is the one
 * that the ring's record would carry. Without it, they come from helpers: the stack in two halves by bpf_get_stack, ids
 * are those of the initial pid namespace, and the time is taken here.
 */
#ifndef AFTERIMAGE_SAMPLE_BPF_H
#define AFTERIMAGE_SAMPLE_BPF_H

#include "internal.bpf.h"
#include "chain.bpf.h"

extern void *bpf_cast_to_kern_ctx(void *ctx) __ksym __weak;

_Static_assert(AI_CHAIN_LABEL == AI_LABEL_BYTES, "a chain has room for a label");

struct ai_sample {
	__u64 ip;
	__u64 time;
	__u64 period;
	__u32 pid;
	__u32 tid;
	__u64 nr; /* words of the chain that were read */
};

static __always_inline struct perf_sample_data *ai_data(struct bpf_perf_event_data *ctx)
{
	struct bpf_perf_event_data_kern *kern = bpf_cast_to_kern_ctx(ctx);

	return kern->data;
}

static __always_inline __u64 ai_kern_time(struct bpf_perf_event_data *ctx)
{
	struct perf_sample_data *data = ai_data(ctx);

	return data->sample_flags & PERF_SAMPLE_TIME ? data->time : bpf_ktime_get_ns();
}

static __always_inline void ai_read_kern(struct bpf_perf_event_data *ctx, struct ai_sample *sample, __u32 flags,
					 struct ai_chain *chain)
{
	struct perf_sample_data *data = ai_data(ctx);
	__u64 has = data->sample_flags, ip = AI_REGS_IP(&ctx->regs);

	/* Loaded whether needed or not: a load from either of two places would need a pointer into the context. */
	barrier_var(ip);
	sample->ip = has & PERF_SAMPLE_IP ? data->ip : ip;
	sample->time = has & PERF_SAMPLE_TIME ? data->time : 0;
	sample->period = data->period;
	if (has & PERF_SAMPLE_TID) {
		sample->pid = data->tid_entry.pid;
		sample->tid = data->tid_entry.tid;
	} else {
		__u64 ids = bpf_get_current_pid_tgid();

		sample->pid = ids >> 32;
		sample->tid = ids;
	}
	sample->nr = 0;
	if ((flags & AI_STACK) && (has & PERF_SAMPLE_CALLCHAIN)) {
		struct perf_callchain_entry *entry = data->callchain;
		__u64 nr = entry->nr;

		if (nr > ai_chain_max)
			nr = ai_chain_max;
		if (nr && !bpf_probe_read_kernel(chain->word, nr * sizeof(__u64), entry->ip))
			sample->nr = nr;
	}
}

/*
 * One half of the stack, behind a context marker as in a record. The buffer holds the longest chain there can be: for a
 * shorter one the kernel would cut the chain that the record is going to carry. Where the kernel takes the half from
 * that chain it puts the marker there itself; then it stands twice, which says the same. Returns the words in use.
 */
static __always_inline __u64 ai_unwind(struct bpf_perf_event_data *ctx, struct ai_chain *chain, __u64 at, __u64 flags,
				       __u64 marker)
{
	__u64 *to;
	long bytes;

	barrier_var(at);
	if (at > AI_CHAIN_MAX + 1 || ai_chain_max > AI_CHAIN_MAX)
		return at;
	to = &chain->word[at];
	barrier_var(to);
	bytes = bpf_get_stack(ctx, to + 1, ai_chain_max * sizeof(__u64), flags);
	if (bytes < (long)sizeof(__u64))
		return at;
	*to = marker;
	return at + 1 + ((__u64)bytes >> 3);
}

static __always_inline void ai_read_plain(struct bpf_perf_event_data *ctx, struct ai_sample *sample, __u32 flags,
					  struct ai_chain *chain)
{
	__u64 ids = bpf_get_current_pid_tgid(), nr = 0;

	sample->ip = AI_REGS_IP(&ctx->regs);
	sample->time = 0;
	sample->period = ctx->sample_period;
	sample->pid = ids >> 32;
	sample->tid = ids;
	if (flags & AI_STACK) {
		if (!(flags & AI_NO_KERNEL_STACK))
			nr = ai_unwind(ctx, chain, nr, 0, PERF_CONTEXT_KERNEL);
		if (!(flags & AI_NO_USER_STACK))
			nr = ai_unwind(ctx, chain, nr, BPF_F_USER_STACK, PERF_CONTEXT_USER);
	}
	sample->nr = nr;
}

static __always_inline struct ai_cpu *ai_this_cpu(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&ai_cpus, &cpu);
}

static __always_inline struct ai_counters *ai_these_counters(const struct ai_cpu *cell)
{
	__u32 key = cell->event * ai_nr_cpus + bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&ai_counters, &key);
}

#endif
