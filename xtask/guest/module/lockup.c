// SPDX-License-Identifier: GPL-2.0
/*
 * Keeps CPUs for itself while it is being loaded, so that loading it never ends: for tests that want to see a lock-up
 * reported. how=lockup: one CPU, without preemption. how=stall: one CPU, with interrupts off. how=stuck: all CPUs,
 * with interrupts off.
 */
#include <linux/cpu.h>
#include <linux/irqflags.h>
#include <linux/kernel.h>
#include <linux/module.h>
#include <linux/preempt.h>
#include <linux/stop_machine.h>
#include <linux/string.h>

static char *how = "";
module_param(how, charp, 0);
MODULE_PARM_DESC(how, "lockup, stall or stuck");

static void keep_this_cpu(void)
{
	for (;;)
		cpu_relax();
}

static int keep_with_interrupts_off(void *unused)
{
	keep_this_cpu();
	return 0;
}

static int __init lockup_init(void)
{
	if (!strcmp(how, "lockup")) {
		preempt_disable();
		keep_this_cpu();
	} else if (!strcmp(how, "stall")) {
		local_irq_disable();
		keep_this_cpu();
	} else if (!strcmp(how, "stuck")) {
		stop_machine(keep_with_interrupts_off, NULL, cpu_online_mask);
	}
	return -EINVAL;
}

module_init(lockup_init);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Locks up on purpose");
