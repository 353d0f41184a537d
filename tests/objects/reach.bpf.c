// SPDX-License-Identifier: Apache-2.0 OR MIT
/* What checks have to follow: a value from before an atomic operation, and a function that only a helper calls. */
#include "afterimage.bpf.h"

char LICENSE[] SEC("license") = "GPL";

static long (*const loop)(__u32 nr, void *callback, void *data, __u64 flags) = (void *)181;
static long (*const task_stack)(void *task, void *buf, __u32 size, __u64 flags) = (void *)141;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} runs SEC(".maps");

const volatile __u32 every = 4;

/* What an atomic operation gives back is in the register that held its constant operand. */
SEC("perf_event")
int counted(void *ctx)
{
	__u32 zero = 0;
	__u64 *run = bpf_map_lookup_elem(&runs, &zero);

	if (!run)
		return AI_DROP;
	if (__sync_fetch_and_add(run, 1) % every)
		return AI_DROP;
	__u64 value = every;
	ai_emit(ctx, &value, sizeof(value));
	return AI_DROP;
}

static long each(__u32 number, void *data)
{
	char stack[64];

	task_stack(bpf_get_current_task(), stack, sizeof(stack), 0);
	return 0;
}

/* A function that only a helper calls. */
SEC("perf_event")
int called_back(void *ctx)
{
	loop(4, each, 0, 0);
	return AI_DROP;
}
