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

/*
 * From now on `count` calls that give a device work (work.h) may begin, in the
 * order in which they come, instead of those that were left, and all other
 * calls. 0, or why not: then the gate is open. A hold that fails comes back to
 * this with a count of 0, if it was so before.
 */
int hetcuda_gate_step(uint32_t count, char *text);
bool hetcuda_gate_steps(void);

/* What goes on at a gate that steps. */
struct hetcuda_gate_view {
	uint32_t left;    /* calls that may still begin */
	uint32_t passed;  /* those that have */
	uint32_t inside;  /* threads inside of the driver */
	uint32_t work;    /* of these, in a call that gives work */
	uint32_t waiting; /* threads at the gate */
};

/*
 * With nothing left and no thread in a call that gives work, no work is given
 * until the next step. `text` has HETCUDA_TEXT bytes, and says who is inside.
 */
void hetcuda_gate_look(struct hetcuda_gate_view *view, char *text);

/* Opens it. */
void hetcuda_gate_release(void);

/* In the child of a fork: open, and nobody waits. */
void hetcuda_gate_forked(void);

/* Waits while the gate is closed, in a thread without a record. */
void hetcuda_gate_pass(void);

/* For the stubs: the call of `frame` found the gate closed. */
void hetcuda_gate_wait(struct hetcuda_frame *frame);

#endif
