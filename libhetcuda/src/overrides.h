/*
 * SPDX-FileCopyrightText: The hetGPU authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The functions that we answer ourselves. For each name here there is a
 * hetcuda_<name> with the same type, which the program's calls reach through
 * the table if the driver has such a function; the driver's own is REAL(name).
 * The names are those of the exports: cuMemAlloc_v2, not cuMemAlloc.
 */
#ifndef HETCUDA_OVERRIDES_H
#define HETCUDA_OVERRIDES_H

#include "cuda.h"
#include "ptsz.h"

/* The library's own: these stay in the child of a fork. */
#define HETCUDA_CORE_OVERRIDES(X) \
	X(cuGetProcAddress_v2) \
	X(cuInit)

/* Memory: src/memory*.c, async.c, pool*.c, follow.c, context.c, capture.c. */
#define HETCUDA_MEMORY_OVERRIDES(X) \
	X(cuCtxCreate) \
	X(cuCtxCreate_v2) \
	X(cuCtxCreate_v3) \
	X(cuCtxCreate_v4) \
	X(cuCtxDestroy) \
	X(cuCtxDestroy_v2) \
	X(cuCtxDisablePeerAccess) \
	X(cuCtxEnablePeerAccess) \
	X(cuCtxSynchronize) \
	X(cuCtxSynchronize_v2) \
	X(cuDevicePrimaryCtxRelease) \
	X(cuDevicePrimaryCtxRelease_v2) \
	X(cuDevicePrimaryCtxReset) \
	X(cuDevicePrimaryCtxReset_v2) \
	X(cuDevicePrimaryCtxRetain) \
	X(cuDeviceSetMemPool) \
	X(cuEventRecord) \
	X(cuEventRecordWithFlags) \
	X(cuEventRecordWithFlags_ptsz) \
	X(cuEventRecord_ptsz) \
	X(cuEventSynchronize) \
	X(cuMemAddressFree) \
	X(cuDeviceGetAttribute) \
	X(cuLibraryGetGlobal) \
	X(cuLibraryGetManaged) \
	X(cuLibraryLoadData) \
	X(cuLibraryLoadFromFile) \
	X(cuLibraryUnload) \
	X(cuModuleGetGlobal_v2) \
	X(cuModuleLoad) \
	X(cuModuleLoadData) \
	X(cuModuleLoadDataEx) \
	X(cuModuleLoadFatBinary) \
	X(cuModuleUnload) \
	X(cuMemAdvise) \
	X(cuMemAdvise_v2) \
	X(cuMemAllocManaged) \
	X(cuGreenCtxDestroy) \
	X(cuEventCreate) \
	X(cuEventQuery) \
	X(cuStreamWaitEvent) \
	X(cuStreamWaitEvent_ptsz) \
	X(cuIpcCloseMemHandle) \
	X(cuIpcGetEventHandle) \
	X(cuIpcGetMemHandle) \
	X(cuEventDestroy) \
	X(cuEventDestroy_v2) \
	X(cuIpcOpenEventHandle) \
	X(cuIpcOpenMemHandle) \
	X(cuIpcOpenMemHandle_v2) \
	X(cuMemAllocAsync) \
	X(cuMemAllocAsync_ptsz) \
	X(cuMemAllocFromPoolAsync) \
	X(cuMemAllocFromPoolAsync_ptsz) \
	X(cuMemAllocHost_v2) \
	X(cuMemAllocPitch_v2) \
	X(cuMemAlloc_v2) \
	X(cuMemHostAlloc) \
	X(cuMemHostRegister_v2) \
	X(cuMemCreate) \
	X(cuMemExportToShareableHandle) \
	X(cuMemDiscardAndPrefetchBatchAsync) \
	X(cuMemDiscardAndPrefetchBatchAsync_ptsz) \
	X(cuMemDiscardBatchAsync) \
	X(cuMemDiscardBatchAsync_ptsz) \
	X(cuMemFreeAsync) \
	X(cuMemFreeAsync_ptsz) \
	X(cuMemFree_v2) \
	X(cuMemGetAccess) \
	X(cuMemGetAddressRange_v2) \
	X(cuMemGetAllocationPropertiesFromHandle) \
	X(cuMemImportFromShareableHandle) \
	X(cuMemMap) \
	X(cuMemMapArrayAsync) \
	X(cuMemMapArrayAsync_ptsz) \
	X(cuMemPoolCreate) \
	X(cuMemPoolDestroy) \
	X(cuMemPoolExportPointer) \
	X(cuMemPoolExportToShareableHandle) \
	X(cuMemPoolGetAttribute) \
	X(cuMemPoolImportFromShareableHandle) \
	X(cuMemPoolSetAccess) \
	X(cuMemPoolSetAttribute) \
	X(cuMemPoolTrimTo) \
	X(cuMemRelease) \
	X(cuMemRetainAllocationHandle) \
	X(cuMemSetAccess) \
	X(cuMemSetMemPool) \
	X(cuMemUnmap) \
	X(cuMulticastBindAddr) \
	X(cuMulticastBindMem) \
	X(cuMemPrefetchAsync) \
	X(cuMemPrefetchAsync_ptsz) \
	X(cuMemPrefetchAsync_v2) \
	X(cuMemPrefetchAsync_v2_ptsz) \
	X(cuMemPrefetchBatchAsync) \
	X(cuMemPrefetchBatchAsync_ptsz) \
	X(cuMemRangeGetAttribute) \
	X(cuMemRangeGetAttributes) \
	X(cuPointerGetAttribute) \
	X(cuPointerGetAttributes) \
	X(cuPointerSetAttribute) \
	X(cuStreamAttachMemAsync) \
	X(cuStreamAttachMemAsync_ptsz) \
	X(cuStreamBeginCaptureToGraph) \
	X(cuStreamBeginCaptureToGraph_ptsz) \
	X(cuStreamBeginCapture_v2) \
	X(cuStreamBeginCapture_v2_ptsz) \
	X(cuStreamDestroy) \
	X(cuStreamDestroy_v2) \
	X(cuStreamEndCapture) \
	X(cuStreamEndCapture_ptsz) \
	X(cuStreamSynchronize) \
	X(cuStreamSynchronize_ptsz)

#define HETCUDA_DECLARE(name) extern __typeof__(name) hetcuda_##name;
HETCUDA_CORE_OVERRIDES(HETCUDA_DECLARE)
HETCUDA_MEMORY_OVERRIDES(HETCUDA_DECLARE)
#undef HETCUDA_DECLARE

/* Here and not above: in cuda.h this name means the second version. */
CUresult hetcuda_cuGetProcAddress_v1(const char *symbol, void **function, int version, cuuint64_t flags);

#endif
