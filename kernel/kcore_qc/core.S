/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The queue: core/src/lib.rs and crates/quiesce, compiled by `cargo xtask kernel-core` with rustc 1.95.0.
 * Not edited by hand. Sources: 7d375b73872eec52.
 */
#include <linux/linkage.h>

	.text

SYM_FUNC_START(kqc_core_asked)
	movb	$1, %al
	cmpq	$0, 88(%rdi)
	je	.LBB0_1
.LBB0_16:
	RET
.LBB0_1:
	cmpq	$0, 128(%rdi)
	jne	.LBB0_16
	cmpq	$0, 168(%rdi)
	jne	.LBB0_16
	cmpq	$0, 208(%rdi)
	jne	.LBB0_16
	cmpq	$0, 248(%rdi)
	jne	.LBB0_16
	cmpq	$0, 288(%rdi)
	jne	.LBB0_16
	cmpq	$0, 328(%rdi)
	jne	.LBB0_16
	cmpq	$0, 368(%rdi)
	jne	.LBB0_16
	cmpq	$0, 408(%rdi)
	jne	.LBB0_16
	cmpq	$0, 448(%rdi)
	jne	.LBB0_16
	cmpq	$0, 488(%rdi)
	jne	.LBB0_16
	cmpq	$0, 528(%rdi)
	jne	.LBB0_16
	cmpq	$0, 568(%rdi)
	jne	.LBB0_16
	cmpq	$0, 608(%rdi)
	jne	.LBB0_16
	cmpq	$0, 648(%rdi)
	jne	.LBB0_16
	cmpq	$0, 688(%rdi)
	setne	%al
	RET
SYM_FUNC_END(kqc_core_asked)

SYM_FUNC_START(kqc_core_close)
	movq	(%rsi), %rax
	cmpq	$15, %rax
	ja	.LBB1_4
	movq	8(%rsi), %rcx
	testq	%rcx, %rcx
	je	.LBB1_4
	leaq	(%rax,%rax,4), %rax
	leaq	(%rdi,%rax,8), %rax
	addq	$88, %rax
	cmpq	(%rax), %rcx
	jne	.LBB1_4
	movq	$0, 32(%rax)
	movq	$0, 24(%rax)
	movq	$0, 16(%rax)
	movq	$0, 8(%rax)
	movq	$0, (%rax)
.LBB1_4:
	movq	$0, 8(%rsi)
	movq	$0, (%rsi)
	RET
SYM_FUNC_END(kqc_core_close)

SYM_FUNC_START(kqc_core_counts)
	movq	(%rsi), %rax
	cmpq	$15, %rax
	ja	.LBB2_1
	movq	8(%rsi), %rcx
	testq	%rcx, %rcx
	je	.LBB2_1
	leaq	(%rax,%rax,4), %rax
	leaq	(%rdi,%rax,8), %rax
	addq	$88, %rax
	cmpq	(%rax), %rcx
	jne	.LBB2_1
	movq	40(%rdi), %rsi
	movq	48(%rdi), %rcx
	movq	24(%rax), %r8
	movq	32(%rax), %rax
	cmpq	%r8, %rcx
	cmovaq	%rcx, %r8
	xorl	%ecx, %ecx
	subq	%r8, %rsi
	cmovaeq	%rsi, %rcx
	movl	$1, %esi
	jmp	.LBB2_5
.LBB2_1:
	xorl	%esi, %esi
.LBB2_5:
	testq	%rsi, %rsi
	cmoveq	%rsi, %rax
	cmoveq	%rsi, %rcx
	movq	32(%rdi), %r8
	movq	40(%rdi), %r9
	movq	48(%rdi), %r10
	xorl	%r11d, %r11d
	subq	%r10, %r9
	cmovaeq	%r9, %r11
	movq	56(%rdi), %rdi
	movq	%r11, (%rdx)
	movq	%rdi, 8(%rdx)
	movq	%r10, 16(%rdx)
	movq	%r8, 24(%rdx)
	movq	%rsi, 32(%rdx)
	movq	%rcx, 40(%rdx)
	movq	%rax, 48(%rdx)
	RET
