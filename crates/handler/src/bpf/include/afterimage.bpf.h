/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * afterimage.bpf.h: for programs that run on every sample of a perf event.
 * It is long because it is one file that needs nothing beside it, with every part described.
 *
 *	clang -O2 -g -target bpf -c my.bpf.c
 *	afterimage record --handler my.bpf.o -- command
 *
 * If you have a vmlinux.h, or libbpf's headers, include them before it.
 *
 * A handler is a function in the section "perf_event" that takes `struct bpf_perf_event_data *ctx` and returns a verdict.
 * It runs with interrupts off or in an NMI, on the CPU and in the task that was sampled, never twice at once on one CPU.
 *
 * What the accessors below need from the kernel: those marked [6.2] read the sample that the kernel has prepared for the
 * ring. Where a kernel shows programs no such thing (Linux 6.1 and older), a handler that uses one of them is not loaded,
 * and the loader names the line. All others work everywhere.
 */
#ifndef AFTERIMAGE_BPF_H
#define AFTERIMAGE_BPF_H

/* The registers in a program's context depend on the machine, and clang for BPF does not say which one it is. */
#if !defined(__TARGET_ARCH_x86) && !defined(__TARGET_ARCH_arm64)
#define __TARGET_ARCH_x86
#endif

/* ---- words that libbpf's and the kernel's headers have too ---- */

/* Integers by size, as the kernel names them. */
typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;

/* Puts a function, map or string into a section of the object: SEC("perf_event"), SEC(".maps"), SEC("license"). */
#ifndef SEC
#define SEC(name) __attribute__((section(name), used))
#endif

/* Parts of a map's definition: __uint(type, BPF_MAP_TYPE_HASH); __type(key, __u32); */
#ifndef __uint
#define __uint(name, val) int(*name)[val]
#endif
#ifndef __type
#define __type(name, val) typeof(val) *name
#endif

/* A function that becomes part of its caller; one that never does. */
#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif
#ifndef __noinline
#define __noinline __attribute__((noinline))
#endif

/* A symbol that may be missing; one of the kernel. */
#ifndef __weak
#define __weak __attribute__((weak))
#endif
#ifndef __ksym
#define __ksym __attribute__((section(".ksyms")))
#endif

/* Makes the compiler forget what it knows about a variable, so that a check before this stays where it is. */
#ifndef barrier_var
#define barrier_var(var) asm volatile("" : "+r"(var))
#endif

#ifndef __VMLINUX_H__

/* Kinds of maps, from linux/bpf.h. Maps that evict by age (LRU) are not among them: they can dead-lock in a handler. */
#if !defined(_UAPI__LINUX_BPF_H__) && !defined(AFTERIMAGE_VMLINUX_H)
enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PROG_ARRAY = 3,
	BPF_MAP_TYPE_PERF_EVENT_ARRAY = 4,
	BPF_MAP_TYPE_PERCPU_HASH = 5,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_STACK_TRACE = 7,
	BPF_MAP_TYPE_RINGBUF = 27,
};

/* Flags for bpf_map_update_elem: create or change, create only, change only. */
enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
	BPF_EXIST = 2,
};

/* Flags of a map: elements are allocated as they come; user space may map it as memory. */
enum {
	BPF_F_NO_PREALLOC = 1 << 0,
	BPF_F_MMAPABLE = 1 << 10,
};

/* Flag for bpf_get_stack and bpf_get_stackid: the user's half of the stack instead of the kernel's. */
enum {
	BPF_F_USER_STACK = 1 << 8,
};
#endif

/* The registers at the sample. On x86-64 they are the kernel's struct pt_regs, on arm64 its struct user_pt_regs. */
#if !defined(_UAPI__LINUX_BPF_PERF_EVENT_H__) && !defined(AFTERIMAGE_VMLINUX_H)
#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip, cs, flags, sp, ss;
};
typedef struct pt_regs bpf_user_pt_regs_t;
#else
struct user_pt_regs {
	__u64 regs[31];
	__u64 sp, pc, pstate;
};
typedef struct user_pt_regs bpf_user_pt_regs_t;
#endif

/* What a handler is given. Of its own fields, addr holds garbage unless the sample has an address: use ai_addr(). */
struct bpf_perf_event_data {
	bpf_user_pt_regs_t regs;
	__u64 sample_period;
	__u64 addr;
};
#endif

