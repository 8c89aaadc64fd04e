// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// The forms of calls for which no stream means the thread's own, which is the
// default one here: they do what the others do.
#include <cuda.h>

#define SAME(suffix, name, parameters, arguments)                                           \
	__attribute__((visibility("default"))) CUresult name##suffix parameters;            \
	CUresult name##suffix parameters                                                    \
	{                                                                                   \
		return name arguments;                                                      \
	}
#define PTSZ(name, parameters, arguments) SAME(_ptsz, name, parameters, arguments)
#define PTDS(name, parameters, arguments) SAME(_ptds, name, parameters, arguments)


PTDS(cuMemcpy, (CUdeviceptr to, CUdeviceptr from, size_t size), (to, from, size))
PTDS(cuMemcpyDtoD_v2, (CUdeviceptr to, CUdeviceptr from, size_t size), (to, from, size))
PTDS(cuMemcpyDtoH_v2, (void *host, CUdeviceptr address, size_t size), (host, address, size))
PTDS(cuMemcpyHtoD_v2, (CUdeviceptr address, const void *host, size_t size), (address, host, size))
PTDS(cuMemsetD8_v2, (CUdeviceptr address, unsigned char value, size_t count), (address, value, count))
PTDS(cuMemsetD32_v2, (CUdeviceptr address, unsigned int value, size_t count), (address, value, count))

PTSZ(cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream), (to, from, size, stream))
PTSZ(cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream), (to, from, size, stream))
PTSZ(cuMemcpyDtoHAsync_v2, (void *host, CUdeviceptr address, size_t size, CUstream stream), (host, address, size, stream))
PTSZ(cuMemcpyHtoDAsync_v2, (CUdeviceptr address, const void *host, size_t size, CUstream stream),
     (address, host, size, stream))
PTSZ(cuMemsetD8Async, (CUdeviceptr address, unsigned char value, size_t count, CUstream stream),
     (address, value, count, stream))
PTSZ(cuMemsetD32Async, (CUdeviceptr address, unsigned int value, size_t count, CUstream stream),
     (address, value, count, stream))
PTSZ(cuStreamQuery, (CUstream stream), (stream))
PTSZ(cuStreamSynchronize, (CUstream stream), (stream))
PTSZ(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned int flags), (stream, event, flags))
PTSZ(cuEventRecord, (CUevent event, CUstream stream), (event, stream))
PTSZ(cuLaunchHostFunc, (CUstream stream, CUhostFn function, void *data), (stream, function, data))
PTSZ(cuLaunchKernel,
     (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x,
      unsigned int block_y, unsigned int block_z, unsigned int shared, CUstream stream, void **params, void **extra),
     (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, params, extra))
PTSZ(cuStreamGetId, (CUstream stream, unsigned long long *id), (stream, id))
PTSZ(cuStreamGetCtx, (CUstream stream, CUcontext *context), (stream, context))
PTSZ(cuStreamIsCapturing, (CUstream stream, CUstreamCaptureStatus *status), (stream, status))
PTSZ(cuEventRecordWithFlags, (CUevent event, CUstream stream, unsigned int flags), (event, stream, flags))
PTSZ(cuMemAllocFromPoolAsync, (CUdeviceptr *address, size_t size, CUmemoryPool pool, CUstream stream),
     (address, size, pool, stream))
PTSZ(cuMemAllocAsync, (CUdeviceptr *address, size_t size, CUstream stream), (address, size, stream))
PTSZ(cuMemFreeAsync, (CUdeviceptr address, CUstream stream), (address, stream))
