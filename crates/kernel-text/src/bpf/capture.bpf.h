/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What the capture programs hand to user space. The Rust twins are in ../capture/wire.rs; a test there compares the sizes.
 */
#ifndef AFTERIMAGE_CAPTURE_H
#define AFTERIMAGE_CAPTURE_H

/* The longest piece of a text in one record of the ring, and of one read. */
#define AI_PIECE 4096
/* Most pieces of one text; what is longer is cut and said to be. */
#define AI_PIECES 1024
/* Most functions of one program (BPF_MAX_SUBPROGS, and a hidden one). */
#define AI_FUNCTIONS 320
/* Most functions of one structure. */
#define AI_MEMBERS 256
#define AI_NAME 128
#define AI_SYMBOL 64
#define AI_OWNER 24

enum ai_what {
	AI_PROGRAM = 1, /* a function of a program, or of a classic filter */
	AI_TRAMPOLINE = 2,
	AI_MODULE_CAME = 3,
	AI_MODULE_INIT = 4, /* the text of a module's initialisation, as it came */
	AI_MODULE_GONE = 5,
	AI_BY_SIZE = 6, /* a piece of executable memory that goes, with the allocator's idea of its size */
	AI_STRUCT_OPS = 7, /* a function of a structure, by its trampoline */
};

/*
 * One piece of a text. Pieces of one text follow each other, but not directly: CPUs write side by side. A first piece without
 * bytes and error of a text that has a length is no more than news of it.
 */
struct ai_text {
	__u64 time;   /* bpf_ktime_get_ns, CLOCK_MONOTONIC */
	__u64 owner;  /* the kernel object that the text goes with: the functions of one program share it */
	__u64 addr;
	__u64 loaded; /* when the program was loaded, CLOCK_BOOTTIME; 0 for what no bpf(2) call loaded */
	__u32 length; /* of the whole text, 0 where the kernel does not know it */
	__u32 offset; /* of this piece */
	__u32 bytes;  /* in this piece */
	__s32 error;  /* of the read: 0 or a negative error number */
	__u32 function, functions;
	__u32 type;   /* enum bpf_prog_type */
	__u32 what;   /* enum ai_what */
	__u8 tag[8];
	char name[AI_NAME];
	__u8 data[];
};

/* Counters since the programs were loaded. */
struct ai_stats {
	__u64 freed;      /* programs, filters, trampolines, structures and modules that were seen going or coming */
	__u64 texts;      /* texts of these */
	__u64 lost;       /* texts of which a piece, or the news, found no room in the ring */
	__u64 unreadable; /* texts of which a piece could not be read */
	__u64 cut;        /* texts longer than is copied */
	__u64 bytes;      /* copied */
};

struct ai_read {
	__u64 addr;
	__u32 length;
	__s32 error;
};

/* A symbol of the kernel, as the iterator over them writes it. */
struct ai_symbol {
	__u64 address; /* 0 where the kernel hides it */
	char owner[AI_OWNER]; /* in brackets in /proc/kallsyms; empty for the kernel itself */
	char name[AI_NAME];
};

struct ai_find {
	__u64 address;
	__s64 error; /* 0 or a negative error number */
	char name[AI_SYMBOL]; /* padded with NULs */
};

#endif
