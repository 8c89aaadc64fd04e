// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

#include "serve.h"

#include <linux/futex.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "books.h"
#include "clock.h"
#include "context.h"
#include "real.h"
#include "spawn.h"
#include "submit.h"
#include "thread.h"
#include "watch.h"

struct queue {
	pthread_mutex_t mu;
	pthread_cond_t filled;
	struct request *first, **last;
	bool waits; // for the device
};

static struct queue patient = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, &patient.first, true};
static struct queue urgent = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, &urgent.first, false};

static bool paused; // Lock: pages
static pthread_cond_t goes_on = PTHREAD_COND_INITIALIZER;

// Threads in host functions. The driver has a few threads for them.
static _Atomic pid_t hosts[64];

bool serve_host(pid_t tid)
{
	for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++)
		if (atomic_load_explicit(&hosts[i], memory_order_relaxed) == tid)
			return true;
	return false;
}

static bool host_replace(pid_t from, pid_t to)
{
	for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
		pid_t expected = from;
		if (atomic_compare_exchange_strong(&hosts[i], &expected, to))
			return true;
	}
	return false;
}

void serve_host_begin(void)
{
	while (!host_replace(0, (pid_t)syscall(SYS_gettid)))
		sched_yield();
}

void serve_host_end(void)
{
	host_replace((pid_t)syscall(SYS_gettid), 0);
}

void serve_push(struct request *q, bool now)
{
	struct queue *to = now ? &urgent : &patient;
	pthread_mutex_lock(&to->mu);
	q->next = NULL;
	*to->last = q;
	to->last = &q->next;
	pthread_cond_signal(&to->filled);
	pthread_mutex_unlock(&to->mu);
}

