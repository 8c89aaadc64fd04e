// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Numbers for tests that do anything in any order: the same ones from the same seed.
#ifndef HETCUDA_TEST_RANDOM_H
#define HETCUDA_TEST_RANDOM_H

#include <stdint.h>

static uint64_t seed = 88172645463325252u;

// draw returns a number below another. Xorshift (Marsaglia, 2003).
static uint64_t draw(uint64_t below)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed % below;
}

#endif
