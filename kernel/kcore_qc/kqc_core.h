/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The queue, which is written in Rust: core/src/lib.rs says what each function does and asserts the sizes below.
 * All of them are called with kqc_lock held. None waits, allocates or calls back.
 */
#ifndef KQC_CORE_H
#define KQC_CORE_H

#include <linux/types.h>

#define KQC_OPENERS 16
#define KQC_PLACE_BYTES 40

struct kqc_core { u64 opaque[128]; };
struct kqc_opener { u64 opaque[2]; };

struct kqc_text {
	u64 address;
	u32 kind;	/* enum kqc_kind */
	u32 size;
};

struct kqc_counts {
	u64 items, bytes, freed, missed;
	u64 joined, waiting, broken;
};

enum kqc_deferred { KQC_HELD, KQC_OVER, KQC_NOT_HELD, KQC_MISSED };

void kqc_core_init(struct kqc_core *core, u64 items, u64 bytes, u64 age);
bool kqc_core_give_places(struct kqc_core *core, void *places, u32 count);
void *kqc_core_take_places(struct kqc_core *core);
enum kqc_deferred kqc_core_defer(struct kqc_core *core, struct kqc_text text, u64 bytes, u64 now);
bool kqc_core_pop(struct kqc_core *core, u64 now, struct kqc_text *text);
bool kqc_core_qc(struct kqc_core *core, struct kqc_opener *opener);
void kqc_core_close(struct kqc_core *core, struct kqc_opener *opener);
bool kqc_core_asked(const struct kqc_core *core);
u64 kqc_core_expires(const struct kqc_core *core);
void kqc_core_counts(const struct kqc_core *core, const struct kqc_opener *opener, struct kqc_counts *counts);

#endif
