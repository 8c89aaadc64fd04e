/*
 * SPDX-FileCopyrightText: The hetGPU authors
 * SPDX-License-Identifier: Apache-2.0
 */
#include "fork.h"

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

void hetcuda_fork_start(void)
{
	if (pthread_atfork(prepare, parent, child))
		hetcuda_log("no memory to watch for fork");
}
