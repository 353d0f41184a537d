/* SPDX-License-Identifier: GPL-2.0 */
/* What the parts of the module know of each other. */
#ifndef KQC_H
#define KQC_H

#include <linux/srcu.h>
#include <linux/types.h>

struct file;
struct kcore_qc_query;

enum kqc_kind {
	KQC_PIECE,	/* of a pack of BPF text: bpf_prog_pack_free */
	KQC_PAGES,	/* execmem_free, which was module_memfree */
};

/* hold.c: what is held, and for whom. */
extern struct srcu_struct kqc_frees;
int kqc_hold_init(void);
void kqc_hold_exit(void);
bool kqc_asked(void);
bool kqc_hold(enum kqc_kind kind, void *address, u32 size, u64 bytes);
int kqc_end_pass(struct file *file);
void kqc_close(struct file *file);
void kqc_query(struct file *file, struct kcore_qc_query *query);

/* hooks.c: the kernel's functions. */
int kqc_hooks_install(void);
void kqc_hooks_remove(void);
void kqc_free_now(enum kqc_kind kind, void *address, u32 size);

#endif
