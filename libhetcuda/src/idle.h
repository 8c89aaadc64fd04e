// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

#ifndef HETCUDA_IDLE_H
#define HETCUDA_IDLE_H

#include <stdbool.h>
#include <stdint.h>

// wait_idle waits until no work is running or queued in any context that we
// know of, nor in the primary context of any device: 0, -ETIMEDOUT, another
// errno, or a CUresult. After a time-out the same wait can be taken up again
// (not `anew`), which counts for what had been submitted when it began.
int wait_idle(bool anew, uint32_t timeout_ms);

#endif