#endif /* __VMLINUX_H__ */

/*
 * Functions of the kernel, by their numbers in linux/bpf.h; bpf-helpers(7) describes them. libbpf's bpf_helpers.h has all
 * of them: include it first if you miss one here.
 */
#ifndef __BPF_HELPERS__
/* The value of a key, or 0. */
static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
/* Sets the value of a key; BPF_ANY, BPF_NOEXIST or BPF_EXIST. */
static long (*const bpf_map_update_elem)(void *map, const void *key, const void *value, __u64 flags) = (void *)2;
/* Takes a key out. */
static long (*const bpf_map_delete_elem)(void *map, const void *key) = (void *)3;
/* Nanoseconds of CLOCK_MONOTONIC, the clock of a recording. */
static __u64 (*const bpf_ktime_get_ns)(void) = (void *)5;
/* The CPU that this runs on. */
static __u32 (*const bpf_get_smp_processor_id)(void) = (void *)8;
/* Goes on in another program of a PROG_ARRAY; returns only when there is none. */
static long (*const bpf_tail_call)(void *ctx, void *prog_array_map, __u32 index) = (void *)12;
/* Process id in the high, thread id in the low half, both of the initial pid namespace. */
static __u64 (*const bpf_get_current_pid_tgid)(void) = (void *)14;
/* Group id in the high, user id in the low half. */
static __u64 (*const bpf_get_current_uid_gid)(void) = (void *)15;
/* The name of the thread; at most 16 bytes, with a NUL. */
static long (*const bpf_get_current_comm)(void *buf, __u32 size_of_buf) = (void *)16;
/* Writes a record to the event that a PERF_EVENT_ARRAY has under an index. ai_emit() is the easy way. */
static long (*const bpf_perf_event_output)(void *ctx, void *map, __u64 flags, void *data, __u64 size) = (void *)25;
/* The number of a stack in a STACK_TRACE map. */
static long (*const bpf_get_stackid)(void *ctx, void *map, __u64 flags) = (void *)27;
/* The stack as words. See docs/handlers.md for what must not be asked of events that record call chains. */
static long (*const bpf_get_stack)(void *ctx, void *buf, __u32 size, __u64 flags) = (void *)67;
/* The id of the cgroup (v2) of the task. */
static __u64 (*const bpf_get_current_cgroup_id)(void) = (void *)80;
/* Reads memory of the task; fails where a page is not in memory. */
static long (*const bpf_probe_read_user)(void *dst, __u32 size, const void *unsafe_ptr) = (void *)112;
/* Reads memory of the kernel. */
static long (*const bpf_probe_read_kernel)(void *dst, __u32 size, const void *unsafe_ptr) = (void *)113;
/* Reads a string of the task up to its NUL; gives its length with the NUL. */
static long (*const bpf_probe_read_user_str)(void *dst, __u32 size, const void *unsafe_ptr) = (void *)114;
/* The kernel's task_struct of the running task. */
static void *(*const bpf_get_current_task)(void) = (void *)35;
/* Any number. */
static __u32 (*const bpf_get_prandom_u32)(void) = (void *)7;
#endif

/* ---- verdicts ---- */

enum {
	AI_DROP = 0,  /* no ordinary sample; what was emitted stays */
	AI_CHAIN = 1, /* the kernel writes the ordinary sample as it would have done without a handler */
};

/* ---- what a handler ring holds ---- */

/* The version of all layouts here. */
#define AI_VERSION 1

/* Kinds of payload. */
enum {
	AI_KIND_EMIT = 1,  /* a whole sample, by the built-in handler `emit` */
	AI_KIND_VALUE = 2, /* by ai_emit: this header, __u32 type, __u32 size, then the value */
	AI_KIND_LABEL = 3, /* by ai_label: this header, __u32 type, __u32 size, char key[32], then the value */
};

/* Every payload in a handler ring starts with this. Little-endian, no padding. */
struct ai_hdr {
	__u16 version;	  /* AI_VERSION */
	__u16 size;	  /* bytes of the whole payload, without the padding that the ring adds */
	__u16 kind;	  /* AI_KIND_* */
	__u16 handler;	  /* the handler's number in this session */
	__u32 generation; /* which pair of gate and handler was in force */
	__u32 cpu;	  /* where the sample was taken */
	__u64 time;	  /* the sample's own, in ns on the event's clock; 0 where the kernel gives none */
	__u64 ip;	  /* where the sample was taken in the code */
	__u64 seq;	  /* how many samples with a stub this CPU had seen; the same for all payloads of one sample */
};

