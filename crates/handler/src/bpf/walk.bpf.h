/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A thread that leaves a CPU or wakes another one, and its stack: how that is walked, and when it need not be. Programs that
 * use this run with interrupts off.
 */
#ifndef AFTERIMAGE_WALK_BPF_H
#define AFTERIMAGE_WALK_BPF_H

#include "chain.bpf.h"

/* Words of a part of a stack, without its marker: the kernel's stacks are short, and bpf_get_stack gives at most 127. */
#define AI_KERNEL_WORDS 64
#define AI_USER_WORDS 128
#define AI_LEFT_WORDS (AI_KERNEL_WORDS + AI_USER_WORDS + 2)

/* Kernel parts that are kept of a thread, words of a stack that are looked at, and those that may be addresses of code. */
#define AI_WAYS 2
#define AI_SEEN_WORDS 256
#define AI_SLOTS 48
#define AI_KEPT_WORDS 49
#define AI_FRAMES 16
/* A part that is as it was is walked all the same once in so many times: where memory was missing it may be there now. */
#define AI_TRUSTED 64

/* A kernel part as it was walked, and the words of the stack that decided how; see ai_kernel_part. */
struct ai_walked {
	__u32 nr;    /* words of the part, its marker included; 0: there is none */
	__u32 words; /* of the stack */
	__u64 outer; /* the outermost return address, where the frame within it has no fixed size; else 0 */
	__u32 below; /* where that stands, in words from the end */
	__u32 slots;
	__u16 slot[AI_SLOTS];  /* in words from the beginning */
	__u32 value[AI_SLOTS]; /* the lower half; of the upper one all bits are set */
	__u64 word[AI_KEPT_WORDS];
};

/* A user part as it was walked, and the frames that decided how; see ai_user_part. */
struct ai_frames {
	__u64 ip, sp, fp; /* of the process */
	__u32 nr;         /* words of the part, its marker included; 0: there is none */
	__u32 bytes;      /* of the stack, up to the end of the outermost frame */
	__u16 at[AI_FRAMES];   /* the frames, in words from sp */
	__u64 next[AI_FRAMES]; /* what each of them says of the next one */
	__u64 word[AI_FRAMES + 2];
};

/* A thread, as it was when it left a CPU. The iterator below hands it out as it is. */
struct ai_left {
	__u64 since; /* ns of CLOCK_MONOTONIC; 0 while it is on a CPU */
	__u64 exec_id;
	__u64 comm[2];
	__u32 pid;
	__u32 tid;
	__u32 state;
	__u32 cpu; /* that it left */
	__u32 nr;  /* words that follow */
	__u32 reserved;
	__u64 word[AI_LEFT_WORDS];
	/* What is known of its stacks. */
	__u32 next_walked; /* the way that is written next */
	__u32 next_frames;
	__u32 age;
	__u32 reserved1;
	__u64 born; /* start_time of the thread: its number may have been another's */
	struct ai_walked walked[AI_WAYS];
	struct ai_frames frames[AI_WAYS];
};

/* What a CPU looks at for a moment. */
struct ai_seen {
	__u64 from; /* an address of the stack */
	__u64 to;
	__u64 word[AI_SEEN_WORDS];
};

const volatile bool ai_reuses = false; /* kernel stacks are walked only where they differ from the last ones */
const volatile __u64 ai_syscall_from = 0; /* the function that carries out system calls */
const volatile __u64 ai_syscall_to = 0;

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ai_seen);
} ai_seen_stacks SEC(".maps");

/*
 * One part of the stack of the thread that leaves, behind its marker; returns the words in use. The user part is walked by
 * frame pointers, and as far as its memory is there: a page that is not cannot be brought in here. Whoever unwinds by tables
 * puts another function in place of the call for the user part; it has to write no more words than this one.
 */
static __always_inline __u64 ai_part(void *ctx, struct ai_left *left, __u64 at, __u32 most, __u64 flags, __u64 marker)
{
	__u64 *to;
	long bytes;

	barrier_var(at);
	if (at > AI_KERNEL_WORDS + 1)
		return at;
	to = &left->word[at];
	barrier_var(to);
	bytes = bpf_get_stack(ctx, to + 1, most * sizeof(__u64), flags);
	if (bytes < (long)sizeof(__u64))
		return at;
	*to = marker;
	return at + 1 + ((__u64)bytes >> 3);
}

/* Whether all words that may be addresses of code are where they were, and what they were. */
__noinline bool ai_same_slots(const struct ai_seen *seen, const struct ai_walked *walked)
{
	if (!seen || !walked)
		return false;
	for (__u32 i = 0; i < AI_SLOTS; i++) {
		__u32 at;

		if (i >= walked->slots)
			return true;
		at = walked->slot[i];
		if (at >= AI_SEEN_WORDS || seen->word[at] != (__u64)(__s64)(__s32)walked->value[i])
			return false;
	}
	return true;
}

