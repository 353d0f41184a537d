/*
 * A JIT compiler of one function, whose code moves: it is compiled to a place, runs there, goes to another one, and other
 * code takes the place. What it tells of that stands in a map or a dump, as the first word says:
 *
 *   maker map|dump FOLDER MILLISECONDS
 *
 * Compiled with IN_FILE it works in its own code at last.
 *
 * It prints the places, and the time (CLOCK_MONOTONIC, ns) of the change, and takes its map or dump away at its end.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* Counts its argument down to nothing. */
static const unsigned char code[] = {
#if defined(__x86_64__)
	0x48, 0x89, 0xf8, /* mov %rdi,%rax */
	0x48, 0xff, 0xc8, /* dec %rax */
	0x75, 0xfb,       /* jne the line before */
	0xc3,             /* ret */
#elif defined(__aarch64__)
	0x00, 0x04, 0x00, 0xf1, /* subs x0, x0, #1 */
	0xe1, 0xff, 0xff, 0x54, /* b.ne the line before */
	0xc0, 0x03, 0x5f, 0xd6, /* ret */
#endif
};

struct head {
	uint32_t magic, version, size, machine, pad, pid;
	uint64_t time, flags;
};

struct prefix {
	uint32_t id, size;
	uint64_t time;
};

struct load {
	struct prefix p;
	uint32_t pid, tid;
	uint64_t vma, addr, len, index;
};

struct move {
	struct prefix p;
	uint32_t pid, tid;
	uint64_t vma, from, to, len, index;
};

struct lines {
	struct prefix p;
	uint64_t addr, count;
};

struct line {
	uint64_t addr;
	uint32_t line, discriminator;
};

static FILE *told;
static char path[4096];

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static void run(void *at, int ms)
{
	uint64_t end = now() + ms * 1000000ull;

	while (now() < end)
		((void (*)(uint64_t))at)(2000000);
}

static void put(void *at)
{
	memcpy(at, code, sizeof(code));
	__builtin___clear_cache(at, (char *)at + sizeof(code));
}

static void tell_lines(void *at)
{
	struct lines of = { { 2, 0, now() }, (uintptr_t)at, 2 };
	struct line first = { (uintptr_t)at, 7, 0 }, second = { (uintptr_t)at + 3, 8, 0 };

	of.p.size = sizeof(of) + 2 * sizeof(first) + sizeof("made.js") + sizeof("\xff");
	fwrite(&of, sizeof(of), 1, told);
	fwrite(&first, sizeof(first), 1, told);
	fwrite("made.js", sizeof("made.js"), 1, told);
	fwrite(&second, sizeof(second), 1, told);
	fwrite("\xff", sizeof("\xff"), 1, told);
}

static void tell_load(int dump, void *at, int index, const char *name)
{
	struct load load = { { 0, 0, now() }, getpid(), getpid(), (uintptr_t)at, (uintptr_t)at, sizeof(code), index };

	if (!dump) {
		fprintf(told, "%lx %zx %s\n", (unsigned long)at, sizeof(code), name);
	} else {
		load.p.size = sizeof(load) + strlen(name) + 1 + sizeof(code);
		fwrite(&load, sizeof(load), 1, told);
		fwrite(name, strlen(name) + 1, 1, told);
		fwrite(at, sizeof(code), 1, told);
	}
	fflush(told);
}

static void tell_move(int dump, void *from, void *to, int index, const char *name)
{
	struct move move = { { 1, sizeof(move), now() }, getpid(), getpid(), (uintptr_t)to, (uintptr_t)from,
			     (uintptr_t)to, sizeof(code), index };

	if (!dump) {
		fprintf(told, "%lx %zx %s\n", (unsigned long)to, sizeof(code), name);
	} else {
		fwrite(&move, sizeof(move), 1, told);
	}
	fflush(told);
}

#ifdef IN_FILE
/* Works for a time in the code of the program itself. */
__attribute__((noinline)) static void spin_in_file(int ms)
{
	volatile uint64_t x = 1;
	uint64_t end = now() + ms * 1000000ull;

	while (now() < end)
		for (int i = 0; i < 2000000; i++)
			x = x * 31 + i;
}
#endif

static int begin(int dump, const char *folder)
{
	struct head head = { 0x4a695444, 1, sizeof(head), 0, 0, getpid(), now(), 0 };

#if defined(__x86_64__)
	head.machine = 62;
#else
	head.machine = 183;
#endif
	snprintf(path, sizeof(path), dump ? "%s/jit-%d.dump" : "%s/perf-%d.map", dump ? folder : "/tmp", getpid());
	told = fopen(path, "w+");
	if (!told)
		return 1;
	if (!dump)
		return 0;
	fwrite(&head, sizeof(head), 1, told);
	fflush(told);
	/* The mark in the recording. */
	return mmap(NULL, sysconf(_SC_PAGESIZE), PROT_READ | PROT_EXEC, MAP_PRIVATE, fileno(told), 0) == MAP_FAILED;
}

int main(int argc, char **argv)
{
	int dump, ms;
	char *a, *b;
	uint64_t change;

	if (argc != 4)
		return 2;
	dump = !strcmp(argv[1], "dump");
	ms = atoi(argv[3]);
	a = mmap(NULL, 65536, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (a == MAP_FAILED || begin(dump, argv[2]))
		return 1;
	b = a + 4096;
	put(a);
	if (dump)
		tell_lines(a);
	tell_load(dump, a, 1, "moving");
	run(a, ms);
	/* Nothing runs in the code while it goes. */
	put(b);
	change = now();
	tell_move(dump, a, b, 1, "moving");
	put(a);
	tell_load(dump, a, 2, "usurper");
	run(a, ms);
	run(b, ms);
#ifdef IN_FILE
	spin_in_file(ms);
#endif
	fclose(told);
	if (getenv("MAKER_KEEPS") == NULL)
		unlink(path);
	printf("%lx %lx %zx %llu\n", (unsigned long)a, (unsigned long)b, sizeof(code), (unsigned long long)change);
	return 0;
}
