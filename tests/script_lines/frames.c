/*
 * Stacks of every form that compilers and the kernel make.
 *
 *     frames SECONDS
 *
 * spends as much CPU time in each of five functions, named leaf_*, that are called in their own ways: by ordinary frames,
 * from a function that aligns its stack, from one whose frame has a length known only then, from a signal handler that
 * interrupted another function, and from a function of the C library that was given a pointer.
 */
#include <alloca.h>
#include <signal.h>
#include <sys/time.h>

#include "common.h"

#define AFTER_CALL(x) __asm__ volatile("" : "+r"(x))

OWN_FRAME static int64_t leaf_plain(int64_t ns) { return work_for(ns); }
OWN_FRAME static int64_t leaf_aligned(int64_t ns, char *room) { room[0] = 1; return work_for(ns); }
OWN_FRAME static int64_t leaf_sized(int64_t ns, char *room) { room[0] = 1; return work_for(ns); }
OWN_FRAME static int64_t leaf_handler(int64_t ns) { return work_for(ns); }
OWN_FRAME static int64_t leaf_compare(int64_t ns) { return work_for(ns); }

OWN_FRAME static int64_t plain_inner(int64_t ns)
{
	int64_t took = leaf_plain(ns);

	AFTER_CALL(took);
	return took;
}

OWN_FRAME static int64_t plain_outer(int64_t ns)
{
	int64_t took = plain_inner(ns);

	AFTER_CALL(took);
	return took;
}

OWN_FRAME static int64_t aligned(int64_t ns)
{
	char room[128] __attribute__((aligned(64)));
	int64_t took = leaf_aligned(ns, room);

	AFTER_CALL(took);
	return took + room[0];
}

OWN_FRAME static int64_t sized(int64_t ns, int size)
{
	char *room = alloca(size);
	int64_t took = leaf_sized(ns, room);

	AFTER_CALL(took);
	return took + room[0];
}

static volatile sig_atomic_t handled;
static int64_t handler_ns;

static void on_signal(int number)
{
	(void)number;
	leaf_handler(handler_ns);
	handled = 1;
}

OWN_FRAME static void interrupted(int64_t ns)
{
	struct itimerval soon = { .it_value = { .tv_usec = 1000 } };
	uint64_t x = 1;

	handler_ns = ns;
	signal(SIGALRM, on_signal);
	setitimer(ITIMER_REAL, &soon, NULL);
	while (!handled)
		x = churn(x, 100);
	AFTER_CALL(x);
}

static int64_t compare_ns;

static int compare(const void *a, const void *b)
{
	int64_t took = leaf_compare(compare_ns);

	compare_ns = 0;
	AFTER_CALL(took);
	return *(const int *)a - *(const int *)b;
}

OWN_FRAME static int sorted(int64_t ns)
{
	int numbers[2] = { 2, 1 };

	compare_ns = ns;
	qsort(numbers, 2, sizeof(*numbers), compare);
	AFTER_CALL(numbers[0]);
	return numbers[0];
}

int main(int argc, char **argv)
{
	int64_t each = (int64_t)((argc > 1 ? atof(argv[1]) : 1) * 1e9 / 5);

	plain_outer(each);
	aligned(each);
	sized(each, 100 + argc);
	interrupted(each);
	return sorted(each) != 1;
}
