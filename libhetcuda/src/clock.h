/*
 * SPDX-FileCopyrightText: The hetGPU authors
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef HETCUDA_CLOCK_H
#define HETCUDA_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Microseconds of a clock that nobody sets. */
static inline int64_t hetcuda_now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

#endif
