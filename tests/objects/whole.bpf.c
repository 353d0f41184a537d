// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Tells everything that it can see of each sample, and does with it what it is told. */
#include "afterimage.bpf.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

enum verdict { DROP, CHAIN };
enum mood { CALM = 1, HURRIED = 7 };

const volatile enum verdict verdict = CHAIN;
const volatile _Bool emits = 1;
const volatile _Bool labels = 1;
const volatile __u32 every = 1;
const volatile short shift = -1;
const volatile enum mood mood = CALM;
const volatile char place[16] = "nowhere";

struct point {
	int x;
	__u32 y;
};

struct seen {
	__u64 ip, addr, time, period, cgroup, id, sp;
	__u32 pid, tid, cpu, words;
	char comm[16];
	struct point points[2];
	enum mood mood;
	__s16 shift;
	__u64 chain[4];
};

/* Samples that it has seen, for a test to look at. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} runs SEC(".maps");

SEC("perf_event")
int whole(struct bpf_perf_event_data *ctx)
{
	struct seen seen = {};
	__u32 zero = 0;
	__u64 *run = bpf_map_lookup_elem(&runs, &zero);
	char where[16];

	if (run && __sync_fetch_and_add(run, 1) % (every ? every : 1))
		return verdict;
	seen.ip = ai_ip(ctx);
	seen.addr = ai_addr(ctx);
	seen.time = ai_time(ctx);
	seen.period = ai_period(ctx);
	seen.cgroup = ai_cgroup(ctx);
	seen.id = ai_id(ctx);
	seen.sp = ai_reg(ctx, sp);
	seen.pid = ai_pid(ctx);
	seen.tid = ai_tid(ctx);
	seen.cpu = ai_cpu(ctx);
	seen.words = ai_callchain(ctx, seen.chain, 4);
	ai_comm(seen.comm);
	seen.points[1].x = -3;
	seen.points[1].y = 4;
	seen.mood = mood;
	seen.shift = shift;
	if (emits)
		ai_emit(ctx, &seen, sizeof(seen));
	if (labels) {
		for (int i = 0; i < 16; i++)
			where[i] = place[i];
		ai_label(ctx, "place", where);
		ai_label(ctx, "mood", seen.mood);
		ai_label(ctx, "addr", seen.addr);
	}
	return verdict;
}
