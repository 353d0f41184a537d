// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Labels for page faults to be counted by. */
#include "afterimage.bpf.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

enum parity { EVEN, ODD };

const volatile _Bool only_odd = 0;

struct where {
	enum parity parity;
	char name[16];
};

SEC("perf_event")
int keyed(struct bpf_perf_event_data *ctx)
{
	enum parity parity = ai_addr(ctx) >> 12 & 1;
	struct where where = { .parity = parity };
	char longer[80] = "longer than there is room";
	__u64 number = 7;

	if (only_odd && parity == EVEN)
		return AI_DROP;
	ai_comm(where.name);
	/* What is no label goes nowhere. */
	ai_emit(ctx, &number, sizeof(number));
	ai_label(ctx, "parity", parity);
	ai_label(ctx, "where", where);
	ai_label(ctx, "longer", longer);
	/* No kernel has anything there. */
	ai_label(ctx, "nowhere", *(const __u32 *)8);
	if (parity == ODD)
		ai_label(ctx, "name", where.name);
	return AI_CHAIN;
}
