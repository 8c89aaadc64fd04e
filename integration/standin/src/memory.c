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

struct alloc *alloc_new(void)
{
	for (int i = 0; i < MAX_ALLOCS; i++) {
		if (process.allocs[i].kind)
			continue;
		if (i >= process.allocs_end)
			process.allocs_end = i + 1;
		return &process.allocs[i];
	}
	return NULL;
}

bool alloc_overlaps(CUdeviceptr address, size_t size)
{
	for (int i = 0; i < process.allocs_end; i++) {
		const struct alloc *a = &process.allocs[i];
		if (a->kind && a->address < address + size && address < a->address + a->size)
			return true;
	}
	return false;
}

static CUdeviceptr new_address(size_t size)
{
	size = (size + GRANULE - 1) / GRANULE * GRANULE;
	while (range_reserved(process.next, size))
		process.next += GRANULE;
	CUdeviceptr address = process.next;
	process.next += size;
	return address;
}

struct alloc *alloc_at(CUdeviceptr address)
{
	for (int i = 0; i < process.allocs_end; i++) {
		struct alloc *a = &process.allocs[i];
		if (a->kind && address >= a->address && address - a->address < a->size)
			return a;
	}
	return NULL;
}

uint64_t gpu_available(int gpu)
{
	const struct gpu *g = &process.devices[gpu].gpu;
	uint64_t used = gpu_used(g);
	return used < g->memory ? g->memory - used : 0;
}