SYM_FUNC_END(kqc_core_counts)

SYM_FUNC_START(kqc_core_defer)
	cmpq	$0, 88(%rdi)
	jne	.LBB3_16
	cmpq	$0, 128(%rdi)
	jne	.LBB3_16
	cmpq	$0, 168(%rdi)
	jne	.LBB3_16
	cmpq	$0, 208(%rdi)
	jne	.LBB3_16
	cmpq	$0, 248(%rdi)
	jne	.LBB3_16
	cmpq	$0, 288(%rdi)
	jne	.LBB3_16
	cmpq	$0, 328(%rdi)
	jne	.LBB3_16
	cmpq	$0, 368(%rdi)
	jne	.LBB3_16
	cmpq	$0, 408(%rdi)
	jne	.LBB3_16
	cmpq	$0, 448(%rdi)
	jne	.LBB3_16
	cmpq	$0, 488(%rdi)
	jne	.LBB3_16
	cmpq	$0, 528(%rdi)
	jne	.LBB3_16
	cmpq	$0, 568(%rdi)
	jne	.LBB3_16
	cmpq	$0, 608(%rdi)
	jne	.LBB3_16
	cmpq	$0, 648(%rdi)
	jne	.LBB3_16
	movl	$2, %eax
	cmpq	$0, 688(%rdi)
	jne	.LBB3_16
	RET
.LBB3_16:
	pushq	%r14
	pushq	%rbx
	movq	(%rdi), %r9
	testq	%r9, %r9
	je	.LBB3_17
	movl	16(%rdi), %eax
	testl	%eax, %eax
	je	.LBB3_21
	decl	%eax
	movq	8(%rdi), %r10
	cmpq	%rax, %r10
	jbe	.LBB3_17
	leaq	(%rax,%rax,4), %r11
	movl	32(%r9,%r11,8), %ebx
	movl	20(%rdi), %r11d
	jmp	.LBB3_24
.LBB3_21:
	movl	20(%rdi), %eax
	movl	%eax, %r10d
	shrl	%r10d
	cmpl	$2147483646, %r10d
	ja	.LBB3_17
	movq	8(%rdi), %r10
	cmpq	%rax, %r10
	jbe	.LBB3_17
	leal	1(%rax), %r11d
	xorl	%ebx, %ebx
.LBB3_24:
	leaq	(%rax,%rax,4), %r14
	movq	%rsi, (%r9,%r14,8)
	movq	%rdx, 8(%r9,%r14,8)
	movq	%rcx, 16(%r9,%r14,8)
	movq	%r8, 24(%r9,%r14,8)
	movl	$0, 32(%r9,%r14,8)
	movb	$1, 36(%r9,%r14,8)
	movl	24(%rdi), %ecx
	incl	%ecx
	movl	$-1, %edx
	cmovnel	%ecx, %edx
	movl	%ebx, 16(%rdi)
	movl	%r11d, 20(%rdi)
	movl	%edx, 24(%rdi)
	cmpq	$0, 88(%rdi)
	jne	.LBB3_40
	cmpq	$0, 128(%rdi)
	jne	.LBB3_40
	cmpq	$0, 168(%rdi)
	jne	.LBB3_40
	cmpq	$0, 208(%rdi)
	jne	.LBB3_40
	cmpq	$0, 248(%rdi)
	jne	.LBB3_40
	cmpq	$0, 288(%rdi)
	jne	.LBB3_40
	cmpq	$0, 328(%rdi)
	jne	.LBB3_40
	cmpq	$0, 368(%rdi)
	jne	.LBB3_40
	cmpq	$0, 408(%rdi)
	jne	.LBB3_40
	cmpq	$0, 448(%rdi)
	jne	.LBB3_40
	cmpq	$0, 488(%rdi)
	jne	.LBB3_40
	cmpq	$0, 528(%rdi)
	jne	.LBB3_40
	cmpq	$0, 568(%rdi)
	jne	.LBB3_40
	cmpq	$0, 608(%rdi)
	jne	.LBB3_40
	cmpq	$0, 648(%rdi)
	jne	.LBB3_40
	cmpq	$0, 688(%rdi)
	jne	.LBB3_40
