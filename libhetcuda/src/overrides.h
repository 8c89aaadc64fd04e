/*
 * SPDX-FileCopyrightText: The hetGPU authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The functions that we answer ourselves. For each name here there is a
 * hetcuda_<name> with the same type, which the program's calls reach through
 * the table; the driver's own is REAL(name). The names are those of the
 * exports: cuMemAlloc_v2, not cuMemAlloc.
 */
#ifndef HETCUDA_OVERRIDES_H
#define HETCUDA_OVERRIDES_H

#include "cuda.h"

/* The library's own: these stay in the child of a fork. */
#define HETCUDA_CORE_OVERRIDES(X) \
	X(cuGetProcAddress) \
	X(cuGetProcAddress_v2) \
	X(cuInit)

/* Memory: src/memory*.c, src/pools*.c. */
#define HETCUDA_MEMORY_OVERRIDES(X)

#endif
