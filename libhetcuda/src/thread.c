/*
 * SPDX-FileCopyrightText: The hetGPU authors
 * SPDX-License-Identifier: Apache-2.0
 */
#include "thread.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "gate.h"
#include "load.h"

_Thread_local struct hetcuda_thread *hetcuda_self;
static _Thread_local bool internal;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct hetcuda_thread *list;
static pthread_key_t key;
static bool have_key;
static atomic_bool lost;

static void insert(struct hetcuda_thread *thread)
{
	pthread_mutex_lock(&lock);
	thread->next = list;
	thread->link = &list;
	if (list)
		list->link = &thread->next;
	list = thread;
	pthread_mutex_unlock(&lock);
}

/* With the lock. */
static void drop(struct hetcuda_thread *thread)
{
	*thread->link = thread->next;
	if (thread->next)
		thread->next->link = thread->link;
	munmap(thread, sizeof(*thread));
}

/*
 * At the end of a thread. Destructors of other keys may still call the driver
 * afterwards; then the thread gets a new record, and the C library runs this
 * again, up to four times. What is left behind after that is found by its dead
 * TID (gone).
 */
static void leave(void *data)
{
	struct hetcuda_thread *thread = data;

	hetcuda_self = NULL;
	pthread_mutex_lock(&lock);
	drop(thread);
	pthread_mutex_unlock(&lock);
}

static bool gone(const struct hetcuda_thread *thread)
{
	return syscall(SYS_tgkill, getpid(), thread->tid, 0) < 0 && errno == ESRCH;
}

int hetcuda_thread_enter(void)
{
	struct hetcuda_thread *thread = hetcuda_self;
	int saved = errno;

	/* Callbacks within callbacks, and no frame left. The outer calls are
	 * marked, which is enough. */
	if (thread)
		return 0;

	hetcuda_load();
	thread = MAP_FAILED;
	if (have_key)
		thread = mmap(NULL, sizeof(*thread), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (thread == MAP_FAILED) {
		atomic_store(&lost, true);
		hetcuda_gate_pass();
		errno = saved;
		return 0;
	}
	atomic_init(&thread->top, thread->frames);
	thread->tid = (pid_t)syscall(SYS_gettid);
	insert(thread);
	/* If this fails the record stays when the thread ends. */
	pthread_setspecific(key, thread);
	hetcuda_self = thread;
	errno = saved;
	return 1;
}

void hetcuda_threads(bool (*visit)(struct hetcuda_thread *thread, void *data), void *data)
{
	struct hetcuda_thread *thread, *next;

	pthread_mutex_lock(&lock);
	for (thread = list; thread; thread = next) {
		next = thread->next;
		if (hetcuda_depth(thread) && gone(thread)) {
			drop(thread);
			continue;
		}
		if (!visit(thread, data))
			break;
	}
	pthread_mutex_unlock(&lock);
}

bool hetcuda_threads_lost(void)
{
	return atomic_load(&lost);
}

void hetcuda_thread_internal(void)
{
	internal = true;
}

bool hetcuda_thread_is_internal(void)
{
	return internal;
}

void hetcuda_thread_start(void)
{
	have_key = pthread_key_create(&key, leave) == 0;
}

int hetcuda_threads_barrier(void)
{
	if (!syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0))
		return 0;
	/* The first time; and again where CRIU older than 4.0 has restored it. */
	if (!syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) &&
	    !syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0))
		return 0;
	return -errno;
}

void hetcuda_thread_lock(void)
{
	pthread_mutex_lock(&lock);
}

void hetcuda_thread_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

void hetcuda_thread_forked(void)
{
	struct hetcuda_thread *thread, *next, *self = hetcuda_self;

	for (thread = list; thread; thread = next) {
		next = thread->next;
		if (thread != self)
			munmap(thread, sizeof(*thread));
	}
	list = self;
	if (self) {
		self->next = NULL;
		self->link = &list;
		self->tid = (pid_t)syscall(SYS_gettid);
		atomic_store(&self->waiting, 0);
	}
	atomic_store(&lost, false);
	pthread_mutex_unlock(&lock);
}