.LBB3_17:
	leaq	40(%rdi), %rax
	movl	$48, %edx
	movq	$-1, %rcx
.LBB3_49:
	movq	32(%rdi), %rsi
	incq	%rsi
	cmoveq	%rcx, %rsi
	movq	%rsi, 32(%rdi)
	.p2align	4
.LBB3_50:
	cmpq	$688, %rdx
	je	.LBB3_51
	movq	%rdx, %rdi
	addq	$40, %rdx
	cmpq	$0, (%rax,%rdi)
	je	.LBB3_50
	addq	%rax, %rdi
	jmp	.LBB3_49
.LBB3_51:
	movl	$3, %eax
.LBB3_52:
	popq	%rbx
	popq	%r14
	RET
.LBB3_40:
	movl	%eax, %ecx
	cmpq	%rcx, %r10
	jbe	.LBB3_41
	leaq	(%rcx,%rcx,4), %rcx
	movl	$0, 32(%r9,%rcx,8)
	movq	16(%r9,%rcx,8), %rcx
	jmp	.LBB3_43
.LBB3_41:
	xorl	%ecx, %ecx
.LBB3_43:
	addq	56(%rdi), %rcx
	movq	$-1, %rdx
	cmovbq	%rdx, %rcx
	cmpl	$1, 736(%rdi)
	movl	%eax, %esi
	jne	.LBB3_46
	movl	740(%rdi), %esi
	movl	744(%rdi), %r8d
	cmpq	%r8, %r10
	jbe	.LBB3_46
	leaq	(%r8,%r8,4), %r8
	leal	1(%rax), %r10d
	movl	%r10d, 32(%r9,%r8,8)
.LBB3_46:
	movl	$1, 736(%rdi)
	movl	%esi, 740(%rdi)
	movl	%eax, 744(%rdi)
	movq	40(%rdi), %rax
	movq	72(%rdi), %rsi
	incq	%rax
	cmoveq	%rdx, %rax
	movq	%rax, 40(%rdi)
	movq	%rcx, 56(%rdi)
	xorl	%edx, %edx
	subq	48(%rdi), %rax
	cmovaeq	%rax, %rdx
	cmpq	64(%rdi), %rdx
	seta	%al
	cmpq	%rsi, %rcx
	seta	%cl
	orb	%al, %cl
	movzbl	%cl, %eax
	jmp	.LBB3_52
SYM_FUNC_END(kqc_core_defer)

SYM_FUNC_START(kqc_core_expires)
	movq	(%rdi), %rax
	testq	%rax, %rax
	je	.LBB4_6
	testb	$1, 736(%rdi)
	je	.LBB4_6
	movl	740(%rdi), %ecx
	cmpq	%rcx, 8(%rdi)
	jbe	.LBB4_3
	leaq	(%rcx,%rcx,4), %rcx
	movq	24(%rax,%rcx,8), %rcx
	jmp	.LBB4_5
.LBB4_6:
	movq	$-1, %rax
	RET
.LBB4_3:
	xorl	%ecx, %ecx
.LBB4_5:
	addq	80(%rdi), %rcx
	movq	$-1, %rax
	cmovaeq	%rcx, %rax
	RET
SYM_FUNC_END(kqc_core_expires)

SYM_FUNC_START(kqc_core_give_places)
	movq	(%rdi), %rax
	testq	%rax, %rax
	jne	.LBB5_2
	movl	%edx, %ecx
	movq	%rsi, (%rdi)
	movq	%rcx, 8(%rdi)
	movq	$0, 16(%rdi)
	movl	$0, 24(%rdi)
