/*
 * SPDX-FileCopyrightText: The hetGPU authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What is known of each thread that calls the driver.
 */
#ifndef HETCUDA_THREAD_H
#define HETCUDA_THREAD_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "stub.h"

/* One call that the thread is in: written by the stub. */
struct hetcuda_frame {
	void *back;
	uint64_t saved;
	uint32_t function; /* index of the stub */
	uint32_t unused[3];
};

/*
 * A thread's record, a page of its own; found by the thread through
 * hetcuda_self and by others through the list. Only `top` and `waiting` change
 * while it is in the list, and only by the thread itself.
 */
struct hetcuda_thread {
	_Atomic(struct hetcuda_frame *) top; /* first, for the stubs; the next frame to use */
	_Atomic uint32_t waiting;            /* at the gate */
	pid_t tid;
	struct hetcuda_thread *next;
	struct hetcuda_thread **link; /* what points to this one */
	uint64_t unused[4];
	struct hetcuda_frame frames[(HETCUDA_THREAD_SIZE - 64) / HETCUDA_FRAME_SIZE];
};

/*
 * The calling thread's, NULL before its first call. Thread-local variables of the
 * library are found by TLS descriptors (-mtls-dialect=gnu2 in the Makefile): in
 * static TLS, where the C library has room for it, with one call of a function
 * of two instructions; else in memory of the thread's own. The initial-exec
 * model is three instructions less, but works in static TLS only, of which glibc
 * keeps some for libraries that are opened later, and musl none.
 */
extern _Thread_local struct hetcuda_thread *hetcuda_self;

static_assert(sizeof(struct hetcuda_frame) == HETCUDA_FRAME_SIZE, "stub.h");
static_assert(offsetof(struct hetcuda_frame, back) == HETCUDA_FRAME_BACK, "stub.h");
static_assert(offsetof(struct hetcuda_frame, saved) == HETCUDA_FRAME_SAVED, "stub.h");
static_assert(offsetof(struct hetcuda_frame, function) == HETCUDA_FRAME_FUNCTION, "stub.h");
static_assert(sizeof(struct hetcuda_thread) == HETCUDA_THREAD_SIZE, "stub.h");
static_assert(offsetof(struct hetcuda_thread, top) == 0, "stub_*.S");

/* How many calls it is in: a driver function may call back, and that call again. */
static inline size_t hetcuda_depth(struct hetcuda_thread *thread)
{
	return (size_t)(atomic_load_explicit(&thread->top, memory_order_acquire) - thread->frames);
}

/*
 * Calls visit for each thread that has called the driver, until it returns
 * false. The list is locked meanwhile.
 */
void hetcuda_threads(bool (*visit)(struct hetcuda_thread *thread, void *data), void *data);

/*
 * A full barrier in every thread of the process that runs: between a thread's
 * mark and what it looks at afterwards, as between what was written for it here
 * and the reading of the marks. 0, or why there is none (an errno, negative).
 */
int hetcuda_threads_barrier(void);

/*
 * Calls were let through unmarked, because a thread's record could not be
 * allocated: nobody can say any more that no thread is inside.
 */
bool hetcuda_threads_lost(void);

/*
 * The calling thread is the library's own: should the driver call an exported
 * function in it, that does not wait at the gate.
 */
void hetcuda_thread_internal(void);
bool hetcuda_thread_is_internal(void);

/* Once, from hetcuda_load. */
void hetcuda_thread_start(void);

/* Around a fork. In the child only the calling thread's record is left. */
void hetcuda_thread_lock(void);
void hetcuda_thread_unlock(void);
void hetcuda_thread_forked(void);

/* For the stubs: 1 if the calling thread now has a frame. */
int hetcuda_thread_enter(void);

#endif
