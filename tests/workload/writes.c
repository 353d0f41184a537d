/*
 * Writes to one variable by number, for breakpoints.
 *
 *     writes COUNT
 *
 * prints the variable's address, waits for a byte on stdin, writes to it COUNT times in write_watched, and prints
 * as JSON how often.
 */
#include <unistd.h>

#include "common.h"

static volatile long watched __attribute__((aligned(8)));

OWN_FRAME static void write_watched(long count)
{
	for (long i = 0; i < count; i++)
		watched = i;
}

int main(int argc, char **argv)
{
	long count = argc > 1 ? atol(argv[1]) : 0;
	char byte;

	if (count <= 0) {
		fprintf(stderr, "usage: writes COUNT\n");
		return 2;
	}
	printf("0x%llx\n", (unsigned long long)(uintptr_t)&watched);
	fflush(stdout);
	if (read(0, &byte, 1) != 1)
		return 1;
	write_watched(count);
	printf("{\"writes\": %ld}\n", count);
	return 0;
}