.LBB5_2:
	testq	%rax, %rax
	sete	%al
	RET
SYM_FUNC_END(kqc_core_give_places)

SYM_FUNC_START(kqc_core_init)
	movq	$0, (%rdi)
	movq	$0, 32(%rdi)
	movq	$0, 40(%rdi)
	movq	$0, 48(%rdi)
	movq	$0, 56(%rdi)
	movq	%rsi, 64(%rdi)
	movq	%rdx, 72(%rdi)
	movq	%rcx, 80(%rdi)
	addq	$88, %rdi
	movl	$652, %edx
	xorl	%esi, %esi
	jmp	memset
SYM_FUNC_END(kqc_core_init)

SYM_FUNC_START(kqc_core_pop)
	movq	(%rdi), %r8
	testq	%r8, %r8
	je	.LBB7_4
	testb	$1, 736(%rdi)
	je	.LBB7_4
	pushq	%rbp
	pushq	%r15
	pushq	%r14
	pushq	%r13
	pushq	%r12
	pushq	%rbx
	subq	$24, %rsp
	leaq	40(%rdi), %r15
	movl	740(%rdi), %ecx
	movl	744(%rdi), %eax
	movq	64(%rdi), %r11
	movq	72(%rdi), %r10
	movq	80(%rdi), %r9
	cmpq	$0, 88(%rdi)
	movl	%eax, 4(%rsp)
	je	.LBB7_5
	leaq	88(%rdi), %rbx
	movl	$15, %r14d
	movl	$88, %r13d
	jmp	.LBB7_31
.LBB7_4:
	xorl	%eax, %eax
	RET
.LBB7_5:
	cmpq	$0, 128(%rdi)
	je	.LBB7_7
	leaq	128(%rdi), %rbx
	movl	$14, %r14d
	movl	$128, %r13d
	jmp	.LBB7_31
.LBB7_7:
	cmpq	$0, 168(%rdi)
	je	.LBB7_9
	leaq	168(%rdi), %rbx
	movl	$13, %r14d
	movl	$168, %r13d
	jmp	.LBB7_31
.LBB7_9:
	cmpq	$0, 208(%rdi)
	je	.LBB7_11
	leaq	208(%rdi), %rbx
	movl	$12, %r14d
	movl	$208, %r13d
	jmp	.LBB7_31
.LBB7_11:
	cmpq	$0, 248(%rdi)
	je	.LBB7_13
	leaq	248(%rdi), %rbx
	movl	$11, %r14d
	movl	$248, %r13d
	jmp	.LBB7_31
.LBB7_13:
	cmpq	$0, 288(%rdi)
	je	.LBB7_15
	leaq	288(%rdi), %rbx
	movl	$10, %r14d
	movl	$288, %r13d
	jmp	.LBB7_31
.LBB7_15:
	cmpq	$0, 328(%rdi)
	je	.LBB7_17
	leaq	328(%rdi), %rbx
	movl	$9, %r14d
	movl	$328, %r13d
	jmp	.LBB7_31
.LBB7_17:
	cmpq	$0, 368(%rdi)
	je	.LBB7_19
	leaq	368(%rdi), %rbx
	movl	$8, %r14d
	movl	$368, %r13d
	jmp	.LBB7_31
.LBB7_19:
	cmpq	$0, 408(%rdi)
	je	.LBB7_21
	leaq	408(%rdi), %rbx
	movl	$7, %r14d
	movl	$408, %r13d
	jmp	.LBB7_31
.LBB7_21:
	cmpq	$0, 448(%rdi)
	je	.LBB7_23
	leaq	448(%rdi), %rbx
	movl	$6, %r14d
	movl	$448, %r13d
	jmp	.LBB7_31
.LBB7_23:
	cmpq	$0, 488(%rdi)
	je	.LBB7_25
	leaq	488(%rdi), %rbx
	movl	$5, %r14d
	movl	$488, %r13d
	jmp	.LBB7_31
