// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Who writes to a variable, and what.
 *
 *	clang -O2 -g -target bpf -c writers.bpf.c
 *	afterimage record -g -e mem:0x55d0c0de1040/8:w --handler writers.bpf.o -p PID
 *	afterimage script
 *
 * The event is a breakpoint of the processor, which stops after the write; so the handler reads the new value from the memory of
 * the task. The ordinary sample, with its call chain, is kept, and the value becomes a label of it. Writes that leave the value as it
 * was may be left out with --set changes=true.
 */
#include "afterimage.bpf.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

const volatile _Bool changes = 0;

/* The last value that was seen, of any thread. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __s64);
} last SEC(".maps");

SEC("perf_event")
int writers(struct bpf_perf_event_data *ctx)
{
	__u32 zero = 0;
	__s64 value = 0, *before = bpf_map_lookup_elem(&last, &zero);
	char thread[16];

	if (!before || bpf_probe_read_user(&value, sizeof(value), (void *)ai_addr(ctx)))
		return AI_CHAIN;
	if (changes && *before == value)
		return AI_DROP;
	*before = value;
	ai_comm(thread);
	ai_label(ctx, "value", value);
	ai_label(ctx, "thread", thread);
	return AI_CHAIN;
}
