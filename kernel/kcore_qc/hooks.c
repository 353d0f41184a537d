// SPDX-License-Identifier: GPL-2.0
/*
 * The kernel's functions that are hooked: two through which all text goes that is freed as a whole, and ioctl and release
 * of /proc/kcore.
 *
 * ftrace calls divert() at the entry of each, which goes on in a function of ours instead (IPMODIFY), unless the call comes
 * from this module: so the original can be called by its address. That is done by static calls, direct ones, because the
 * entry of a function that nobody calls by a pointer is no landing place for a pointer (IBT).
 */
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/ftrace.h>
#include <linux/kprobes.h>
#include <linux/magic.h>
#include <linux/module.h>
#include <linux/pgtable.h>
#include <linux/rcupdate.h>
#include <linux/static_call.h>
#include <linux/uaccess.h>
#include <linux/version.h>
#include <linux/vmalloc.h>
#include <asm/ibt.h>

#include "kcore_qc.h"
#include "kqc.h"

#if !defined(CONFIG_X86_64) || LINUX_VERSION_CODE < KERNEL_VERSION(6, 1, 0)
#error "kcore_qc is for x86-64 and Linux 6.1 or later"
#endif

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 10, 0)
#define PAGES_FREE "execmem_free"
#else
#define PAGES_FREE "module_memfree"
#endif
/* Before Linux 6.7 a piece of a pack is told by its header alone, where its size stands. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 7, 0)
#define PIECE_HAS_SIZE 1
#else
#define PIECE_HAS_SIZE 0
#endif
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 2, 0)
#define ftrace_regs_set_instruction_pointer ftrace_instruction_pointer_set
#endif

/* Around each call on /proc files. Not kqc_frees: the first KCORE_QC waits for that one. */
DEFINE_STATIC_SRCU(calls);

/* In place of the kernel's functions until their addresses are known. A second argument that a function does not take is
 * left alone by it. */
static void nothing_freed(void *address, u32 size) {}
static struct vm_struct *no_area(const void *address) { return NULL; }
static long no_ioctl(struct file *file, unsigned int cmd, unsigned long arg) { return -ENOTTY; }
static int no_release(struct inode *inode, struct file *file) { return 0; }

DEFINE_STATIC_CALL(kqc_piece_free, nothing_freed);
DEFINE_STATIC_CALL(kqc_pages_free, nothing_freed);
DEFINE_STATIC_CALL(kqc_find_area, no_area);
DEFINE_STATIC_CALL(kqc_proc_ioctl, no_ioctl);
DEFINE_STATIC_CALL(kqc_release, no_release);

/* Frees as the kernel would have. */
void kqc_free_now(enum kqc_kind kind, void *address, u32 size)
{
	if (kind == KQC_PIECE)
		static_call(kqc_piece_free)(address, size);
	else
		static_call(kqc_pages_free)(address, 0);
	/* No tail call: divert() has to see that this module is the caller. */
	barrier();
}

static noinline void piece_freed(void *address, u32 size)
{
	int reading = srcu_read_lock(&kqc_frees);
	bool held = false;

	if (kqc_asked()) {
		if (!PIECE_HAS_SIZE)
			size = ((struct bpf_binary_header *)address)->size;
		held = kqc_hold(KQC_PIECE, address, size, size);
	}
	if (!held)
		kqc_free_now(KQC_PIECE, address, size);
	srcu_read_unlock(&kqc_frees, reading);
}

/* Whether pages are text. Data of modules is not, and is never held, but before Linux 6.4 it lies behind the text in
 * the same pages and cannot be told from it. */
static bool is_text(void *address)
{
	unsigned int level;
	pte_t *pte = lookup_address((unsigned long)address, &level);

	return pte && pte_present(*pte) && pte_exec(*pte);
}

static noinline void pages_freed(void *address)
{
	int reading = srcu_read_lock(&kqc_frees);
	bool held = false;

	if (kqc_asked() && address && is_text(address)) {
		struct vm_struct *area = static_call(kqc_find_area)(address);

		held = area && kqc_hold(KQC_PAGES, address, 0, (u64)area->nr_pages << PAGE_SHIFT);
	}
	if (!held)
		kqc_free_now(KQC_PAGES, address, 0);
	srcu_read_unlock(&kqc_frees, reading);
}

/* The file `kcore` at the root of a proc file system. */
static bool is_kcore(struct file *file)
{
	struct dentry *dentry = file->f_path.dentry;

	return file_inode(file)->i_sb->s_magic == PROC_SUPER_MAGIC && IS_ROOT(dentry->d_parent) &&
	       !strcmp(dentry->d_name.name, "kcore");
}