.LBB7_25:
	cmpq	$0, 528(%rdi)
	je	.LBB7_27
	leaq	528(%rdi), %rbx
	movl	$4, %r14d
	movl	$528, %r13d
	jmp	.LBB7_31
.LBB7_27:
	cmpq	$0, 568(%rdi)
	je	.LBB7_29
	leaq	568(%rdi), %rbx
	movl	$3, %r14d
	movl	$568, %r13d
	jmp	.LBB7_31
.LBB7_29:
	cmpq	$0, 608(%rdi)
	je	.LBB7_65
	leaq	608(%rdi), %rbx
	movl	$2, %r14d
	movl	$608, %r13d
.LBB7_31:
	movl	%r14d, %r12d
	andl	$-2, %r12d
	movq	24(%rbx), %rbp
	movq	24(%r15,%r13), %rax
	cmpq	%rax, %rbp
	cmovbq	%rbp, %rax
	cmpq	$0, (%r15,%r13)
	movq	64(%r15,%r13), %rbx
	cmoveq	%rbp, %rax
	cmpq	%rbx, %rax
	cmovbq	%rax, %rbx
	cmpq	$0, 40(%r15,%r13)
	leaq	(%r15,%r13), %r13
	cmoveq	%rax, %rbx
	cmpq	$2, %r12
	je	.LBB7_38
	movq	104(%r13), %rax
	cmpq	%rax, %rbx
	cmovbq	%rbx, %rax
	cmpq	$0, 80(%r13)
	cmoveq	%rbx, %rax
	movq	144(%r13), %rbx
	cmpq	%rbx, %rax
	cmovbq	%rax, %rbx
	cmpq	$0, 120(%r13)
	cmoveq	%rax, %rbx
	cmpl	$4, %r12d
	je	.LBB7_38
	movq	184(%r13), %rax
	cmpq	%rax, %rbx
	cmovbq	%rbx, %rax
	cmpq	$0, 160(%r13)
	cmoveq	%rbx, %rax
	movq	224(%r13), %rbx
	cmpq	%rbx, %rax
	cmovbq	%rax, %rbx
	cmpq	$0, 200(%r13)
	cmoveq	%rax, %rbx
	cmpl	$6, %r12d
	je	.LBB7_38
	movq	264(%r13), %rax
	cmpq	%rax, %rbx
	cmovbq	%rbx, %rax
	cmpq	$0, 240(%r13)
	cmoveq	%rbx, %rax
	movq	304(%r13), %rbx
	cmpq	%rbx, %rax
	cmovbq	%rax, %rbx
	cmpq	$0, 280(%r13)
	cmoveq	%rax, %rbx
	cmpl	$8, %r12d
	je	.LBB7_38
	movq	344(%r13), %rax
	cmpq	%rax, %rbx
	cmovbq	%rbx, %rax
	cmpq	$0, 320(%r13)
	cmoveq	%rbx, %rax
	movq	384(%r13), %rbx
	cmpq	%rbx, %rax
	cmovbq	%rax, %rbx
	cmpq	$0, 360(%r13)
	cmoveq	%rax, %rbx
	cmpl	$10, %r12d
	je	.LBB7_38
	movq	424(%r13), %rax
	cmpq	%rax, %rbx
	cmovbq	%rbx, %rax
	cmpq	$0, 400(%r13)
	cmoveq	%rbx, %rax
	movq	464(%r13), %rbx
	cmpq	%rbx, %rax
	cmovbq	%rax, %rbx
	cmpq	$0, 440(%r13)
	cmoveq	%rax, %rbx
	cmpl	$12, %r12d
	je	.LBB7_38
	movq	504(%r13), %rax
	cmpq	%rax, %rbx
	cmovbq	%rbx, %rax
	cmpq	$0, 480(%r13)
	cmoveq	%rbx, %rax
	movq	544(%r13), %rbx
	cmpq	%rbx, %rax
	cmovbq	%rax, %rbx
	cmpq	$0, 520(%r13)
	cmoveq	%rax, %rbx
