// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Two handlers that share a map by name: one counts samples and drops them, the other lets them through by that count. */
#include "afterimage.bpf.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

const volatile __u64 least = 1;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} hits SEC(".maps");

SEC("perf_event")
int counting(struct bpf_perf_event_data *ctx)
{
	__u32 zero = 0;
	__u64 *count = bpf_map_lookup_elem(&hits, &zero);

	if (count)
		__sync_fetch_and_add(count, 1);
	return AI_DROP;
}

SEC("perf_event")
int late(struct bpf_perf_event_data *ctx)
{
	__u32 zero = 0;
	__u64 *count = bpf_map_lookup_elem(&hits, &zero);

	return count && *count >= least ? AI_CHAIN : AI_DROP;
}
