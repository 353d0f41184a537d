// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Copies of kernel text at the moment it goes.
 *
 * BPF programs, classic filters, trampolines and maps are freed by workers of the kernel. A tracepoint tells of each worker
 * just before it runs; those that free text are known by their functions, and what they are about to destroy is whole
 * until this program returns. So a copy made here is of the text itself and of nothing that came after it.
 */
#include "going.bpf.h"
#include "symbols.bpf.h"

SEC("tp_btf/workqueue_execute_start")
int BPF_PROG(ai_work, struct work_struct *work)
{
	__u64 function = (__u64)work->func;

	if (function == ai_options.program)
		ai_program(work);
	else if (function == ai_options.trampoline && function)
		ai_trampoline(work);
	else if (function == ai_options.map && function)
		ai_map(work);
	return 0;
}

SEC("raw_tp/module_load")
int ai_module_load(struct bpf_raw_tracepoint_args *ctx)
{
	struct module *module = (void *)ctx->args[0];

	__sync_fetch_and_add(&ai_stats.freed, 1);
	ai_module(module, AI_MODULE_CAME);
	ai_module(module, AI_MODULE_INIT);
	return 0;
}

SEC("raw_tp/module_free")
int ai_module_free(struct bpf_raw_tracepoint_args *ctx)
{
	__sync_fetch_and_add(&ai_stats.freed, 1);
	ai_module((void *)ctx->args[0], AI_MODULE_GONE);
	return 0;
}
