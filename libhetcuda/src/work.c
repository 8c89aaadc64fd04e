/*
 * SPDX-FileCopyrightText: The hetGPU authors
 * SPDX-License-Identifier: Apache-2.0
 */
#include "work.h"

#include <stddef.h>
#include <string.h>

static const char *const reads[] = {
	"cuGraphLaunch", "cuLaunch", "cuMemcpy", "cuMemset", "cuStreamBatchMemOp", "cuStreamWaitValue", "cuStreamWriteValue",
};

static const char *const others[] = {
	"cuCtxRecordEvent", "cuCtxWaitEvent", "cuEventRecord", "cuGraphUpload", "cuGraphicsMapResources",
	"cuGraphicsUnmapResources", "cuGreenCtxRecordEvent", "cuGreenCtxWaitEvent", "cuLaunchHostFunc", "cuMemAllocAsync",
	"cuMemAllocFromPoolAsync", "cuMemBatchDecompressAsync", "cuMemDiscard", "cuMemFreeAsync", "cuMemMapArrayAsync",
	"cuMemPrefetch", "cuSignalExternalSemaphores", "cuStreamAddCallback", "cuStreamAttachMemAsync",
	"cuStreamBeginCapture", "cuStreamWaitEvent", "cuWaitExternalSemaphores",
};

static bool in(const char *name, const char *const *list, size_t count)
{
	size_t i;

	for (i = 0; i < count; i++)
		if (!strncmp(name, list[i], strlen(list[i])))
			return true;
	return false;
}

bool hetcuda_work_reads(const char *name)
{
	return in(name, reads, sizeof(reads) / sizeof(reads[0])) && strncmp(name, "cuLaunchHostFunc", strlen("cuLaunchHostFunc"));
}

bool hetcuda_work(const char *name)
{
	return hetcuda_work_reads(name) || in(name, others, sizeof(others) / sizeof(others[0]));
}
