/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What the programs of afterimage share beyond what they share with the handlers of others: the slots, the control word and
 * what an event asks for.
 *
 * Who writes what: a perf_event program runs alone on its CPU (the kernel refuses to nest them by bpf_prog_active), so
 * everything indexed by CPU has one writer and needs no atomics. User space only reads it, through a mapping.
 */
#ifndef AFTERIMAGE_INTERNAL_BPF_H
#define AFTERIMAGE_INTERNAL_BPF_H

#define AFTERIMAGE_INTERNAL

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "include/afterimage.bpf.h"

/* Numbers of the built-in handlers, as in ai_hdr.handler. */
enum {
	AI_HANDLER_NONE = 0,
	AI_HANDLER_EMIT = 1,
	AI_HANDLER_COUNT = 2,
};

/* Slots behind those of the pairs, for counting by a label: the object that gives it, and what counts. */
enum {
	AI_LABEL_SLOT = 2 * AI_PAIRS,
	AI_BY_SLOT,
	AI_SLOTS,
};

/* Two slots for each pair: the gate, then the handler. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, AI_SLOTS);
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

/* Flags of ai_cpu.flags that tell what the event asked for. */
enum {
	AI_STACK = 1 << 8,
	AI_NO_KERNEL_STACK = 1 << 9,
	AI_NO_USER_STACK = 1 << 10,
};

#endif
