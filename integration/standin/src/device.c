// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Devices and contexts.
#include <string.h>

#include "process.h"

enum { MAX_PUSHED = 32 };

// The contexts of a thread; the last is the current one.
static _Thread_local struct {
	struct CUctx_st *contexts[MAX_PUSHED];
	int count;
} stack;

static struct CUctx_st *top(void)
{
	return stack.count ? stack.contexts[stack.count - 1] : NULL;
}

static void set_top(struct CUctx_st *c)
{
	if (stack.count == 0 && c)
		stack.count = 1;
	if (stack.count)
		stack.contexts[stack.count - 1] = c;
}

struct CUctx_st *context_current(void)
{
	struct CUctx_st *c = top();
	return c && c->references > 0 ? c : NULL;
}

int context_gpu(void)
{
	struct CUctx_st *c = context_current();
	return c ? c->gpu : -1;
}

static const struct gpu *gpu_at(CUdevice device)
{
	return device >= 0 && device < process.count ? &process.devices[device].gpu : NULL;
}

CUresult cuDeviceGetCount(int *count)
{
	ENTER();
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	*count = process.count;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	ENTER();
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	if (!gpu_at(ordinal))
		return CUDA_ERROR_INVALID_DEVICE;
	*device = ordinal;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int size, CUdevice device)
{
	ENTER();
	const struct gpu *g = gpu_at(device);
	if (!name || size <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (!g)
		return CUDA_ERROR_INVALID_DEVICE;
	snprintf(name, (size_t)size, "%s", g->name);
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
	ENTER();
	const struct gpu *g = gpu_at(device);
	if (!uuid)
		return CUDA_ERROR_INVALID_VALUE;
	if (!g)
		return CUDA_ERROR_INVALID_DEVICE;
	memcpy(uuid->bytes, g->id, sizeof uuid->bytes);
	return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
	ENTER();
	const struct gpu *g = gpu_at(device);
	if (!bytes)
		return CUDA_ERROR_INVALID_VALUE;
	if (!g)
		return CUDA_ERROR_INVALID_DEVICE;
	*bytes = g->memory;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
	ENTER();
	unsigned domain = 0, bus = 0, slot = 0;
	const struct gpu *g = gpu_at(device);
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	if (!g)
		return CUDA_ERROR_INVALID_DEVICE;
	sscanf(g->pci, "%x:%x:%x", &domain, &bus, &slot);
	switch (attribute) {
	case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: *value = (int)bus; return CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID: *value = (int)slot; return CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID: *value = (int)domain; return CUDA_SUCCESS;
	default: break;
	}
	// The same for every GPU: what the tests and the code under test ask for.
	static const struct {
		int attribute, value;
	} known[] = {
		{1, 1024}, // MAX_THREADS_PER_BLOCK
		{2, 1024}, // MAX_BLOCK_DIM_X, Y, Z
		{3, 1024},
		{4, 64},
		{5, 2147483647},  // MAX_GRID_DIM_X, Y, Z
		{6, 65535},
		{7, 65535},
		{8, 49152}, // MAX_SHARED_MEMORY_PER_BLOCK
		{10, 32}, // WARP_SIZE
		{CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 1},
		{18, 0}, // INTEGRATED
		{19, 1}, // CAN_MAP_HOST_MEMORY
		{20, 0}, // COMPUTE_MODE
		{31, 1}, // CONCURRENT_KERNELS
		{40, 3}, // ASYNC_ENGINE_COUNT
		{CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
		{CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
		{CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
		{78, 1}, // STREAM_PRIORITIES_SUPPORTED
		{CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
		{CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 0},
		{CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1},
		{CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
		{CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
		{CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 1},
		{122, 1}, // CAN_USE_64_BIT_STREAM_MEM_OPS
		{115, 0}, // MEMORY_POOLS_SUPPORTED
	};
	for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
		if (known[i].attribute != (int)attribute)
			continue;
		*value = known[i].value;
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_INVALID_VALUE;
}

// find_context returns the primary context of a GPU (or, with none, a free
// slot), or a free slot for another one.
static struct CUctx_st *find_context(int gpu, bool primary)
{
	struct CUctx_st *unused = NULL;
	for (int i = 0; i < MAX_CONTEXTS; i++) {
		struct CUctx_st *c = &process.contexts[i];
		if (primary && c->references > 0 && c->primary && c->gpu == gpu)
			return c;
		if (c->references == 0 && !unused)
			unused = c;
	}
	return unused;
}

static CUresult create(CUcontext *context, CUdevice device, bool primary)
{
	if (!context)
		return CUDA_ERROR_INVALID_VALUE;
	if (!gpu_at(device))
		return CUDA_ERROR_INVALID_DEVICE;
	struct CUctx_st *c = find_context(device, primary);
	if (!c)
		return CUDA_ERROR_OUT_OF_MEMORY;
	c->gpu = device;
	c->primary = primary;
	c->references++;
	*context = c;
	process_publish();
	return CUDA_SUCCESS;
}

// drop_memory frees what is left on a GPU once its last context is gone.
static void drop_memory(int gpu)
{
	for (int i = 0; i < MAX_CONTEXTS; i++)
		if (process.contexts[i].references > 0 && process.contexts[i].gpu == gpu)
			return;
	for (int i = 0; i < MAX_ALLOCS; i++)
		if (process.allocs[i].kind && process.allocs[i].kind != MAPPED && process.allocs[i].gpu == gpu)
			alloc_drop(&process.allocs[i]);
}

static void release(struct CUctx_st *c)
{
	if (--c->references > 0)
		return;
	c->peers = 0;
	stream_drop(c);
	drop_memory(c->gpu);
	process_publish();
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
	ENTER();
	return create(context, device, true);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	ENTER_IDLE();
	if (!gpu_at(device))
		return CUDA_ERROR_INVALID_DEVICE;
	struct CUctx_st *c = find_context(device, true);
	if (!c || c->references == 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	release(c);
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
	ENTER_IDLE();
	if (!gpu_at(device))
		return CUDA_ERROR_INVALID_DEVICE;
	struct CUctx_st *c = find_context(device, true);
	if (!c || c->references == 0)
		return CUDA_SUCCESS;
	c->references = 1;
	release(c);
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
	ENTER();
	if (!flags || !active)
		return CUDA_ERROR_INVALID_VALUE;
	if (!gpu_at(device))
		return CUDA_ERROR_INVALID_DEVICE;
	const struct CUctx_st *c = find_context(device, true);
	*active = c && c->references > 0;
	*flags = process.devices[device].flags;
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags)
{
	ENTER();
	if (!gpu_at(device))
		return CUDA_ERROR_INVALID_DEVICE;
	process.devices[device].flags = flags;
	return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device)
{
	ENTER();
	(void)flags;
	if (stack.count == MAX_PUSHED)
		return CUDA_ERROR_INVALID_CONTEXT;
	CUresult r = create(context, device, false);
	if (r == CUDA_SUCCESS)
		stack.contexts[stack.count++] = *context;
	return r;
}

static bool known(const struct CUctx_st *c)
{
	return c >= process.contexts && c < process.contexts + MAX_CONTEXTS && c->references > 0;
}

CUresult cuCtxDestroy_v2(CUcontext context)
{
	ENTER_IDLE();
	if (!known(context) || context->primary)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (top() == context)
		stack.count--;
	release(context);
	return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context)
{
	ENTER();
	if (context && !known(context))
		return CUDA_ERROR_INVALID_CONTEXT;
	set_top(context);
	return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext context)
{
	ENTER();
	if (!known(context) || stack.count == MAX_PUSHED)
		return CUDA_ERROR_INVALID_CONTEXT;
	stack.contexts[stack.count++] = context;
	return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
	ENTER();
	if (stack.count == 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (context)
		*context = top();
	stack.count--;
	return CUDA_SUCCESS;
}

// Flags mean nothing here; they are kept to be asked for.
CUresult cuCtxGetFlags(unsigned int *flags)
{
	ENTER();
	if (!flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (context_gpu() < 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	*flags = process.devices[context_gpu()].flags;
	return CUDA_SUCCESS;
}

CUresult cuCtxSetFlags(unsigned int flags)
{
	ENTER();
	if (context_gpu() < 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	process.devices[context_gpu()].flags = flags;
	return CUDA_SUCCESS;
}

// Every GPU of a machine reaches every other. Peer access is kept in books only:
// copies and kernels do not look whether it was allowed.
CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
	ENTER();
	if (!can)
		return CUDA_ERROR_INVALID_VALUE;
	if (!gpu_at(device) || !gpu_at(peer))
		return CUDA_ERROR_INVALID_DEVICE;
	*can = device != peer;
	return CUDA_SUCCESS;
}

static CUresult set_peer(CUcontext peer, bool allowed)
{
	ENTER();
	struct CUctx_st *c = context_current();
	if (!c || !known(peer))
		return CUDA_ERROR_INVALID_CONTEXT;
	if (peer->gpu == c->gpu)
		return CUDA_ERROR_INVALID_DEVICE;
	if (allowed == (c->peers >> peer->gpu & 1))
		return allowed ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
	c->peers ^= 1u << peer->gpu;
	return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
	return flags ? CUDA_ERROR_INVALID_VALUE : set_peer(peer, true);
}

CUresult cuCtxDisablePeerAccess(CUcontext peer)
{
	return set_peer(peer, false);
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
	ENTER();
	if (!context)
		return CUDA_ERROR_INVALID_VALUE;
	*context = top();
	return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
	ENTER();
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	if (context_gpu() < 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	*device = context_gpu();
	return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void)
{
	ENTER_IDLE();
	return context_gpu() < 0 ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}
