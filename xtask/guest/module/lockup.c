// SPDX-License-Identifier: GPL-2.0
/*
 * Breaks something while it is being loaded, so that loading it never ends: for tests that want to see that reported.
 * how=lockup: keeps one CPU, without preemption. how=stall: keeps one CPU, with interrupts off. how=stuck: keeps all
 * CPUs, with interrupts off. how=hung: sleeps, and nobody wakes it. how=oops: writes to where nothing is.
 */
#include <linux/cpu.h>
#include <linux/delay.h>
#include <linux/err.h>
#include <linux/irqflags.h>
#include <linux/jiffies.h>
#include <linux/kernel.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/preempt.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/stop_machine.h>
#include <linux/string.h>

static char *how = "";
module_param(how, charp, 0);
MODULE_PARM_DESC(how, "lockup, stall, stuck, hung or oops");

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

/* A stall is told only where somebody waits for RCU, and on a CPU that has ticks. */
static int wait_for_rcu(void *unused)
{
	unsigned long until;

	for (;;) {
		synchronize_rcu();
		for (until = jiffies + HZ / 100; time_before(jiffies, until);)
			cond_resched();
	}
	return 0;
}

static int stall(void)
{
	struct task_struct *waiting;
	unsigned int here = get_cpu();
	unsigned int other = cpumask_any_but(cpu_online_mask, here);

	put_cpu();
	if (other >= nr_cpu_ids)
		return -ENODEV;
	waiting = kthread_create(wait_for_rcu, NULL, "wait_for_rcu");
	if (IS_ERR(waiting))
		return PTR_ERR(waiting);
	kthread_bind(waiting, other);
	wake_up_process(waiting);
	set_cpus_allowed_ptr(current, cpumask_of(here));
	msleep(100);
	local_irq_disable();
	keep_this_cpu();
	return 0;
}

static void hang(void)
{
	for (;;) {
		set_current_state(TASK_UNINTERRUPTIBLE);
		schedule();
	}
}

/* Not known to be NULL while it is compiled. */
static int *nowhere;

static int __init lockup_init(void)
{
	if (!strcmp(how, "lockup")) {
		preempt_disable();
		keep_this_cpu();
	} else if (!strcmp(how, "stall")) {
		return stall();
	} else if (!strcmp(how, "stuck")) {
		stop_machine(keep_with_interrupts_off, NULL, cpu_online_mask);
	} else if (!strcmp(how, "hung")) {
		hang();
	} else if (!strcmp(how, "oops")) {
		WRITE_ONCE(*READ_ONCE(nowhere), 1);
	}
	return -EINVAL;
}

module_init(lockup_init);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Locks up on purpose");
