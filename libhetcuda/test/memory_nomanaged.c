// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// In place of managed memory, which needs the whole library, in unit tests of
// the memory below it: there is none. Nor is there a gate.
#include "managed.h"
#include "managed_driver.h"
#include "thread.h"

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

void managed_driver_freed(CUdeviceptr address)
{
	(void)address;
}

void managed_context_gone(CUcontext context)
{
	(void)context;
}

int managed_quiesce(char *text)
{
	(void)text;
	return 0;
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
