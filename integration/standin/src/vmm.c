// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Virtual memory management: addresses, physical memory, and mappings of the
// one at the other.
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "faults.h"
#include "process.h"

enum { GRANULE = 2 << 20 };

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

static bool aligned(uint64_t value)
{
	return value % GRANULE == 0;
}

// done reports a fault that comes after a call, or what the call returned.
static CUresult done(const struct fault *f, CUresult r)
{
	CUresult after = (CUresult)fault_apply(f, FAULT_AFTER);
	return after != CUDA_SUCCESS ? after : r;
}

// Addresses.

bool range_reserved(CUdeviceptr address, size_t size)
{
	for (int i = 0; i < MAX_RANGES; i++) {
		const struct range *r = &process.ranges[i];
		if (r->size && r->address < address + size && address < r->address + r->size)
			return true;
	}
	return false;
}

static bool reserved_whole(CUdeviceptr address, size_t size)
{
	for (int i = 0; i < MAX_RANGES; i++) {
		const struct range *r = &process.ranges[i];
		if (r->size && address >= r->address && size <= r->size && address - r->address <= r->size - size)
			return true;
	}
	return false;
}

// map_at reserves addresses of the process. The system call itself: what
// sanitizers put in its place knows nothing of such addresses.
static CUdeviceptr map_at(CUdeviceptr hint, size_t size, int flags)
{
	long p = syscall(SYS_mmap, hint, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
	return p == -1 ? 0 : (CUdeviceptr)p;
}

static void unmap(CUdeviceptr address, size_t size)
{
	if (size)
		syscall(SYS_munmap, address, size);
}

static CUdeviceptr reserve_at(CUdeviceptr hint, size_t size)
{
	if (alloc_overlaps(hint, size))
		return 0; // addresses of device memory that nothing is mapped at
	CUdeviceptr address = map_at(hint, size, MAP_FIXED_NOREPLACE);
	if (address == hint)
		return address;
	if (address)
		unmap(address, size); // a kernel that does not know the flag
	return 0;
}

static CUdeviceptr reserve_anywhere(size_t size, size_t alignment)
{
	CUdeviceptr all = map_at(0, size + alignment, 0);
	if (!all)
		return 0;
	CUdeviceptr address = (all + alignment - 1) / alignment * alignment;
	unmap(all, (size_t)(address - all));
	unmap(address + size, (size_t)(all + alignment - address));
	return address;
}

CUresult cuMemAddressReserve(CUdeviceptr *address, size_t size, size_t alignment, CUdeviceptr hint, unsigned long long flags)
{
	ENTER();
	struct range *slot = NULL;
	for (int i = 0; i < MAX_RANGES && !slot; i++)
		if (process.ranges[i].size == 0)
			slot = &process.ranges[i];
	if (!address || size == 0 || !aligned(size) || (alignment & (alignment - 1)) || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	alignment = alignment < GRANULE ? GRANULE : alignment;
	CUdeviceptr found = slot && hint && hint % alignment == 0 ? reserve_at(hint, size) : 0;
	if (slot && !found)
		found = reserve_anywhere(size, alignment);
	if (!found)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*slot = (struct range){.address = found, .size = size};
	*address = found;
	return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t size)
{
	ENTER();
	for (int i = 0; i < MAX_RANGES; i++) {
		struct range *r = &process.ranges[i];
		if (r->size == 0 || r->address != address || r->size != size)
			continue;
		for (int j = 0; j < process.allocs_end; j++) {
			const struct alloc *a = &process.allocs[j];
			if (a->kind == MAPPED && a->address >= address && a->address - address < size)
				return CUDA_ERROR_INVALID_VALUE;
		}
		unmap(address, size);
		*r = (struct range){0};
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_INVALID_VALUE;
}

// Physical memory.

static CUmemGenericAllocationHandle handle_of(const struct memory *m)
{
	return (CUmemGenericAllocationHandle)m->generation << 32 | (uint32_t)(m - process.memories + 1);
}

static struct memory *memory_of(CUmemGenericAllocationHandle handle)
{
	uint32_t i = (uint32_t)handle;
	if (i == 0 || i > MAX_MEMORIES)
		return NULL;
	struct memory *m = &process.memories[i - 1];
	return m->handles > 0 && m->generation == handle >> 32 ? m : NULL;
}

static struct memory *memory_new(void)
{
	for (int i = 0; i < MAX_MEMORIES; i++)
		if (!process.memories[i].handles && !process.memories[i].mappings)
			return &process.memories[i];
	return NULL;
}

static const char *owner_of(const struct memory *m)
{
	return m->imported ? NULL : process.owner;
}

// memory_add fills a free slot with one handle.
static CUmemGenericAllocationHandle memory_add(struct memory *slot, struct memory made)
{
	made.generation = slot->generation + 1;
	made.handles = 1;
	*slot = made;
	return handle_of(slot);
}

static void memory_check(struct memory *m)
{
	if (m->handles || m->mappings)
		return;
	CLEAN_FD int lock = machine_lock();
	memory_release(m->hold, owner_of(m), m->name);
	free(m->saved);
	*m = (struct memory){.generation = m->generation};
}

void memory_unmapped(struct memory *m)
{
	m->mappings--;
	memory_check(m);
}

static bool in_use(const struct memory *m)
{
	return m->handles || m->mappings;
}

bool memory_shared(void)
{
	for (int i = 0; i < MAX_MEMORIES; i++) {
		struct memory *m = &process.memories[i];
		if (!in_use(m))
			continue;
		if (m->imported)
			return true;
		munmap(m->hold, (size_t)sysconf(_SC_PAGESIZE)); // who else holds it?
		bool held = memory_held(m->name);
		m->hold = memory_hold(m->name);
		if (held)
			return true;
	}
	return false;
}

static bool move(const struct memory *m, bool write)
{
	struct memory copy = *m;
	struct alloc a = {.kind = MAPPED, .memory = &copy, .size = m->size};
	return write ? alloc_write(&a, 0, m->saved, m->size) : alloc_read(&a, 0, m->saved, m->size);
}

CUresult memory_save(void)
{
	for (int i = 0; i < MAX_MEMORIES; i++) {
		struct memory *m = &process.memories[i];
		if (!in_use(m))
			continue;
		m->saved = malloc(m->size);
		if (!m->saved)
			return CUDA_ERROR_OUT_OF_MEMORY;
		if (!move(m, false))
			return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	}
	return CUDA_SUCCESS;
}

bool memory_each(int gpu, bool (*one)(const struct alloc *a, void *context), void *context)
{
	for (int i = 0; i < MAX_MEMORIES; i++) {
		struct memory *m = &process.memories[i];
		if (!in_use(m) || m->gpu != gpu)
			continue;
		struct alloc a = {.kind = MAPPED, .gpu = gpu, .memory = m, .size = m->size};
		if (!one(&a, context))
			return false;
	}
	return true;
}

void memory_close(void)
{
	for (int i = 0; i < MAX_MEMORIES; i++) {
		struct memory *m = &process.memories[i];
		if (m->hold)
			memory_release(m->hold, owner_of(m), m->name);
		m->hold = NULL;
	}
}

CUresult memory_restore(void)
{
	for (int i = 0; i < MAX_MEMORIES; i++) {
		struct memory *m = &process.memories[i];
		if (!in_use(m))
			continue;
		if (m->size > gpu_available(m->gpu))
			return CUDA_ERROR_OUT_OF_MEMORY;
		m->hold = memory_create(process.owner, process.devices[m->gpu].gpu.uuid, m->size, m->name);
		if (!m->hold || (m->saved && !move(m, true)))
			return CUDA_ERROR_OPERATING_SYSTEM;
	}
	return CUDA_SUCCESS;
}

static CUresult check_prop(const CUmemAllocationProp *p)
{
	if (!p || p->type != CU_MEM_ALLOCATION_TYPE_PINNED || p->requestedHandleTypes & ~15u || p->win32HandleMetaData)
		return CUDA_ERROR_INVALID_VALUE;
	if (p->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return p->location.type == CU_MEM_LOCATION_TYPE_INVALID ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
	if (p->location.id < 0 || p->location.id >= process.count)
		return CUDA_ERROR_INVALID_DEVICE;
	return p->requestedHandleTypes > CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
				       CUmemAllocationGranularity_flags option)
{
	ENTER();
	CUresult r = check_prop(prop);
	if (!granularity || option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
		return CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		*granularity = GRANULE;
	return r;
}

static CUresult create(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
		       unsigned long long flags)
{
	ENTER();
	CUresult r = check_prop(prop);
	struct memory *slot = memory_new();
	if (!handle || size == 0 || !aligned(size) || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	struct memory m = {.gpu = prop->location.id, .size = size, .prop = *prop};
	CLEAN_FD int lock = machine_lock();
	if (!slot || size > gpu_available(m.gpu))
		return CUDA_ERROR_OUT_OF_MEMORY;
	m.hold = memory_create(process.owner, process.devices[m.gpu].gpu.uuid, size, m.name);
	if (!m.hold)
		return CUDA_ERROR_OPERATING_SYSTEM;
	*handle = memory_add(slot, m);
	return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
		     unsigned long long flags)
{
	struct fault f = fault_find("create", getpid());
	CUresult r = (CUresult)fault_apply(&f, FAULT_BEFORE);
	return r != CUDA_SUCCESS ? r : done(&f, create(handle, size, prop, flags));
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	ENTER();
	struct memory *m = memory_of(handle);
	if (!m)
		return CUDA_ERROR_INVALID_VALUE;
	m->handles--;
	memory_check(m);
	return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
	ENTER();
	struct alloc *a = alloc_at((uintptr_t)address);
	if (!handle || !a || a->kind != MAPPED)
		return CUDA_ERROR_INVALID_VALUE;
	a->memory->handles++;
	*handle = handle_of(a->memory);
	return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle)
{
	ENTER();
	const struct memory *m = memory_of(handle);
	if (!prop || !m)
		return CUDA_ERROR_INVALID_VALUE;
	*prop = m->prop;
	return CUDA_SUCCESS;
}

static CUresult export(int *fd, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type, unsigned long long flags)
{
	ENTER();
	const struct memory *m = memory_of(handle);
	// What another process has made can't be passed on.
	if (!fd || !m || m->imported || flags != 0 || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
	    m->prop.requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_INVALID_VALUE;
	CLEAN_FD int lock = machine_lock();
	int made = memory_export(m->name);
	if (made < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	*fd = made;
	return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
				      unsigned long long flags)
{
	struct fault f = fault_find("export", getpid());
	CUresult r = (CUresult)fault_apply(&f, FAULT_BEFORE);
	return r != CUDA_SUCCESS ? r : done(&f, export(shareable, handle, type, flags));
}

// gpu_of_name is the process's GPU that a memory is on, or was on when the process began.
static int gpu_of_name(const char *name, bool began)
{
	for (int i = 0; i < process.count; i++) {
		const struct device *d = &process.devices[i];
		const char *uuid = began ? d->began : d->gpu.uuid;
		if (!strncmp(name, uuid, strlen(uuid)) && name[strlen(uuid)] == '.')
			return i;
	}
	return -1;
}

// place_imported finds the GPU of imported memory: the driver goes by those that the process
// began on, even if it has restored it to others (580.159.04, integration/gpu/probes/another).
static CUresult place_imported(struct memory *m)
{
	int now = gpu_of_name(m->name, false);
	m->gpu = gpu_of_name(m->name, true);
	m->stranded = now < 0;
	if (m->gpu >= 0)
		return CUDA_SUCCESS;
	return now >= 0 ? CUDA_ERROR_NOT_INITIALIZED : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult import(CUmemGenericAllocationHandle *handle, int fd, CUmemAllocationHandleType type)
{
	ENTER();
	uint64_t size;
	struct memory m = {.imported = true}, *slot = memory_new();
	CLEAN_FD int lock = machine_lock();
	if (!handle || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || !memory_name(fd, m.name, &size))
		return CUDA_ERROR_INVALID_VALUE;
	m.size = (size_t)size;
	CUresult r = place_imported(&m);
	if (r != CUDA_SUCCESS)
		return r;
	m.hold = slot ? memory_hold(m.name) : NULL;
	if (!m.hold)
		return CUDA_ERROR_OUT_OF_MEMORY;
	m.prop = (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE,
		.location = {CU_MEM_LOCATION_TYPE_DEVICE, m.gpu},
	};
	*handle = memory_add(slot, m);
	return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable,
					CUmemAllocationHandleType type)
{
	struct fault f = fault_find("import", getpid());
	CUresult r = (CUresult)fault_apply(&f, FAULT_BEFORE);
	return r != CUDA_SUCCESS ? r : done(&f, import(handle, (int)(intptr_t)shareable, type));
}

// Mappings.

static CUresult map(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
		    unsigned long long flags)
{
	ENTER();
	struct memory *m = memory_of(handle);
	if (!m || offset != 0 || size != m->size || !aligned(address) || flags != 0 || !reserved_whole(address, size))
		return CUDA_ERROR_INVALID_VALUE;
	for (int i = 0; i < process.allocs_end; i++) { // host memory may have been put over the range (dual.cu)
		const struct alloc *a = &process.allocs[i];
		if (a->kind == MAPPED && a->address < address + size && address < a->address + a->size)
			return CUDA_ERROR_INVALID_VALUE;
	}
	struct alloc *a = alloc_new();
	if (!a)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*a = (struct alloc){.kind = MAPPED, .gpu = m->gpu, .address = address, .size = size, .memory = m};
	m->mappings++;
	return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
		  unsigned long long flags)
{
	struct fault f = fault_find("map", getpid());
	CUresult r = (CUresult)fault_apply(&f, FAULT_BEFORE);
	return r != CUDA_SUCCESS ? r : done(&f, map(address, size, offset, handle, flags));
}

static struct alloc *mapping_at(CUdeviceptr address)
{
	for (int i = 0; i < process.allocs_end; i++) {
		struct alloc *a = &process.allocs[i];
		if (a->kind == MAPPED && a->address == address)
			return a;
	}
	return NULL;
}

// whole tells whether a range is mapped without a gap and ends where a mapping
// ends, and calls one for each of them.
static bool whole(CUdeviceptr address, size_t size, void (*one)(struct alloc *, const void *), const void *context)
{
	for (size_t at = 0; at < size;) {
		struct alloc *a = mapping_at(address + at);
		if (!a || a->size > size - at)
			return false;
		at += a->size;
		if (one)
			one(a, context);
	}
	return size > 0;
}

static void drop(struct alloc *a, const void *unused)
{
	(void)unused;
	alloc_drop(a);
}

CUresult cuMemUnmap(CUdeviceptr address, size_t size)
{
	struct fault f = fault_find("unmap", getpid());
	CUresult r = (CUresult)fault_apply(&f, FAULT_BEFORE);
	if (r != CUDA_SUCCESS)
		return r;
	ENTER_IDLE();
	if (!aligned(address) || !aligned(size) || !whole(address, size, NULL, NULL))
		return CUDA_ERROR_INVALID_VALUE;
	whole(address, size, drop, NULL);
	return done(&f, CUDA_SUCCESS);
}

static void find_stranded(struct alloc *a, const void *found)
{
	if (a->memory->stranded)
		*(bool *)found = true;
}

static void set_access(struct alloc *a, const void *context)
{
	const CUmemAccessDesc *d = context;
	a->access[d->location.id] = (uint8_t)d->flags;
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc *access, size_t count)
{
	ENTER_IDLE();
	if (!access || count == 0 || !aligned(address) || !aligned(size) || !whole(address, size, NULL, NULL))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++) {
		const CUmemAccessDesc *d = &access[i];
		if (d->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && d->flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
		    d->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
			return CUDA_ERROR_INVALID_VALUE;
		if (d->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
			return CUDA_ERROR_INVALID_VALUE;
		if (d->location.id < 0 || d->location.id >= process.count)
			return CUDA_ERROR_INVALID_DEVICE;
	}
	bool stranded = false;
	whole(address, size, find_stranded, &stranded);
	if (stranded)
		return CUDA_ERROR_INVALID_DEVICE;
	for (size_t i = 0; i < count; i++)
		whole(address, size, set_access, &access[i]);
	return CUDA_SUCCESS;
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address)
{
	ENTER();
	const struct alloc *a = alloc_at(address);
	if (!flags || !location || location->type != CU_MEM_LOCATION_TYPE_DEVICE || !a || a->kind != MAPPED)
		return CUDA_ERROR_INVALID_VALUE;
	if (location->id < 0 || location->id >= process.count)
		return CUDA_ERROR_INVALID_DEVICE;
	*flags = a->access[location->id];
	return CUDA_SUCCESS;
}
