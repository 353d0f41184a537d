// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Labels from the memory of the program that is sampled: what it is working on, as it says itself.
 *
 *	clang -O2 -g -target bpf -c user_label.bpf.c
 *	afterimage record -g --handler user_label.bpf.o --set at=0x4c80e0 -p PID
 *	afterimage report --sort label:phase
 *
 * `at` is the address of an array of at most 32 characters in that program, which it fills with a name, say of the query that it
 * runs: `nm PROGRAM`, plus where it is loaded. A sample of a process that has no such memory has no label.
 */
#include "afterimage.bpf.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

const volatile __u64 at = 0;

SEC("perf_event")
int user_label(struct bpf_perf_event_data *ctx)
{
	char phase[32] = "";

	if (bpf_probe_read_user_str(phase, sizeof(phase), (void *)at) > 0)
		ai_label(ctx, "phase", phase);
	return AI_CHAIN;
}
