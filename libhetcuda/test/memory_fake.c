// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

#include "memory_fake.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "overrides.h"
#include "real.h"

enum { GRANULE = 2 << 20, MAX = 1 << 16 };

struct memory { // physical, for as long as a handle or a mapping has it
	int fd;
	size_t size;
	int device;
	unsigned references;
	unsigned maps;
	bool exportable;
	struct memory *next; // of those that are known
	ino_t number;        // of the file
};

struct map {
	CUdeviceptr address;
	size_t size;
	struct memory *memory;
	uint64_t writers;
};

struct reservation {
	CUdeviceptr address;
	size_t size;
};

struct CUctx_st {
	int device;
	bool primary;
	unsigned references;
};

struct fake fake;
void *hetcuda_real[HETCUDA_EXPORTS];

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static struct memory *handles[MAX], *all;
static struct map maps[MAX]; // in the order of addresses
static size_t map_count;
static struct reservation reservations[64];
static struct CUctx_st contexts[32];
static _Thread_local CUcontext current;

static void release(const int *unused)
{
	(void)unused;
	pthread_mutex_unlock(&mu);
}

static CUresult enter(const char *name)
{
	pthread_mutex_lock(&mu);
	fake.calls++;
	if (fake.nth == 0 || !fake.fail || (fake.fail[0] && strcmp(fake.fail, name + strlen("f_")) != 0))
		return CUDA_SUCCESS;
	if (--fake.nth > 0)
		return CUDA_SUCCESS;
	fake.nth = fake.lasting;
	return fake.with;
}

#define ENTER()                                                                \
	CUresult entered = enter(__func__);                                    \
	__attribute__((cleanup(release), unused)) const int held = 0;          \
	if (entered != CUDA_SUCCESS)                                           \
		return entered

// QUERY is for calls that a test doesn't let fail.
#define QUERY()                                                                \
	__attribute__((cleanup(release), unused)) const int held = pthread_mutex_lock(&mu)

// count_used is called before memory becomes known, and after it is none of ours any
// more: the same memory, made and imported, counts once.
static void count_used(const struct memory *m, bool now)
{
	for (const struct memory *k = all; k; k = k->next)
		if (k->number == m->number)
			return;
	if (now)
		fake.used[m->device] += m->size;
	else
		fake.used[m->device] -= m->size;
}

static void drop(struct memory *m)
{
	if (m->references > 0 || m->maps > 0)
		return;
	struct memory **link = &all;
	while (*link != m)
		link = &(*link)->next;
	*link = m->next;
	count_used(m, false);
	close(m->fd);
	free(m);
}

// know makes memory of a file, whose name says the device.
static struct memory *know(int fd)
{
	struct memory *m = calloc(1, sizeof *m);
	struct stat s;
	char link[40], name[40] = "";
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	if (fstat(fd, &s) != 0 || readlink(link, name, sizeof name - 1) < 0 || sscanf(name, "/memfd:fake%d", &m->device) != 1)
		abort();
	m->fd = fd;
	m->size = (size_t)s.st_size;
	m->number = s.st_ino;
	count_used(m, true);
	m->next = all;
	all = m;
	return m;
}

static struct memory *of(CUmemGenericAllocationHandle handle)
{
	return handle > 0x1000 && handle < 0x1000 + MAX ? handles[handle - 0x1000] : NULL;
}

static CUresult give(CUmemGenericAllocationHandle *handle, struct memory *m)
{
	static unsigned next;
	for (unsigned i = 1; i < MAX; i++) {
		unsigned n = (next + i) % (MAX - 1) + 1;
		if (handles[n])
			continue;
		next = n;
		handles[n] = m;
		m->references++;
		fake.handles++;
		*handle = 0x1000 + n;
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult f_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
			      unsigned long long flags)
{
	ENTER();
	if (prop->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA && prop->requestedHandleTypes)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (size == 0 || size % GRANULE || flags || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
	    prop->location.id >= fake.devices)
		return CUDA_ERROR_INVALID_VALUE;
	if (prop->allocFlags.gpuDirectRDMACapable && fake.no_rdma)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (fake.used[prop->location.id] + size > fake.memory)
		return CUDA_ERROR_OUT_OF_MEMORY;
	char name[20];
	snprintf(name, sizeof name, "fake%d", prop->location.id);
	int fd = memfd_create(name, MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, (off_t)size) != 0)
		abort();
	struct memory *m = know(fd);
	m->exportable = prop->requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	return give(handle, m);
}

