/*
 * Threads that are on no CPU in known ways, and say for how long.
 *
 *     waits ROUNDS MS
 *
 * Three threads wait ROUNDS times each, about MS milliseconds: `sleeping` sleeps, `locked` waits for a lock that the main
 * thread holds, `reading` reads a pipe that the main thread writes to. A fourth, `yielding`, works half as long
 * and gives its CPU away each time. Prints as JSON, for each: its thread id, how long it ran by the clock on the wall (`wall_ns`) and by its own
 * (`cpu_ns`), and how long it was on no CPU within its function (`off_ns`), which is the difference of the two there.
 *
 *     waits crowd THREADS MS
 *
 * As many threads sleep once, all at the same time. Prints how many.
 *
 *     waits shared THREADS MS
 *
 * As many threads map memory and give it back for so long, and wait for each other while they change what the process has mapped.
 *
 * System calls are made in the functions themselves: their frames are then on every stack, whatever the C library is like.
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common.h"

static inline __attribute__((always_inline)) long call(long number, long a, long b, long c, long d)
{
#ifdef __x86_64__
	register long r10 __asm__("r10") = d;
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10)
			 : "rcx", "r11", "memory");
	return result;
#else
	return syscall(number, a, b, c, d);
#endif
}

static int64_t wall_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

struct thread {
	const char *name;
	void (*function)(struct thread *);
	pthread_t handle;
	long tid;
	int64_t wall_ns, cpu_ns, off_ns;
};

static long rounds;
static struct timespec pause_of;
static int lock_word; /* counts up: it is free when it has moved on */
static int ends[2];

/* What the clock on the wall saw beyond the thread's own, since both were looked at. */
struct looked {
	int64_t wall, cpu;
};

static inline struct looked look(void)
{
	return (struct looked){ wall_ns(), cpu_ns() };
}

static inline int64_t off_since(struct looked before)
{
	struct looked now = look();

	return (now.wall - before.wall) - (now.cpu - before.cpu);
}

OWN_FRAME static void sleeping(struct thread *self)
{
	struct looked before = look();

	for (long i = 0; i < rounds; i++)
		call(SYS_nanosleep, (long)&pause_of, 0, 0, 0);
	self->off_ns = off_since(before);
}

OWN_FRAME static void locked(struct thread *self)
{
	struct looked before = look();

	for (long i = 0; i < rounds; i++)
		while (__atomic_load_n(&lock_word, __ATOMIC_ACQUIRE) <= i)
			call(SYS_futex, (long)&lock_word, FUTEX_WAIT_PRIVATE, i, 0);
	self->off_ns = off_since(before);
}

OWN_FRAME static void reading(struct thread *self)
{
	struct looked before = look();
	char byte;

	for (long i = 0; i < rounds; i++)
		call(SYS_read, ends[0], (long)&byte, 1, 0);
	self->off_ns = off_since(before);
}

OWN_FRAME static void yielding(struct thread *self)
{
	struct looked before = look();

	for (long i = 0; i < rounds; i++) {
		work_for((int64_t)pause_of.tv_sec * 500000000 + pause_of.tv_nsec / 2);
		call(SYS_sched_yield, 0, 0, 0, 0);
	}
	self->off_ns = off_since(before);
}

static void *run(void *of)
{
	struct thread *self = of;
	struct looked before = look();

	self->tid = call(SYS_gettid, 0, 0, 0, 0);
	pthread_setname_np(pthread_self(), self->name);
	self->function(self);
	self->wall_ns = wall_ns() - before.wall;
	self->cpu_ns = cpu_ns() - before.cpu;
	return 0;
}

static void drive(void)
{
	for (long i = 0; i < rounds; i++) {
		nanosleep(&pause_of, 0);
		__atomic_store_n(&lock_word, (int)i + 1, __ATOMIC_RELEASE);
		call(SYS_futex, (long)&lock_word, FUTEX_WAKE_PRIVATE, 1, 0);
		if (write(ends[1], "x", 1) != 1)
			abort();
	}
}

static void *sleep_once(void *unused)
{
	call(SYS_nanosleep, (long)&pause_of, 0, 0, 0);
	return unused;
}

static void *map_and_unmap(void *unused)
{
	int64_t end = wall_ns() + (int64_t)pause_of.tv_sec * 1000000000 + pause_of.tv_nsec;

	while (wall_ns() < end) {
		char *at = mmap(0, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (at == MAP_FAILED)
			break;
		at[0] = at[32768] = 1;
		munmap(at, 65536);
	}
	return unused;
}

static int crowd(long threads, void *(*each)(void *))
{
	pthread_t *all = calloc(threads, sizeof(*all));
	pthread_attr_t small;
	long begun = 0;

	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 65536);
	while (all && begun < threads && !pthread_create(&all[begun], &small, each, 0))
		begun++;
	for (long i = 0; i < begun; i++)
		pthread_join(all[i], 0);
	printf("{\"threads\": %ld}\n", begun);
	return begun == threads ? 0 : 1;
}

int main(int argc, char **argv)
{
	struct thread threads[] = {
		{ .name = "sleeping", .function = sleeping },
		{ .name = "locked", .function = locked },
		{ .name = "reading", .function = reading },
		{ .name = "yielding", .function = yielding },
	};
	int many = sizeof(threads) / sizeof(threads[0]), is_crowd = argc == 4;
	long ms = argc < 3 ? 0 : atol(argv[argc - 1]);

	if (ms <= 0)
		return 2;
	pause_of.tv_sec = ms / 1000;
	pause_of.tv_nsec = ms % 1000 * 1000000;
	if (is_crowd)
		return crowd(atol(argv[2]), strcmp(argv[1], "shared") ? sleep_once : map_and_unmap);
	rounds = atol(argv[1]);
	if (pipe(ends))
		return 1;
	for (int i = 0; i < many; i++)
		if (pthread_create(&threads[i].handle, 0, run, &threads[i]))
			return 1;
	drive();
	for (int i = 0; i < many; i++)
		pthread_join(threads[i].handle, 0);
	printf("{\"pid\": %d, \"threads\": {", getpid());
	for (int i = 0; i < many; i++)
		printf("%s\"%s\": {\"tid\": %ld, \"wall_ns\": %lld, \"cpu_ns\": %lld, \"off_ns\": %lld}", i ? ", " : "",
		       threads[i].name, threads[i].tid, (long long)threads[i].wall_ns, (long long)threads[i].cpu_ns,
		       (long long)threads[i].off_ns);
	printf("}}\n");
	return 0;
}
