// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Devices and contexts.
#include <string.h>

#include "process.h"

static _Thread_local struct CUctx_st *current;

int context_gpu(void)
{
	return current && current->references > 0 ? current->gpu : -1;
}

struct CUctx_st *context_current(void)
{
	return context_gpu() < 0 ? NULL : current;
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
	case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 1; break;
	case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: *value = (int)bus; break;
	case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID: *value = (int)slot; break;
	case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID: *value = (int)domain; break;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = 9; break;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = 0; break;
	case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
	case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY: *value = 1; break;
	case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS:
	case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS: *value = 0; break;
	default: return CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_SUCCESS;
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

CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device)
{
	ENTER();
	(void)flags;
	CUresult r = create(context, device, false);
	if (r == CUDA_SUCCESS)
		current = *context;
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
	if (current == context)
		current = NULL;
	release(context);
	return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context)
{
	ENTER();
	if (context && !known(context))
		return CUDA_ERROR_INVALID_CONTEXT;
	current = context;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
	ENTER();
	if (!context)
		return CUDA_ERROR_INVALID_VALUE;
	*context = current;
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
