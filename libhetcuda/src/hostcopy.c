// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

#include "hostcopy.h"

#include <stdlib.h>

#include "managed.h"
#include "pages.h"
#include "ptsz.h"
#include "real.h"
#include "serve.h"

// A copy whose host end is managed memory is one between two addresses of the
// device: the driver takes it so for some functions (measured), and where it
// doesn't it would read the CPU's pages with its locks held.

static bool is_managed(const void *host)
{
	return managed_look((uintptr_t)host, NULL);
}

#define UP(name, instead, type, ...)                                                    \
	static CUresult managed_##name type                                             \
	{                                                                               \
		return is_managed(host) ? REAL(instead)(device, (uintptr_t)host, __VA_ARGS__) \
					: REAL(name)(device, host, __VA_ARGS__);          \
	}
#define DOWN(name, instead, type, ...)                                                  \
	static CUresult managed_##name type                                             \
	{                                                                               \
		return is_managed(host) ? REAL(instead)((uintptr_t)host, device, __VA_ARGS__) \
					: REAL(name)(host, device, __VA_ARGS__);          \
	}

UP(cuMemcpyHtoD_v2, cuMemcpyDtoD_v2, (CUdeviceptr device, const void *host, size_t size), size)
UP(cuMemcpyHtoD_v2_ptds, cuMemcpyDtoD_v2_ptds, (CUdeviceptr device, const void *host, size_t size), size)
UP(cuMemcpyHtoDAsync_v2, cuMemcpyDtoDAsync_v2, (CUdeviceptr device, const void *host, size_t size, CUstream stream), size, stream)
UP(cuMemcpyHtoDAsync_v2_ptsz, cuMemcpyDtoDAsync_v2_ptsz, (CUdeviceptr device, const void *host, size_t size, CUstream stream), size, stream)
DOWN(cuMemcpyDtoH_v2, cuMemcpyDtoD_v2, (void *host, CUdeviceptr device, size_t size), size)
DOWN(cuMemcpyDtoH_v2_ptds, cuMemcpyDtoD_v2_ptds, (void *host, CUdeviceptr device, size_t size), size)
DOWN(cuMemcpyDtoHAsync_v2, cuMemcpyDtoDAsync_v2, (void *host, CUdeviceptr device, size_t size, CUstream stream), size, stream)
DOWN(cuMemcpyDtoHAsync_v2_ptsz, cuMemcpyDtoDAsync_v2_ptsz, (void *host, CUdeviceptr device, size_t size, CUstream stream), size, stream)

static void correct(CUmemorytype *type, const void *host, CUdeviceptr *device)
{
	if (*type != CU_MEMORYTYPE_HOST || !is_managed(host))
		return;
	*type = CU_MEMORYTYPE_DEVICE;
	*device = (uintptr_t)host;
}

#define SHAPE(name, shape, type, ...)                                           \
	static CUresult managed_##name type                                     \
	{                                                                       \
		if (!copy)                                                      \
			return REAL(name)(copy __VA_ARGS__);                    \
		shape c = *copy;                                                \
		correct(&c.srcMemoryType, c.srcHost, &c.srcDevice);             \
		correct(&c.dstMemoryType, c.dstHost, &c.dstDevice);             \
		return REAL(name)(&c __VA_ARGS__);                              \
	}

SHAPE(cuMemcpy2D_v2, CUDA_MEMCPY2D, (const CUDA_MEMCPY2D *copy))
SHAPE(cuMemcpy2D_v2_ptds, CUDA_MEMCPY2D, (const CUDA_MEMCPY2D *copy))
SHAPE(cuMemcpy2DUnaligned_v2, CUDA_MEMCPY2D, (const CUDA_MEMCPY2D *copy))
SHAPE(cuMemcpy2DUnaligned_v2_ptds, CUDA_MEMCPY2D, (const CUDA_MEMCPY2D *copy))
SHAPE(cuMemcpy2DAsync_v2, CUDA_MEMCPY2D, (const CUDA_MEMCPY2D *copy, CUstream stream), , stream)
SHAPE(cuMemcpy2DAsync_v2_ptsz, CUDA_MEMCPY2D, (const CUDA_MEMCPY2D *copy, CUstream stream), , stream)
SHAPE(cuMemcpy3D_v2, CUDA_MEMCPY3D, (const CUDA_MEMCPY3D *copy))
SHAPE(cuMemcpy3D_v2_ptds, CUDA_MEMCPY3D, (const CUDA_MEMCPY3D *copy))
SHAPE(cuMemcpy3DAsync_v2, CUDA_MEMCPY3D, (const CUDA_MEMCPY3D *copy, CUstream stream), , stream)
SHAPE(cuMemcpy3DAsync_v2_ptsz, CUDA_MEMCPY3D, (const CUDA_MEMCPY3D *copy, CUstream stream), , stream)

