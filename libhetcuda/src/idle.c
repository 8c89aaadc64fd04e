// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Waiting for the GPU with a time-out, which the driver doesn't offer: a thread
// waits, and if a kernel never ends, neither does that thread. The control
// thread goes on all the same.
#include "idle.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

#include "books.h"
#include "context.h"
#include "real.h"
#include "spawn.h"
#include "thread.h"

struct job {
	pthread_mutex_t mu;
	pthread_cond_t changed;
	bool done;
	CUresult result;
	size_t count;
	CUcontext contexts[];
};

// The job that a time-out left behind: while it waits, so would another. What
// was submitted after a stale one began it may not have seen.
static struct job *left;
static bool stale;

static void drop(struct job *j)
{
	pthread_cond_destroy(&j->changed);
	pthread_mutex_destroy(&j->mu);
	free(j);
}

static CUresult wait_for_primary(CUdevice device)
{
	unsigned int flags;
	int active = 0;
	CUcontext primary;
	if (!REAL(cuDevicePrimaryCtxGetState) ||
	    REAL(cuDevicePrimaryCtxGetState)(device, &flags, &active) != CUDA_SUCCESS || !active ||
	    REAL(cuDevicePrimaryCtxRetain)(&primary, device) != CUDA_SUCCESS)
		return CUDA_SUCCESS;
	CUresult r = context_idle(primary);
	REAL(cuDevicePrimaryCtxRelease)(device);
	return r;
}

static void *run(void *argument)
{
	struct job *j = argument;
	hetcuda_thread_internal();
	CUresult r = CUDA_SUCCESS;
	int devices = 0;
	for (size_t i = 0; i < j->count && r == CUDA_SUCCESS; i++)
		r = context_idle(j->contexts[i]);
	// The program's own VMM needs no context that we have seen.
	REAL(cuDeviceGetCount)(&devices);
	for (int i = 0; i < devices && r == CUDA_SUCCESS; i++)
		r = wait_for_primary(i);
	pthread_mutex_lock(&j->mu);
	j->result = r;
	j->done = true;
	pthread_cond_signal(&j->changed);
	pthread_mutex_unlock(&j->mu);
	return NULL;
}

static struct job *make(void)
{
	pthread_condattr_t attributes;
	BOOKS();
	size_t count = 0;
	for (struct context *c = context_first(); c; c = c->next)
		count++;
	struct job *j = calloc(1, sizeof *j + count * sizeof j->contexts[0]);
	if (!j)
		return NULL;
	for (struct context *c = context_first(); c; c = c->next)
		j->contexts[j->count++] = c->handle;
	pthread_mutex_init(&j->mu, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&j->changed, &attributes);
	pthread_condattr_destroy(&attributes);
	return j;
}

static struct timespec after(uint32_t ms)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_sec += ms / 1000;
	t.tv_nsec += (long)(ms % 1000) * 1000000;
	if (t.tv_nsec >= 1000000000) {
		t.tv_sec++;
		t.tv_nsec -= 1000000000;
	}
	return t;
}

static bool finished(struct job *j, const struct timespec *end)
{
	pthread_mutex_lock(&j->mu);
	while (!j->done && pthread_cond_timedwait(&j->changed, &j->mu, end) == 0) {
	}
	bool done = j->done;
	pthread_mutex_unlock(&j->mu);
	return done;
}

// begin starts a job, once that which is under way and can't be used has ended.
static int begin(bool anew, const struct timespec *end)
{
	stale = stale || anew;
	if (left && !stale)
		return 0;
	if (left && !finished(left, end))
		return -ETIMEDOUT;
	if (left)
		drop(left);
	left = make();
	if (!left)
		return -ENOMEM;
	int error = hetcuda_spawn(run, left);
	if (error) {
		drop(left);
		left = NULL;
	}
	stale = false;
	return -error;
}

int wait_idle(bool anew, uint32_t timeout_ms)
{
	struct timespec end = after(timeout_ms);
	int result = begin(anew, &end);
	if (result)
		return result;
	if (!finished(left, &end))
		return -ETIMEDOUT;
	result = (int)left->result;
	drop(left);
	left = NULL;
	return result;
}
