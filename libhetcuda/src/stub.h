/*
 * SPDX-FileCopyrightText: The hetGPU authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What the stubs (stub_<architecture>.S) and the C code agree on. Read by the
 * assembler too.
 */
#ifndef HETCUDA_STUB_H
#define HETCUDA_STUB_H

/*
 * Stubs for pointers that cuGetProcAddress returns and that are no export we
 * know: functions of a newer driver.
 */
#define HETCUDA_SPARES 512

/* Stub i is at hetcuda_stubs + (i << HETCUDA_STUB_SHIFT). */
#define HETCUDA_STUB_SHIFT 7

/* A thread's record is so large and so aligned: struct hetcuda_thread. */
#define HETCUDA_THREAD_SIZE 4096
#define HETCUDA_FRAME_SIZE 32
#define HETCUDA_FRAME_BACK 0
#define HETCUDA_FRAME_SAVED 8
#define HETCUDA_FRAME_FUNCTION 16

#ifndef __ASSEMBLER__
#include "real.h"

/*
 * What the stubs call: for each export the driver's function, an override, or
 * one that returns an error; then the spare ones.
 */
extern void *hetcuda_table[HETCUDA_EXPORTS + HETCUDA_SPARES];

/* Not an object: the address of the first stub. */
extern const char hetcuda_stubs[];

static inline void *hetcuda_stub(unsigned int i)
{
	return (void *)(hetcuda_stubs + ((size_t)i << HETCUDA_STUB_SHIFT));
}
#endif

#endif
