/*
 * SPDX-FileCopyrightText: The hetGPU authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Finding the driver's library, and the table that the stubs call through.
 */
#ifndef HETCUDA_LOAD_H
#define HETCUDA_LOAD_H

#include <stdbool.h>

#define HETCUDA_REAL_ENV "HETCUDA_REAL"

/* Once; at the latest with the first call of a stub. For the stubs too. */
void hetcuda_load(void);

/*
 * In the child of a fork. Of CUDA that the parent has initialized the child can
 * use nothing: the driver says so, in our overrides' place too.
 */
void hetcuda_load_forked(bool initialized);

/* The name of stub i, for people. */
const char *hetcuda_name(unsigned int i);

/* p is one of our stubs. */
bool hetcuda_is_stub(const void *p);

#endif
