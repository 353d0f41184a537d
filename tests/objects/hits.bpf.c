// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Says of each sample what the test can check against the sample itself. */
#include "afterimage.bpf.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

enum tier { EVEN = 1, ODD = 2 };

struct hit {
	__u64 stamp;
	__s32 pid;
	enum tier tier;
	char comm[16];
	struct {
		__u16 cpu;
		__u16 low : 3, sign : 13;
	} place;
	_Bool odd;
	__s16 both[2];
};

/* Which samples chain: 0 none, 1 all, 2 those of odd pages. */
const volatile int chain = 1;
/* How many values there are of each sample, and whether there are labels. */
const volatile __u32 values = 1;
const volatile _Bool labels = 1;

/* By the time, which is as good as random in its last bit. */
SEC("perf_event")
int hits(struct bpf_perf_event_data *ctx)
{
	__u64 stamp = ai_time(ctx);
	_Bool odd = stamp & 1;
	enum tier tier = odd ? ODD : EVEN;
	struct hit hit = {};

	hit.stamp = stamp;
	hit.pid = ai_pid(ctx);
	hit.tier = tier;
	bpf_get_current_comm(hit.comm, sizeof(hit.comm));
	hit.place.cpu = ai_cpu(ctx);
	hit.place.low = stamp & 7;
	hit.place.sign = 1;
	hit.odd = odd;
	hit.both[0] = -2;
	hit.both[1] = 3;
	if (values > 0)
		ai_emit(ctx, &hit, sizeof(hit));
	if (values > 1)
		ai_emit(ctx, &stamp, sizeof(stamp));
	if (labels) {
		ai_label(ctx, "tier", tier);
		ai_label(ctx, "stamp", stamp);
		ai_label(ctx, "who", hit.comm);
	}
	return chain == 1 || (chain == 2 && odd);
}

/* By the place in the code. */
SEC("perf_event")
int places(struct bpf_perf_event_data *ctx)
{
	__u64 ip = ai_ip(ctx);

	ai_label(ctx, "place", ip);
	return AI_CHAIN;
}
