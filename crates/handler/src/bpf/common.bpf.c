// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * The maps that stubs, gates and handlers share. They stand in an object of their own, which refers to none of the kernel's
 * types: to read those takes longer than all else, and a recording without a built-in handler needs no more than this.
 */
#include "internal.bpf.h"
#include "outputs.bpf.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";
