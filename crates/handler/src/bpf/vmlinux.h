/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The few kernel types that the programs read. Of kernel structures only the members used are named: every access is
 * relocated against the running kernel's BTF, so neither order nor size matters here. What is uapi is fixed.
 */
#ifndef AFTERIMAGE_VMLINUX_H
#define AFTERIMAGE_VMLINUX_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;

enum { false = 0, true = 1 };

/* uapi/linux/bpf.h */
enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PROG_ARRAY = 3,
	BPF_MAP_TYPE_PERF_EVENT_ARRAY = 4,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
};

enum {
	BPF_F_MMAPABLE = 1 << 10,
	BPF_F_USER_STACK = 1 << 8,
};

/* uapi/linux/perf_event.h */
enum perf_event_sample_format {
	PERF_SAMPLE_IP = 1 << 0,
	PERF_SAMPLE_TID = 1 << 1,
	PERF_SAMPLE_TIME = 1 << 2,
	PERF_SAMPLE_ADDR = 1 << 3,
	PERF_SAMPLE_CALLCHAIN = 1 << 5,
	PERF_SAMPLE_PERIOD = 1 << 8,
	PERF_SAMPLE_WEIGHT = 1 << 14,
	PERF_SAMPLE_WEIGHT_STRUCT = 1 << 24,
};

#define PERF_CONTEXT_KERNEL ((__u64)-128)
#define PERF_CONTEXT_USER ((__u64)-512)
#define PERF_CONTEXT_MAX ((__u64)-4095)

/*
 * The context of a program, which is uapi: whole and not relocated, for the verifier wants constant offsets into it.
 * uapi/linux/bpf_perf_event.h, asm/ptrace.h.
 */
#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip, cs, flags, sp, ss;
};
typedef struct pt_regs bpf_user_pt_regs_t;
#define AI_REGS_IP(regs) ((regs)->ip)
#define AI_REGS_SP(regs) ((regs)->sp)
#define AI_REGS_FP(regs) ((regs)->bp)
#define AI_REGS_USER(regs) (((regs)->cs & 3) == 3)
#elif defined(__TARGET_ARCH_arm64)
struct user_pt_regs {
	__u64 regs[31];
	__u64 sp, pc, pstate;
};
typedef struct user_pt_regs bpf_user_pt_regs_t;
#define AI_REGS_IP(regs) ((regs)->pc)
#define AI_REGS_SP(regs) ((regs)->sp)
#define AI_REGS_FP(regs) ((regs)->regs[29])
#define AI_REGS_USER(regs) (((regs)->pstate & 0xf) == 0)
#else
#error "no register layout for this architecture"
#endif

struct bpf_perf_event_data {
	bpf_user_pt_regs_t regs;
	__u64 sample_period;
	__u64 addr;
};

#ifndef BPF_NO_PRESERVE_ACCESS_INDEX
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
#endif

struct perf_callchain_entry {
	__u64 nr;
	__u64 ip[];
};

union perf_sample_weight {
	__u64 full;
};

struct perf_sample_data {
	__u64 sample_flags;
	__u64 period;
	__u64 addr;
	union perf_sample_weight weight;
	struct {
		__u32 pid;
		__u32 tid;
	} tid_entry;
	__u64 time;
	__u64 ip;
	struct perf_callchain_entry *callchain;
};

struct bpf_perf_event_data_kern {
	struct perf_sample_data *data;
};

struct thread_info {
	__u32 cpu;
};

struct task_struct {
	struct thread_info thread_info;
	unsigned int __state;
	unsigned int flags;
	int on_cpu; /* where there may be several CPUs */
	int pid;
	int tgid;
	__u64 start_time; /* ns of CLOCK_MONOTONIC */
	__u64 self_exec_id;
	char comm[16];
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

#ifndef BPF_NO_PRESERVE_ACCESS_INDEX
#pragma clang attribute pop
#endif

#endif
