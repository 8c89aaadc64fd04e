/*
 * SPDX-FileCopyrightText: The hetGPU authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A thread that calls the driver writes its mark (the top of its frames), then
 * reads the gate. Who closes the gate writes it, then reads the marks. At least
 * one of the two has to see what the other wrote, or a thread slips through: so
 * both need a full barrier between their write and their read. For the thread
 * that would be 20 cycles in every call; with membarrier(2), which puts the
 * barrier into every running thread of the process when the gate is closed, it
 * is nothing.
 */
#include "gate.h"

#include <errno.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "hetcuda_control.h"
#include "load.h"

/* Not static: the stubs read it. A cache line of its own. */
extern _Atomic uint32_t hetcuda_gate;
_Alignas(64) _Atomic uint32_t hetcuda_gate;

struct inside {
	unsigned int count;
	size_t used;
	char *text; /* NULL: only count */
};

static void wait_open(void)
{
	while (atomic_load(&hetcuda_gate))
		syscall(SYS_futex, &hetcuda_gate, FUTEX_WAIT_PRIVATE, 1, NULL, NULL, 0);
}

static int membarrier(int command)
{
	return syscall(SYS_membarrier, command, 0, 0) < 0 ? -errno : 0;
}

void hetcuda_gate_pass(void)
{
	if (!hetcuda_thread_is_internal())
		wait_open();
}

void hetcuda_gate_wait(struct hetcuda_frame *frame)
{
	struct hetcuda_thread *thread = (struct hetcuda_thread *)((uintptr_t)frame & -(uintptr_t)HETCUDA_THREAD_SIZE);
	int saved = errno;

	/* From a callback: the outer call has to come to its end. */
	if (frame != thread->frames || hetcuda_thread_is_internal())
		return;
	do {
		atomic_store(&thread->waiting, 1);
		wait_open();
		/* The mark again, then the gate: sequentially consistent both,
		 * this is not the fast path. */
		atomic_store(&thread->waiting, 0);
	} while (atomic_load(&hetcuda_gate));
	errno = saved;
}

static bool look(struct hetcuda_thread *thread, void *data)
{
	struct inside *inside = data;
	size_t left = HETCUDA_TEXT - inside->used;
	int n;

	if (!hetcuda_depth(thread) || atomic_load(&thread->waiting))
		return true;
	inside->count++;
	if (inside->text && left > 1) {
		/* The outermost call is what the program knows. */
		n = snprintf(inside->text + inside->used, left, "%s%s (thread %d)", inside->count == 1 ? ": " : ", ",
			     hetcuda_name(thread->frames[0].function), (int)thread->tid);
		inside->used += n > 0 && (size_t)n < left ? (size_t)n : left - 1;
	}
	return true;
}

static unsigned int count_inside(void)
{
	struct inside inside = { 0 };

	hetcuda_threads(look, &inside);
	return inside.count;
}

/* Who is still inside; the number first, since the list may be cut off. */
static void describe(uint32_t timeout_ms, char *text)
{
	char list[HETCUDA_TEXT] = "";
	struct inside inside = { .text = list };

	hetcuda_threads(look, &inside);
	/* They may have left just now: then there is no list. */
	snprintf(text, HETCUDA_TEXT, "%u thread%s still inside of the driver after %u ms%.*s", inside.count,
		 inside.count == 1 ? "" : "s", timeout_ms, HETCUDA_TEXT - 64, list);
}

int hetcuda_gate_hold(uint32_t timeout_ms, bool (*cancelled)(void), char *text)
{
	int64_t end = hetcuda_now_us() + (int64_t)timeout_ms * 1000;
	struct timespec pause = { .tv_nsec = 20000 };
	int r;

	/* Each time: CRIU does not restore the registration before 4.0. */
	r = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
	if (r) {
		snprintf(text, HETCUDA_TEXT, "membarrier is not there: %s", strerror(-r));
		return r;
	}
	if (hetcuda_threads_lost()) {
		snprintf(text, HETCUDA_TEXT, "there was no memory to keep track of a thread that called the driver");
		return -ENOMEM;
	}

	atomic_store(&hetcuda_gate, 1);
	r = membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
	if (r) {
		snprintf(text, HETCUDA_TEXT, "membarrier: %s", strerror(-r));
		goto open;
	}
	while (count_inside()) {
		if (hetcuda_now_us() >= end) {
			describe(timeout_ms, text);
			r = -EAGAIN;
			goto open;
		}
		if (cancelled && cancelled()) {
			snprintf(text, HETCUDA_TEXT, "cancelled");
			r = -ECANCELED;
			goto open;
		}
		nanosleep(&pause, NULL);
		if (pause.tv_nsec < 1000000)
			pause.tv_nsec *= 2;
	}
	/* A record that failed while the gate was being closed. */
	if (hetcuda_threads_lost()) {
		snprintf(text, HETCUDA_TEXT, "there was no memory to keep track of a thread that called the driver");
		r = -ENOMEM;
		goto open;
	}
	return 0;
open:
	hetcuda_gate_release();
	return r;
}

void hetcuda_gate_release(void)
{
	atomic_store(&hetcuda_gate, 0);
	syscall(SYS_futex, &hetcuda_gate, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

void hetcuda_gate_forked(void)
{
	atomic_store(&hetcuda_gate, 0);
}