.LBB7_38:
	testb	$1, %r14b
	je	.LBB7_40
.LBB7_39:
	leaq	(%r12,%r12,4), %rax
	movq	24(%r13,%rax,8), %r14
	cmpq	%r14, %rbx
	cmovbq	%rbx, %r14
	cmpq	$0, (%r13,%rax,8)
	cmovneq	%r14, %rbx
.LBB7_40:
	movq	40(%rdi), %r14
	movq	48(%rdi), %r12
	xorl	%r13d, %r13d
	movq	%r14, %rax
	subq	%r12, %rax
	cmovaeq	%rax, %r13
	movq	56(%rdi), %r15
	cmpq	%r12, %rbx
	ja	.LBB7_46
	cmpq	%r11, %r13
	ja	.LBB7_46
	cmpq	%r10, %r15
	ja	.LBB7_46
	cmpq	%rcx, 8(%rdi)
	jbe	.LBB7_45
	leaq	(%rcx,%rcx,4), %rax
	xorl	%r10d, %r10d
	subq	24(%r8,%rax,8), %rsi
	cmovbq	%r10, %rsi
.LBB7_45:
	cmpq	%r9, %rsi
	jbe	.LBB7_63
.LBB7_46:
	cmpq	$2, %r13
	jae	.LBB7_49
	xorl	%esi, %esi
	cmpq	%rcx, 8(%rdi)
	ja	.LBB7_51
	cmpq	%r12, %rbx
	jbe	.LBB7_58
	jmp	.LBB7_55
.LBB7_49:
	cmpq	%rcx, 8(%rdi)
	jbe	.LBB7_53
	leaq	(%rcx,%rcx,4), %rax
	movl	32(%r8,%rax,8), %r9d
	xorl	%esi, %esi
	addl	$-1, %r9d
	setb	%sil
	movl	4(%rsp), %r11d
.LBB7_51:
	leaq	(%rcx,%rcx,4), %rax
	movl	$0, 32(%r8,%rax,8)
	xorl	%r10d, %r10d
	subq	16(%r8,%rax,8), %r15
	cmovbq	%r10, %r15
	cmpq	%r12, %rbx
	ja	.LBB7_55
	jmp	.LBB7_58
.LBB7_53:
	xorl	%esi, %esi
	cmpq	%r12, %rbx
	ja	.LBB7_55
.LBB7_58:
	movl	$120, %r8d
	movq	$-1, %r10
	cmpq	$0, -32(%rdi,%r8)
	jne	.LBB7_59
	jmp	.LBB7_61
	.p2align	4
.LBB7_62:
	addq	$40, %r8
	cmpq	$0, -32(%rdi,%r8)
	je	.LBB7_61
.LBB7_59:
	cmpq	%r12, -8(%rdi,%r8)
	ja	.LBB7_61
	movq	(%rdi,%r8), %rax
	incq	%rax
	cmoveq	%r10, %rax
	movq	%rax, (%rdi,%r8)
.LBB7_61:
	cmpq	$720, %r8
	jne	.LBB7_62
.LBB7_55:
	movl	%esi, 736(%rdi)
	movl	%r9d, 740(%rdi)
	movl	%r11d, 744(%rdi)
	incq	%r12
	movq	$-1, %r8
	cmovneq	%r12, %r8
	xorl	%eax, %eax
	testl	%esi, %esi
	cmoveq	%r14, %r8
	cmoveq	%rax, %r15
	movq	%r8, 48(%rdi)
	movq	%r15, 56(%rdi)
	cmpq	%rcx, 8(%rdi)
	jbe	.LBB7_64
	leaq	(%rcx,%rcx,4), %rax
	shlq	$3, %rax
	addq	(%rdi), %rax
	cmpb	$1, 36(%rax)
	jne	.LBB7_63
	movl	16(%rdi), %esi
	movl	%esi, 32(%rax)
	movb	$0, 36(%rax)
	movq	(%rax), %rsi
	movq	8(%rax), %rax
	movq	%rax, 16(%rsp)
	movq	%rsi, 8(%rsp)
	incl	%ecx
	movl	$-1, %eax
	cmovnel	%ecx, %eax
	movl	24(%rdi), %ecx
	cmpl	$1, %ecx
	adcl	$-1, %ecx
	movl	%eax, 16(%rdi)
	movl	%ecx, 24(%rdi)
	movq	8(%rsp), %rax
	movq	16(%rsp), %rcx
	movq	%rcx, 8(%rdx)
	movq	%rax, (%rdx)
	movb	$1, %al
	jmp	.LBB7_64
