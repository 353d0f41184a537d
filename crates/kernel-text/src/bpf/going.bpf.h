/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What the programs that copy text at its free have in common, wherever they are attached: which texts a kernel object has,
 * and their way into the ring. Each object that includes this has a ring and counters of its own.
 */
#ifndef AFTERIMAGE_GOING_H
#define AFTERIMAGE_GOING_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include "capture.bpf.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* What is said before the programs are loaded. */
struct ai_options {
	__u64 program, trampoline, map; /* addresses of the workers' functions; 0 for one that is not to be looked for */
	__u64 tells;                    /* not 0: the bytes are copied by others, and wanted is no more than the news */
};

const volatile struct ai_options ai_options = {};

static struct ai_stats ai_stats;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 22);
} ai_ring SEC(".maps");

/* The reader is woken only when so much waits; otherwise it comes by itself at each pass. */
#define AI_WAKE (1 << 20)

/* One text on its way into the ring. */
struct ai_job {
	__u64 time, owner, addr, loaded, name;
	__u64 tag;
	__u32 length, function, functions, type, what;
	__u32 lost, unreadable;
};

/* Room in the ring for one piece of a text, with all but its bytes. */
static __always_inline struct ai_text *ai_begin(struct ai_job *job, __u32 offset, const __u32 room)
{
	struct ai_text *text = bpf_ringbuf_reserve(&ai_ring, sizeof(*text) + room, 0);

	if (!text) {
		job->lost = 1;
		return NULL;
	}
	text->time = job->time;
	text->owner = job->owner;
	text->addr = job->addr;
	text->loaded = job->loaded;
	text->length = job->length;
	text->offset = offset;
	text->bytes = 0;
	text->error = 0;
	text->function = job->function;
	text->functions = job->functions;
	text->type = job->type;
	text->what = job->what;
	__builtin_memcpy(text->tag, &job->tag, sizeof(text->tag));
	text->name[0] = 0;
	if (job->name)
		bpf_probe_read_kernel_str(text->name, sizeof(text->name), (void *)job->name);
	return text;
}

static __always_inline void ai_submit(struct ai_text *text)
{
	bpf_ringbuf_submit(text, bpf_ringbuf_query(&ai_ring, BPF_RB_AVAIL_DATA) > AI_WAKE ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);
}

static __always_inline void ai_put(struct ai_job *job, __u32 offset, __u64 bytes, const __u32 room)
{
	struct ai_text *text = ai_begin(job, offset, room);

	if (!text)
		return;
	/* The compiler would else check one copy of the value and pass another. */
	barrier_var(bytes);
	if (bytes > room)
		bytes = room;
	text->bytes = bytes;
	text->error = bpf_probe_read_kernel(text->data, bytes, (void *)(job->addr + offset));
	if (text->error)
		job->unreadable = 1;
	ai_submit(text);
}

/* No more than that the text goes, or came. */
static void ai_tell(struct ai_job *job)
{
	struct ai_text *text = ai_begin(job, 0, 0);

	if (text)
		ai_submit(text);
}

static long ai_piece(__u32 index, struct ai_job *job)
{
	__u32 offset = index * AI_PIECE, left;

	if (offset >= job->length)
		return 1;
	left = job->length - offset;
	if (left <= 192)
		ai_put(job, offset, left, 192);
	else if (left <= 960)
		ai_put(job, offset, left, 960);
	else
		ai_put(job, offset, left, AI_PIECE);
	return 0;
}

static void ai_text(struct ai_job *job)
{
	job->lost = 0;
	job->unreadable = 0;
	__sync_fetch_and_add(&ai_stats.texts, 1);
	/* Where the kernel does not know the length, its bytes show it. */
	if (ai_options.tells && !(job->what == AI_TRAMPOLINE && job->loaded)) {
		ai_tell(job);
		if (job->lost)
			__sync_fetch_and_add(&ai_stats.lost, 1);
		return;
	}
	bpf_loop(AI_PIECES, ai_piece, job, 0);
	__sync_fetch_and_add(&ai_stats.bytes, job->length);
	if (job->lost)
		__sync_fetch_and_add(&ai_stats.lost, 1);
	if (job->unreadable)
		__sync_fetch_and_add(&ai_stats.unreadable, 1);
	if (job->length > AI_PIECE * AI_PIECES)
		__sync_fetch_and_add(&ai_stats.cut, 1);
}

/* The functions of one program. */
struct ai_functions {
	struct ai_job *job;
	__u64 list;
	__u32 count;
};

static void ai_function(struct ai_job *job, struct bpf_prog *prog)
{
	job->addr = (__u64)BPF_CORE_READ(prog, bpf_func);
	job->length = BPF_CORE_READ(prog, jited_len);
	BPF_CORE_READ_INTO(&job->tag, prog, tag);
	/* One that is interpreted has no text of its own. */
	if (job->length)
		ai_text(job);
}

static long ai_next_function(__u32 index, struct ai_functions *all)
{
	struct ai_job *job = all->job;
	struct bpf_prog *prog = NULL;

	if (index >= all->count)
		return 1;
	if (bpf_probe_read_kernel(&prog, sizeof(prog), (void *)(all->list + 8 * (__u64)index)))
		return 1;
	/* The main function is known by the name of the whole program, which was set before. */
	if (index)
		job->name = (__u64)BPF_CORE_READ(prog, aux) + bpf_core_field_offset(struct bpf_prog_aux, ksym.name);
	job->function = index;
	ai_function(job, prog);
	return 0;
}

/* The object that a piece of work lies in, as a number: the verifier follows no pointer to before what it points at. */
static __always_inline void *ai_around(struct work_struct *work, __u64 offset)
{
	__u64 at = 0;

	bpf_probe_read_kernel(&at, sizeof(at), &work);
	return (void *)(at - offset);
}