CUresult alloc_create(struct alloc *a)
{
	const struct gpu *g = &process.devices[a->gpu].gpu;
	if (a->size > gpu_available(a->gpu))
		return CUDA_ERROR_OUT_OF_MEMORY;
	machine_path(a->file, "owners/%s/%s.%llx", process.owner, g->uuid, a->address);
	CLEAN_FD int fd = open(a->file, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	return fd >= 0 && ftruncate(fd, (off_t)a->size) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

static int open_data(const struct alloc *a, int flags)
{
	char path[PATH_SIZE];
	if (a->kind == MAPPED)
		machine_path(path, "memory/%s", a->memory->name);
	return open(a->kind == MAPPED ? path : a->file, flags | O_CLOEXEC);
}

bool alloc_read(const struct alloc *a, size_t offset, void *to, size_t size)
{
	if (a->kind >= MANAGED) {
		memcpy(to, (char *)(uintptr_t)a->address + offset, size);
		return true;
	}
	CLEAN_FD int fd = open_data(a, O_RDONLY);
	return fd >= 0 && read_all(fd, to, size, offset);
}

bool alloc_write(const struct alloc *a, size_t offset, const void *from, size_t size)
{
	if (a->kind >= MANAGED) {
		memcpy((char *)(uintptr_t)a->address + offset, from, size);
		return true;
	}
	CLEAN_FD int fd = open_data(a, O_WRONLY);
	return fd >= 0 && write_all(fd, from, size, offset);
}

struct alloc *alloc_view(int gpu, size_t size, const char *file)
{
	struct alloc *a = alloc_new();
	if (!a)
		return NULL;
	*a = (struct alloc){.kind = VIEW, .gpu = gpu, .size = size, .address = new_address(size)};
	snprintf(a->file, sizeof a->file, "%s", file);
	return a;
}

void alloc_drop(struct alloc *a)
{
	if (a->kind == MANAGED || a->kind == PINNED)
		munmap((void *)(uintptr_t)a->address, a->size);
	if (a->kind == DEVICE)
		unlink(a->file);
	if (a->kind == MAPPED)
		memory_unmapped(a->memory);
	free(a->saved);
	*a = (struct alloc){0};
}

// moved says what is wrong when data could not be moved. The file of an
// imported allocation goes when its exporter is checkpointed.
static CUresult moved(bool ok, const struct alloc *a)
{
	if (ok)
		return CUDA_SUCCESS;
	return a->kind == IMPORTED ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

// part finds out how much of a range is in the allocation at its start. Only
// mappings go on in the next.
static struct alloc *part(CUdeviceptr address, size_t size, const struct alloc *before, size_t *length)
{
	struct alloc *a = alloc_at(address);
	if (!a || (before && (before->kind != MAPPED || a->kind != MAPPED)))
		return NULL;
	size_t rest = a->size - (size_t)(address - a->address);
	*length = size < rest ? size : rest;
	return a;
}

CUresult range_check(CUdeviceptr address, size_t size, int gpu, bool write)
{
	struct alloc *a = NULL;
	unsigned needed = write ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ;
	for (size_t length; size > 0; address += length, size -= length) {
		a = part(address, size, a, &length);
		if (!a || (a->kind == MAPPED && (gpu < 0 || (a->access[gpu] & needed) != needed)))
			return CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_SUCCESS;
}

static CUresult range_move(CUdeviceptr address, char *host, size_t size, bool write)
{
	struct alloc *a = NULL;
	for (size_t length; size > 0; address += length, host += length, size -= length) {
		a = part(address, size, a, &length);
		if (!a)
			return CUDA_ERROR_INVALID_VALUE;
		size_t offset = (size_t)(address - a->address);
		CUresult r = moved(write ? alloc_write(a, offset, host, length) : alloc_read(a, offset, host, length), a);
		if (r != CUDA_SUCCESS)
			return r;
	}
	return CUDA_SUCCESS;
}

CUresult range_read(CUdeviceptr address, void *to, size_t size)
{
	return range_move(address, to, size, false);
}

CUresult range_write(CUdeviceptr address, const void *from, size_t size)
{
	return range_move(address, (char *)(uintptr_t)from, size, true);
}

CUresult alloc_device(struct alloc *a, int gpu, size_t size)
{
	struct alloc made = {.kind = DEVICE, .gpu = gpu, .size = size, .address = new_address(size)};
	CLEAN_FD int lock = machine_lock();
	CUresult r = alloc_create(&made);
	if (r == CUDA_SUCCESS)
		*a = made;
	return r;
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t size)
{
	ENTER();
	struct alloc *a = alloc_new();
	int gpu = context_gpu();
	if (!address || size == 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (gpu < 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!a)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult r = alloc_device(a, gpu, size);
	if (r == CUDA_SUCCESS)
		*address = a->address;
	return r;
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height, unsigned int element)
{
	size_t row = (width + 511) / 512 * 512;
	if (!pitch || width == 0 || height == 0 || (element != 4 && element != 8 && element != 16) || row < width ||
	    height > SIZE_MAX / row)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = cuMemAlloc_v2(address, row * height);
	if (r == CUDA_SUCCESS)
		*pitch = row;
	return r;
}

CUresult managed_create(CUdeviceptr *address, size_t size, int gpu)
{
	struct alloc *a = alloc_new();
	void *p = a ? mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : MAP_FAILED;
	if (p == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*a = (struct alloc){.kind = MANAGED, .gpu = gpu, .size = size, .address = (uintptr_t)p};
	*address = a->address;
	return CUDA_SUCCESS;
}

CUresult cuMemAllocManaged(CUdeviceptr *address, size_t size, unsigned int flags)
{
	ENTER();
	if (!address || size == 0 || flags != CU_MEM_ATTACH_GLOBAL)
		return CUDA_ERROR_INVALID_VALUE;
	return context_gpu() < 0 ? CUDA_ERROR_INVALID_CONTEXT : managed_create(address, size, context_gpu());
}

CUresult cuMemFree_v2(CUdeviceptr address)
{
	ENTER_IDLE();
	struct alloc *a = alloc_at(address);
	if (address == 0)
		return CUDA_SUCCESS;
	if (!a || address != a->address || a->variable || (a->kind != DEVICE && a->kind != MANAGED))
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
	*free_bytes = gpu_available(gpu);
	return CUDA_SUCCESS;
}

// Page-locked memory stays where it is: the stand-in's kernels read it there.
static CUresult add_host(void *host, size_t size, enum kind kind)
{
	struct alloc *a = alloc_new();
	if (!a)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*a = (struct alloc){.kind = kind, .gpu = context_gpu(), .size = size, .address = (uintptr_t)host};
	return CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void **host, size_t size, unsigned int flags)
{
	ENTER();
	if (!host || size == 0 || flags > 7)
		return CUDA_ERROR_INVALID_VALUE;
	if (context_gpu() < 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult r = add_host(p, size, PINNED);
	if (r == CUDA_SUCCESS)
		*host = p;
	else
		munmap(p, size);
	return r;
}

CUresult cuMemAllocHost_v2(void **host, size_t size)
{
	return cuMemHostAlloc(host, size, 0);
}

static struct alloc *host_at(const void *host, enum kind kind)
{
	struct alloc *a = alloc_at((uintptr_t)host);
	return a && a->kind == kind && a->address == (uintptr_t)host ? a : NULL;
}

CUresult cuMemFreeHost(void *host)
{
	ENTER_IDLE();
	struct alloc *a = host_at(host, PINNED);
	if (!host)
		return CUDA_SUCCESS;
	if (!a)
		return CUDA_ERROR_INVALID_VALUE;
	alloc_drop(a);
	return CUDA_SUCCESS;
}

CUresult cuMemHostRegister_v2(void *host, size_t size, unsigned int flags)
{
	ENTER();
	if (!host || size == 0 || flags > 15)
		return CUDA_ERROR_INVALID_VALUE;
	if (context_gpu() < 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (alloc_overlaps((uintptr_t)host, size))
		return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	return add_host(host, size, REGISTERED);
}

CUresult cuMemHostUnregister(void *host)
{
	ENTER_IDLE();
	struct alloc *a = host_at(host, REGISTERED);
	if (!host)
		return CUDA_ERROR_INVALID_VALUE;
	if (!a)
		return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
	alloc_drop(a);
	return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *address, void *host, unsigned int flags)
{
	ENTER();
	const struct alloc *a = alloc_at((uintptr_t)host);
	if (!address || flags != 0 || !a || (a->kind != PINNED && a->kind != REGISTERED))
		return CUDA_ERROR_INVALID_VALUE;
	*address = (uintptr_t)host;
	return CUDA_SUCCESS;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address)
{
	ENTER();
	struct alloc *a = alloc_at(address);
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
	struct alloc *a = alloc_new();
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
	struct alloc *a = alloc_at(address);
	if (!a || address != a->address || a->kind != IMPORTED)
		return CUDA_ERROR_INVALID_VALUE;
	alloc_drop(a);
	return CUDA_SUCCESS;
}