static CUresult f_cuMemRelease(CUmemGenericAllocationHandle handle)
{
	ENTER();
	struct memory *m = of(handle);
	if (!m)
		return CUDA_ERROR_INVALID_VALUE;
	handles[handle - 0x1000] = NULL;
	fake.handles--;
	m->references--;
	drop(m);
	return CUDA_SUCCESS;
}

static CUresult f_cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
					       CUmemAllocationHandleType type, unsigned long long flags)
{
	ENTER();
	struct memory *m = of(handle);
	if (!m || !m->exportable || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || flags)
		return CUDA_ERROR_INVALID_VALUE;
	*(int *)shareable = dup(m->fd);
	return *(int *)shareable < 0 ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}

static CUresult f_cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable,
						 CUmemAllocationHandleType type)
{
	ENTER();
	struct stat s;
	int fd = (int)(intptr_t)shareable;
	if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || fstat(fd, &s) != 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (fake.moved)
		return CUDA_ERROR_NOT_INITIALIZED;
	return give(handle, know(dup(fd))); // and not exportable, as with the driver
}

static size_t find_map(CUdeviceptr address) // the first that ends after it
{
	size_t low = 0, high = map_count;
	while (low < high) {
		size_t middle = (low + high) / 2;
		if (maps[middle].address + maps[middle].size <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool reserved(CUdeviceptr address, size_t size)
{
	for (int i = 0; i < 64; i++) {
		struct reservation *r = &reservations[i];
		if (r->size && address >= r->address && address + size <= r->address + r->size)
			return true;
	}
	return false;
}

static CUresult f_cuMemMap(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
			   unsigned long long flags)
{
	ENTER();
	struct memory *m = of(handle);
	if (!m || size == 0 || size % GRANULE || address % GRANULE || offset % GRANULE || offset + size > m->size || flags ||
	    !reserved(address, size) || map_count == MAX)
		return CUDA_ERROR_INVALID_VALUE;
	size_t i = find_map(address);
	if (i < map_count && maps[i].address < address + size)
		return CUDA_ERROR_INVALID_VALUE;
	if (mmap((void *)address, size, PROT_NONE, MAP_SHARED | MAP_FIXED, m->fd, (off_t)offset) == MAP_FAILED)
		abort();
	memmove(&maps[i + 1], &maps[i], (map_count - i) * sizeof maps[0]);
	maps[i] = (struct map){.address = address, .size = size, .memory = m};
	map_count++;
	m->maps++;
	fake.maps++;
	return CUDA_SUCCESS;
}

// spans tells which mappings are exactly a range.
static bool spans(CUdeviceptr address, size_t size, size_t *first, size_t *last)
{
	*first = *last = find_map(address);
	CUdeviceptr end = address;
	while (*last < map_count && maps[*last].address == end && end < address + size)
		end += maps[(*last)++].size;
	return size > 0 && end == address + size;
}

static CUresult f_cuMemUnmap(CUdeviceptr address, size_t size)
{
	ENTER();
	size_t first, last;
	if (!spans(address, size, &first, &last))
		return CUDA_ERROR_INVALID_VALUE;
	if (mmap((void *)address, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
		abort();
	for (size_t i = first; i < last; i++) {
		maps[i].memory->maps--;
		drop(maps[i].memory);
		fake.maps--;
	}
	memmove(&maps[first], &maps[last], (map_count - last) * sizeof maps[0]);
	map_count -= last - first;
	return CUDA_SUCCESS;
}

static CUresult f_cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc *access, size_t count)
{
	ENTER();
	size_t first, last;
	if (!spans(address, size, &first, &last) || count == 0)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = first; i < last; i++) {
		for (size_t k = 0; k < count; k++) {
			uint64_t bit = UINT64_C(1) << access[k].location.id;
			if (access[k].location.type != CU_MEM_LOCATION_TYPE_DEVICE)
				continue;
			if (access[k].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
				maps[i].writers |= bit;
			else
				maps[i].writers &= ~bit;
		}
		int protection = maps[i].writers ? PROT_READ | PROT_WRITE : PROT_NONE;
		if (mprotect((void *)maps[i].address, maps[i].size, protection) != 0)
			abort();
	}
	return CUDA_SUCCESS;
}

static bool access_to(CUdeviceptr address, CUdevice device)
{
	size_t i = find_map(address);
	return i < map_count && maps[i].address <= address && (maps[i].writers >> device & 1);
}

bool fake_access(CUdeviceptr address, CUdevice device)
{
	QUERY();
	return access_to(address, device);
}

static CUresult f_cuMemAddressReserve(CUdeviceptr *address, size_t size, size_t alignment, CUdeviceptr hint,
				      unsigned long long flags)
{
	ENTER();
	(void)alignment;
	if (size == 0 || size % GRANULE || flags)
		return CUDA_ERROR_INVALID_VALUE;
	void *where = fake.no_hint ? NULL : (void *)hint;
	char *p = mmap(where, where ? size : size + GRANULE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*address = ((CUdeviceptr)p + GRANULE - 1) / GRANULE * GRANULE;
	for (int i = 0; i < 64; i++) {
		if (reservations[i].size)
			continue;
		reservations[i] = (struct reservation){*address, size};
		fake.reservations++;
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult f_cuMemAddressFree(CUdeviceptr address, size_t size)
{
	ENTER();
	for (int i = 0; i < 64; i++) {
		if (reservations[i].address != address || reservations[i].size != size || size == 0)
			continue;
		munmap((void *)address, size);
		reservations[i].size = 0;
		fake.reservations--;
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_INVALID_VALUE;
}

static CUresult f_cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
						CUmemAllocationGranularity_flags option)
{
	(void)prop;
	(void)option;
	*granularity = GRANULE;
	return CUDA_SUCCESS;
}

static CUresult f_cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle)
{
	ENTER();
	struct memory *m = of(handle);
	if (!m)
		return CUDA_ERROR_INVALID_VALUE;
	*prop = (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {CU_MEM_LOCATION_TYPE_DEVICE, m->device},
		.requestedHandleTypes = m->exportable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE,
	};
	return CUDA_SUCCESS;
}

static CUresult f_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
	(void)handle, (void)address;
	return CUDA_ERROR_INVALID_VALUE; // the library knows all that is mapped
}

static CUresult f_cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address)
{
	*flags = fake_access(address, location->id) ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
	return CUDA_SUCCESS;
}

// Of the driver's own memory: addresses that mean nothing.
static CUdeviceptr own[MAX];

static CUresult f_cuMemAlloc_v2(CUdeviceptr *address, size_t size)
{
	ENTER();
	static CUdeviceptr next = 0x100000000000;
	if (!address || size == 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (!current)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (fake.used[current->device] + size > fake.memory)
		return CUDA_ERROR_OUT_OF_MEMORY;
	own[fake.driver++] = *address = next;
	next += (size + 511) / 512 * 512;
	return CUDA_SUCCESS;
}

static CUresult f_cuMemFree_v2(CUdeviceptr address)
{
	ENTER();
	for (size_t i = 0; i < fake.driver; i++) {
		if (own[i] != address)
			continue;
		own[i] = own[--fake.driver];
		return CUDA_SUCCESS;
	}
	return address ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult f_cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height, unsigned int element)
{
	(void)address, (void)pitch, (void)width, (void)height, (void)element;
	return CUDA_ERROR_INVALID_VALUE;
}

static CUresult f_cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr address)
{
	(void)base, (void)size, (void)address;
	return CUDA_ERROR_NOT_FOUND;
}

// Of mapped memory, as measured on nothing: what the library must correct.
static CUresult f_cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr address)
{
	if (!reserved(address, 1))
		return CUDA_ERROR_INVALID_VALUE;
	switch ((int)attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT: *(CUcontext *)data = NULL; break;
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: *(char *)data = 1; break;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: *(char *)data = 0; break;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *(size_t *)data = (size_t)1 << 40; break;
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: *(int *)data = 3; break;
	default: return CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_SUCCESS;
}

static CUresult f_cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes, void **data,
					 CUdeviceptr address)
{
	for (unsigned int i = 0; i < count; i++)
		if (f_cuPointerGetAttribute(data[i], attributes[i], address) != CUDA_SUCCESS)
			*(unsigned int *)data[i] = 0;
	return CUDA_SUCCESS;
}

static CUresult f_cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr address)
{
	(void)value, (void)attribute, (void)address;
	return CUDA_ERROR_INVALID_VALUE;
}

static CUresult f_cuMemGetInfo_v2(size_t *available, size_t *total)
{
	QUERY();
	*total = fake.memory;
	*available = fake.memory - fake.used[current->device];
	return CUDA_SUCCESS;
}

static CUresult f_cuCtxGetCurrent(CUcontext *context)
{
	*context = current;
	return CUDA_SUCCESS;
}

static bool known(CUcontext context)
{
	return context >= contexts && context < contexts + 32 && context->references > 0;
}

static CUresult f_cuCtxSetCurrent(CUcontext context)
{
	QUERY();
	if (context && !known(context))
		return CUDA_ERROR_INVALID_CONTEXT;
	current = context;
	return CUDA_SUCCESS;
}

static CUresult f_cuCtxGetDevice(CUdevice *device)
{
	if (!current)
		return CUDA_ERROR_INVALID_CONTEXT;
	*device = current->device;
	return CUDA_SUCCESS;
}

static CUresult f_cuCtxSynchronize(void)
{
	{
		ENTER();
		if (!known(current))
			return CUDA_ERROR_INVALID_CONTEXT;
	}
	while (fake.busy)
		usleep(1000);
	fake.syncs++;
	return CUDA_SUCCESS;
}

static unsigned int context_flags;

static CUresult f_cuCtxGetFlags(unsigned int *flags)
{
	*flags = context_flags;
	return CUDA_SUCCESS;
}

static CUresult f_cuCtxSetFlags(unsigned int flags)
{
	context_flags = flags;
	return CUDA_SUCCESS;
}

static CUresult f_cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t size)
{
	ENTER();
	if (!known(current) || !access_to(from, current->device))
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(to, (const void *)from, size);
	return CUDA_SUCCESS;
}

static CUresult f_cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t size)
{
	ENTER();
	if (!known(current) || !access_to(to, current->device))
		return CUDA_ERROR_INVALID_VALUE;
	memcpy((void *)to, from, size);
	return CUDA_SUCCESS;
}

