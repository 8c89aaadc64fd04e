/*
 * SPDX-FileCopyrightText: The hetGPU authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Which of the driver's functions give a device work, by their names: so what a
 * newer driver calls like them counts too.
 */
#ifndef HETCUDA_WORK_H
#define HETCUDA_WORK_H

#include <stdbool.h>

/* Work that may read what the CPU has written: kernels, copies, waiting for a value. */
bool hetcuda_work_reads(const char *name);

/* Anything that goes into a stream, or begins to record what does. */
bool hetcuda_work(const char *name);

#endif
