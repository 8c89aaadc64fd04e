/*
 * SPDX-FileCopyrightText: The hetGPU authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The exported functions.
 *
 * A stub must not know its function's signature: the driver has hundreds, with
 * arguments on the stack and structures by value, and newer drivers have more.
 * So it leaves every argument where it is, the stack included, and calls the
 * driver's function with the stack pointer of its own caller: the return
 * address moves to a frame in the thread's record, and comes back after the
 * call. rbx, which the callee preserves, points to that frame meanwhile; it is
 * saved there too. That is also what the unwinder is told, so backtraces,
 * cancellation and exceptions pass through a stub. (A shadow stack of the
 * processor's agrees: to it, the call from here nests in the caller's.)
 *
 * The top of the frames is the mark that says "inside of the driver". It is
 * written before the gate is read. Whoever closes the gate makes these two
 * appear in this order with membarrier(2), so they cost a plain store and a
 * plain load here; see gate.c.
 *
 * Only caller-saved registers that carry no argument (r10, r11) and, after the
 * call, none that carries a result (rcx, r11) are used. A signal handler may
 * call in anywhere: the top moves before the frame is written, and back after
 * it was read.
 */
#include "arguments_x86_64.h"
#include "stub.h"

#define CFI_REGISTER_RIP 16
#define CFI_REGISTER_RBX 3

	.hidden hetcuda_self
	.hidden hetcuda_gate
	.hidden hetcuda_table
	.hidden hetcuda_thread_enter
	.hidden hetcuda_gate_wait

	.text
	.p2align HETCUDA_STUB_SHIFT
	.globl hetcuda_stubs
	.hidden hetcuda_stubs
	.type hetcuda_stubs, @object
hetcuda_stubs:

	.set hetcuda_index, 0

	/* To the place of the next stub; an error if this one was too long. */
	.macro next
	.set hetcuda_index, hetcuda_index + 1
	.org hetcuda_stubs + (hetcuda_index << HETCUDA_STUB_SHIFT), 0xcc
	.endm

	/*
	 * The thread's record, in r11 (thread.h says why by a descriptor). A
	 * descriptor's function changes rax only, and wants the stack aligned.
	 * (glibc before 2.40 changes vector registers too, where it has no static
	 * TLS left and the thread comes here for the first time. Of the driver's
	 * functions three take floating-point numbers by value, two for a texture
	 * that another call has made.)
	 */
	.macro self
	pushq %rax
	.cfi_adjust_cfa_offset 8
	leaq hetcuda_self@tlsdesc(%rip), %rax
	call *hetcuda_self@tlscall(%rax)
	movq %fs:(%rax), %r11
	popq %rax
	.cfi_adjust_cfa_offset -8
	.endm

	/* At the start of a stub, on the stack is what the caller has put there. */
	.macro body
	self
	testq %r11, %r11
	jz 2f
	movq (%r11), %r10
	/* The record is aligned: at its end there is no frame left. */
	testl $(HETCUDA_THREAD_SIZE - 1), %r10d
	jz 2f
	addq $HETCUDA_FRAME_SIZE, (%r11)
	movq %rbx, HETCUDA_FRAME_SAVED(%r10)
	movl $hetcuda_index, HETCUDA_FRAME_FUNCTION(%r10)
	movq %r10, %rbx
	/* rbx is at rbx + HETCUDA_FRAME_SAVED: DW_CFA_expression, DW_OP_breg3 */
	.cfi_escape 0x10, CFI_REGISTER_RBX, 2, 0x73, HETCUDA_FRAME_SAVED
	popq (%rbx)
	.cfi_def_cfa_offset 0
	.cfi_escape 0x10, CFI_REGISTER_RIP, 2, 0x73, HETCUDA_FRAME_BACK
	cmpl $0, hetcuda_gate(%rip)
	jne 3f
1:	call *(hetcuda_table + 8 * hetcuda_index)(%rip)
	.cfi_remember_state
	movq %rbx, %rcx
	pushq (%rbx)
	.cfi_def_cfa_offset 8
	.cfi_restore CFI_REGISTER_RIP
	movq HETCUDA_FRAME_SAVED(%rbx), %rbx
	.cfi_restore CFI_REGISTER_RBX
	movq %rcx, %r11
	andq $-HETCUDA_THREAD_SIZE, %r11
	movq %rcx, (%r11)
	ret
2:	movl $hetcuda_index, %r11d
	jmp hetcuda_slow
3:	.cfi_restore_state
	call hetcuda_closed
	jmp 1b
	.endm

	.macro stub name
	.globl \name
	.type \name, @function
\name:
	.cfi_startproc
	body
	.cfi_endproc
	.size \name, . - \name
	next
	.endm

	/*
	 * The debugger's entries: called by a debugger in a stopped process, or
	 * not to return for as long as it is there. Neither marked nor held.
	 */
	.macro jump name
	.globl \name
	.type \name, @function
\name:
	.cfi_startproc
	self
	testq %r11, %r11
	movl $hetcuda_index, %r11d
	/* The first call of all may have to load the driver. */
	je hetcuda_slow_jump
	jmp *(hetcuda_table + 8 * hetcuda_index)(%rip)
	.cfi_endproc
	.size \name, . - \name
	next
	.endm

	.macro spare
	.cfi_startproc
	body
	.cfi_endproc
	next
	.endm

#define HETCUDA_EXPORT(name) stub name
#define HETCUDA_EXPORT_DEBUGGER(name) jump name
#include "exports.inc"

	.rept HETCUDA_SPARES
	spare
	.endr

	.size hetcuda_stubs, . - hetcuda_stubs

	/*
	 * Function r11d is called, and the thread has no frame for it: get one
	 * and start the stub again. If there is none, the call goes to the
	 * driver unmarked.
	 */
	.type hetcuda_slow, @function
hetcuda_slow:
	.cfi_startproc
	save
	call hetcuda_thread_enter
	movl %eax, %r10d
	load
	testl %r10d, %r10d
	jz 1f
	shlq $HETCUDA_STUB_SHIFT, %r11
	leaq hetcuda_stubs(%rip), %r10
	addq %r11, %r10
	jmp *%r10
1:	leaq hetcuda_table(%rip), %r10
	jmp *(%r10, %r11, 8)
	.cfi_endproc
	.size hetcuda_slow, . - hetcuda_slow

	.type hetcuda_slow_jump, @function
hetcuda_slow_jump:
	.cfi_startproc
	save
	call hetcuda_load
	load
	leaq hetcuda_table(%rip), %r10
	jmp *(%r10, %r11, 8)
	.cfi_endproc
	.size hetcuda_slow_jump, . - hetcuda_slow_jump

	/* The gate is closed; rbx is the frame. Returns when it may go on. */
	.type hetcuda_closed, @function
hetcuda_closed:
	.cfi_startproc
	save
	movq %rbx, %rdi
	call hetcuda_gate_wait
	load
	ret
	.cfi_endproc
	.size hetcuda_closed, . - hetcuda_closed

	.section .note.GNU-stack, "", @progbits