// The whole of a memory is copied into another one; what was never written, of
// which tests have gigabytes, stays so.
static CUresult f_cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream)
{
	ENTER();
	static char part[1 << 20];
	size_t t = find_map(to), f = find_map(from);
	if (!known(current) || stream || t >= map_count || f >= map_count || maps[t].address != to || maps[t].size != size ||
	    maps[f].address != from || maps[f].size != size || !(maps[t].writers & maps[f].writers & 1u << current->device))
		return CUDA_ERROR_INVALID_VALUE;
	int in = maps[f].memory->fd, out = maps[t].memory->fd;
	for (off_t at = 0, end; (at = lseek(in, at, SEEK_DATA)) >= 0 && at < (off_t)size; at = end) {
		end = lseek(in, at, SEEK_HOLE);
		for (ssize_t n; at < end; at += n) {
			size_t most = (size_t)(end - at) < sizeof part ? (size_t)(end - at) : sizeof part;
			n = pread(in, part, most, at);
			if (n <= 0 || pwrite(out, part, (size_t)n, at) != n)
				abort();
		}
	}
	return CUDA_SUCCESS;
}

static CUresult f_cuStreamSynchronize(CUstream stream)
{
	(void)stream;
	return CUDA_SUCCESS;
}

static CUcontext new_context(CUdevice device, bool primary)
{
	for (int i = 0; i < 32; i++) {
		if (contexts[i].references == 0) {
			contexts[i] = (struct CUctx_st){.device = device, .primary = primary, .references = 1};
			return &contexts[i];
		}
	}
	abort();
}

