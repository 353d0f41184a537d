/*
 * Requests, some of which are slow, in a program that says what it is doing.
 *
 *     requests COUNT
 *
 * prints the address of the array that names the request in work, then serves COUNT requests. Every fourth is slow: 40 ms of
 * CPU time in request_slow, named "slow"; the others take 2 ms in request_fast, named "fast". Prints as JSON how much time both
 * used in the end.
 */
#include <string.h>

#include "common.h"

static char phase[32] __attribute__((aligned(32))) = "idle";
static int64_t fast_ns, slow_ns;

OWN_FRAME static void request_fast(void)
{
	fast_ns += work_for(2000000);
}

OWN_FRAME static void request_slow(void)
{
	slow_ns += work_for(40000000);
}

OWN_FRAME static void handle_request(long number)
{
	if (number % 4) {
		strcpy(phase, "fast");
		request_fast();
	} else {
		strcpy(phase, "slow");
		request_slow();
	}
	strcpy(phase, "idle");
}

int main(int argc, char **argv)
{
	long count = argc > 1 ? atol(argv[1]) : -1;

	if (count < 0) {
		fprintf(stderr, "usage: requests COUNT\n");
		return 2;
	}
	printf("0x%llx\n", (unsigned long long)(uintptr_t)phase);
	fflush(stdout);
	for (long i = 1; i <= count; i++)
		handle_request(i);
	printf("{\"cpu_ns\": {\"request_fast\": %lld, \"request_slow\": %lld}}\n", (long long)fast_ns, (long long)slow_ns);
	return 0;
}
