// SPDX-License-Identifier: GPL-2.0
/*
 * KCORE_QC for kernels that do not have it: text that is freed stays in /proc/kcore until those who asked for it are
 * done with it. kcore_qc.h is what users see; hooks.c changes the kernel, hold.c keeps text, core.S is the queue.
 */
#include <linux/module.h>

#include "kqc.h"

static int __init kqc_init(void)
{
	int error = kqc_hold_init();

	if (error)
		return error;
	error = kqc_hooks_install();
	if (error)
		kqc_hold_exit();
	return error;
}

static void __exit kqc_exit(void)
{
	/* From here on nobody can ask and nothing more is held; what is held is freed. */
	kqc_hooks_remove();
	kqc_hold_exit();
}

module_init(kqc_init);
module_exit(kqc_exit);
MODULE_DESCRIPTION("Keeps freed kernel text in /proc/kcore for those who read it");
MODULE_LICENSE("GPL");
