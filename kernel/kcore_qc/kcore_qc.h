/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * Calls on a descriptor of /proc/kcore that keep freed kernel text where it is until its readers are done with it.
 * Where they are not there, the answer is ENOTTY.
 */
#ifndef _UAPI_LINUX_KCORE_QC_H
#define _UAPI_LINUX_KCORE_QC_H

#include <linux/ioctl.h>
#include <linux/types.h>

/*
 * The first call on an open file gives it a guarantee: text that is freed after it returned stays in /proc/kcore,
 * unchanged, until the third next call, or until the file is closed. Each next call says that a pass over all ring
 * buffers has ended. Any argument is ignored.
 *
 * EBUSY: 16 files have a guarantee already. ENOMEM: no memory to remember texts in. This file has none then.
 */
#define KCORE_QC _IO('K', 0x51)

/* How things stand. Asking gives no guarantee, and tells whether the other call is there. */
#define KCORE_QC_QUERY _IOR('K', 0x52, struct kcore_qc_query)

#define KCORE_QC_VERSION 1

struct kcore_qc_query {
	__u32 version;		/* KCORE_QC_VERSION */
	__u32 guaranteed;	/* 1 if this file has a guarantee */
	__u64 waiting;		/* texts that wait for this file */
	__u64 broken;		/* texts freed before this file was done with them */
	__u64 items;		/* texts that wait for anyone */
	__u64 bytes;		/* bytes of these */
	__u64 freed;		/* texts that waited, and were freed since */
	__u64 missed;		/* texts freed at once for want of a place */
};

#endif /* _UAPI_LINUX_KCORE_QC_H */
