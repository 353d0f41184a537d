/*
 * Many different deep stacks.
 *
 *     forest SECONDS PATHS
 *
 * uses SECONDS of CPU time under stacks of 40 to 110 frames, made of eight functions that call each other. Which one
 * calls which follows from the number of the path, of which there are PATHS; all take the same time.
 */
#include "common.h"

#define STEPS 4000

typedef void (*branch)(uint64_t, int);

static const branch branches[8];
static volatile uint64_t sink;

static inline __attribute__((always_inline)) void grow(uint64_t path, int depth)
{
	if (depth > 0)
		branches[path >> 61](churn(path, 1), depth - 1);
	else
		sink = churn(path, STEPS);
	__asm__ volatile("" ::: "memory");
}

OWN_FRAME static void ash(uint64_t path, int depth) { grow(path, depth); }
OWN_FRAME static void beech(uint64_t path, int depth) { grow(path, depth); }
OWN_FRAME static void cedar(uint64_t path, int depth) { grow(path, depth); }
OWN_FRAME static void elm(uint64_t path, int depth) { grow(path, depth); }
OWN_FRAME static void fir(uint64_t path, int depth) { grow(path, depth); }
OWN_FRAME static void larch(uint64_t path, int depth) { grow(path, depth); }
OWN_FRAME static void oak(uint64_t path, int depth) { grow(path, depth); }
OWN_FRAME static void yew(uint64_t path, int depth) { grow(path, depth); }

static const branch branches[8] = { ash, beech, cedar, elm, fir, larch, oak, yew };

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 0;
	long paths = argc > 2 ? atol(argv[2]) : 0;

	if (seconds <= 0 || paths <= 0) {
		fprintf(stderr, "usage: forest SECONDS PATHS\n");
		return 2;
	}
	int64_t end = cpu_ns() + (int64_t)(seconds * 1e9);
	for (uint64_t turn = 0; cpu_ns() < end; turn++)
		for (int i = 0; i < 100; i++) {
			uint64_t path = churn((turn * 100 + i) % paths, 4);

			grow(path, 40 + path % 71);
		}
	return 0;
}
