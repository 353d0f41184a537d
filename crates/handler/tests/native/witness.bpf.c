// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * What tests of gates see samples with. `witness` writes down every value of a sample and goes on to the gate that is
 * tried; a sample that the gate lets through reaches `passed`. When the gate has decided, `witness` looks once more at what
 * another CPU may change meanwhile, when the task ends or its parent does: such changes go one way only, so that what is the
 * same before and after was the same for the gate, and what is not is written down too. Read by CO-RE and in another order than the gate's own
 * instructions read, so that a mistake there does not repeat itself here.
 */
#include "../../src/bpf/vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

extern void *bpf_cast_to_kern_ctx(void *ctx) __ksym __weak;

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct perf_sample_data___w {
	__u64 sample_flags;
	__u64 addr;
	__u64 time;
	__u64 ip;
	struct {
		__u32 pid;
		__u32 tid;
	} tid_entry;
};
struct bpf_perf_event_data_kern___w {
	struct perf_sample_data___w *data;
};
struct upid___w {
	int nr;
};
struct pid___w {
	unsigned int level;
	struct upid___w numbers[];
};
struct signal_struct___w {
	struct pid___w *pids[4];
};
struct task_struct___w {
	int tgid;
	struct task_struct___w *real_parent;
	struct signal_struct___w *signal;
};
#pragma clang attribute pop

/* The front of struct ai_cpu. */
struct cell {
	__u64 seq;
	__u32 event;
	__u32 generation;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(max_entries, 256);
	__uint(key_size, 4);
	__uint(value_size, 4);
} rings SEC(".maps");

/* The gate that is tried. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, 4);
	__uint(value_size, 4);
} tried SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cell);
} ai_cpus SEC(".maps");

#define CURRENT_CPU 0xffffffffULL
#define LEVELS 8

struct values {
	__u64 kind;
	__u64 seq;
	__u64 ip;
	__u64 addr;
	__u64 period;
	__u64 time;
	__u64 cgroup[LEVELS];
	__u32 pid;
	__u32 tid;
	__u32 cpu;
	__u32 uid;
	__u32 ppid;
	__u32 nspid;
	__u32 user;
	__u32 event;
	char comm[16];
};

/* What may change under the eyes of a gate. */
static __always_inline void changing(__u32 *ppid, __u32 *nspid)
{
	struct task_struct___w *task = (void *)bpf_get_current_task();
	struct pid___w *pid = BPF_CORE_READ(task, signal, pids[1]);
	__u32 level = BPF_CORE_READ(pid, level);

	*ppid = BPF_CORE_READ(task, real_parent, tgid);
	/* An index would count in our struct upid. */
	bpf_core_read(nspid, 4, (void *)pid->numbers + level * bpf_core_type_size(struct upid___w));
}

static __always_inline void common(struct bpf_perf_event_data *ctx, struct cell *cell, struct values *v)
{
	v->kind = 1;
	v->seq = cell->seq;
	v->event = cell->event;
	v->period = ctx->sample_period;
	v->cpu = bpf_get_smp_processor_id();
	v->uid = bpf_get_current_uid_gid();
	changing(&v->ppid, &v->nspid);
#pragma unroll
	for (int i = 0; i < LEVELS; i++)
		v->cgroup[i] = bpf_get_current_ancestor_cgroup_id(i);
	bpf_get_current_comm(v->comm, sizeof(v->comm));
#if defined(__TARGET_ARCH_x86)
	v->user = (ctx->regs.cs & 3) != 0;
#else
	v->user = (ctx->regs.pstate & 15) == 0;
#endif
}

/* Made from a function of its own, the call comes back. */
static __noinline int try(struct bpf_perf_event_data *ctx)
{
	int verdict = 1;

	bpf_tail_call(ctx, &tried, 0);
	barrier_var(verdict);
	return verdict;
}

static __always_inline int go_on(struct bpf_perf_event_data *ctx, struct values *v)
{
	__u32 ppid = 0, nspid = 0;
	int verdict;

	bpf_perf_event_output(ctx, &rings, CURRENT_CPU, v, sizeof(*v));
	verdict = try(ctx);
	changing(&ppid, &nspid);
	if (ppid != v->ppid || nspid != v->nspid) {
		__u64 changed[2] = { 3, v->seq };

		bpf_perf_event_output(ctx, &rings, CURRENT_CPU, changed, sizeof(changed));
	}
	return verdict;
}

SEC("perf_event")
int witness_kern(struct bpf_perf_event_data *ctx)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct cell *cell = bpf_map_lookup_elem(&ai_cpus, &cpu);
	struct bpf_perf_event_data_kern___w *kern = bpf_cast_to_kern_ctx(ctx);
	struct perf_sample_data___w *data = kern->data;
	struct values v = {};

	if (!cell)
		return 1;
	common(ctx, cell, &v);
	v.ip = data->ip;
	v.addr = data->addr;
	v.time = data->time;
	v.pid = data->tid_entry.pid;
	v.tid = data->tid_entry.tid;
	return go_on(ctx, &v);
}

SEC("perf_event")
int witness_plain(struct bpf_perf_event_data *ctx)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct cell *cell = bpf_map_lookup_elem(&ai_cpus, &cpu);
	__u64 ids = bpf_get_current_pid_tgid();
	struct perf_sample_data___w *data;
	struct values v = {};

	if (!cell)
		return 1;
	common(ctx, cell, &v);
	v.ip = AI_REGS_IP(&ctx->regs);
	bpf_core_read(&data, 8, &((struct bpf_perf_event_data_kern___w *)ctx)->data);
	/* PERF_SAMPLE_ADDR */
	if (BPF_CORE_READ(data, sample_flags) & 8)
		v.addr = ctx->addr;
	v.pid = ids >> 32;
	v.tid = ids;
	return go_on(ctx, &v);
}

SEC("perf_event")
int passed(struct bpf_perf_event_data *ctx)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct cell *cell = bpf_map_lookup_elem(&ai_cpus, &cpu);
	__u64 v[2] = { 2 };

	if (!cell)
		return 1;
	v[1] = cell->seq;
	bpf_perf_event_output(ctx, &rings, CURRENT_CPU, v, sizeof(v));
	return 0;
}
