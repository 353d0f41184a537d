// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * The stub that has helpers alone. It stands in an object of its own: this one refers to nothing of the kernel, so the
 * kernel's types, which are many, need not be read to load it.
 */
#define AI_PLAIN
#include "stub.bpf.c"