void serve_push_wait(struct request *q, bool now)
{
	_Atomic uint32_t done = 0;
	q->done = &done;
	serve_push(q, now);
	while (!atomic_load(&done))
		syscall(SYS_futex, &done, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
}

static struct request *take(struct queue *from)
{
	pthread_mutex_lock(&from->mu);
	while (!from->first)
		pthread_cond_wait(&from->filled, &from->mu);
	struct request *q = from->first;
	from->first = q->next;
	if (!from->first)
		from->last = &from->first;
	pthread_mutex_unlock(&from->mu);
	return q;
}

static void finish(struct request *q)
{
	_Atomic uint32_t *done = q->done;
	if (q->heap)
		free(q);
	if (!done)
		return;
	// Whoever waits may be gone as soon as it sees this: then nobody is
	// waiting at that address, and waking nobody is no error.
	atomic_store(done, 1);
	syscall(SYS_futex, done, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

// Waiting for the device.

static void wait_for(CUcontext context)
{
	CUcontext before;
	if (context_switch(context, &before) != CUDA_SUCCESS)
		return;
	// An error is the program's own to see: a kernel that failed, a context
	// that has gone. A stream that is being captured makes this fail too; a
	// program that touches its memory then has waited for what it needs.
	REAL(cuCtxSynchronize)();
	context_switch_back(context, before);
}

static void wait_for_primary(CUdevice device)
{
	unsigned int flags;
	int active = 0;
	CUcontext primary;
	if (!REAL(cuDevicePrimaryCtxGetState) ||
	    REAL(cuDevicePrimaryCtxGetState)(device, &flags, &active) != CUDA_SUCCESS || !active ||
	    REAL(cuDevicePrimaryCtxRetain)(&primary, device) != CUDA_SUCCESS)
		return;
	wait_for(primary);
	REAL(cuDevicePrimaryCtxRelease)(device);
}

static void wait_for_all(void)
{
	int devices = 0;
	for (unsigned i = 0;; i++) {
		CUcontext context = NULL;
		unsigned n = 0;
		{
			BOOKS();
			for (struct context *c = context_first(); c && !context; c = c->next)
				if (!c->gone && n++ == i)
					context = c->handle;
		}
		if (!context)
			break;
		wait_for(context);
	}
	REAL(cuDeviceGetCount)(&devices);
	for (int i = 0; i < devices; i++)
		wait_for_primary(i);
}

// settle makes sure that nobody is about to submit work, and that none was since
// the device was waited for. Those who want to submit wait from now on, for
// `patience` us at most: a kernel that runs may need one that comes after it.
// Lock: held. Whatever the result, settled has to follow.
static bool settle(unsigned patience)
{
	int64_t end = hetcuda_now_us() + patience;
	bool idle = true;
	struct timespec pause = {.tv_nsec = 5000};
	atomic_fetch_add(&hetcuda_pages_mine, 1);
	while (submit_under_way()) {
		// What it submits was not waited for.
		idle = false;
		atomic_store(&hetcuda_pages_busy, 1);
		if (hetcuda_now_us() >= end)
			break;
		nanosleep(&pause, NULL);
	}
	return idle && !atomic_load(&hetcuda_pages_busy);
}

static void settled(void)
{
	atomic_fetch_sub(&hetcuda_pages_mine, 1);
}

static void wait_paused(void)
{
	while (paused)
		pthread_cond_wait(&goes_on, &pages);
}

static void fetch_some(struct request *q)
{
	struct range *r = range_find(q->address);
	if (!r || !r->split) {
		q->size = 0;
		return;
	}
	size_t offset = q->address - r->address, n = q->size < AHEAD ? q->size : AHEAD;
	n = n < r->size - offset ? n : r->size - offset;
	pages_fetch(r, offset / GRANULE, (offset + n + GRANULE - 1) / GRANULE, q->write);
	q->address += n;
	q->size -= n;
}

static void fetch_later(const struct range *r, const struct ahead *a)
{
	struct request *q = a->to > a->from ? calloc(1, sizeof *q) : NULL;
	if (!q)
		return;
	q->what = FETCH;
	q->heap = true;
	q->address = r->address + a->from * GRANULE;
	q->size = (a->to - a->from) * GRANULE;
	q->write = a->write;
	serve_push(q, false);
}

// attempt does some of a request; false if the device has to be waited for.
// Lock: held.
static bool attempt(struct request *q, bool idle)
{
	struct range *r;
	struct ahead ahead = {0};
	switch (q->what) {
	case TOUCH:
		r = range_find(q->address);
		if (r && !pages_touch(r, q->address, q->write, idle, &ahead))
			return false;
		watch_wake(q->address);
		if (r)
			fetch_later(r, &ahead);
		return true;
	case FETCH:
		if (!idle)
			return false;
		fetch_some(q);
		return q->size == 0;
	case FLUSH:
		pages_flush_all();
		return true;
	}
	return true;
}

static void serve_waiting(struct request *q)
{
	unsigned patience = 200;
	for (;;) {
		bool idle, done;
		{
			PAGES();
			wait_paused();
			if (attempt(q, false))
				return;
		}
		while (atomic_exchange(&hetcuda_pages_busy, 0))
			wait_for_all();
		{
			PAGES();
			wait_paused();
			idle = settle(patience);
			done = idle && attempt(q, true);
			settled();
		}
		if (done)
			return;
		// A hint that comes at a bad time; others wait behind it.
		if (!idle && q->what == FETCH)
			return;
		if (!idle && patience < 100000)
			patience *= 2;
	}
}

// A stream that another thread captures in the strict mode must not be spoiled
// by what this one does.
static void relax(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	if (REAL(cuThreadExchangeStreamCaptureMode))
		REAL(cuThreadExchangeStreamCaptureMode)(&mode);
}

static void *run(void *argument)
{
	struct queue *from = argument;
	hetcuda_thread_internal();
	relax();
	for (;;) {
		struct request *q = take(from);
		if (from->waits) {
			serve_waiting(q);
		} else {
			PAGES();
			wait_paused();
			while (!attempt(q, true)) {
			}
		}
		finish(q);
	}
	return NULL;
}

bool serve_start(void)
{
	static bool patient_runs, urgent_runs;
	patient_runs = patient_runs || !hetcuda_spawn(run, &patient);
	urgent_runs = urgent_runs || !hetcuda_spawn(run, &urgent);
	return patient_runs && urgent_runs;
}

void serve_pause(void)
{
	paused = true;
}

void serve_continue(void)
{
	paused = false;
	pthread_cond_broadcast(&goes_on);
}

void serve_forked(void)
{
	pthread_mutex_init(&patient.mu, NULL);
	pthread_mutex_init(&urgent.mu, NULL);
	paused = false;
}
