// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Handlers that the kernel would load and that must not run on every event; beside each, one that may. */
#include "afterimage.bpf.h"

char LICENSE[] SEC("license") = "GPL";

const volatile __u32 bytes = 4096;
const volatile _Bool wanted = 0;

/* A helper that is not in the header. */
static long (*const get_task_stack)(void *task, void *buf, __u32 size, __u64 flags) = (void *)141;
static void *(*const get_current_task_btf)(void) = (void *)158;

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64[1024]);
} room SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, 64);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, 127 * sizeof(__u64));
} stacks SEC(".maps");

struct {
	__uint(type, 9); /* BPF_MAP_TYPE_LRU_HASH */
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u32);
} ageing SEC(".maps");

static __always_inline void *memory(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&room, &zero);
}

SEC("perf_event")
int task_stack(struct bpf_perf_event_data *ctx)
{
	__u64 *to = memory();

	if (to)
		get_task_stack(get_current_task_btf(), to, 8192, 0); /* line: task_stack */
	return AI_CHAIN;
}

static __noinline int look(void)
{
	__u64 *to = memory();

	if (to)
		get_task_stack(get_current_task_btf(), to, 8192, 0); /* line: task_stack_below */
	return AI_CHAIN;
}

SEC("perf_event")
int task_stack_below(struct bpf_perf_event_data *ctx)
{
	return look();
}

SEC("perf_event")
int task_stack_never(struct bpf_perf_event_data *ctx)
{
	return wanted ? look() : AI_CHAIN;
}

SEC("perf_event")
int short_stack(struct bpf_perf_event_data *ctx)
{
	__u64 *to = memory();

	if (to)
		bpf_get_stack(ctx, to, 8, BPF_F_USER_STACK); /* line: short_stack */
	return AI_CHAIN;
}

static __noinline int unwind(void *ctx, __u64 flags)
{
	__u64 *to = memory();

	if (to)
		bpf_get_stack(ctx, to, 64, flags); /* line: short_stack_below */
	return AI_CHAIN;
}

SEC("perf_event")
int short_stack_below(struct bpf_perf_event_data *ctx)
{
	return unwind(ctx, BPF_F_USER_STACK);
}

SEC("perf_event")
int any_flags(struct bpf_perf_event_data *ctx)
{
	__u64 *to = memory();

	if (to)
		bpf_get_stack(ctx, to, 64, bpf_get_prandom_u32() & BPF_F_USER_STACK); /* line: any_flags */
	return AI_CHAIN;
}

SEC("perf_event")
int any_size(struct bpf_perf_event_data *ctx)
{
	__u64 *to = memory();

	if (to)
		bpf_get_stack(ctx, to, bpf_get_prandom_u32() & 4095, BPF_F_USER_STACK); /* line: any_size */
	return AI_CHAIN;
}

SEC("perf_event")
int kernel_stack(struct bpf_perf_event_data *ctx)
{
	__u64 *to = memory();

	if (to)
		bpf_get_stack(ctx, to, 64, 0);
	return AI_CHAIN;
}

SEC("perf_event")
int long_stack(struct bpf_perf_event_data *ctx)
{
	__u64 *to = memory();

	if (to)
		bpf_get_stack(ctx, to, bytes, BPF_F_USER_STACK); /* line: long_stack */
	return AI_CHAIN;
}

SEC("perf_event")
int stack_number(struct bpf_perf_event_data *ctx)
{
	return bpf_get_stackid(ctx, &stacks, 0) >= 0; /* line: stack_number */
}

SEC("perf_event")
int lru(struct bpf_perf_event_data *ctx)
{
	__u32 key = 1;

	bpf_map_update_elem(&ageing, &key, &key, BPF_ANY); /* line: lru */
	return AI_CHAIN;
}

SEC("perf_event")
int needs_chain(struct bpf_perf_event_data *ctx)
{
	return ai_callchain_words(ctx) > 3; /* line: needs_chain */
}

SEC("perf_event")
int asks_first(struct bpf_perf_event_data *ctx)
{
	if (!ai_has(ctx, AI_CALLCHAIN))
		return AI_CHAIN;
	return ai_callchain_words(ctx) > 3;
}

SEC("perf_event.s")
int sleeps(struct bpf_perf_event_data *ctx)
{
	return AI_CHAIN;
}

SEC("xdp")
int packet(void *ctx)
{
	return 2;
}

SEC("perf_event")
int endless(struct bpf_perf_event_data *ctx)
{
	__u64 *to = memory();

	if (to)
		to[bpf_get_prandom_u32()] = 1;
	return AI_CHAIN;
}
