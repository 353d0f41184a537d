// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Reading kernel memory and looking up kernel symbols, by BPF_PROG_TEST_RUN. Unlike calls on maps such a run does not keep
 * the programs of perf events from running. What was read comes by a ring, which user space sees as memory.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "capture.bpf.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 * AI_PIECE);
} ai_bytes SEC(".maps");

SEC("syscall")
int ai_read_memory(struct ai_read *ctx)
{
	__u64 length = ctx->length;
	void *bytes = bpf_ringbuf_reserve(&ai_bytes, AI_PIECE, 0);

	ctx->error = -12; /* ENOMEM */
	if (!bytes)
		return 0;
	/* The compiler would else check one copy of the value and pass another. */
	barrier_var(length);
	if (length > AI_PIECE)
		length = AI_PIECE;
	ctx->error = bpf_probe_read_kernel(bytes, length, (void *)ctx->addr);
	if (ctx->error)
		bpf_ringbuf_discard(bytes, BPF_RB_NO_WAKEUP);
	else
		bpf_ringbuf_submit(bytes, BPF_RB_NO_WAKEUP);
	return 0;
}

SEC("syscall")
int ai_find_symbol(struct ai_find *ctx)
{
	__u64 address = 0;
	char name[AI_SYMBOL];

	__builtin_memcpy(name, ctx->name, sizeof(name));
	ctx->error = bpf_kallsyms_lookup_name(name, sizeof(name), 0, &address);
	ctx->address = address;
	return 0;
}
