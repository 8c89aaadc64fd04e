// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

#ifndef HETCUDA_IDLE_H
#define HETCUDA_IDLE_H

#include <stdint.h>

// wait_idle waits until no work is running or queued in any context that we
// know of, nor in the primary context of any device: 0, -ETIMEDOUT, another
// errno, or a CUresult.
int wait_idle(uint32_t timeout_ms);

#endif