static long answer_query(struct file *file, unsigned long arg)
{
	struct kcore_qc_query query;

	kqc_query(file, &query);
	return copy_to_user((void __user *)arg, &query, sizeof(query)) ? -EFAULT : 0;
}

static noinline long proc_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	int reading = srcu_read_lock(&calls);
	long result;

	if (cmd == KCORE_QC && is_kcore(file))
		result = kqc_end_pass(file);
	else if (cmd == KCORE_QC_QUERY && is_kcore(file))
		result = answer_query(file, arg);
	else
		result = static_call(kqc_proc_ioctl)(file, cmd, arg);
	srcu_read_unlock(&calls, reading);
	return result;
}

static noinline int kcore_released(struct inode *inode, struct file *file)
{
	int reading = srcu_read_lock(&calls);
	int result = static_call(kqc_release)(inode, file);

	kqc_close(file);
	srcu_read_unlock(&calls, reading);
	return result;
}

struct hook {
	const char *name;
	void *ours;
	struct ftrace_ops ops;
	bool installed;
};

static void notrace divert(unsigned long ip, unsigned long parent, struct ftrace_ops *ops, struct ftrace_regs *regs)
{
	struct hook *hook = container_of(ops, struct hook, ops);

	if (!within_module(parent, THIS_MODULE))
		ftrace_regs_set_instruction_pointer(regs, (unsigned long)hook->ours);
}

#define HOOK(function, replacement) { \
	.name = function, \
	.ours = replacement, \
	.ops = { \
		.func = divert, \
		.flags = FTRACE_OPS_FL_IPMODIFY | FTRACE_OPS_FL_RECURSION | FTRACE_OPS_FL_PERMANENT, \
	}, \
}

/* Removed in the opposite order, so that the calls are there no longer than the frees. */
static struct hook hooks[] = {
	HOOK("bpf_prog_pack_free", piece_freed),
	HOOK(PAGES_FREE, pages_freed),
	HOOK("release_kcore", kcore_released),
	HOOK("proc_reg_unlocked_ioctl", proc_ioctl),
};

/* The entry of a function that is not exported: where a probe of it would be. */
static void *find(const char *name)
{
	struct kprobe probe = { .symbol_name = name };
	unsigned long address;
	int error = register_kprobe(&probe);

	if (error) {
		pr_err("kcore_qc: no function %s: %d\n", name, error);
		return NULL;
	}
	address = (unsigned long)probe.addr;
	unregister_kprobe(&probe);
#ifdef CONFIG_X86_KERNEL_IBT
	/* Probes are behind the landing place, the call of ftrace too; the entry is before it. */
	if (is_endbr(*(u32 *)(address - 4)))
		address -= 4;
#endif
	return (void *)address;
}

static int install(struct hook *hook, void *original)
{
	int error = ftrace_set_filter_ip(&hook->ops, (unsigned long)original, 0, 0);

	if (!error)
		error = register_ftrace_function(&hook->ops);
	if (error) {
		ftrace_free_filter(&hook->ops);
		pr_err("kcore_qc: hook of %s: %d\n", hook->name, error);
		return error;
	}
	hook->installed = true;
	return 0;
}

int kqc_hooks_install(void)
{
	void *originals[ARRAY_SIZE(hooks)], *find_area = find("find_vm_area");
	int i, error;

	if (!find_area)
		return -ENOENT;
	for (i = 0; i < ARRAY_SIZE(hooks); i++) {
		originals[i] = find(hooks[i].name);
		if (!originals[i])
			return -ENOENT;
	}
	static_call_update(kqc_find_area, find_area);
	static_call_update(kqc_piece_free, originals[0]);
	static_call_update(kqc_pages_free, originals[1]);
	static_call_update(kqc_release, originals[2]);
	static_call_update(kqc_proc_ioctl, originals[3]);
	for (i = 0; i < ARRAY_SIZE(hooks); i++) {
		error = install(&hooks[i], originals[i]);
		if (error) {
			kqc_hooks_remove();
			return error;
		}
	}
	return 0;
}

void kqc_hooks_remove(void)
{
	int i;

	for (i = ARRAY_SIZE(hooks) - 1; i >= 0; i--) {
		if (!hooks[i].installed)
			continue;
		unregister_ftrace_function(&hooks[i].ops);
		ftrace_free_filter(&hooks[i].ops);
		hooks[i].installed = false;
	}
	/* Those who were diverted before have entered our functions, then have left all but their last instructions, then
	 * have left those. */
	synchronize_rcu_tasks();
	synchronize_srcu(&kqc_frees);
	synchronize_srcu(&calls);
	synchronize_rcu_tasks();
}
