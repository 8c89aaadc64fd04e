/*
 * SPDX-FileCopyrightText: The hetGPU authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What stands in the table in front of the functions that give the device work
 * (submit.h). As in the stubs, no signature is known: every argument stays where
 * it is.
 */
	.hidden hetcuda_pages_mine
	.hidden hetcuda_pages_busy
	.hidden hetcuda_submit_next
	.hidden hetcuda_before_work

	.text

	/* Function r11d is about to be called. */
	.p2align 6
	.type hetcuda_submit, @function
hetcuda_submit:
	.cfi_startproc
	cmpl $0, hetcuda_pages_mine(%rip)
	jne 2f
	/* Written only if it changes: other threads read the same line. */
	cmpl $0, hetcuda_pages_busy(%rip)
	jne 1f
	movl $1, hetcuda_pages_busy(%rip)
1:	leaq hetcuda_submit_next(%rip), %r10
	jmp *(%r10, %r11, 8)
2:	subq $200, %rsp
	.cfi_adjust_cfa_offset 200
	movq %rdi, 128(%rsp)
	movq %rsi, 136(%rsp)
	movq %rdx, 144(%rsp)
	movq %rcx, 152(%rsp)
	movq %r8, 160(%rsp)
	movq %r9, 168(%rsp)
	movq %rax, 176(%rsp)
	movq %r11, 184(%rsp)
	movaps %xmm0, (%rsp)
	movaps %xmm1, 16(%rsp)
	movaps %xmm2, 32(%rsp)
	movaps %xmm3, 48(%rsp)
	movaps %xmm4, 64(%rsp)
	movaps %xmm5, 80(%rsp)
	movaps %xmm6, 96(%rsp)
	movaps %xmm7, 112(%rsp)
	call hetcuda_before_work
	movaps (%rsp), %xmm0
	movaps 16(%rsp), %xmm1
	movaps 32(%rsp), %xmm2
	movaps 48(%rsp), %xmm3
	movaps 64(%rsp), %xmm4
	movaps 80(%rsp), %xmm5
	movaps 96(%rsp), %xmm6
	movaps 112(%rsp), %xmm7
	movq 128(%rsp), %rdi
	movq 136(%rsp), %rsi
	movq 144(%rsp), %rdx
	movq 152(%rsp), %rcx
	movq 160(%rsp), %r8
	movq 168(%rsp), %r9
	movq 176(%rsp), %rax
	movq 184(%rsp), %r11
	addq $200, %rsp
	.cfi_adjust_cfa_offset -200
	jmp 1b
	.cfi_endproc
	.size hetcuda_submit, . - hetcuda_submit

	/* One for each export, 16 bytes apart. */
	.p2align 4
	.globl hetcuda_submits
	.hidden hetcuda_submits
	.type hetcuda_submits, @object
hetcuda_submits:
	.set hetcuda_index, 0
	.macro trampoline
	.cfi_startproc
	movl $hetcuda_index, %r11d
	jmp hetcuda_submit
	.cfi_endproc
	.set hetcuda_index, hetcuda_index + 1
	.org hetcuda_submits + (hetcuda_index << 4), 0xcc
	.endm

#define HETCUDA_EXPORT(name) trampoline
#include "exports.inc"
	.size hetcuda_submits, . - hetcuda_submits

	.section .note.GNU-stack, "", @progbits
