/*
 * The queue of the series in kernel/patch (mm/text_hold.c), run here: what it
 * takes of the kernel is played below, and what it frees is compared with what
 * a plain account of passes says, operation by operation, for random ones.
 */
#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- what it takes of the kernel ---- */

typedef uint32_t u32;
typedef uint64_t u64;
#define U64_MAX UINT64_MAX
#define MSEC_PER_SEC 1000
#define NSEC_PER_MSEC 1000000
#define READ_ONCE(x) (x)
#define WRITE_ONCE(x, value) ((x) = (value))
#define max(a, b) ((a) > (b) ? (a) : (b))
#define module_param(name, type, mode)
#define MODULE_PARM_DESC(name, text)
#define GFP_KERNEL 0
#define __GFP_NOWARN 0
#define container_of(ptr, type, member) ((type *)((char *)(ptr) - offsetof(type, member)))

struct list_head { struct list_head *next, *prev; };
#define LIST_HEAD(name) struct list_head name = { &name, &name }
static void INIT_LIST_HEAD(struct list_head *list) { list->next = list->prev = list; }
static bool list_empty(const struct list_head *list) { return list->next == list; }
static void list_add(struct list_head *node, struct list_head *head)
{
	node->next = head->next;
	node->prev = head;
	head->next->prev = node;
	head->next = node;
}
static void list_add_tail(struct list_head *node, struct list_head *head) { list_add(node, head->prev); }
static void list_del(struct list_head *node)
{
	node->prev->next = node->next;
	node->next->prev = node->prev;
	node->next = node->prev = NULL;
}
static void list_del_init(struct list_head *node) { list_del(node); INIT_LIST_HEAD(node); }
#define list_first_entry_or_null(head, type, member) \
	(list_empty(head) ? NULL : container_of((head)->next, type, member))
#define list_for_each_entry(at, head, member) \
	for (at = container_of((head)->next, typeof(*at), member); &at->member != (head); \
	     at = container_of(at->member.next, typeof(*at), member))

static int locked, readers_of_srcu;
struct mutex { int held; };
static void mutex_init(struct mutex *mutex) { mutex->held = 0; }
static void mutex_lock(struct mutex *mutex) { assert(!locked && !mutex->held++); }
static void mutex_unlock(struct mutex *mutex) { assert(mutex->held-- == 1); }
#define DEFINE_SPINLOCK(name) int name
static void spin_lock(int *lock) { assert(!locked++ && !*lock); }
static void spin_unlock(int *lock) { assert(locked-- == 1 && !*lock); }
#define DEFINE_STATIC_SRCU(name) static int name
static int srcu_read_lock(int *srcu) { return *srcu = ++readers_of_srcu; }
static void srcu_read_unlock(int *srcu, int idx) { assert(*srcu == idx && readers_of_srcu-- == idx); }
static void synchronize_srcu(int *srcu) { assert(!locked && !readers_of_srcu); (void)srcu; }
static void cond_resched(void) { assert(!locked); }

static u64 clock_ns = 1;
static u64 ktime_get_ns(void) { return clock_ns; }
static u64 msecs_to_jiffies(u64 ms) { return ms; }
static u64 nsecs_to_jiffies(u64 ns) { return ns / NSEC_PER_MSEC; }

static bool no_memory;
static void *kmalloc(size_t size, int flags)
{
	assert(!locked);
	(void)flags;
	return no_memory ? NULL : malloc(size);
}
static void kfree(void *memory) { free(memory); }

struct work_struct { int unused; };
struct delayed_work { void (*run)(struct work_struct *); bool pending; u64 due; };
#define DECLARE_DELAYED_WORK(name, function) struct delayed_work name = { .run = function }
static int system_unbound_wq;
static void queue_delayed_work(int queue, struct delayed_work *work, u64 delay)
{
	(void)queue;
	if (!work->pending)
		work->due = clock_ns + delay * NSEC_PER_MSEC;
	work->pending = true;
}
static void mod_delayed_work(int queue, struct delayed_work *work, u64 delay)
{
	work->pending = false;
	queue_delayed_work(queue, work, delay);
}

#include "text_hold.c"

/* ---- the account ---- */

#define READERS 4
#define TEXTS 64

static struct text_reader reader[READERS];
/* Texts by number: whether each is freed, when it was handed over, and how many passes each reader has to go. */
static struct { bool used, freed, expected; u64 since; int left[READERS]; } text[TEXTS];
static u64 order[TEXTS], nr_order;
static bool joined[READERS];
static u64 lost[READERS], seed = 1;

static u64 below(u64 bound)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return (seed >> 33) % bound;
}

