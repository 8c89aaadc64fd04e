/*
 * SPDX-FileCopyrightText: The hetGPU authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The gate: while it is closed, calls of the driver wait before they begin.
 */
#ifndef HETCUDA_GATE_H
#define HETCUDA_GATE_H

#include <stdbool.h>
#include <stdint.h>

#include "thread.h"

/*
 * Closes the gate and waits until no thread is inside of the driver: 0. A
 * thread that is inside may make further calls (from a callback), or it would
 * never get out. With an error the gate is open again: -EAGAIN after timeout_ms
 * (0: looks once), -ECANCELED when cancelled() said so, or why it can't be
 * closed. `text` has HETCUDA_TEXT bytes.
 */
int hetcuda_gate_hold(uint32_t timeout_ms, bool (*cancelled)(void), char *text);

void hetcuda_gate_release(void);

/* In the child of a fork: open, and nobody waits. */
void hetcuda_gate_forked(void);

/* Waits while the gate is closed, in a thread without a record. */
void hetcuda_gate_pass(void);

/* For the stubs: the call of `frame` found the gate closed. */
void hetcuda_gate_wait(struct hetcuda_frame *frame);

#endif