/* Whether a stack would be walked as that one was. */
static __always_inline bool ai_same_walk(const struct ai_seen *seen, __u32 words, const struct ai_walked *walked)
{
	__u32 at = words - walked->below;

	if (!walked->nr)
		return false;
	barrier_var(at);
	if (!walked->outer ? words != walked->words : at >= AI_SEEN_WORDS || seen->word[at] != walked->outer)
		return false;
	return ai_same_slots(seen, walked);
}

/* The last place of a value among the words before `end`; AI_SEEN_WORDS if it is none of them. */
__noinline __u32 ai_last_place(const struct ai_seen *seen, __u32 end, __u64 value)
{
	__u32 place = AI_SEEN_WORDS;

	if (!seen)
		return place;
	for (__u32 i = 0; i < AI_SEEN_WORDS; i++) {
		if (i >= end)
			break;
		if (seen->word[i] == value)
			place = i;
	}
	return place;
}

/*
 * Takes down which words may be addresses of code. False where there are too many. The count is kept in memory, where the
 * verifier does not follow each of its values.
 */
__noinline bool ai_note_slots(const struct ai_seen *seen, struct ai_walked *walked, __u32 words)
{
	if (!seen || !walked)
		return false;
	*(volatile __u32 *)&walked->slots = 0;
	for (__u32 i = 0; i < AI_SEEN_WORDS; i++) {
		__u32 slots = *(volatile __u32 *)&walked->slots;

		if (i >= words)
			break;
		if (seen->word[i] >> 31 != 0x1ffffffff)
			continue;
		if (slots >= AI_SLOTS)
			return false;
		walked->slot[slots] = i;
		walked->value[slots] = seen->word[i];
		*(volatile __u32 *)&walked->slots = slots + 1;
	}
	return true;
}

/* Takes down what decided how a stack was walked. */
static __always_inline bool ai_note_walk(const struct ai_seen *seen, __u32 words, struct ai_walked *walked,
					 const struct ai_left *left, __u64 nr)
{
	__u64 inner, outer;
	__u32 place;

	walked->words = words;
	walked->outer = 0;
	walked->below = 0;
	barrier_var(nr);
	if (nr < 4 || nr > AI_KEPT_WORDS)
		return false;
	inner = left->word[nr - 2];
	outer = left->word[nr - 1];
	if (inner < ai_syscall_from || inner >= ai_syscall_to)
		return ai_note_slots(seen, walked, words);
	place = ai_last_place(seen, words, outer);
	if (place >= AI_SEEN_WORDS)
		return false;
	walked->outer = outer;
	walked->below = words - place;
	place = ai_last_place(seen, place, inner);
	return place < AI_SEEN_WORDS && ai_note_slots(seen, walked, place + 1);
}

/* Copies the words of a part. */
static __always_inline bool ai_copy_part(__u64 *to, const __u64 *from, __u64 nr, __u64 most)
{
	barrier_var(nr);
	if (!nr || nr > most)
		return false;
	return !bpf_probe_read_kernel(to, nr * sizeof(__u64), from);
}

/* Reads the stack of the thread that leaves, from this program's context on. Gives its words; 0 if it is too long. */
static __always_inline __u32 ai_look(void *ctx, struct ai_seen *seen, struct task_struct *task)
{
	__u64 from, size;

	/* By way of memory they are numbers, which may be subtracted. */
	*(void *volatile *)&seen->from = ctx;
	*(void *volatile *)&seen->to = (void *)bpf_task_pt_regs(task);
	from = *(volatile __u64 *)&seen->from;
	size = *(volatile __u64 *)&seen->to - from;
	barrier_var(size);
	if (size > sizeof(seen->word) || bpf_probe_read_kernel(seen->word, size, (void *)from))
		return 0;
	return size >> 3;
}

/*
 * The kernel part of the stack of the thread that leaves. To walk it by the kernel's tables takes longer than all else, and
 * most threads wait where they have waited before. How a stack is walked depends on where it begins and on the return
 * addresses that are found, each of which tells where the next one lies. So if all words that may be return addresses are
 * where they were, counted from its beginning, and what they were, the walk would come to the same; a word that is none costs
 * at most a walk that was not needed. One frame has no fixed size: the kernel puts a gap of random length below that of
 * a system call. What is there is not looked at, but the address that this frame returns to, which stands at the end.
 * The context of a program on a raw tracepoint lies on the thread's stack, at a fixed distance from the frame of the
 * scheduler; the registers of the process are its end.
 */
