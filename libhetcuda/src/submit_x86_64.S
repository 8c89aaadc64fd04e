/*
 * SPDX-FileCopyrightText: The hetGPU authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What stands in the table in front of the functions that give the device work
 * (submit.h). As in the stubs, no signature is known: every argument stays where
 * it is.
 */
#include "arguments_x86_64.h"

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
2:	save
	call hetcuda_before_work
	load
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