.LBB7_63:
	xorl	%eax, %eax
.LBB7_64:
	addq	$24, %rsp
	popq	%rbx
	popq	%r12
	popq	%r13
	popq	%r14
	popq	%r15
	popq	%rbp
	RET
.LBB7_65:
	leaq	688(%rdi), %r13
	cmpq	$0, 648(%rdi)
	je	.LBB7_67
	movq	672(%rdi), %rbx
	xorl	%r12d, %r12d
	jmp	.LBB7_39
.LBB7_67:
	cmpq	$0, (%r13)
	je	.LBB7_69
	movq	712(%rdi), %rbx
	jmp	.LBB7_40
.LBB7_69:
	movq	(%r15), %rbx
	jmp	.LBB7_40
SYM_FUNC_END(kqc_core_pop)

SYM_FUNC_START(kqc_core_qc)
	movq	40(%rdi), %rax
	movq	(%rsi), %rcx
	cmpq	$15, %rcx
	ja	.LBB8_5
	movq	8(%rsi), %rdx
	testq	%rdx, %rdx
	je	.LBB8_5
	leaq	(%rcx,%rcx,4), %rcx
	leaq	(%rdi,%rcx,8), %rcx
	addq	$88, %rcx
	cmpq	(%rcx), %rdx
	jne	.LBB8_5
	movq	8(%rcx), %rdx
	movq	16(%rcx), %rsi
	movq	%rsi, 24(%rcx)
	movq	%rdx, 16(%rcx)
	movq	%rax, 8(%rcx)
	movb	$1, %al
	RET
.LBB8_5:
	cmpq	$0, 88(%rdi)
	je	.LBB8_22
	cmpq	$0, 128(%rdi)
	je	.LBB8_23
	cmpq	$0, 168(%rdi)
	je	.LBB8_24
	cmpq	$0, 208(%rdi)
	je	.LBB8_25
	cmpq	$0, 248(%rdi)
	je	.LBB8_26
	cmpq	$0, 288(%rdi)
	je	.LBB8_27
	cmpq	$0, 328(%rdi)
	je	.LBB8_28
	cmpq	$0, 368(%rdi)
	je	.LBB8_29
	cmpq	$0, 408(%rdi)
	je	.LBB8_30
	cmpq	$0, 448(%rdi)
	je	.LBB8_31
	cmpq	$0, 488(%rdi)
	je	.LBB8_32
	cmpq	$0, 528(%rdi)
	je	.LBB8_33
	cmpq	$0, 568(%rdi)
	je	.LBB8_34
	cmpq	$0, 608(%rdi)
	je	.LBB8_35
	cmpq	$0, 648(%rdi)
	je	.LBB8_36
	cmpq	$0, 688(%rdi)
	jne	.LBB8_39
	leaq	688(%rdi), %rcx
	movl	$15, %edx
	jmp	.LBB8_37
.LBB8_22:
	leaq	88(%rdi), %rcx
	xorl	%edx, %edx
	jmp	.LBB8_37
.LBB8_23:
	leaq	128(%rdi), %rcx
	movl	$1, %edx
	jmp	.LBB8_37
.LBB8_24:
	leaq	168(%rdi), %rcx
	movl	$2, %edx
	jmp	.LBB8_37