/* ---- what handlers share with the program that runs them ---- */

/* Flags of the sample in flight, in ai_cpu.flags. */
enum {
	AI_FILTERED = 1 << 0, /* set by a gate that refuses the sample */
	AI_OUTPUT = 1 << 1,   /* set by whoever tried to store or send the sample; ai_emit and ai_label do */
};

/* How many changes of the handler each CPU remembers. */
#define AI_PAIRS 64

/* When a CPU ran a handler first. */
struct ai_seen {
	__u64 time;	  /* of the first sample of this generation on this CPU, ns */
	__u32 generation; /* see ai_hdr */
	__u32 reserved;
};

/* The state of a CPU. The first cache line is what a sample touches. */
struct ai_cpu {
	__u64 seq;	       /* see ai_hdr */
	__u32 event;	       /* index of the event whose sample is in flight */
	__u32 generation;      /* see ai_hdr */
	__u32 flags;	       /* AI_FILTERED, AI_OUTPUT, and what the event asks for */
	__u32 table;	       /* written by user space before the start: number of the CPU's count table plus one, 0 for none */
	__u32 seen_generation; /* the last one in seen */
	__u32 seen_total;      /* generations noted so far; the last one is in seen[(seen_total - 1) % AI_PAIRS] */
	__u64 reserved[4];
	struct ai_seen seen[AI_PAIRS];
};

/* The states of all CPUs, by number. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* CPUs: set by the loader */
	__type(key, __u32);
	__type(value, struct ai_cpu);
} ai_cpus SEC(".maps");

/* What became of the samples of one event on one CPU; two cache lines. Handlers write emitted and emit_lost alone. */
struct ai_counters {
	__u64 handled;	      /* samples that reached the stub */
	__u64 filtered;	      /* refused by the gate */
	__u64 dropped;	      /* dropped by the handler, which gave them to no output */
	__u64 passed;	      /* given to an output */
	__u64 chained;	      /* of those, to the sampling ring */
	__u64 emitted;	      /* records for the handler ring */
	__u64 emit_lost;      /* of those, without room or ring */
	__u64 stored;	      /* counted in the table of `count` */
	__u64 lost_full;      /* not counted, for want of room */
	__u64 lost_collision; /* not counted, for an entry of equal hash */
	__u64 stack_failed;   /* samples whose stack could not be read */
	__u64 reserved[5];
};

/* The counters of all events and CPUs, at event * ai_nr_cpus + cpu. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* events * CPUs: set by the loader */
	__type(key, __u32);
	__type(value, struct ai_counters);
} ai_counters SEC(".maps");

/* Upper bound of CPU numbers, the stride of everything indexed by (event, CPU). Set by the loader. */
const volatile __u32 ai_nr_cpus = 1;

/* The length of a label's key with its NUL, in bytes. */
#define AI_KEY_SIZE 32

/* The longest value of a label that samples may be counted by, in bytes. */
#define AI_LABEL_BYTES 64

/* The label that the sample in flight is counted by. */
struct ai_label_seen {
	__u32 type; /* the value's type in the BTF of the object */
	__u32 size; /* bytes of the value, also where it is longer than there is room; 0: no label was given */
	__u8 bytes[AI_LABEL_BYTES]; /* the value, then zeroes; nothing of one that is too long */
};

#if !defined(AFTERIMAGE_INTERNAL) || defined(AFTERIMAGE_LABELS)
/* That label on each CPU, by number. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* CPUs: set by the loader */
	__type(key, __u32);
	__type(value, struct ai_label_seen);
} ai_labels SEC(".maps");
#endif

#ifndef AFTERIMAGE_INTERNAL

/* The handler's number, which its payloads carry. Set by the loader. */
const volatile __u16 ai_handler_id = 0;

/* Whether this kernel shows programs the sample that it has prepared. Set by the loader. */
const volatile _Bool ai_context = 1;

/* How many words the longest stack of this machine has, markers between kernel and user included. Set by the loader. */
const volatile __u32 ai_stack_words = 136;

/*
 * The key of the label that samples are counted by (`record --by label:NAME`), as words; zero in a recording. Where samples
 * are counted nothing is recorded: ai_emit and all other labels then do nothing. Set by the loader.
 */