CUcontext fake_context(CUdevice device)
{
	QUERY();
	return current = new_context(device, false);
}

static CUresult f_cuCtxDestroy_v2(CUcontext context)
{
	QUERY();
	if (!known(context) || context->primary)
		return CUDA_ERROR_INVALID_CONTEXT;
	context->references = 0;
	current = current == context ? NULL : current;
	return CUDA_SUCCESS;
}

static CUcontext primary(CUdevice device)
{
	for (int i = 0; i < 32; i++)
		if (contexts[i].references > 0 && contexts[i].primary && contexts[i].device == device)
			return &contexts[i];
	return NULL;
}

static CUresult f_cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
	QUERY();
	*context = primary(device);
	if (*context)
		(*context)->references++;
	else
		*context = new_context(device, true);
	return CUDA_SUCCESS;
}

static CUresult f_cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	QUERY();
	CUcontext c = primary(device);
	if (!c)
		return CUDA_ERROR_INVALID_CONTEXT;
	c->references--;
	return CUDA_SUCCESS;
}

static CUresult f_cuDevicePrimaryCtxReset_v2(CUdevice device)
{
	QUERY();
	CUcontext c = primary(device);
	if (c)
		c->references = 0;
	return CUDA_SUCCESS;
}

static CUresult f_cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
	QUERY();
	*flags = 0;
	*active = primary(device) != NULL;
	return CUDA_SUCCESS;
}

