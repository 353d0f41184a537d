/*
 * Page faults by number.
 *
 *     faults PAGES [wait]
 *
 * touches PAGES fresh pages in touch_pages, one fault each, and prints as JSON how many, and how many faults the
 * kernel counted meanwhile. With `wait` it first prints `ready` and waits for a byte on stdin.
 */
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common.h"

OWN_FRAME static void touch_pages(volatile char *at, long pages, long page)
{
	for (long i = 0; i < pages; i++)
		at[i * page] = 1;
}

static long faults(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_minflt + usage.ru_majflt;
}

int main(int argc, char **argv)
{
	long pages = argc > 1 ? atol(argv[1]) : 0, page = sysconf(_SC_PAGESIZE);
	char byte;

	if (pages <= 0) {
		fprintf(stderr, "usage: faults PAGES [wait]\n");
		return 2;
	}
	char *area = mmap(NULL, pages * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (area == MAP_FAILED) {
		perror("mmap");
		return 1;
	}
	/* A huge page would serve many small ones with one fault. Kernels without them refuse, which is as good. */
	madvise(area, pages * page, MADV_NOHUGEPAGE);
	if (argc > 2) {
		puts("ready");
		fflush(stdout);
		if (read(0, &byte, 1) != 1)
			return 1;
	}
	/* The first call brings in what the second one needs, so that nothing but the pages faults between. */
	long before = faults();
	before = faults();
	touch_pages(area, pages, page);
	long after = faults();
	printf("{\"pages\": %ld, \"faults\": %ld}\n", pages, after - before);
	return 0;
}
