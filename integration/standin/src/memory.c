// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Memory: files of the machine for device memory, the process's own pages for
// managed memory.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "process.h"

// Device addresses are never mapped; they are spaced as the driver spaces them.
enum { GRANULE = 2 << 20 };

#define HANDLE_MAGIC 0x49504368657447ull

struct handle { // what a CUipcMemHandle holds
	uint64_t magic;
	char owner[OWNER_SIZE - 16];
	uint32_t gpu; // minor number, the same everywhere on the machine
	uint32_t stale; // exported after a restore: can not be opened
	uint64_t address;
	uint64_t size;
};
_Static_assert(sizeof(struct handle) == sizeof(CUipcMemHandle), "a handle has 64 bytes");

static struct alloc *free_slot(void)
{
	for (int i = 0; i < MAX_ALLOCS; i++)
		if (!process.allocs[i].kind)
			return &process.allocs[i];
	return NULL;
}

static CUdeviceptr new_address(size_t size)
{
	CUdeviceptr address = process.next;
	process.next += (size + GRANULE - 1) / GRANULE * GRANULE;
	return address;
}

struct alloc *alloc_find(CUdeviceptr address, size_t size, size_t *offset)
{
	for (int i = 0; i < MAX_ALLOCS; i++) {
		struct alloc *a = &process.allocs[i];
		if (!a->kind || address < a->address || address - a->address >= a->size)
			continue;
		*offset = (size_t)(address - a->address);
		return size <= a->size - *offset ? a : NULL;
	}
	return NULL;
}

static CUresult available(int gpu, size_t *bytes)
{
	const struct gpu *g = &process.devices[gpu].gpu;
	uint64_t used = gpu_used(g);
	*bytes = used < g->memory ? g->memory - used : 0;
	return CUDA_SUCCESS;
}