static CUresult f_cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
	QUERY();
	return flags || !known(peer) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult f_cuCtxDisablePeerAccess(CUcontext peer)
{
	QUERY();
	return known(peer) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult f_cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
	(void)attribute;
	*value = 1;
	return device < fake.devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult f_cuDeviceGet(CUdevice *device, int ordinal)
{
	*device = ordinal;
	return ordinal < fake.devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult f_cuDeviceGetCount(int *count)
{
	*count = fake.devices;
	return CUDA_SUCCESS;
}

static CUresult f_cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
	memset(uuid, (fake.moved ? 0x80 : 0x40) + device, sizeof *uuid);
	return CUDA_SUCCESS;
}

static CUresult f_cuGetErrorName(CUresult error, const char **name)
{
	*name = error == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR";
	return CUDA_SUCCESS;
}

static _Thread_local CUstreamCaptureMode thread_mode;

static CUresult f_cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	CUstreamCaptureMode was = thread_mode;
	thread_mode = *mode;
	*mode = was;
	return CUDA_SUCCESS;
}

static CUresult f_cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
	(void)stream, (void)mode;
	return CUDA_SUCCESS;
}

static CUresult f_cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
	(void)stream;
	*graph = NULL;
	return CUDA_SUCCESS;
}

static CUresult f_cuMemFreeAsync(CUdeviceptr address, CUstream stream)
{
	(void)stream;
	return f_cuMemFree_v2(address);
}

// A green context is an ordinary one here.
static CUresult f_cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx green)
{
	*context = (CUcontext)(void *)green;
	return CUDA_SUCCESS;
}

static CUresult f_cuGreenCtxDestroy(CUgreenCtx green)
{
	return f_cuCtxDestroy_v2((CUcontext)(void *)green);
}

static CUresult f_cuMemAllocAsync(CUdeviceptr *address, size_t size, CUstream stream)
{
	(void)stream;
	*address = 0x700000000;
	fake.pool += size;
	fake.pool_used += size;
	return CUDA_SUCCESS;
}

