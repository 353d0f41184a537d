// SPDX-License-Identifier: GPL-2.0
/*
 * A module to load and remove, with text that samples can land in.
 *
 *   init_spin=MS (when it is loaded)   afterimage_load_init_spin, text that is freed after the initialisation
 *   echo MS > /sys/module/afterimage_load/parameters/spin   afterimage_load_spin, ordinary text
 *
 * Each takes about so many milliseconds. `cargo xtask guest` builds it for each kernel; by hand, in a copy of this
 * folder: make -C /lib/modules/$(uname -r)/build M=$PWD modules
 */
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/sched.h>

/* Steps between two looks at the clock: tens of microseconds. */
#define CHUNK 20000
#define LONGEST_MS 10000

static unsigned int init_spin;
module_param(init_spin, uint, 0444);
MODULE_PARM_DESC(init_spin, "milliseconds to spin in the initialisation, up to 10000");

/* What the loops compute, so that they are not left out. */
static unsigned long sink;

static __always_inline void spin_for(unsigned int ms)
{
	u64 end = ktime_get_ns() + (u64)min(ms, (unsigned int)LONGEST_MS) * NSEC_PER_MSEC;
	unsigned long x = READ_ONCE(sink);

	while (ktime_get_ns() < end) {
		for (int i = 0; i < CHUNK; i++) {
			x = x * 6364136223846793005ul + 1;
			barrier();
		}
		cond_resched();
	}
	WRITE_ONCE(sink, x);
}

static noinline void afterimage_load_spin(unsigned int ms)
{
	spin_for(ms);
}

static noinline void __init afterimage_load_init_spin(unsigned int ms)
{
	spin_for(ms);
}

static int spin_set(const char *text, const struct kernel_param *param)
{
	unsigned int ms;
	int error = kstrtouint(text, 0, &ms);

	if (error)
		return error;
	/* A parameter on the command line comes before the initialisation: too early to spin. */
	if (THIS_MODULE->state == MODULE_STATE_LIVE)
		afterimage_load_spin(ms);
	return 0;
}

static const struct kernel_param_ops spin_ops = { .set = spin_set };
module_param_cb(spin, &spin_ops, NULL, 0200);
MODULE_PARM_DESC(spin, "milliseconds to spin now, up to 10000");

static int __init afterimage_load_init(void)
{
	afterimage_load_init_spin(init_spin);
	return 0;
}

static void __exit afterimage_load_exit(void)
{
}

module_init(afterimage_load_init);
module_exit(afterimage_load_exit);
MODULE_DESCRIPTION("Text that comes and goes");
MODULE_LICENSE("GPL");
