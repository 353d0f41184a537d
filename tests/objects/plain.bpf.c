// SPDX-License-Identifier: Apache-2.0 OR MIT
/* What works on every kernel. */
#include "afterimage.bpf.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

const volatile _Bool keep = 1;

struct fact {
	__u64 ip, period, cgroup;
	__u32 pid, tid, cpu;
};

SEC("perf_event")
int plain(struct bpf_perf_event_data *ctx)
{
	struct fact fact = { .ip = ai_ip(ctx), .period = ai_period(ctx), .cgroup = ai_cgroup(ctx), .pid = ai_pid(ctx),
			     .tid = ai_tid(ctx), .cpu = ai_cpu(ctx) };

	/* Never where there is none. */
	if (ai_has(ctx, AI_CALLCHAIN))
		fact.period += ai_callchain_words(ctx) * 0;
	ai_emit(ctx, &fact, sizeof(fact));
	return keep;
}
