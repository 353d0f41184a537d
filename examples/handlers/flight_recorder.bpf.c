// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * A flight recorder: samples are kept only for two seconds after something has happened.
 *
 *	clang -O2 -g -target bpf -c flight_recorder.bpf.c
 *	afterimage record -a -g --handler flight_recorder.bpf.o --set trigger=pg_dump
 *
 * What happens here is that a program of that name is started. The second program of the object sees it, on a tracepoint,
 * and leaves the time for the handler. Any other trigger will do: a uprobe, another tracepoint, a user who writes to the map.
 */
#include "afterimage.bpf.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

const volatile char trigger[16] = "";
const volatile __u64 window_ns = 2000000000;

/* When it happened last. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} happened SEC(".maps");

SEC("raw_tp/sched_process_exec")
int started(void *ctx)
{
	__u32 zero = 0;
	__u64 *at = bpf_map_lookup_elem(&happened, &zero);
	char name[16] = "";

	ai_comm(name);
	for (int i = 0; i < 16; i++) {
		if (name[i] != trigger[i])
			return 0;
		if (!name[i])
			break;
	}
	if (at)
		*at = bpf_ktime_get_ns();
	return 0;
}

SEC("perf_event")
int flight_recorder(struct bpf_perf_event_data *ctx)
{
	__u32 zero = 0;
	__u64 *at = bpf_map_lookup_elem(&happened, &zero);

	if (!at || !*at)
		return AI_DROP;
	return ai_time(ctx) - *at <= window_ns ? AI_CHAIN : AI_DROP;
}
