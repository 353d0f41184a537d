// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Handlers that know nothing of afterimage. */
#define SEC(name) __attribute__((section(name), used))

char LICENSE[] SEC("license") = "GPL";

const volatile int keep = 1;

SEC("perf_event")
int all(void *ctx)
{
	return keep;
}

SEC("perf_event")
int none(void *ctx)
{
	return 0;
}
