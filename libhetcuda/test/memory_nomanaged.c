// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// In place of managed memory, which needs the whole library, in unit tests of
// the memory below it: there is none. Nor is there a gate.
#include "events.h"
#include "managed.h"
#include "managed_driver.h"
#include "real.h"
#include "thread.h"
#include "variables.h"

void hetcuda_thread_internal(void)
{
}

bool managed_look(CUdeviceptr address, struct managed_found *found)
{
	(void)address, (void)found;
	return false;
}

void managed_set_sync(CUdeviceptr address, bool sync)
{
	(void)address, (void)sync;
}

bool managed_free(CUdeviceptr address, CUresult (*wait)(CUstream), CUstream stream, CUresult *result)
{
	(void)address, (void)wait, (void)stream, (void)result;
	return false;
}

CUresult events_recorded(CUresult r, CUevent event, CUstream stream, bool per_thread, unsigned int flags)
{
	(void)event, (void)stream, (void)per_thread, (void)flags;
	return r;
}

bool events_wait(CUstream stream, bool per_thread, CUevent event, CUresult *result)
{
	(void)stream, (void)per_thread, (void)event, (void)result;
	return false;
}

CUresult events_synchronize(CUevent event)
{
	return REAL(cuEventSynchronize)(event);
}

void events_park(void)
{
}

void managed_driver_freed(CUdeviceptr address)
{
	(void)address;
}

void managed_context_gone(CUcontext context)
{
	(void)context;
}

bool variables_any(void)
{
	return false;
}

int managed_quiesce(char *text)
{
	(void)text;
	return 0;
}

void managed_pause(void)
{
}

void managed_grant(void)
{
}

void managed_abandon(void)
{
}

void managed_commit(void)
{
}

void managed_resume(void)
{
}

void managed_forked(void)
{
}