// Host functions run in the middle of a stream: what comes after them is already
// submitted. So what they may touch of managed memory is served without waiting
// for the device (serve.h), and goes back to it before their stream goes on.

struct host {
	CUhostFn function;
	CUstreamCallback callback; // or this
	void *data;
	bool keep; // in a graph, which may be launched many times
};

static void after(void)
{
	struct request flush = {.what = FLUSH};
	if (atomic_load(&hetcuda_pages_mine) > 0)
		serve_push_wait(&flush, true);
	serve_host_end();
}

static void run_function(void *argument)
{
	struct host h = *(struct host *)argument;
	if (!h.keep)
		free(argument);
	serve_host_begin();
	h.function(h.data);
	after();
}

static void run_callback(CUstream stream, CUresult status, void *argument)
{
	struct host h = *(struct host *)argument;
	free(argument);
	serve_host_begin();
	h.callback(stream, status, h.data);
	after();
}

static struct host *host(CUhostFn function, CUstreamCallback callback, void *data, CUstream stream)
{
	struct host *h = malloc(sizeof *h);
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	if (!h)
		return NULL;
	if (REAL(cuStreamIsCapturing))
		REAL(cuStreamIsCapturing)(stream, &status);
	*h = (struct host){function, callback, data, status != CU_STREAM_CAPTURE_STATUS_NONE};
	return h;
}

#define HOST_FUNCTION(name)                                                          \
	static CUresult managed_##name(CUstream stream, CUhostFn function, void *data) \
	{                                                                            \
		if (!function)                                                       \
			return REAL(name)(stream, function, data);                   \
		struct host *h = host(function, NULL, data, stream);                 \
		CUresult r = h ? REAL(name)(stream, run_function, h) : CUDA_ERROR_OUT_OF_MEMORY; \
		if (r != CUDA_SUCCESS)                                               \
			free(h);                                                     \
		return r;                                                            \
	}
#define CALLBACK(name)                                                                                          \
	static CUresult managed_##name(CUstream stream, CUstreamCallback function, void *data, unsigned int flags) \
	{                                                                                                       \
		if (!function)                                                                                  \
			return REAL(name)(stream, function, data, flags);                                       \
		struct host *h = host(NULL, function, data, stream);                                            \
		CUresult r = h ? REAL(name)(stream, run_callback, h, flags) : CUDA_ERROR_OUT_OF_MEMORY;         \
		if (r != CUDA_SUCCESS)                                                                          \
			free(h);                                                                                \
		return r;                                                                                       \
	}

HOST_FUNCTION(cuLaunchHostFunc)
HOST_FUNCTION(cuLaunchHostFunc_ptsz)
CALLBACK(cuStreamAddCallback)
CALLBACK(cuStreamAddCallback_ptsz)

void *hostcopy_instead(unsigned index, void *function)
{
	// Only what would otherwise be the driver's own.
	if (!function || function != hetcuda_real[index])
		return function;
	switch (index) {
#define INSTEAD(name) \
	case HETCUDA_INDEX_##name: return (void *)managed_##name;
		INSTEAD(cuMemcpyHtoD_v2)
		INSTEAD(cuMemcpyHtoD_v2_ptds)
		INSTEAD(cuMemcpyHtoDAsync_v2)
		INSTEAD(cuMemcpyHtoDAsync_v2_ptsz)
		INSTEAD(cuMemcpyDtoH_v2)
		INSTEAD(cuMemcpyDtoH_v2_ptds)
		INSTEAD(cuMemcpyDtoHAsync_v2)
		INSTEAD(cuMemcpyDtoHAsync_v2_ptsz)
		INSTEAD(cuMemcpy2D_v2)
		INSTEAD(cuMemcpy2D_v2_ptds)
		INSTEAD(cuMemcpy2DUnaligned_v2)
		INSTEAD(cuMemcpy2DUnaligned_v2_ptds)
		INSTEAD(cuMemcpy2DAsync_v2)
		INSTEAD(cuMemcpy2DAsync_v2_ptsz)
		INSTEAD(cuMemcpy3D_v2)
		INSTEAD(cuMemcpy3D_v2_ptds)
		INSTEAD(cuMemcpy3DAsync_v2)
		INSTEAD(cuMemcpy3DAsync_v2_ptsz)
		INSTEAD(cuLaunchHostFunc)
		INSTEAD(cuLaunchHostFunc_ptsz)
		INSTEAD(cuStreamAddCallback)
		INSTEAD(cuStreamAddCallback_ptsz)
#undef INSTEAD
	default: return function;
	}
}
