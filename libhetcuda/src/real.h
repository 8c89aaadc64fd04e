/*
 * SPDX-FileCopyrightText: The hetGPU authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The driver's own functions.
 *
 *     CUresult result = REAL(cuMemCreate)(&handle, size, &properties, 0);
 *
 * REAL(f) has the type of f in cuda.h, and is NULL if the loaded driver has no
 * such function, or if there is no driver. Calls through it never wait at the
 * gate and do not mark their thread.
 */
#ifndef HETCUDA_REAL_H
#define HETCUDA_REAL_H

#include "cuda.h"

enum {
#define HETCUDA_EXPORT(name) HETCUDA_INDEX_##name,
#include "exports.inc"
#undef HETCUDA_EXPORT
	HETCUDA_EXPORTS
};

/* Written once, when the library is loaded. */
extern void *hetcuda_real[HETCUDA_EXPORTS];

/* Two steps, so that cuMemAlloc becomes cuMemAlloc_v2 in both places. */
#define REAL(f) HETCUDA_REAL_(f)
#define HETCUDA_REAL_(f) ((__typeof__(&f))hetcuda_real[HETCUDA_INDEX_##f])

#endif
