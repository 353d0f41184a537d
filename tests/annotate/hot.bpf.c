/*
 * A program whose time is known by function: of the three that its main function calls, `sixty`, `thirty` and `ten` take
 * that share of it. VARIANT is part of all their names, and CONSTANT of their code, so that programs made from this file
 * differ in both and have the same size.
 */
#define SEC(name) __attribute__((section(name), used))
#define NAME2(variant, part) variant##_##part
#define NAME1(variant, part) NAME2(variant, part)
#define NAME(part) NAME1(VARIANT, part)
#define NOINLINE static __attribute__((noinline))

typedef unsigned long long u64;

/* Expanded into each function: a chain of multiplications that a compiler cannot shorten. */
#define ROUNDS(x, rounds, more)					\
	for (int i = 0; i < (rounds); i++) {			\
		x = x * 31 + (CONSTANT + (more));		\
		__asm__ volatile("" : "+r"(x));			\
	}

NOINLINE u64 NAME(sixty)(u64 x)
{
	ROUNDS(x, 600, 1) /* the loop of sixty */
	return x;
}

NOINLINE u64 NAME(thirty)(u64 x)
{
	ROUNDS(x, 300, 2) /* the loop of thirty */
	return x;
}

NOINLINE u64 NAME(ten)(u64 x)
{
	ROUNDS(x, 100, 3) /* the loop of ten */
	return x;
}

SEC("socket")
int NAME(main)(void *ctx)
{
	u64 x = 1;

	x += NAME(sixty)(x);
	x += NAME(thirty)(x);
	x += NAME(ten)(x);
	return x & 1;
}

char _license[] SEC("license") = "Dual MIT/GPL";
