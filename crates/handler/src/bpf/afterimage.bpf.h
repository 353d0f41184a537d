/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What every program of afterimage shares: the header of a handler-ring payload, the state of a CPU, the counters, and
 * the maps that hold them.
 *
 * Who writes what: a perf_event program runs alone on its CPU (the kernel refuses to nest them by bpf_prog_active), so
 * everything indexed by CPU has one writer and needs no atomics. User space only reads it, through a mapping.
 */
#ifndef AFTERIMAGE_BPF_H
#define AFTERIMAGE_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

#define AI_VERSION 1

/* Kinds of payload. */
enum {
	AI_KIND_EMIT = 1,
	AI_KIND_VALUE = 2,
	AI_KIND_LABEL = 3,
};

/* Numbers of the built-in handlers, as in ai_hdr.handler. */
enum {
	AI_HANDLER_NONE = 0,
	AI_HANDLER_EMIT = 1,
	AI_HANDLER_COUNT = 2,
};

/* Every payload in a handler ring starts with this. Little-endian, no padding. */
struct ai_hdr {
	__u16 version;
	__u16 size; /* bytes of the whole payload, without the padding that the ring adds */
	__u16 kind;
	__u16 handler;
	__u32 generation;
	__u32 cpu;
	__u64 time; /* the sample's own, in ns on the event's clock; 0 where the kernel gives none */
	__u64 ip;
	__u64 seq; /* the stub's counter on this CPU */
};

#define AI_PAIRS 64

/* Two slots for each pair: the gate, then the handler. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 2 * AI_PAIRS);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} ai_slots SEC(".maps");

static __always_inline __u32 ai_gate_slot(__u32 generation)
{
	return (generation & (AI_PAIRS - 1)) * 2;
}

/* Written by user space alone. */
struct ai_control {
	__u32 generation;
	__u32 fall_through; /* the verdict of an empty slot; in memory, so that no compiler and no verifier folds it */
	__u64 never;        /* zero; see the stub */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ai_control);
} ai_control SEC(".maps");

/* Flags of the sample in flight. The low ones tell the stub what became of it, the high ones what the event asked for. */
enum {
	AI_FILTERED = 1 << 0, /* set by the gate */
	AI_OUTPUT = 1 << 1,   /* set by whoever tried to store or send the sample */
	AI_STACK = 1 << 8,
	AI_NO_KERNEL_STACK = 1 << 9,
	AI_NO_USER_STACK = 1 << 10,
};

struct ai_seen {
	__u64 time; /* of the first sample of this generation on this CPU, ns */
	__u32 generation;
	__u32 reserved;
};

/* One for each CPU. The first cache line is what a sample touches. */
struct ai_cpu {
	__u64 seq;
	__u32 event; /* index of the event whose sample is in flight */
	__u32 generation;
	__u32 flags;
	__u32 table; /* written by user space before the start: number of the CPU's count table plus one, 0 for none */
	__u32 seen_generation;
	__u32 seen_total; /* generations noted so far; the last one is in seen[(seen_total - 1) % AI_PAIRS] */
	__u64 reserved[4];
	struct ai_seen seen[AI_PAIRS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* CPUs: set by the loader */
	__type(key, __u32);
	__type(value, struct ai_cpu);
} ai_cpus SEC(".maps");

/* One for each (event, CPU), at event * CPUs + cpu; two cache lines. */
struct ai_counters {
	__u64 handled;
	__u64 filtered;
	__u64 dropped;
	__u64 passed;
	__u64 chained;
	__u64 emitted;
	__u64 emit_lost;
	__u64 stored;
	__u64 lost_full;
	__u64 lost_collision;
	__u64 stack_failed;
	__u64 reserved[5];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* events * CPUs: set by the loader */
	__type(key, __u32);
	__type(value, struct ai_counters);
} ai_counters SEC(".maps");

/* Upper bound of CPU numbers, the stride of everything indexed by (event, CPU). */
const volatile __u32 ai_nr_cpus = 1;

#endif