static __always_inline __u64 ai_kernel_part(void *ctx, struct ai_left *left, struct task_struct *task)
{
	__u32 zero = 0, words = 0;
	struct ai_seen *seen = ai_reuses ? bpf_map_lookup_elem(&ai_seen_stacks, &zero) : 0;
	struct ai_walked *walked = 0;
	__u64 nr;

	if (seen)
		words = ai_look(ctx, seen, task);
	if (words) {
		if (ai_same_walk(seen, words, &left->walked[0]))
			walked = &left->walked[0];
		else if (ai_same_walk(seen, words, &left->walked[1]))
			walked = &left->walked[1];
		if (walked && ai_copy_part(left->word, walked->word, walked->nr, AI_KEPT_WORDS))
			return walked->nr;
	}
	nr = ai_part(ctx, left, 0, AI_KERNEL_WORDS, 0, PERF_CONTEXT_KERNEL);
	if (words) {
		walked = left->next_walked++ & 1 ? &left->walked[1] : &left->walked[0];
		walked->nr = 0;
		if (ai_note_walk(seen, words, walked, left, nr) && ai_copy_part(walked->word, left->word, nr, AI_KEPT_WORDS))
			walked->nr = nr;
	}
	return nr;
}

/* Whether all frames say what they said. */
__noinline bool ai_same_frames(const struct ai_seen *seen, const struct ai_frames *frames)
{
	if (!seen || !frames)
		return false;
	for (__u32 i = 0; i < AI_FRAMES; i++) {
		__u32 at;

		if (i + 2 >= frames->nr)
			return true;
		at = frames->at[i];
		if (at >= AI_SEEN_WORDS - 1 || seen->word[at] != frames->next[i] ||
		    seen->word[at + 1] != frames->word[i + 2])
			return false;
	}
	return true;
}

/* Takes down where the frames of a part are that was walked. False for those that are too many, or too far away. */
static __noinline bool ai_note_frames(struct ai_frames *frames, __u32 nr)
{
	__u64 fp = frames->fp, sp = frames->sp;
	__u32 bytes = 0;

	for (__u32 i = 0; i < AI_FRAMES; i++) {
		__u64 off = fp - sp, next = 0;

		if (i + 2 >= nr)
			break;
		if (off > sizeof(((struct ai_seen *)0)->word) - 16 || (off & 7))
			return false;
		if (bpf_probe_read_user(&next, sizeof(next), (void *)fp))
			return false;
		frames->at[i] = off >> 3;
		frames->next[i] = next;
		if (bytes < off + 16)
			bytes = off + 16;
		fp = next;
	}
	frames->bytes = bytes;
	return true;
}

/* Whether the user part would be walked as that one was. */
static __always_inline bool ai_same_user(struct ai_seen *seen, const struct ai_frames *frames,
					 const bpf_user_pt_regs_t *regs)
{
	__u64 bytes = frames->bytes;

	if (!frames->nr || frames->ip != AI_REGS_IP(regs) || frames->sp != AI_REGS_SP(regs) || frames->fp != AI_REGS_FP(regs))
		return false;
	barrier_var(bytes);
	if (bytes > sizeof(seen->word) || (bytes && bpf_probe_read_user(seen->word, bytes, (void *)frames->sp)))
		return false;
	return ai_same_frames(seen, frames);
}

/*
 * The user part, behind the kernel's. What was said of that holds here for frames: the registers tell where the first one is,
 * and each tells where the next one is and what it returns to.
 */
static __always_inline __u64 ai_user_part(void *ctx, struct ai_left *left, struct task_struct *task, __u64 at)
{
	__u32 zero = 0;
	struct ai_seen *seen = ai_reuses ? bpf_map_lookup_elem(&ai_seen_stacks, &zero) : 0;
	bpf_user_pt_regs_t *regs = (void *)bpf_task_pt_regs(task);
	struct ai_frames *frames = 0;
	__u64 nr, *to;

	barrier_var(at);
	if (at > AI_KERNEL_WORDS + 1)
		return at;
	to = &left->word[at];
	if (seen && left->age++ % AI_TRUSTED) {
		if (ai_same_user(seen, &left->frames[0], regs))
			frames = &left->frames[0];
		else if (ai_same_user(seen, &left->frames[1], regs))
			frames = &left->frames[1];
		if (frames && ai_copy_part(to, frames->word, frames->nr, AI_FRAMES + 2))
			return at + frames->nr;
	}
	nr = ai_part(ctx, left, at, AI_USER_WORDS, BPF_F_USER_STACK, PERF_CONTEXT_USER);
	if (seen && nr > at) {
		frames = left->next_frames++ & 1 ? &left->frames[1] : &left->frames[0];
		frames->nr = 0;
		frames->ip = AI_REGS_IP(regs);
		frames->sp = AI_REGS_SP(regs);
		frames->fp = AI_REGS_FP(regs);
		if (ai_copy_part(frames->word, to, nr - at, AI_FRAMES + 2) && ai_note_frames(frames, nr - at))
			frames->nr = nr - at;
	}
	return nr;
}

#endif