static CUresult f_cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
	*pool = (CUmemoryPool)(uintptr_t)(device + 16);
	return CUDA_SUCCESS;
}

static CUresult f_cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
	return f_cuDeviceGetDefaultMemPool(pool, device);
}

static CUresult f_cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
	if (pool == (CUmemoryPool)16 && keep == 0)
		fake.pool = fake.pool_used;
	return CUDA_SUCCESS;
}

static CUresult f_cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
	if (pool != (CUmemoryPool)16 || attribute != CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
		return CUDA_ERROR_INVALID_VALUE;
	*(cuuint64_t *)value = fake.pool;
	return CUDA_SUCCESS;
}

#define FAKES(X)                                                                                                      \
	X(cuMemCreate) X(cuMemRelease) X(cuMemExportToShareableHandle) X(cuMemImportFromShareableHandle) X(cuMemMap)  \
	X(cuMemUnmap) X(cuMemSetAccess) X(cuMemAddressReserve) X(cuMemAddressFree) X(cuMemGetAllocationGranularity)   \
	X(cuMemGetAllocationPropertiesFromHandle) X(cuMemGetAccess) X(cuMemRetainAllocationHandle) X(cuMemAlloc_v2) X(cuMemFree_v2)                  \
	X(cuCtxFromGreenCtx) X(cuGreenCtxDestroy) X(cuMemAllocAsync) X(cuDeviceGetDefaultMemPool) X(cuDeviceGetMemPool) X(cuMemPoolTrimTo)                      \
	X(cuMemPoolGetAttribute) X(cuMemGetInfo_v2) X(cuMemAllocPitch_v2) X(cuMemGetAddressRange_v2) X(cuPointerGetAttribute) X(cuPointerGetAttributes)           \
	X(cuPointerSetAttribute) X(cuCtxGetCurrent) X(cuCtxSetCurrent) X(cuCtxGetDevice) X(cuCtxSynchronize)          \
	X(cuCtxGetFlags) X(cuCtxSetFlags)                  \
	X(cuStreamSynchronize) X(cuMemcpyDtoDAsync_v2) X(cuMemcpyDtoH_v2) X(cuMemcpyHtoD_v2) X(cuCtxDestroy_v2) X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease_v2)         \
	X(cuDevicePrimaryCtxReset_v2) X(cuDevicePrimaryCtxGetState) X(cuCtxEnablePeerAccess)                          \
	X(cuCtxDisablePeerAccess) X(cuDeviceGetAttribute) X(cuDeviceGet) X(cuDeviceGetCount) X(cuDeviceGetUuid_v2) X(cuGetErrorName) \
	X(cuThreadExchangeStreamCaptureMode) X(cuStreamBeginCapture_v2) X(cuStreamEndCapture) X(cuMemFreeAsync)

// Each has the type that cuda.h says.
#define TYPED(name) static __typeof__(name) *const t_##name = f_##name;
FAKES(TYPED)

void fake_start(int devices, size_t memory)
{
	fake = (struct fake){.devices = devices, .memory = memory};
#define FILL(name) hetcuda_real[HETCUDA_INDEX_##name] = (void *)(uintptr_t)t_##name;
	FAKES(FILL)
}

// A test that is stuck ends after a minute. One process each: the library's
// state is the process's.
int run_tests(const struct test *tests, int argc, char **argv)
{
	int failed = 0;
	for (; tests->name; tests++) {
		if (argc > 1 && strcmp(argv[1], tests->name) != 0)
			continue;
		fflush(NULL);
		pid_t child = fork();
		if (child == 0) {
			alarm(60);
			tests->run();
			exit(0);
		}
		int status = 0;
		waitpid(child, &status, 0);
		bool ok = WIFEXITED(status) && WEXITSTATUS(status) == 0;
		printf("%s: %s (%#x)\n", ok ? "ok" : "FAILED", tests->name, status);
		failed += !ok;
	}
	return failed > 0;
}
