// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Stream-ordered memory is the driver's, and so is what its pools keep for later
// though nothing is in it.
#ifndef HETCUDA_POOLS_H
#define HETCUDA_POOLS_H

#include <stdint.h>

// pools_trim gives back what the pools keep for later: the driver's checkpoint
// would copy it out, used or not. GPU work is done.
void pools_trim(void);

// pools_held is what was left in them then, in bytes.
uint64_t pools_held(void);

#endif
