/* What the workloads share: the thread's own CPU clock, and arithmetic that takes a known function's time. */
#ifndef COMMON_H
#define COMMON_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* A function that keeps its own frame and name: never inlined, cloned or specialised. */
#if defined(__clang__)
#define OWN_FRAME __attribute__((noinline))
#else
#define OWN_FRAME __attribute__((noinline, noclone, noipa))
#endif

/* Steps between two looks at the clock: about half a millisecond, so that the looks are no part of the profile. */
#define CHUNK 400000

static inline int64_t cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* A chain of multiplications: no memory, no calls, and nothing that a compiler can shorten. */
static inline __attribute__((always_inline)) uint64_t churn(uint64_t x, long steps)
{
	for (long i = 0; i < steps; i++)
		x = x * 6364136223846793005u + 1442695040888963407u;
	return x;
}

/* Works until the thread has used `ns` more of CPU time; gives the time really used. Expanded into its caller. */
static inline __attribute__((always_inline)) int64_t work_for(int64_t ns)
{
	int64_t start = cpu_ns(), now;
	volatile uint64_t sink = (uint64_t)start;

	do {
		sink = churn(sink, CHUNK);
		now = cpu_ns();
	} while (now - start < ns);
	return now - start;
}

#endif
