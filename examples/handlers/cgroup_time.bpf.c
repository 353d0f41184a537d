// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * On-CPU time by cgroup.
 *
 *	clang -O2 -g -target bpf -c cgroup_time.bpf.c
 *	afterimage record -a -e cpu-clock -F 999 --handler cgroup_time.bpf.o -- sleep 10
 *	afterimage script
 *
 * Each CPU adds up the nanoseconds of each cgroup and writes the sum down when another cgroup comes along, or at the latest
 * after `batch` samples, so that few records stand for many samples. The ordinary samples are dropped. The id of a cgroup is
 * the inode of its directory: find /sys/fs/cgroup -inum ID
 */
#include "afterimage.bpf.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Samples that one record stands for, at most. What is left over when a recording ends is less than that on each CPU. */
const volatile __u32 batch = 100;

struct cgroup_time {
	__u64 cgroup;
	__u64 ns;
	__u32 samples;
	__u32 cpu;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cgroup_time);
} sums SEC(".maps");

SEC("perf_event")
int cgroup_time(struct bpf_perf_event_data *ctx)
{
	__u64 cgroup = ai_cgroup(ctx);
	__u32 zero = 0;
	struct cgroup_time *sum = bpf_map_lookup_elem(&sums, &zero);

	if (!sum)
		return AI_CHAIN;
	if (sum->samples && (sum->cgroup != cgroup || sum->samples >= batch)) {
		ai_emit(ctx, sum, sizeof(*sum));
		sum->samples = 0;
		sum->ns = 0;
	}
	sum->cgroup = cgroup;
	sum->cpu = ai_cpu(ctx);
	sum->samples++;
	sum->ns += ai_period(ctx); /* of a clock, the period is time */
	return AI_DROP;
}
