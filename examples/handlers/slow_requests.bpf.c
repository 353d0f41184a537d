// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Only the slow part of requests: samples of threads that have been in a request for longer than `least_ns`.
 *
 *	clang -O2 -g -target bpf -DPROGRAM='"/usr/sbin/server"' -DFUNCTION='"handle_request"' -c slow_requests.bpf.c
 *	afterimage record -a -g --handler slow_requests.bpf.o --set least_ns=5000000
 *
 * Two probes mark the beginning and the end of a request: the function that serves one, in the program that does. A sample that is
 * kept is labelled with how long its request had taken by then.
 */
#include "afterimage.bpf.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#ifndef PROGRAM
#define PROGRAM "/usr/sbin/server"
#endif
#ifndef FUNCTION
#define FUNCTION "handle_request"
#endif

const volatile __u64 least_ns = 5000000;

/* When the request of a thread began. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 10240);
	__type(key, __u32);
	__type(value, __u64);
} requests SEC(".maps");

SEC("uprobe/" PROGRAM ":" FUNCTION)
int request_begins(void *ctx)
{
	__u32 thread = bpf_get_current_pid_tgid();
	__u64 now = bpf_ktime_get_ns();

	bpf_map_update_elem(&requests, &thread, &now, BPF_ANY);
	return 0;
}

SEC("uretprobe/" PROGRAM ":" FUNCTION)
int request_ends(void *ctx)
{
	__u32 thread = bpf_get_current_pid_tgid();

	bpf_map_delete_elem(&requests, &thread);
	return 0;
}

SEC("perf_event")
int slow_requests(struct bpf_perf_event_data *ctx)
{
	__u32 thread = bpf_get_current_pid_tgid();
	__u64 *began = bpf_map_lookup_elem(&requests, &thread), so_far;

	if (!began)
		return AI_DROP;
	so_far = ai_time(ctx) - *began;
	/* A request that began between the sample and now has a negative age. */
	if ((__s64)so_far < 0 || so_far < least_ns)
		return AI_DROP;
	so_far /= 1000;
	ai_label(ctx, "so_far_us", so_far);
	return AI_CHAIN;
}
