// SPDX-License-Identifier: GPL-2.0
/*
 * What is held, and for whom.
 *
 * Whoever frees text may hold mutexes of the kernel's: pack_mutex, that of the kprobe slots, ftrace_lock. So handing text
 * over takes kqc_lock alone, a spinlock, and frees nothing. Freeing is done by the callers of KCORE_QC and close, and by
 * a work where a bound was met; they take one text at a time out under the lock, and free it without.
 *
 * Nobody pays for what is held: the kernel gives its bytes back to bpf_jit_limit before it frees them, and to charge them
 * anew would let one who reads /proc/kcore keep unprivileged users from attaching filters. The bounds below stand in.
 */
#include <linux/jiffies.h>
#include <linux/ktime.h>
#include <linux/minmax.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/sched.h>
#include <linux/spinlock.h>
#include <linux/vmalloc.h>
#include <linux/workqueue.h>

#include "kcore_qc.h"
#include "kqc.h"
#include "kqc_core.h"

#define MOST_ITEMS (1u << 20)
#define LONGEST_MS (3600u * 1000)

static unsigned int items = 32768;
module_param(items, uint, 0444);
MODULE_PARM_DESC(items, "texts held at most, 1 to 1048576");

static unsigned long bytes = 64ul << 20;
module_param(bytes, ulong, 0444);
MODULE_PARM_DESC(bytes, "bytes held at most");

static unsigned int age_ms = 60 * 1000;
module_param(age_ms, uint, 0444);
MODULE_PARM_DESC(age_ms, "milliseconds a text is held at most, 1 to 3600000");

/* An open file that has a guarantee. */
struct reader {
	struct file *file;
	struct kqc_opener opener;
};

static DEFINE_SPINLOCK(kqc_lock);
/* Under kqc_lock. */
static struct kqc_core core;
static struct reader readers[KQC_OPENERS];
/* Texts taken over and given out again, counted apart from the queue. Under kqc_lock. */
static u64 taken_over, given_out;
/* Whether anyone has a guarantee: written under kqc_lock, read without. */
static bool asked;
/* Where memory for places comes and goes. Taken before kqc_lock, and by no one who frees text. */
static DEFINE_MUTEX(joining);
/* Under it: whether there is some. */
static bool provided;

/* Around each look at `asked` together with the free that it decides. */
DEFINE_SRCU(kqc_frees);

static void free_what_must_go(struct work_struct *work);
static DECLARE_DELAYED_WORK(bounds_work, free_what_must_go);

bool kqc_asked(void)
{
	return READ_ONCE(asked);
}

static struct reader *reader_of(const struct file *file)
{
	struct reader *reader;

	for (reader = readers; reader < readers + KQC_OPENERS; reader++) {
		if (reader->file == file)
			return reader;
	}
	return NULL;
}

/* Takes text over, in the context of whoever frees it. Where the answer is no, the caller frees it. */
bool kqc_hold(enum kqc_kind kind, void *address, u32 size, u64 held_bytes)
{
	struct kqc_text text = { .address = (u64)address, .kind = kind, .size = size };
	enum kqc_deferred deferred;
	unsigned long flags;

	spin_lock_irqsave(&kqc_lock, flags);
	deferred = kqc_core_defer(&core, text, held_bytes, ktime_get_ns());
	taken_over += deferred == KQC_HELD || deferred == KQC_OVER;
	spin_unlock_irqrestore(&kqc_lock, flags);
	if (deferred == KQC_OVER)
		mod_delayed_work(system_unbound_wq, &bounds_work, 0);
	else if (deferred == KQC_HELD)
		queue_delayed_work(system_unbound_wq, &bounds_work, msecs_to_jiffies(age_ms) + 1);
	return deferred == KQC_HELD || deferred == KQC_OVER;
}

static bool pop(struct kqc_text *text)
{
	unsigned long flags;
	bool popped;

	spin_lock_irqsave(&kqc_lock, flags);
	popped = kqc_core_pop(&core, ktime_get_ns(), text);
	given_out += popped;
	spin_unlock_irqrestore(&kqc_lock, flags);
	return popped;
}

static void free_due(void)
{
	struct kqc_text text;

	while (pop(&text)) {
		kqc_free_now(text.kind, (void *)text.address, text.size);
		cond_resched();
	}
}

static void free_what_must_go(struct work_struct *work)
{
	unsigned long flags;
	u64 expires, now;

	free_due();
	spin_lock_irqsave(&kqc_lock, flags);
	expires = kqc_core_expires(&core);
	now = ktime_get_ns();
	spin_unlock_irqrestore(&kqc_lock, flags);
	if (expires != U64_MAX)
		queue_delayed_work(system_unbound_wq, &bounds_work,
				   expires > now ? nsecs_to_jiffies(expires - now) + 1 : 1);
}

