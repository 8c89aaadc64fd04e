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
 *
 * The gate is open, closed, or lets calls through step by step: then those that
 * give a device work draw numbers and pass in their order, and the others pass.
 * A thread draws its number and looks whether it is called under a lock, and is
 * marked as inside before: who changes anything under the lock, and reads the
 * marks afterwards, misses no thread that passed.
 */
#include "gate.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "hetcuda_control.h"
#include "load.h"
#include "work.h"

enum { OPEN, CLOSED, STEPS };

/* Not static: the stubs read it. A cache line of its own. */
extern _Atomic uint32_t hetcuda_gate;
_Alignas(64) _Atomic uint32_t hetcuda_gate;

/* Changes whenever somebody at the gate may go on. */
static _Atomic uint32_t turn;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Changes of the gate, and: */
static uint32_t session; /* counts the times that stepping began; 0 is none */
static uint32_t drawn;   /* numbers of this session */
static uint32_t called;  /* numbers below may pass */
static uint32_t passed;  /* numbers below did */

struct number {
	uint32_t session, value;
};

struct inside {
	unsigned int count, work;
	unsigned int waiting;
	size_t used;
	char *text; /* NULL: only count */
};

static void wake(void)
{
	atomic_fetch_add(&turn, 1);
	syscall(SYS_futex, &turn, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

static void wait_turn(uint32_t seen)
{
	syscall(SYS_futex, &turn, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

void hetcuda_gate_pass(void)
{
	uint32_t seen = atomic_load(&turn);

	while (!hetcuda_thread_is_internal() && atomic_load(&hetcuda_gate) != OPEN) {
		wait_turn(seen);
		seen = atomic_load(&turn);
	}
}

/* With the lock: a number of another session was never called in this one. */
static bool is_called(struct number *number)
{
	if (number->session != session)
		*number = (struct number){ session, drawn++ };
	if (number->value != passed || passed == called)
		return false;
	passed++;
	if (passed < drawn)
		wake();
	return true;
}

static bool may_pass(uint32_t function, struct number *number)
{
	bool yes = false;

	pthread_mutex_lock(&lock);
	switch (atomic_load(&hetcuda_gate)) {
	case OPEN:
		yes = true;
		break;
	case STEPS:
		yes = !hetcuda_work(hetcuda_name(function)) || is_called(number);
		break;
	}
	pthread_mutex_unlock(&lock);
	return yes;
}

void hetcuda_gate_wait(struct hetcuda_frame *frame)
{
	struct hetcuda_thread *thread = (struct hetcuda_thread *)((uintptr_t)frame & -(uintptr_t)HETCUDA_THREAD_SIZE);
	struct number number = { 0 };
	int saved = errno;

	/* From a callback: the outer call has to come to its end. */
	if (frame != thread->frames || hetcuda_thread_is_internal())
		return;
	for (;;) {
		uint32_t seen = atomic_load(&turn);

		if (may_pass(frame->function, &number))
			break;
		atomic_store(&thread->waiting, 1);
		wait_turn(seen);
		/* The mark again, then the gate: sequentially consistent both,
		 * this is not the fast path. */
		atomic_store(&thread->waiting, 0);
	}
	errno = saved;
}

static bool look(struct hetcuda_thread *thread, void *data)
{
	struct inside *inside = data;
	size_t left = HETCUDA_TEXT - inside->used;
	int n;

	if (!hetcuda_depth(thread))
		return true;
	if (atomic_load(&thread->waiting)) {
		inside->waiting++;
		return true;
	}
	inside->count++;
	inside->work += hetcuda_work(hetcuda_name(thread->frames[0].function));
	if (inside->text && left > 1) {
		/* The outermost call is what the program knows. */
		n = snprintf(inside->text + inside->used, left, "%s%s (thread %d)", inside->count == 1 ? "" : ", ",
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
	snprintf(text, HETCUDA_TEXT, "%u thread%s still inside of the driver after %u ms%s%.*s", inside.count,
		 inside.count == 1 ? "" : "s", timeout_ms, *list ? ": " : "", HETCUDA_TEXT - 64, list);
}

/* Changes the gate, and lets no thread through unseen that had found it open. */
static int shut(uint32_t how, char *text)
{
	int r;

	pthread_mutex_lock(&lock);
	atomic_store(&hetcuda_gate, how);
	pthread_mutex_unlock(&lock);
	r = hetcuda_threads_barrier();
	if (r)
		snprintf(text, HETCUDA_TEXT, "membarrier: %s", strerror(-r));
	return r;
}

static int all_marked(char *text)
{
	if (!hetcuda_threads_lost())
		return 0;
	snprintf(text, HETCUDA_TEXT, "there was no memory to keep track of a thread that called the driver");
	return -ENOMEM;
}

static int wait_empty(int64_t end, uint32_t timeout_ms, bool (*cancelled)(void), char *text)
{
	struct timespec pause = { .tv_nsec = 20000 };

	while (count_inside()) {
		if (hetcuda_now_us() >= end) {
			describe(timeout_ms, text);
			return -EAGAIN;
		}
		if (cancelled && cancelled()) {
			snprintf(text, HETCUDA_TEXT, "cancelled");
			return -ECANCELED;
		}
		nanosleep(&pause, NULL);
		if (pause.tv_nsec < 1000000)
			pause.tv_nsec *= 2;
	}
	return 0;
}

int hetcuda_gate_hold(uint32_t timeout_ms, bool (*cancelled)(void), char *text)
{
	int64_t end = hetcuda_now_us() + (int64_t)timeout_ms * 1000;
	uint32_t before = atomic_load(&hetcuda_gate);
	int r;

	r = all_marked(text);
	if (!r)
		r = shut(CLOSED, text);
	if (!r)
		r = wait_empty(end, timeout_ms, cancelled, text);
	/* A record that failed while the gate was being closed. */
	if (!r)
		r = all_marked(text);
	if (r && before == STEPS)
		hetcuda_gate_step(0, text); /* or it is open */
	else if (r)
		hetcuda_gate_release();
	return r;
}

int hetcuda_gate_step(uint32_t count, char *text)
{
	bool begin = atomic_load(&hetcuda_gate) == OPEN;
	int r;

	pthread_mutex_lock(&lock);
	if (begin) {
		session++;
		drawn = called = passed = 0;
	}
	called = passed + count;
	pthread_mutex_unlock(&lock);
	r = all_marked(text);
	if (!r && atomic_load(&hetcuda_gate) != STEPS)
		r = shut(STEPS, text);
	if (r)
		hetcuda_gate_release();
	else
		wake();
	return r;
}

bool hetcuda_gate_steps(void)
{
	return atomic_load(&hetcuda_gate) == STEPS;
}

void hetcuda_gate_look(struct hetcuda_gate_view *view, char *text)
{
	struct inside inside = { .text = text };

	/* First this: who passes after it is not called, or is counted inside. */
	pthread_mutex_lock(&lock);
	view->left = called - passed;
	view->passed = passed;
	pthread_mutex_unlock(&lock);
	hetcuda_threads(look, &inside);
	view->inside = inside.count;
	view->work = inside.work;
	view->waiting = inside.waiting;
}

void hetcuda_gate_release(void)
{
	pthread_mutex_lock(&lock);
	atomic_store(&hetcuda_gate, OPEN);
	pthread_mutex_unlock(&lock);
	wake();
}

void hetcuda_gate_forked(void)
{
	atomic_store(&hetcuda_gate, OPEN);
	pthread_mutex_init(&lock, NULL);
}
