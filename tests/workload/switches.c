/*
 * Switches of the scheduler, as many a second as asked for.
 *
 *     switches RATE SECONDS
 *
 * Two threads on one CPU hand a byte to and fro through two pipes: two switches each time. They rest between bursts of a
 * hundredth of a second's worth. Prints as JSON how many switches the kernel counted, the time that passed, and the CPU time
 * that both used.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common.h"

static int there[2], back[2];

static int64_t ns_of(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

OWN_FRAME static int answer(void)
{
	char byte;

	return read(there[0], &byte, 1) == 1 && write(back[1], &byte, 1) == 1;
}

OWN_FRAME static int ask(void)
{
	char byte = 'x';

	return write(there[1], &byte, 1) == 1 && read(back[0], &byte, 1) == 1;
}

static void *other(void *unused)
{
	while (answer())
		;
	return unused;
}

int main(int argc, char **argv)
{
	int64_t tick = 10000000, start, end, next;
	struct rusage before, after;
	long rate, burst, seconds;
	pthread_t second;
	cpu_set_t last;

	if (argc != 3)
		return 2;
	rate = atol(argv[1]);
	seconds = atol(argv[2]);
	burst = rate / 200;
	CPU_ZERO(&last);
	CPU_SET(sysconf(_SC_NPROCESSORS_ONLN) - 1, &last);
	if (burst < 1 || seconds < 1 || sched_setaffinity(0, sizeof(last), &last) || pipe(there) || pipe(back) ||
	    pthread_create(&second, 0, other, 0))
		return 1;
	getrusage(RUSAGE_SELF, &before);
	start = next = ns_of(CLOCK_MONOTONIC);
	end = start + seconds * 1000000000;
	while (next < end) {
		struct timespec until;

		for (long i = 0; i < burst; i++)
			if (!ask())
				return 1;
		next += tick;
		until.tv_sec = next / 1000000000;
		until.tv_nsec = next % 1000000000;
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, 0);
	}
	end = ns_of(CLOCK_MONOTONIC);
	getrusage(RUSAGE_SELF, &after);
	printf("{\"switches\": %ld, \"wall_ns\": %lld, \"cpu_ns\": %lld}\n",
	       after.ru_nvcsw - before.ru_nvcsw + after.ru_nivcsw - before.ru_nivcsw, (long long)(end - start),
	       (long long)ns_of(CLOCK_PROCESS_CPUTIME_ID));
	return 0;
}
