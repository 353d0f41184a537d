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
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_STRUCT_OPS = 26,
	BPF_MAP_TYPE_RINGBUF = 27,
};

enum bpf_prog_type {
	BPF_PROG_TYPE_UNSPEC = 0,
};

enum {
	BPF_RB_NO_WAKEUP = 1 << 0,
	BPF_RB_FORCE_WAKEUP = 1 << 1,
};

enum {
	BPF_RB_AVAIL_DATA = 0,
};

/* The arguments of a raw tracepoint, uapi/linux/bpf.h. */
struct bpf_raw_tracepoint_args {
	__u64 args[0];
};

#ifndef BPF_NO_PRESERVE_ACCESS_INDEX
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
#endif

struct work_struct;
typedef void (*work_func_t)(struct work_struct *work);

struct work_struct {
	work_func_t func;
};

struct llist_node {
	struct llist_node *next;
};

struct bpf_ksym {
	unsigned long start;
	unsigned long end;
	char name[128];
};

struct bpf_prog;

struct bpf_prog_aux {
	__u32 id;
	__u32 func_cnt;
	__u32 real_func_cnt;
	struct bpf_prog **func;
	struct bpf_ksym ksym;
	struct bpf_prog *prog;
	__u64 load_time;
	struct work_struct work;
};

struct bpf_prog {
	enum bpf_prog_type type;
	__u32 jited_len;
	__u8 tag[8];
	unsigned int (*bpf_func)(const void *ctx, const void *insn);
	struct bpf_prog_aux *aux;
};

struct bpf_tramp_image {
	void *image;
	int size;
	struct bpf_ksym ksym;
	struct work_struct work;
};

struct bpf_map {
	enum bpf_map_type map_type;
	struct work_struct work;
};

/* Its functions have symbols since Linux 6.14. */
struct bpf_struct_ops_map {
	struct bpf_map map;
	struct bpf_ksym **ksyms;
	__u32 funcs_cnt;
};

struct module_memory {
	void *base;
	unsigned int size;
};

struct module {
	char name[56];
	struct module_memory mem[7];
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

/* One symbol of /proc/kallsyms, since Linux 6.0. */
struct kallsym_iter {
	unsigned long value;
	char name[128];
	char module_name[56];
	int show_value;
};

struct bpf_iter__ksym {
	struct bpf_iter_meta *meta;
	struct kallsym_iter *ksym;
};

/* Before Linux 6.4. */
struct module_layout___old {
	void *base;
	unsigned int size;
	unsigned int text_size;
};

struct module___old {
	struct module_layout___old core_layout;
	struct module_layout___old init_layout;
};

#ifndef BPF_NO_PRESERVE_ACCESS_INDEX
#pragma clang attribute pop
#endif

#endif