CUresult alloc_create(struct alloc *a)
{
	const struct gpu *g = &process.devices[a->gpu].gpu;
	size_t free_bytes;
	available(a->gpu, &free_bytes);
	if (a->size > free_bytes)
		return CUDA_ERROR_OUT_OF_MEMORY;
	machine_path(a->file, "owners/%s/%s.%llx", process.owner, g->uuid, a->address);
	CLEAN_FD int fd = open(a->file, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	return fd >= 0 && ftruncate(fd, (off_t)a->size) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

bool alloc_read(const struct alloc *a, size_t offset, void *to, size_t size)
{
	if (a->kind == MANAGED) {
		memcpy(to, (char *)(uintptr_t)a->address + offset, size);
		return true;
	}
	CLEAN_FD int fd = open(a->file, O_RDONLY | O_CLOEXEC);
	return fd >= 0 && read_all(fd, to, size, offset);
}

bool alloc_write(const struct alloc *a, size_t offset, const void *from, size_t size)
{
	if (a->kind == MANAGED) {
		memcpy((char *)(uintptr_t)a->address + offset, from, size);
		return true;
	}
	CLEAN_FD int fd = open(a->file, O_WRONLY | O_CLOEXEC);
	return fd >= 0 && write_all(fd, from, size, offset);
}

void alloc_drop(struct alloc *a)
{
	if (a->kind == MANAGED)
		munmap((void *)(uintptr_t)a->address, a->size);
	if (a->kind == DEVICE)
		unlink(a->file);
	free(a->saved);
	*a = (struct alloc){0};
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t size)
{
	ENTER();
	struct alloc *a = free_slot();
	int gpu = context_gpu();
	if (!address || size == 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (gpu < 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!a)
		return CUDA_ERROR_OUT_OF_MEMORY;
	struct alloc made = {.kind = DEVICE, .gpu = gpu, .size = size, .address = new_address(size)};
	CLEAN_FD int lock = machine_lock();
	CUresult r = alloc_create(&made);
	if (r != CUDA_SUCCESS)
		return r;
	*a = made;
	*address = a->address;
	return CUDA_SUCCESS;
}

CUresult cuMemAllocManaged(CUdeviceptr *address, size_t size, unsigned int flags)
{
	ENTER();
	struct alloc *a = free_slot();
	int gpu = context_gpu();
	if (!address || size == 0 || flags != CU_MEM_ATTACH_GLOBAL)
		return CUDA_ERROR_INVALID_VALUE;
	if (gpu < 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	void *p = a ? mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : MAP_FAILED;
	if (p == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*a = (struct alloc){.kind = MANAGED, .gpu = gpu, .size = size, .address = (uintptr_t)p};
	*address = a->address;
	return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr address)
{
	ENTER_IDLE();
	size_t offset;
	struct alloc *a = alloc_find(address, 1, &offset);
	if (address == 0)
		return CUDA_SUCCESS;
	if (!a || offset != 0 || a->kind == IMPORTED)
		return CUDA_ERROR_INVALID_VALUE;
	alloc_drop(a);
	return CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	ENTER();
	int gpu = context_gpu();
	if (!free_bytes || !total)
		return CUDA_ERROR_INVALID_VALUE;
	if (gpu < 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	CLEAN_FD int lock = machine_lock();
	*total = process.devices[gpu].gpu.memory;
	return available(gpu, free_bytes);
}

// The file of an imported allocation goes when its exporter is checkpointed.
static CUresult moved(bool ok, const struct alloc *a)
{
	if (ok)
		return CUDA_SUCCESS;
	return a->kind == IMPORTED ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult cuMemcpyDtoH_v2(void *host, CUdeviceptr address, size_t size)
{
	ENTER_IDLE();
	size_t offset;
	struct alloc *a = alloc_find(address, size, &offset);
	if (!a || !host)
		return CUDA_ERROR_INVALID_VALUE;
	return moved(alloc_read(a, offset, host, size), a);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr address, const void *host, size_t size)
{
	ENTER_IDLE();
	size_t offset;
	struct alloc *a = alloc_find(address, size, &offset);
	if (!a || !host)
		return CUDA_ERROR_INVALID_VALUE;
	return moved(alloc_write(a, offset, host, size), a);
}

CUresult cuMemsetD32_v2(CUdeviceptr address, unsigned int value, size_t count)
{
	ENTER_IDLE();
	size_t offset;
	if (address % 4 != 0 || count > SIZE_MAX / 4)
		return CUDA_ERROR_INVALID_VALUE;
	struct alloc *a = alloc_find(address, count * 4, &offset);
	CLEAN_FREE uint32_t *words = malloc(count * 4);
	if (!a)
		return CUDA_ERROR_INVALID_VALUE;
	if (!words)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (size_t i = 0; i < count; i++)
		words[i] = value;
	return moved(alloc_write(a, offset, words, count * 4), a);
}

// Page-locked memory stays where it is: the stand-in's kernels read it there.
CUresult cuMemHostRegister_v2(void *host, size_t size, unsigned int flags)
{
	ENTER();
	(void)flags;
	if (!host || size == 0)
		return CUDA_ERROR_INVALID_VALUE;
	return context_gpu() < 0 ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

CUresult cuMemHostUnregister(void *host)
{
	ENTER_IDLE();
	return host ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *address, void *host, unsigned int flags)
{
	ENTER();
	if (!address || !host || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	*address = (uintptr_t)host;
	return CUDA_SUCCESS;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address)
{
	ENTER();
	size_t offset;
	struct alloc *a = alloc_find(address, 1, &offset);
	if (!handle || !a || a->kind != DEVICE)
		return CUDA_ERROR_INVALID_VALUE;
	struct handle h = {
		.magic = HANDLE_MAGIC,
		.gpu = process.devices[a->gpu].gpu.minor,
		.stale = process.restored,
		.address = a->address,
		.size = a->size,
	};
	snprintf(h.owner, sizeof h.owner, "%s", process.owner);
	memcpy(handle, &h, sizeof h);
	return CUDA_SUCCESS;
}

static int gpu_of_minor(uint32_t minor)
{
	for (int i = 0; i < process.count; i++)
		if (process.devices[i].gpu.minor == minor)
			return i;
	return -1;
}

static CUresult import_handle(CUdeviceptr *address, const CUipcMemHandle *handle, unsigned int flags)
{
	ENTER();
	struct handle h;
	struct alloc *a = free_slot();
	memcpy(&h, handle, sizeof h);
	int gpu = gpu_of_minor(h.gpu);
	if (!address || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || h.magic != HANDLE_MAGIC || gpu < 0)
		return CUDA_ERROR_INVALID_VALUE;
	// Measured: once a process was restored, legacy IPC can't be opened again.
	if (h.stale || process.restored)
		return CUDA_ERROR_NOT_PERMITTED;
	if (context_gpu() < 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!a)
		return CUDA_ERROR_OUT_OF_MEMORY;
	struct alloc made = {.kind = IMPORTED, .gpu = gpu, .size = h.size, .address = new_address(h.size)};
	h.owner[sizeof h.owner - 1] = 0;
	machine_path(made.file, "owners/%s/%s.%llx", h.owner, process.devices[gpu].gpu.uuid,
		     (unsigned long long)h.address);
	if (!strcmp(h.owner, process.owner) || access(made.file, R_OK | W_OK) != 0)
		return CUDA_ERROR_INVALID_VALUE; // one's own, or no longer there
	*a = made;
	*address = a->address;
	return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, CUipcMemHandle handle, unsigned int flags)
{
	return import_handle(address, &handle, flags);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address)
{
	ENTER_IDLE();
	size_t offset;
	struct alloc *a = alloc_find(address, 1, &offset);
	if (!a || offset != 0 || a->kind != IMPORTED)
		return CUDA_ERROR_INVALID_VALUE;
	alloc_drop(a);
	return CUDA_SUCCESS;
}
