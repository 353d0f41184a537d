// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Copies of kernel text at the entries of the functions that free it, where the kernel lets programs be attached there.
 *
 * All of these functions are the outermost of their kind: they still know what the text belongs to, and none of them is
 * called by the memory allocator, so what others hook further down (the module kcore_qc does) is not in their way. None runs
 * inside of another, nor in what frees a program or trampoline of ours: the kernel frees these only when no CPU and no task
 * can be in them. Where two workers of one CPU meet in one program all the same, the kernel skips and counts the second.
 */
#include "going.bpf.h"

SEC("fentry/bpf_prog_free_deferred")
int BPF_PROG(ai_program_goes, struct work_struct *work)
{
	ai_program(work);
	return 0;
}

SEC("fentry/__bpf_tramp_image_put_deferred")
int BPF_PROG(ai_trampoline_goes, struct work_struct *work)
{
	ai_trampoline(work);
	return 0;
}

SEC("fentry/bpf_map_free_deferred")
int BPF_PROG(ai_map_goes, struct work_struct *work)
{
	ai_map(work);
	return 0;
}

SEC("fentry/do_init_module")
int BPF_PROG(ai_module_comes, struct module *module)
{
	__sync_fetch_and_add(&ai_stats.freed, 1);
	ai_module(module, AI_MODULE_CAME);
	ai_module(module, AI_MODULE_INIT);
	return 0;
}

SEC("fentry/free_module")
int BPF_PROG(ai_module_goes, struct module *module)
{
	__sync_fetch_and_add(&ai_stats.freed, 1);
	ai_module(module, AI_MODULE_GONE);
	return 0;
}
