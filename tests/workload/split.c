/*
 * A program whose CPU time is known function by function.
 *
 *     split SECONDS
 *
 * uses SECONDS of CPU time, half of it before and half after it executes itself again, and prints as JSON how long
 * each function really ran by CLOCK_THREAD_CPUTIME_ID. In each half, of all its CPU time,
 *
 *     60 %  the main thread: spin_seventy and spin_thirty by turns, 70 ms and 30 ms
 *     10 %  the main thread: recursion_leaf under 25 frames of recursion_level
 *     15 %  a thread, "split-thread": library_spin, from a shared library
 *     15 %  a child process, "split-child": child_spin
 */
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common.h"

#define MS 1000000
#define DEPTH 25

int64_t library_spin(int64_t ns);

enum { SEVENTY, THIRTY, RECURSION, LIBRARY, CHILD, FUNCTIONS };

static const char *const names[FUNCTIONS] = {
	"spin_seventy", "spin_thirty", "recursion_leaf", "library_spin", "child_spin",
};

/* Shared with the child: nanoseconds of CPU time used by each function. */
static int64_t *used;

OWN_FRAME static int64_t spin_seventy(void)
{
	return work_for(70 * MS);
}

OWN_FRAME static int64_t spin_thirty(void)
{
	return work_for(30 * MS);
}

OWN_FRAME static int64_t recursion_leaf(int64_t ns)
{
	return work_for(ns);
}

OWN_FRAME static int64_t recursion_level(int depth, int64_t ns)
{
	int64_t took = depth > 1 ? recursion_level(depth - 1, ns) : recursion_leaf(ns);

	/* Something to do after the call keeps this frame on the stack. */
	__asm__ volatile("" : "+r"(took));
	return took;
}

OWN_FRAME static int64_t child_spin(int64_t ns)
{
	return work_for(ns);
}

static void *thread_body(void *budget)
{
	prctl(PR_SET_NAME, "split-thread");
	used[LIBRARY] += library_spin(*(int64_t *)budget);
	return NULL;
}

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static void half(int64_t ns)
{
	int64_t side = ns * 15 / 100, pair = ns * 60 / 100, start = used[SEVENTY] + used[THIRTY];
	pthread_t thread;
	int status;

	pid_t child = fork();
	if (child < 0)
		fail("fork");
	if (child == 0) {
		/* Whoever kills the parent would else leave this running. */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		prctl(PR_SET_NAME, "split-child");
		used[CHILD] += child_spin(side);
		_exit(0);
	}
	if (pthread_create(&thread, NULL, thread_body, &side) != 0)
		fail("pthread_create");
	while (used[SEVENTY] + used[THIRTY] - start < pair) {
		used[SEVENTY] += spin_seventy();
		used[THIRTY] += spin_thirty();
	}
	used[RECURSION] += recursion_level(DEPTH, ns * 10 / 100);
	pthread_join(thread, NULL);
	if (waitpid(child, &status, 0) != child || status != 0)
		fail("child");
}

/* The second half begins with `split SECONDS TIMES...`, one time a function. */
static void execute_again(char *self, char *seconds)
{
	static char texts[FUNCTIONS][24];
	char *args[FUNCTIONS + 3] = { self, seconds };

	for (int i = 0; i < FUNCTIONS; i++) {
		snprintf(texts[i], sizeof(texts[i]), "%lld", (long long)used[i]);
		args[i + 2] = texts[i];
	}
	execv("/proc/self/exe", args);
	fail("execv");
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 0;

	if (seconds <= 0 || (argc != 2 && argc != 2 + FUNCTIONS)) {
		fprintf(stderr, "usage: split SECONDS\n");
		return 2;
	}
	used = mmap(NULL, FUNCTIONS * sizeof(*used), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (used == MAP_FAILED)
		fail("mmap");
	for (int i = 0; i < FUNCTIONS && argc > 2; i++)
		used[i] = atoll(argv[i + 2]);
	half((int64_t)(seconds * 1e9 / 2));
	if (argc == 2)
		execute_again(argv[0], argv[1]);
	printf("{\"cpu_ns\": {");
	for (int i = 0; i < FUNCTIONS; i++)
		printf("%s\"%s\": %lld", i ? ", " : "", names[i], (long long)used[i]);
	printf("}}\n");
	return 0;
}
