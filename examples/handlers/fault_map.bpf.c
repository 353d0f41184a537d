// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Page-fault addresses as a histogram.
 *
 *	clang -O2 -g -target bpf -c fault_map.bpf.c
 *	afterimage record -e page-faults -c 1 --handler fault_map.bpf.o --set from=0x7f0000000000 --set width=1048576 -- command
 *	afterimage script
 *
 * Counts faults in 32 ranges of `width` bytes from `from` on, and those outside. The table is written down once in `every`
 * faults of a CPU; the last one of each CPU holds its sums. The ordinary samples are dropped.
 */
#include "afterimage.bpf.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

const volatile __u64 from = 0;
const volatile __u64 width = 1ULL << 42;
const volatile __u32 every = 64;

#define RANGES 32

struct fault_map {
	__u64 from, width;
	__u32 cpu, faults, below, above;
	__u32 ranges[RANGES];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct fault_map);
} tables SEC(".maps");

SEC("perf_event")
int fault_map(struct bpf_perf_event_data *ctx)
{
	__u64 address = ai_addr(ctx), range;
	__u32 zero = 0;
	struct fault_map *table = bpf_map_lookup_elem(&tables, &zero);

	if (!table || !ai_has(ctx, AI_ADDR))
		return AI_CHAIN;
	table->from = from;
	table->width = width;
	table->cpu = ai_cpu(ctx);
	table->faults++;
	range = (address - from) / (width ? width : 1);
	if (address < from)
		table->below++;
	else if (range >= RANGES)
		table->above++;
	else
		table->ranges[range & (RANGES - 1)]++;
	if (!every || table->faults % every == 0)
		ai_emit(ctx, table, sizeof(*table));
	return AI_DROP;
}