static void ai_program(struct work_struct *work)
{
	struct bpf_prog_aux *aux = ai_around(work, bpf_core_field_offset(struct bpf_prog_aux, work));
	struct bpf_prog *prog = BPF_CORE_READ(aux, prog);
	struct ai_job job = {};
	struct ai_functions all = { .job = &job };

	job.time = bpf_ktime_get_ns();
	job.owner = (__u64)aux;
	job.loaded = BPF_CORE_READ(aux, load_time);
	job.name = (__u64)aux + bpf_core_field_offset(struct bpf_prog_aux, ksym.name);
	job.type = BPF_CORE_READ(prog, type);
	job.what = AI_PROGRAM;
	if (bpf_core_field_exists(aux->real_func_cnt))
		all.count = BPF_CORE_READ(aux, real_func_cnt);
	else
		all.count = BPF_CORE_READ(aux, func_cnt);
	__sync_fetch_and_add(&ai_stats.freed, 1);
	if (!all.count) {
		job.functions = 1;
		ai_function(&job, prog);
		return;
	}
	job.functions = all.count;
	all.list = (__u64)BPF_CORE_READ(aux, func);
	bpf_loop(AI_FUNCTIONS, ai_next_function, &all, 0);
}

static void ai_trampoline(struct work_struct *work)
{
	struct bpf_tramp_image *image = ai_around(work, bpf_core_field_offset(struct bpf_tramp_image, work));
	struct ai_job job = {};

	job.time = bpf_ktime_get_ns();
	job.owner = (__u64)image;
	job.name = (__u64)image + bpf_core_field_offset(struct bpf_tramp_image, ksym.name);
	job.addr = (__u64)BPF_CORE_READ(image, image);
	job.what = AI_TRAMPOLINE;
	job.functions = 1;
	if (bpf_core_field_exists(image->size)) {
		job.length = BPF_CORE_READ(image, size);
	} else {
		/* A page of its own, whatever it holds. */
		job.length = 4096;
		job.loaded = 1;
	}
	__sync_fetch_and_add(&ai_stats.freed, 1);
	ai_text(&job);
}

/* The functions of one structure. */
struct ai_members {
	struct ai_job *job;
	__u64 list;
	__u32 count;
};

static long ai_next_member(__u32 index, struct ai_members *all)
{
	struct ai_job *job = all->job;
	struct bpf_ksym *symbol = NULL;

	if (index >= all->count)
		return 1;
	/* Members without a program have no symbol; those that have one stand in front. */
	if (bpf_probe_read_kernel(&symbol, sizeof(symbol), (void *)(all->list + 8 * (__u64)index)) || !symbol)
		return 1;
	job->addr = BPF_CORE_READ(symbol, start);
	job->length = BPF_CORE_READ(symbol, end) - job->addr;
	job->name = (__u64)symbol + bpf_core_field_offset(struct bpf_ksym, name);
	job->function = index;
	ai_text(job);
	return 0;
}

/* A map that goes: if it is a structure of functions, these go with it. */
static void ai_map(struct work_struct *work)
{
	struct bpf_map *map = ai_around(work, bpf_core_field_offset(struct bpf_map, work));
	struct bpf_struct_ops_map *ops = (void *)map;
	struct ai_job job = {};
	struct ai_members all = { .job = &job };

	if (!bpf_core_field_exists(ops->ksyms) || BPF_CORE_READ(map, map_type) != BPF_MAP_TYPE_STRUCT_OPS)
		return;
	job.time = bpf_ktime_get_ns();
	job.owner = (__u64)map;
	job.what = AI_STRUCT_OPS;
	all.count = BPF_CORE_READ(ops, funcs_cnt);
	job.functions = all.count;
	all.list = (__u64)BPF_CORE_READ(ops, ksyms);
	__sync_fetch_and_add(&ai_stats.freed, 1);
	bpf_loop(AI_MEMBERS, ai_next_member, &all, 0);
}

/* Where a module's text is, in the core or in what only its initialisation needs. */
static __always_inline void ai_module_text(struct ai_job *job, struct module *module, bool init)
{
	if (bpf_core_field_exists(module->mem)) {
		if (init) {
			job->addr = (__u64)BPF_CORE_READ(module, mem[4].base);
			job->length = BPF_CORE_READ(module, mem[4].size);
		} else {
			job->addr = (__u64)BPF_CORE_READ(module, mem[0].base);
			job->length = BPF_CORE_READ(module, mem[0].size);
		}
	} else {
		struct module___old *old = (void *)module;

		if (init) {
			job->addr = (__u64)BPF_CORE_READ(old, init_layout.base);
			job->length = BPF_CORE_READ(old, init_layout.text_size);
		} else {
			job->addr = (__u64)BPF_CORE_READ(old, core_layout.base);
			job->length = BPF_CORE_READ(old, core_layout.text_size);
		}
	}
}

static __always_inline void ai_module(struct module *module, __u32 what)
{
	struct ai_job job = {};

	job.time = bpf_ktime_get_ns();
	job.owner = (__u64)module;
	job.name = (__u64)module + bpf_core_field_offset(struct module, name);
	job.what = what;
	job.functions = 1;
	ai_module_text(&job, module, what == AI_MODULE_INIT);
	if (job.addr && job.length)
		ai_text(&job);
}

SEC("syscall")
int ai_read_stats(struct ai_stats *ctx)
{
	ctx->freed = ai_stats.freed;
	ctx->texts = ai_stats.texts;
	ctx->lost = ai_stats.lost;
	ctx->unreadable = ai_stats.unreadable;
	ctx->cut = ai_stats.cut;
	ctx->bytes = ai_stats.bytes;
	return 0;
}

#endif