const volatile __u64 ai_by_label[AI_KEY_SIZE / 8] = {};

/* ---- the sample ---- */

/* Parts of a sample, for ai_has(). The numbers are those of PERF_SAMPLE_* in linux/perf_event.h. */
enum ai_part {
	AI_IP = 1 << 0,
	AI_TID = 1 << 1,
	AI_TIME = 1 << 2,
	AI_ADDR = 1 << 3,
	AI_CALLCHAIN = 1 << 5,
	AI_ID = 1 << 6 | 1 << 16,
	AI_CPU = 1 << 7,
	AI_PERIOD = 1 << 8,
	AI_RAW = 1 << 10,
	AI_WEIGHT = 1 << 14 | 1 << 24,
	AI_DATA_SRC = 1 << 15,
	AI_CGROUP = 1 << 21,
};

/*
 * The kernel's own structures, as far as they are read here. Every access is relocated to where the running kernel has the
 * field, so neither order nor size matters. What follows three underscores is not part of a name for the kernel.
 */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct perf_callchain_entry___ai {
	__u64 nr;   /* words in ip */
	__u64 ip[]; /* markers and addresses */
};

struct perf_raw_frag___ai {
	void *copy; /* a function that reads the data; 0 when it is plain memory */
	void *data;
	__u32 size;
};

struct perf_raw_record___ai {
	struct perf_raw_frag___ai frag; /* the first piece */
	__u32 size;			/* of all pieces */
};

union perf_sample_weight___ai {
	__u64 full;
};

union perf_mem_data_src___ai {
	__u64 val;
};

struct perf_sample_data___ai {
	__u64 sample_flags; /* which of the others are there */
	__u64 period;
	struct {
		__u32 pid;
		__u32 tid;
	} tid_entry;
	__u64 time;
	__u64 ip;
	__u64 addr;
	__u64 id;
	struct {
		__u32 cpu;
	} cpu_entry;
	union perf_sample_weight___ai weight;
	union perf_mem_data_src___ai data_src;
	__u64 cgroup;
	struct perf_callchain_entry___ai *callchain;
	struct perf_raw_record___ai *raw;
};

struct bpf_perf_event_data_kern___ai {
	struct perf_sample_data___ai *data;
};
#pragma clang attribute pop

/* Gives the kernel's context behind a program's. */
extern void *bpf_cast_to_kern_ctx(void *obj) __weak __ksym;

/* The context with registers of this machine, whatever other headers say about it. */
struct ai_ctx {
#if defined(__TARGET_ARCH_x86)
	struct {
		__u64 r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip, cs, flags, sp, ss;
	} regs;
#else
	struct {
		__u64 regs[31];
		__u64 sp, pc, pstate;
	} regs;
#endif
	__u64 sample_period;
	__u64 addr;
};

/*
 * Reads a word of the context. The kernel takes only its own pointer with a constant offset; a compiler that shares a load
 * between two branches would add to the pointer first.
 */
#define ai_ctx_read(ctx, member) ({							\
	__u64 ai_word;									\
	__asm__("%0 = *(u64 *)(%1 + %2)"						\
		: "=r"(ai_word)								\
		: "r"((void *)(ctx)), "i"(__builtin_offsetof(struct ai_ctx, member)));	\
	ai_word;									\
})

/* One register at the sample, by its name: ai_reg(ctx, sp). x86-64: ax, bx, ..., ip, sp; arm64: regs[0], ..., pc, sp. */
#define ai_reg(ctx, name) ai_ctx_read(ctx, regs.name)

/*
 * Tells the loader that the code from here on makes no sense without the prepared sample. It reads the names of these
 * symbols, which never exist; on kernels that have the sample nothing of this is left.
 */
