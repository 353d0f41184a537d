// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * The stub: the one program that an event carries for good. It is loaded once for each event with the event's index as
 * a constant, runs the current pair of slots, and counts what became of the sample.
 *
 * With AI_PLAIN it is the one that has helpers alone (stub_plain.bpf.c).
 */
#include "internal.bpf.h"
#include "sample.bpf.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

const volatile __u32 ai_event = 0;
const volatile __u32 ai_event_flags = 0;

/*
 * A tail call replaces the program that makes it. Made from a function of its own, it replaces only that function, and
 * the verdict of the last program in the chain comes back here.
 *
 * The slot is a value read at run time: a constant one would be patched into the code as a direct jump, and clearing it
 * would wait for every CPU.
 */
static __noinline int ai_run_slots(struct bpf_perf_event_data *ctx, __u32 slot, __u32 fall_through)
{
	bpf_tail_call(ctx, &ai_slots, slot);
	/* The verdict is what the last program returned. Keep the compiler from taking it for our argument. */
	barrier_var(fall_through);
	return fall_through;
}

static __always_inline void ai_note_generation(struct ai_cpu *cell, __u32 generation, __u64 time)
{
	struct ai_seen *seen = &cell->seen[cell->seen_total & (AI_PAIRS - 1)];

	seen->time = time;
	seen->generation = generation;
	barrier();
	cell->seen_total++;
	cell->seen_generation = generation;
}

/*
 * Linux 6.1 prepares the stack of a sample only for an attached program that calls bpf_get_stack, and a handler's call
 * finds none otherwise. So the stub holds such a call, which it never makes. It also lets the kernel itself refuse events
 * whose registers cannot be unwound.
 */
static __always_inline void ai_want_stack(struct bpf_perf_event_data *ctx, struct ai_control *control)
{
	__u64 word;

	if (*(volatile __u64 *)&control->never)
		bpf_get_stack(ctx, &word, sizeof(word), 0);
}

static __always_inline int ai_stub(struct bpf_perf_event_data *ctx, bool kernel_context)
{
	__u32 cpu = bpf_get_smp_processor_id(), zero = 0, cell_of_event = ai_event * ai_nr_cpus + cpu;
	struct ai_control *control = bpf_map_lookup_elem(&ai_control, &zero);
	struct ai_cpu *cell = bpf_map_lookup_elem(&ai_cpus, &cpu);
	struct ai_counters *counters = bpf_map_lookup_elem(&ai_counters, &cell_of_event);
	__u32 generation, flags, verdict;

	if (!control || !cell || !counters)
		return 1;

	generation = *(volatile __u32 *)&control->generation;
	cell->seq++;
	cell->event = ai_event;
	cell->generation = generation;
	cell->flags = ai_event_flags;
	if (cell->seen_generation != generation)
		ai_note_generation(cell, generation, kernel_context ? ai_kern_time(ctx) : bpf_ktime_get_ns());

	if (!kernel_context && (ai_event_flags & AI_STACK))
		ai_want_stack(ctx, control);

	verdict = ai_run_slots(ctx, ai_gate_slot(generation), *(volatile __u32 *)&control->fall_through);

	flags = *(volatile __u32 *)&cell->flags;
	counters->handled++;
	if (flags & AI_FILTERED) {
		counters->filtered++;
		return 0;
	}
	if (verdict)
		counters->chained++;
	if (verdict || (flags & AI_OUTPUT))
		counters->passed++;
	else
		counters->dropped++;
	return verdict;
}

#ifdef AI_PLAIN
SEC("perf_event")
int ai_stub_plain(struct bpf_perf_event_data *ctx)
{
	return ai_stub(ctx, false);
}
#else
SEC("perf_event")
int ai_stub_kern(struct bpf_perf_event_data *ctx)
{
	return ai_stub(ctx, true);
}
#endif
