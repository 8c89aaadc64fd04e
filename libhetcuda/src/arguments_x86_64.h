/*
 * SPDX-FileCopyrightText: The hetGPU authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * For the assembler: what keeps a function's arguments over a call of C code.
 */
	/*
	 * Around a call of C code, everything that may carry an argument. (No
	 * driver function takes a vector, so xmm is enough.) 200 bytes keep the
	 * stack aligned.
	 */
	.macro save
	subq $200, %rsp
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
	.endm

	.macro load
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
	.endm
