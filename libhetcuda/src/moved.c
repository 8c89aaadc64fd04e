// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

#include "moved.h"

#include <string.h>

#include "chunk.h"
#include "real.h"

static CUuuid began[ACCESS_DEVICES];
static int count;

static bool uuid_of(int ordinal, CUuuid *uuid)
{
	CUdevice device;
	return REAL(cuDeviceGet)(&device, ordinal) == CUDA_SUCCESS && REAL(cuDeviceGetUuid)(uuid, device) == CUDA_SUCCESS;
}

void moved_start(void)
{
	int devices = 0;
	count = 0;
	if (!REAL(cuDeviceGetCount) || !REAL(cuDeviceGet) || !REAL(cuDeviceGetUuid))
		return;
	REAL(cuDeviceGetCount)(&devices);
	while (count < devices && count < ACCESS_DEVICES && uuid_of(count, &began[count]))
		count++;
}

bool moved(void)
{
	CUuuid now;
	for (int i = 0; i < count; i++)
		if (uuid_of(i, &now) && memcmp(now.bytes, began[i].bytes, sizeof now.bytes) != 0)
			return true;
	return false;
}
