/*
 * SPDX-FileCopyrightText: The hetGPU authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A device that is idle while nothing may be given to it stays so: it is enough
 * to find it idle once after each step. Whether it is, is asked only when the
 * last call of the step has returned, or what it gives could be missed.
 */
#include "step.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "clock.h"
#include "gate.h"
#include "memory.h"

/* What was found since the last step. */
static bool idle;
/* Work may have been given since the device was asked last. */
static bool given = true;

int hetcuda_step(uint32_t count, char *text)
{
	if (count || !hetcuda_gate_steps()) {
		idle = false;
		given = true;
	}
	return hetcuda_gate_step(count, text);
}

static uint32_t left_ms(int64_t end)
{
	int64_t us = end - hetcuda_now_us();

	return us > 0 ? (uint32_t)((us + 999) / 1000) : 0;
}

/* Once, and for as long as there is time. 0, or what a device says. */
static int ask(int64_t end, struct hetcuda_status *status)
{
	int r = idle ? 0 : hetcuda_memory_idle(given, left_ms(end));

	status->device = HETCUDA_BUSY;
	if (r == -EBUSY) {
		status->device = HETCUDA_CAPTURING;
		return 0;
	}
	given = false;
	if (r == -ETIMEDOUT)
		return 0;
	if (!r) {
		idle = true;
		status->device = HETCUDA_IDLE;
	}
	return r;
}

int hetcuda_step_status(uint32_t timeout_ms, bool (*cancelled)(void), struct hetcuda_status *status, char *text)
{
	int64_t end = hetcuda_now_us() + (int64_t)timeout_ms * 1000;
	struct timespec pause = { .tv_nsec = 20000 };
	struct hetcuda_gate_view view;
	int r = 0;

	for (;;) {
		memset(text, 0, HETCUDA_TEXT);
		hetcuda_gate_look(&view, text);
		*status = (struct hetcuda_status){ .inside = view.inside, .waiting = view.waiting, .left = view.left, .passed = view.passed };
		if (!view.left && !view.work)
			r = ask(end, status);
		if (r || status->device == HETCUDA_IDLE || hetcuda_now_us() >= end || cancelled())
			break;
		nanosleep(&pause, NULL);
		if (pause.tv_nsec < 500000)
			pause.tv_nsec *= 2;
	}
	if (r)
		snprintf(text, HETCUDA_TEXT, "waiting for the GPU: error %d", r);
	return r;
}
