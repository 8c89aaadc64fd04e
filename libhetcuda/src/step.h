/*
 * SPDX-FileCopyrightText: The hetGPU authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Letting a program on step by step, and telling when its devices have come to
 * rest: STEP and STATUS of hetcuda_control.h. For the control thread only.
 */
#ifndef HETCUDA_STEP_H
#define HETCUDA_STEP_H

#include <stdbool.h>
#include <stdint.h>

#include "hetcuda_control.h"

/* hetcuda_gate_step, and its result. */
int hetcuda_step(uint32_t count, char *text);

/*
 * Waits until the devices have done all that they were given and nothing may be
 * given to them, for timeout_ms at most and until cancelled() says so. 0, or
 * what a device says; `text` as in hetcuda_gate_look, or why.
 */
int hetcuda_step_status(uint32_t timeout_ms, bool (*cancelled)(void), struct hetcuda_status *status, char *text);

#endif