extern void ai_needs_id(void) __weak __ksym;
extern void ai_needs_weight(void) __weak __ksym;
extern void ai_needs_data_src(void) __weak __ksym;
extern void ai_needs_callchain(void) __weak __ksym;
extern void ai_needs_raw(void) __weak __ksym;
#define AI_NEEDS(what)                                                                                                 \
	do {                                                                                                           \
		if (!ai_context)                                                                                       \
			asm volatile("" : : "r"(ai_needs_##what));                                                     \
	} while (0)

/* The prepared sample. Only where ai_context is set. */
static __always_inline struct perf_sample_data___ai *ai_data(void *ctx)
{
	struct bpf_perf_event_data_kern___ai *kern = bpf_cast_to_kern_ctx(ctx);

	return kern->data;
}

/* Whether the sample has a part. Without the prepared sample: whether an accessor gives something all the same. */
static __always_inline _Bool ai_has(void *ctx, enum ai_part part)
{
	if (ai_context)
		return (ai_data(ctx)->sample_flags & part) != 0;
	return (part & (AI_IP | AI_TID | AI_TIME | AI_ADDR | AI_CPU | AI_PERIOD)) != 0;
}

/* The instruction that was interrupted, or the one that the event names exactly. */
static __always_inline __u64 ai_ip(void *ctx)
{
#if defined(__TARGET_ARCH_x86)
	__u64 ip = ai_reg(ctx, ip);
#else
	__u64 ip = ai_reg(ctx, pc);
#endif

	/* Read in any case: a read from either of two places would need a pointer into the context. */
	barrier_var(ip);
	if (ai_context) {
		struct perf_sample_data___ai *data = ai_data(ctx);

		if (data->sample_flags & AI_IP)
			ip = data->ip;
	}
	return ip;
}

/* The process, as the sample in the recording will name it; 0 is the idle task. */
static __always_inline __u32 ai_pid(void *ctx)
{
	if (ai_context) {
		struct perf_sample_data___ai *data = ai_data(ctx);

		if (data->sample_flags & AI_TID)
			return data->tid_entry.pid;
	}
	return bpf_get_current_pid_tgid() >> 32;
}

/* The thread. */
static __always_inline __u32 ai_tid(void *ctx)
{
	if (ai_context) {
		struct perf_sample_data___ai *data = ai_data(ctx);

		if (data->sample_flags & AI_TID)
			return data->tid_entry.tid;
	}
	return bpf_get_current_pid_tgid();
}

/* When the sample was taken, in ns of CLOCK_MONOTONIC. Where the sample has no time: now. */
static __always_inline __u64 ai_time(void *ctx)
{
	if (ai_context) {
		struct perf_sample_data___ai *data = ai_data(ctx);

		if (data->sample_flags & AI_TIME)
			return data->time;
	}
	return bpf_ktime_get_ns();
}

/* The CPU. */
static __always_inline __u32 ai_cpu(void *ctx)
{
	return bpf_get_smp_processor_id();
}

/* For how many events this sample stands. */
static __always_inline __u64 ai_period(void *ctx)
{
	return ai_ctx_read(ctx, sample_period);
}

/*
 * The address that the event is about: of the page fault, of the data that was accessed. 0 when the sample has none; on
 * kernels that show no prepared sample it is then whatever the kernel's stack held.
 */
static __always_inline __u64 ai_addr(void *ctx)
{
	__u64 addr = 0;

	if (!ai_context)
		return ai_ctx_read(ctx, addr);
	if (ai_data(ctx)->sample_flags & AI_ADDR)
		addr = ai_data(ctx)->addr;
	return addr;
}

/* The id of the task's cgroup (v2): what `stat -c %i` says of its directory. */
static __always_inline __u64 ai_cgroup(void *ctx)
{
	if (ai_context) {
		struct perf_sample_data___ai *data = ai_data(ctx);

		if (data->sample_flags & AI_CGROUP)
			return data->cgroup;
	}
	return bpf_get_current_cgroup_id();
}

/*
 * The accessors that need the prepared sample are macros, so that the loader can name the line that uses one.
 */

/* The id of the event that the sample belongs to; events inherited by children have others. 0: none. [6.2] */
#define ai_id(ctx) ({ AI_NEEDS(id); ai_read_id(ctx); })

static __always_inline __u64 ai_read_id(void *ctx)
{
	if (ai_context && (ai_data(ctx)->sample_flags & AI_ID))
		return ai_data(ctx)->id;
	return 0;
}

/* What the access cost, as the processor counts it. 0: none. [6.2] */
#define ai_weight(ctx) ({ AI_NEEDS(weight); ai_read_weight(ctx); })

static __always_inline __u64 ai_read_weight(void *ctx)
{
	if (ai_context && (ai_data(ctx)->sample_flags & AI_WEIGHT))
		return ai_data(ctx)->weight.full;
	return 0;
}

/* Where the data came from: union perf_mem_data_src of linux/perf_event.h. 0: none. [6.2] */
#define ai_data_src(ctx) ({ AI_NEEDS(data_src); ai_read_data_src(ctx); })

static __always_inline __u64 ai_read_data_src(void *ctx)
{
	if (ai_context && (ai_data(ctx)->sample_flags & AI_DATA_SRC))
		return ai_data(ctx)->data_src.val;
	return 0;
}

/* How many words the call chain has, markers between its parts included. 0: none. [6.2] */
#define ai_callchain_words(ctx) ({ AI_NEEDS(callchain); ai_read_callchain_words(ctx); })

static __always_inline __u64 ai_read_callchain_words(void *ctx)
{
	if (ai_context && (ai_data(ctx)->sample_flags & AI_CALLCHAIN))
		return ai_data(ctx)->callchain->nr;
	return 0;
}

/*
 * Copies the beginning of the call chain into `buf`, which has room for `words` words. Gives the number of words that were
 * copied. The kernel's part follows a word 0xffffffffffffff80, the user's 0xfffffffffffffe00. This leaves the sample as it
 * is, which bpf_get_stack() may not. [6.2]
 */
#define ai_callchain(ctx, buf, words) ({ AI_NEEDS(callchain); ai_read_callchain((ctx), (buf), (words)); })

static __always_inline __u64 ai_read_callchain(void *ctx, __u64 *buf, __u32 words)
{
	__u64 nr = ai_read_callchain_words(ctx);

	if (!ai_context)
		return 0;
	if (nr > words)
		nr = words;
	if (!nr || bpf_probe_read_kernel(buf, nr * sizeof(__u64), ai_data(ctx)->callchain->ip))
		return 0;
	return nr;
}

/*
 * Copies the beginning of the raw data into `buf` of `size` bytes, where it is plain memory in one piece. Gives the number
 * of bytes that were copied. [6.2]
 */
#define ai_raw(ctx, buf, size) ({ AI_NEEDS(raw); ai_read_raw((ctx), (buf), (size)); })

static __always_inline __u32 ai_read_raw(void *ctx, void *buf, __u32 size)
{
	struct perf_sample_data___ai *data;
	__u64 have;

	if (!ai_context)
		return 0;
	data = ai_data(ctx);
	if (!(data->sample_flags & AI_RAW) || data->raw->frag.copy)
		return 0;
	have = data->raw->frag.size;
	if (have > size)
		have = size;
	if (!have || bpf_probe_read_kernel(buf, have, data->raw->frag.data))
		return 0;
	return have;
}

/* The name of the thread, into an array of at most 16 bytes: char name[16]; ai_comm(name); */
#define ai_comm(array) bpf_get_current_comm((array), sizeof(array))

/* ---- output ---- */

/* The longest value that ai_emit and ai_label take, in bytes. */
#define AI_VALUE_MAX 4096

/* A payload that is being put together: a value stands in bytes, a label's value behind its key. */
struct ai_payload {
	struct ai_hdr hdr;
	__u32 type; /* the value's type in the BTF of this object */
	__u32 size; /* bytes of the value */
	__u8 bytes[AI_KEY_SIZE + AI_VALUE_MAX];
};

/* Where it is put together. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ai_payload);
} ai_payloads SEC(".maps");

/* The handler rings, at event * ai_nr_cpus + cpu. */
struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(max_entries, 1); /* events * CPUs: set by the loader */
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} ai_outputs SEC(".maps");

/* Sends a payload of `size` bytes from `value`, whose key, if it has one, is there already. 0, or a negative errno. */
static __always_inline long ai_send(void *ctx, struct ai_payload *out, __u32 kind, __u32 before, __u32 type,
				    const void *value, __u64 size)
{
	__u32 cpu = bpf_get_smp_processor_id(), at;
	struct ai_cpu *cell = bpf_map_lookup_elem(&ai_cpus, &cpu);
	struct ai_counters *counters;
	__u64 time = 0;
	long error;

	if (!cell)
		return -2;
	at = cell->event * ai_nr_cpus + cpu;
	counters = bpf_map_lookup_elem(&ai_counters, &at);
	if (!counters)
		return -2;
	cell->flags |= AI_OUTPUT;
	counters->emitted++;
	barrier_var(size);
	if (size > AI_VALUE_MAX) {
		counters->emit_lost++;
		return -7;
	}
	if (ai_context && (ai_data(ctx)->sample_flags & AI_TIME))
		time = ai_data(ctx)->time;
	out->hdr.version = AI_VERSION;
	out->hdr.size = sizeof(struct ai_hdr) + 8 + before + size;
	out->hdr.kind = kind;
	out->hdr.handler = ai_handler_id;
	out->hdr.generation = cell->generation;
	out->hdr.cpu = cpu;
	out->hdr.time = time;
	out->hdr.ip = ai_ip(ctx);
	out->hdr.seq = cell->seq;
	out->type = type;
	out->size = size;
	error = bpf_probe_read_kernel(&out->bytes[before], size, value);
	if (!error)
		error = bpf_perf_event_output(ctx, &ai_outputs, at, out, sizeof(struct ai_hdr) + 8 + before + size);
	if (error)
		counters->emit_lost++;
	return error;
}

static __always_inline long ai_send_value(void *ctx, __u32 type, const void *value, __u64 size)
{
	__u32 zero = 0;
	struct ai_payload *out;

	if (ai_by_label[0])
		return 0;
	out = bpf_map_lookup_elem(&ai_payloads, &zero);
	return out ? ai_send(ctx, out, AI_KIND_VALUE, 0, type, value, size) : -2;
}

/* Keeps a label for the one that counts the sample, if it is the one that samples are counted by. */
static __always_inline long ai_note_label(const char *key, __u64 length, __u32 type, const void *value, __u64 size)
{
	__u32 cpu = bpf_get_smp_processor_id();
	__u64 words[AI_KEY_SIZE / 8] = {};
	struct ai_label_seen *seen;
	long error;

	__builtin_memcpy(words, key, length);
	if (words[0] != ai_by_label[0] || words[1] != ai_by_label[1] || words[2] != ai_by_label[2] ||
	    words[3] != ai_by_label[3])
		return 0;
	seen = bpf_map_lookup_elem(&ai_labels, &cpu);
	if (!seen)
		return -2;
	/* What cannot be read is no label: not one of this size with nothing in it. */
	seen->size = 0;
	__builtin_memset(seen->bytes, 0, AI_LABEL_BYTES);
	if (size <= AI_LABEL_BYTES) {
		error = bpf_probe_read_kernel(seen->bytes, size, value);
		if (error)
			return error;
	}
	seen->type = type;
	seen->size = size;
	return size > AI_LABEL_BYTES ? -7 : 0;
}

static __always_inline long ai_send_label(void *ctx, const char *key, __u64 length, __u32 type, const void *value,
					  __u64 size)
{
	__u32 zero = 0;
	struct ai_payload *out;

	if (ai_by_label[0])
		return ai_note_label(key, length, type, value, size);
	out = bpf_map_lookup_elem(&ai_payloads, &zero);
	if (!out)
		return -2;
	__builtin_memset(out->bytes, 0, AI_KEY_SIZE);
	__builtin_memcpy(out->bytes, key, length);
	return ai_send(ctx, out, AI_KIND_LABEL, AI_KEY_SIZE, type, value, size);
}

/*
 * Writes `size` bytes from `pointer` to the handler ring. The type that the pointer points at is found in the object's BTF
 * by whoever reads the recording, so fields have their names there. Several times a sample, if need be. Gives 0, or a
 * negative number when the record was lost, which is counted.
 */
#define ai_emit(ctx, pointer, size)                                                                                    \
	ai_send_value((ctx), __builtin_btf_type_id(*(pointer), 0), (const void *)(pointer), (size))

/*
 * Labels the sample: `key` is a string of at most 31 characters, `value` a variable of any type that is not a pointer
 * (a string is a char array). Gives 0, or a negative number when the record was lost, which is counted.
 */
#define ai_label(ctx, key, value)                                                                                      \
	({                                                                                                             \
		_Static_assert(sizeof(key) <= AI_KEY_SIZE, "a label's key has at most 31 characters");                 \
		_Static_assert(sizeof(value) <= AI_VALUE_MAX, "a label's value has at most AI_VALUE_MAX bytes");       \
		ai_send_label((ctx), (key), sizeof(key), __builtin_btf_type_id(value, 0), &(value), sizeof(value));    \
	})

#endif /* AFTERIMAGE_INTERNAL */

#endif
