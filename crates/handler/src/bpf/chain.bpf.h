/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* A chain of addresses, and room for the longest one. */
#ifndef AFTERIMAGE_CHAIN_BPF_H
#define AFTERIMAGE_CHAIN_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

/* Deepest chain that the loader may ask for, in 8-byte words including context markers. */
#define AI_CHAIN_MAX 1024

/* What one chain may hold on this machine; set by the loader from the kernel's limits, which are 127 and 8 by default. */
const volatile __u32 ai_chain_max = 136;

/* What `by` puts behind a chain where a label is a key: its type and size, and its bytes. */
#define AI_CHAIN_LABEL 64
#define AI_LABEL_WORDS (1 + AI_CHAIN_LABEL / 8)

/* Room for a chain: two halves of AI_CHAIN_MAX words, their markers, a label, and what makes the number even. */
#define AI_CHAIN_MORE (8 + AI_LABEL_WORDS + 1)
#define AI_CHAIN_WORDS (2 * AI_CHAIN_MAX + AI_CHAIN_MORE)

struct ai_chain {
	__u64 word[AI_CHAIN_WORDS];
};

#endif
