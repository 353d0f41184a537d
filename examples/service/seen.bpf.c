// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * What the example service wants to know of a sample of its own threads. It needs the header that
 * `afterimage handler header > afterimage.bpf.h` prints:
 *
 *	clang -O2 -g -target bpf -c seen.bpf.c
 *	cargo run --example service -- seen.bpf.o
 */
#include "afterimage.bpf.h"

char LICENSE[] SEC("license") = "GPL";

/* Samples of threads whose names begin with another letter are dropped; 0: none are. */
const volatile char first_letter = 0;

struct seen {
	__u32 tid;
	char thread[16];
	_Bool in_kernel;
};

SEC("perf_event")
int seen(struct bpf_perf_event_data *ctx)
{
	struct seen seen = { .tid = ai_tid(ctx), .in_kernel = ai_ip(ctx) >> 63 };

	ai_comm(seen.thread);
	if (first_letter && seen.thread[0] != first_letter)
		return AI_DROP;
	ai_emit(ctx, &seen, sizeof(seen));
	return AI_DROP;
}