static void free_it(void *address, u32 arg)
{
	u64 n = (u64)(uintptr_t)address - 1;

	assert(!locked && arg == n + 7 && text[n].used && !text[n].freed);
	text[n].freed = true;
}

static bool wanted(u64 n)
{
	for (int r = 0; r < READERS; r++) {
		if (joined[r] && text[n].left[r] > 0)
			return true;
	}
	return false;
}

/* What is to be freed goes from the front, and nothing else. */
static void expect(void)
{
	while (nr_order) {
		u64 n = order[0];

		if (wanted(n)) {
			bool over = nr_order > items || nr_order * 10 > bytes ||
				    clock_ns - text[n].since > (u64)age_ms * NSEC_PER_MSEC;

			if (!over)
				return;
			for (int r = 0; r < READERS; r++)
				lost[r] += joined[r] && text[n].left[r] > 0;
		}
		text[n].expected = true;
		nr_order--;
		for (u64 i = 0; i < nr_order; i++)
			order[i] = order[i + 1];
	}
}

static void hand_over(void)
{
	u64 n = 0;
	bool asked_for = false;

	while (n < TEXTS && text[n].used && !(text[n].freed && text[n].expected))
		n++;
	if (n == TEXTS)
		return;
	text[n].used = true;
	text[n].freed = text[n].expected = false;
	text[n].since = clock_ns;
	for (int r = 0; r < READERS; r++) {
		text[n].left[r] = joined[r] ? 3 : 0;
		asked_for |= joined[r];
	}
	no_memory = below(20) == 0;
	text_free(free_it, (void *)(uintptr_t)(n + 1), n + 7, 10);
	if (!asked_for || no_memory) {
		text[n].expected = true;
		for (int r = 0; r < READERS; r++)
			lost[r] += joined[r];
	} else {
		order[nr_order++] = n;
	}
	no_memory = false;
}

static void pass(int r)
{
	assert(text_reader_pass(&reader[r]) == 0);
	for (u64 i = 0; joined[r] && i < nr_order; i++)
		text[order[i]].left[r]--;
	if (!joined[r])
		lost[r] = 0;
	joined[r] = true;
	expect();
}

static void close_reader(int r)
{
	text_reader_close(&reader[r]);
	if (joined[r]) {
		joined[r] = false;
		for (u64 i = 0; i < nr_order; i++)
			text[order[i]].left[r] = 0;
		expect();
	}
	text_reader_init(&reader[r]);
}

static void look(void)
{
	struct text_hold_counts counts;

	for (int n = 0; n < TEXTS; n++)
		assert(text[n].freed == text[n].expected);
	for (int r = 0; r < READERS; r++) {
		u64 waiting = 0;

		for (u64 i = 0; i < nr_order; i++)
			waiting += text[order[i]].left[r] > 0 && joined[r];
		text_reader_counts(&reader[r], &counts);
		assert(counts.guaranteed == joined[r] && counts.items == nr_order && counts.bytes == nr_order * 10);
		assert(counts.waiting == waiting && counts.broken == (joined[r] ? lost[r] : 0));
	}
}

static void too_many_readers(void)
{
	struct text_reader more[MOST_READERS + 1];

	for (int i = 0; i <= MOST_READERS; i++) {
		text_reader_init(&more[i]);
		assert(text_reader_pass(&more[i]) == (i < MOST_READERS ? 0 : -EBUSY));
	}
	for (int i = 0; i <= MOST_READERS; i++)
		text_reader_close(&more[i]);
}

int main(void)
{
	u64 freed = 0;

	for (int r = 0; r < READERS; r++)
		text_reader_init(&reader[r]);
	for (int step = 0; step < 300000; step++) {
		u64 what = below(100);

		if (step % 1000 == 0) {
			/* No bounds, or tight ones. */
			items = below(2) ? 1 + below(20) : 1000;
			bytes = below(2) ? 10 * below(20) : 1000000;
			age_ms = below(2) ? 1 + below(50) : 1000000000;
		}
		if (what < 60)
			hand_over();
		else if (what < 90)
			pass(below(READERS));
		else if (what < 94)
			close_reader(below(READERS));
		else
			clock_ns += below(20) * NSEC_PER_MSEC;
		/* Where a bound is met the work frees what is over. */
		if (bounds_work.pending && bounds_work.due <= clock_ns) {
			bounds_work.pending = false;
			bounds_work.run(NULL);
			expect();
		}
		look();
	}
	for (int r = 0; r < READERS; r++)
		close_reader(r);
	look();
	assert(nr_order == 0 && held_bytes == 0 && !asked);
	freed = taken;
	too_many_readers();
	printf("%llu texts were held and freed, %llu missed\n", (unsigned long long)freed, (unsigned long long)missed);
	return freed > 10000 && missed > 100 ? 0 : 1;
}
