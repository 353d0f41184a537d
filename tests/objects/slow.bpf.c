#include "afterimage.bpf.h"
char LICENSE[] SEC("license") = "GPL";
const volatile __u64 least = 1000;
SEC("perf_event") int slow(struct bpf_perf_event_data *ctx)
{ return ai_period(ctx) >= least ? AI_CHAIN : AI_DROP; }
