/*
 * SPDX-FileCopyrightText: The hetGPU authors
 * SPDX-License-Identifier: Apache-2.0
 */
#include "fork.h"

#include <errno.h>
#include <pthread.h>

#include "control.h"
#include "gate.h"
#include "ipc.h"
#include "load.h"
#include "log.h"
#include "memory.h"
#include "procaddress.h"
#include "thread.h"

static void prepare(void)
{
	hetcuda_control_lock();
	hetcuda_ipc_lock();
	hetcuda_procaddress_lock();
	hetcuda_thread_lock();
}

static void parent(void)
{
	hetcuda_thread_unlock();
	hetcuda_procaddress_unlock();
	hetcuda_ipc_unlock();
	hetcuda_control_unlock();
}

static void child(void)
{
	bool initialized;

	hetcuda_gate_forked();
	hetcuda_thread_forked();
	hetcuda_procaddress_unlock();
	hetcuda_ipc_forked();
	initialized = hetcuda_control_forked();
	hetcuda_load_forked(initialized);
	hetcuda_memory_forked(initialized);
}

/*
 * pthread_atfork is a function of musl, and of a static part of glibc, which calls
 * this one.
 */
extern int __register_atfork(void (*)(void), void (*)(void), void (*)(void), void *) __attribute__((weak));
extern __typeof__(pthread_atfork) pthread_atfork __attribute__((weak));
extern void *__dso_handle __attribute__((visibility("hidden")));

static int watch_forks(void)
{
	if (__register_atfork)
		return __register_atfork(prepare, parent, child, __dso_handle);
	return pthread_atfork ? pthread_atfork(prepare, parent, child) : ENOSYS;
}

void hetcuda_fork_start(void)
{
	int result = watch_forks();

	if (result)
		hetcuda_log("forks can't be watched: error %d", result);
}