/* Memory for twice as many texts as may be held, so that there are places while the work is on its way. */
static int provide_places(void)
{
	u32 count = items * 2;
	unsigned long flags;
	void *places;

	if (provided)
		return 0;
	places = vzalloc((size_t)count * KQC_PLACE_BYTES);
	if (!places)
		return -ENOMEM;
	spin_lock_irqsave(&kqc_lock, flags);
	provided = kqc_core_give_places(&core, places, count);
	spin_unlock_irqrestore(&kqc_lock, flags);
	return 0;
}

static void return_places(void)
{
	unsigned long flags;
	void *places;

	mutex_lock(&joining);
	spin_lock_irqsave(&kqc_lock, flags);
	places = kqc_core_take_places(&core);
	spin_unlock_irqrestore(&kqc_lock, flags);
	if (places)
		provided = false;
	mutex_unlock(&joining);
	vfree(places);
}

/* Whether the file has a guarantee and its pass has ended; with `may_join` it is given one if there is room. */
static bool advance(struct file *file, bool may_join)
{
	struct reader *reader;
	unsigned long flags;
	bool done = false;

	spin_lock_irqsave(&kqc_lock, flags);
	reader = reader_of(file);
	if (!reader && may_join)
		reader = reader_of(NULL);
	if (reader && kqc_core_qc(&core, &reader->opener)) {
		reader->file = file;
		WRITE_ONCE(asked, true);
		done = true;
	}
	spin_unlock_irqrestore(&kqc_lock, flags);
	return done;
}

static int join(struct file *file)
{
	int error;

	mutex_lock(&joining);
	error = provide_places();
	if (!error && !advance(file, true))
		error = -EBUSY;
	/* Those who saw that nobody asked are done with what they free at once. */
	if (!error)
		synchronize_srcu(&kqc_frees);
	mutex_unlock(&joining);
	return error;
}

/* KCORE_QC. */
int kqc_end_pass(struct file *file)
{
	if (!advance(file, false)) {
		int error = join(file);

		if (error)
			return error;
	}
	free_due();
	return 0;
}

static bool forget(struct reader *reader)
{
	bool had = reader && reader->file;

	if (had) {
		kqc_core_close(&core, &reader->opener);
		reader->file = NULL;
		WRITE_ONCE(asked, kqc_core_asked(&core));
	}
	return had;
}

/* The last descriptor of an open file is gone. */
void kqc_close(struct file *file)
{
	unsigned long flags;
	bool had;

	spin_lock_irqsave(&kqc_lock, flags);
	had = forget(reader_of(file));
	spin_unlock_irqrestore(&kqc_lock, flags);
	if (had) {
		free_due();
		return_places();
	}
}

/* KCORE_QC_QUERY. */
void kqc_query(struct file *file, struct kcore_qc_query *query)
{
	struct kqc_opener nobody = {};
	struct kqc_counts counts;
	struct reader *reader;
	unsigned long flags;

	spin_lock_irqsave(&kqc_lock, flags);
	reader = reader_of(file);
	kqc_core_counts(&core, reader ? &reader->opener : &nobody, &counts);
	spin_unlock_irqrestore(&kqc_lock, flags);
	*query = (struct kcore_qc_query) {
		.version = KCORE_QC_VERSION,
		.guaranteed = counts.joined,
		.waiting = counts.waiting,
		.broken = counts.broken,
		.items = counts.items,
		.bytes = counts.bytes,
		.freed = counts.freed,
		.missed = counts.missed,
	};
}

int kqc_hold_init(void)
{
	if (!items || items > MOST_ITEMS || !age_ms || age_ms > LONGEST_MS)
		return -EINVAL;
	kqc_core_init(&core, items, bytes, (u64)age_ms * NSEC_PER_MSEC);
	return 0;
}

/* After the hooks are gone. */
void kqc_hold_exit(void)
{
	struct reader *reader;
	unsigned long flags;

	spin_lock_irqsave(&kqc_lock, flags);
	for (reader = readers; reader < readers + KQC_OPENERS; reader++)
		forget(reader);
	spin_unlock_irqrestore(&kqc_lock, flags);
	/* With nobody left everything is due, and the work finds no reason to come back. */
	cancel_delayed_work_sync(&bounds_work);
	free_due();
	cancel_delayed_work_sync(&bounds_work);
	return_places();
	/* What was not given out is never freed. */
	WARN_ON(taken_over != given_out || provided);
	pr_info("kcore_qc: %llu texts were held, %llu of them freed\n", taken_over, given_out);
}
