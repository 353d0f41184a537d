/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The tables of `count` and `by`: one for each (event, CPU). */
#ifndef AFTERIMAGE_COUNT_BPF_H
#define AFTERIMAGE_COUNT_BPF_H

#include "sample.bpf.h"
#include "table.bpf.h"

const volatile __u32 ai_nr_tables = 1; /* tables of one event: the CPUs that have one */

/* The table of the event whose sample is in flight, on this CPU, and its number; null where there is none. */
static __always_inline struct ai_table *ai_table_of(const struct ai_cpu *cell, __u32 *key)
{
	*key = cell->event * ai_nr_tables + cell->table - 1;
	return cell->table ? bpf_map_lookup_elem(&ai_tables, key) : 0;
}

static __always_inline void ai_note_outcome(struct ai_counters *counters, enum ai_outcome outcome)
{
	if (outcome == AI_STORED)
		counters->stored++;
	else if (outcome == AI_FULL)
		counters->lost_full++;
	else
		counters->lost_collision++;
}

/* Counts the sample in flight in a table. */
typedef enum ai_outcome (*ai_counting)(struct bpf_perf_event_data *ctx, struct ai_table *table, __u32 key,
				       struct ai_cpu *cell, struct ai_counters *counters, bool kernel_context);

/* Counts the sample in flight by `counting` in its event's table of this CPU, and notes what came of it. */
static __always_inline void ai_count_by(struct bpf_perf_event_data *ctx, bool kernel_context, ai_counting counting)
{
	struct ai_cpu *cell = ai_this_cpu();
	struct ai_counters *counters;
	enum ai_outcome outcome = AI_FULL;
	struct ai_table *table;
	__u32 key;

	if (!cell)
		return;
	counters = ai_these_counters(cell);
	if (!counters)
		return;
	cell->flags |= AI_OUTPUT;
	table = ai_table_of(cell, &key);
	if (table) {
		ai_enter(table);
		outcome = counting(ctx, table, key, cell, counters, kernel_context);
		ai_leave(table);
	}
	ai_note_outcome(counters, outcome);
}

#endif