.LBB8_25:
	leaq	208(%rdi), %rcx
	movl	$3, %edx
	jmp	.LBB8_37
.LBB8_26:
	leaq	248(%rdi), %rcx
	movl	$4, %edx
	jmp	.LBB8_37
.LBB8_27:
	leaq	288(%rdi), %rcx
	movl	$5, %edx
	jmp	.LBB8_37
.LBB8_28:
	leaq	328(%rdi), %rcx
	movl	$6, %edx
	jmp	.LBB8_37
.LBB8_29:
	leaq	368(%rdi), %rcx
	movl	$7, %edx
	jmp	.LBB8_37
.LBB8_30:
	leaq	408(%rdi), %rcx
	movl	$8, %edx
	jmp	.LBB8_37
.LBB8_31:
	leaq	448(%rdi), %rcx
	movl	$9, %edx
	jmp	.LBB8_37
.LBB8_32:
	leaq	488(%rdi), %rcx
	movl	$10, %edx
	jmp	.LBB8_37
.LBB8_33:
	leaq	528(%rdi), %rcx
	movl	$11, %edx
	jmp	.LBB8_37
.LBB8_34:
	leaq	568(%rdi), %rcx
	movl	$12, %edx
	jmp	.LBB8_37
.LBB8_35:
	leaq	608(%rdi), %rcx
	movl	$13, %edx
	jmp	.LBB8_37
.LBB8_36:
	leaq	648(%rdi), %rcx
	movl	$14, %edx
.LBB8_37:
	movq	728(%rdi), %r8
	cmpq	$-1, %r8
	je	.LBB8_39
	incq	%r8
	movq	%r8, (%rcx)
	movq	%rax, 8(%rcx)
	movq	%rax, 16(%rcx)
	movq	%rax, 24(%rcx)
	movq	$0, 32(%rcx)
	movq	%r8, 728(%rdi)
	movq	%rdx, (%rsi)
	movq	%r8, 8(%rsi)
	movb	$1, %al
	RET
.LBB8_39:
	xorl	%eax, %eax
	RET
SYM_FUNC_END(kqc_core_qc)

SYM_FUNC_START(kqc_core_take_places)
	cmpq	$0, 88(%rdi)
	jne	.LBB9_19
	cmpq	$0, 128(%rdi)
	jne	.LBB9_19
	cmpq	$0, 168(%rdi)
	jne	.LBB9_19
	cmpq	$0, 208(%rdi)
	jne	.LBB9_19
	cmpq	$0, 248(%rdi)
	jne	.LBB9_19
	cmpq	$0, 288(%rdi)
	jne	.LBB9_19
	cmpq	$0, 328(%rdi)
	jne	.LBB9_19
	cmpq	$0, 368(%rdi)
	jne	.LBB9_19
	cmpq	$0, 408(%rdi)
	jne	.LBB9_19
	cmpq	$0, 448(%rdi)
	jne	.LBB9_19
	cmpq	$0, 488(%rdi)
	jne	.LBB9_19
	cmpq	$0, 528(%rdi)
	jne	.LBB9_19
	cmpq	$0, 568(%rdi)
	jne	.LBB9_19
	cmpq	$0, 608(%rdi)
	jne	.LBB9_19
	cmpq	$0, 648(%rdi)
	jne	.LBB9_19
	cmpq	$0, 688(%rdi)
	je	.LBB9_16
.LBB9_19:
	xorl	%eax, %eax
.LBB9_20:
	RET
.LBB9_16:
	movq	(%rdi), %rax
	movq	8(%rdi), %rcx
	movl	24(%rdi), %edx
	movq	$0, (%rdi)
	testq	%rax, %rax
	je	.LBB9_19
	testq	%rdx, %rdx
	je	.LBB9_20
	movq	%rax, (%rdi)
	movq	%rcx, 8(%rdi)
	jmp	.LBB9_19
SYM_FUNC_END(kqc_core_take_places)
