/*
 * A fixed amount of work, to see what slows it down.
 *
 *     busy CHUNKS [DEPTH]
 *
 * does CHUNKS of arithmetic under DEPTH frames and prints as JSON how long the thread ran by its CPU clock, and how
 * long by the wall clock.
 */
#include "common.h"

OWN_FRAME static void busy_leaf(long chunks)
{
	volatile uint64_t sink = 1;

	for (long i = 0; i < chunks; i++)
		sink = churn(sink, CHUNK);
}

OWN_FRAME static void busy_level(long depth, long chunks)
{
	if (depth > 0)
		busy_level(depth - 1, chunks);
	else
		busy_leaf(chunks);
	__asm__ volatile("" ::: "memory");
}

static int64_t wall_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int main(int argc, char **argv)
{
	long chunks = argc > 1 ? atol(argv[1]) : 0;

	if (chunks <= 0) {
		fprintf(stderr, "usage: busy CHUNKS [DEPTH]\n");
		return 2;
	}
	int64_t cpu = cpu_ns(), wall = wall_ns();
	busy_level(argc > 2 ? atol(argv[2]) : 0, chunks);
	printf("{\"cpu_ns\": %lld, \"wall_ns\": %lld}\n", (long long)(cpu_ns() - cpu), (long long)(wall_ns() - wall));
	return 0;
}
