/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#ifndef AFTERIMAGE_OUTPUTS_H
#define AFTERIMAGE_OUTPUTS_H

/* The handler rings, at event * CPUs + cpu. */
struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(max_entries, 1); /* events * CPUs: set by the loader */
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} ai_outputs SEC(".maps");

#endif
