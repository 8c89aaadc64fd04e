// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

#include "window.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "chunk.h"
#include "real.h"

// 0x200000000000 to 0x4fffffffffff: above what the driver picks itself, below
// where Linux puts programs and libraries. A driver honours the hint (measured,
// driver 580: 0x200000000000 for 1 TiB) unless something is there already.
#define FIRST UINT64_C(0x200000000000)
#define WINDOW (UINT64_C(1) << 40)
enum { SLOTS = 48, STRAYS = 64 };

static struct device devices[ACCESS_DEVICES];
static struct arena *_Atomic slots[SLOTS];
static struct arena *_Atomic strays[STRAYS];
static _Atomic unsigned stray_count;

static bool can(CUdevice number, CUdevice_attribute attribute)
{
	int value = 0;
	return REAL(cuDeviceGetAttribute)(&value, attribute, number) == CUDA_SUCCESS && value;
}

struct device *device_find(CUdevice number)
{
	if (number < 0 || number >= ACCESS_DEVICES)
		return NULL;
	struct device *d = &devices[number];
	if (d->known)
		return d;
	d->known = true;
	d->usable = REAL(cuMemCreate) && REAL(cuMemAddressReserve) && REAL(cuMemExportToShareableHandle) &&
		    can(number, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) &&
		    can(number, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
	d->rdma = can(number, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = number},
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
	};
	if (d->usable && (REAL(cuMemGetAllocationGranularity)(&d->granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) !=
				  CUDA_SUCCESS ||
			  d->granularity == 0 || WINDOW % d->granularity != 0))
		d->usable = false;
	return d;
}

// reserve_at reserves a window at exactly an address.
static bool reserve_at(CUdeviceptr address)
{
	CUdeviceptr got = 0;
	if (REAL(cuMemAddressReserve)(&got, WINDOW, 0, address, 0) != CUDA_SUCCESS)
		return false;
	if (got == address)
		return true;
	REAL(cuMemAddressFree)(got, WINDOW);
	return false;
}

static bool open_window(struct device *d, CUdeviceptr address, struct arena *_Atomic *place)
{
	struct arena *a = calloc(1, sizeof *a);
	if (a && arena_init(a, &d->available, address, WINDOW, d)) {
		atomic_store_explicit(place, a, memory_order_release);
		return true;
	}
	free(a);
	REAL(cuMemAddressFree)(address, WINDOW);
	return false;
}

// add_window gives a device its first window in the slot of its number, further
// ones in the slots that no device has by its number.
static bool add_window(CUdevice number)
{
	struct device *d = &devices[number];
	int count = 0;
	REAL(cuDeviceGetCount)(&count);
	for (int i = count > 0 ? count - 1 : 0; i < SLOTS; i++) {
		int slot = i == count - 1 ? number : i;
		if (slot < SLOTS && !slots[slot] && reserve_at(FIRST + (uint64_t)slot * WINDOW))
			return open_window(d, FIRST + (uint64_t)slot * WINDOW, &slots[slot]);
	}
	// Something else has all of them. What the program gets is still its
	// for good: the driver keeps reservations through a checkpoint.
	unsigned stray = atomic_load_explicit(&stray_count, memory_order_relaxed);
	CUdeviceptr address = 0;
	if (stray == STRAYS || REAL(cuMemAddressReserve)(&address, WINDOW, 0, 0, 0) != CUDA_SUCCESS)
		return false;
	if (!open_window(d, address, &strays[stray]))
		return false;
	atomic_store_explicit(&stray_count, stray + 1, memory_order_release);
	return true;
}

struct extent *window_take(CUdevice number, size_t size)
{
	struct device *d = &devices[number];
	struct extent *e = arena_take(&d->available, size);
	if (e || size > WINDOW)
		return e;
	// Without memory of the host for a record a window more doesn't help.
	if (tree_ceiling(&d->available, size, 0) || !add_window(number))
		return NULL;
	return arena_take(&d->available, size);
}

static struct arena *window_of(CUdeviceptr address)
{
	if (address >= FIRST && address < FIRST + SLOTS * WINDOW) {
		struct arena *a = atomic_load_explicit(&slots[(address - FIRST) / WINDOW], memory_order_acquire);
		if (a)
			return a;
	}
	unsigned count = atomic_load_explicit(&stray_count, memory_order_acquire);
	for (unsigned i = 0; i < count; i++) {
		struct arena *a = atomic_load_explicit(&strays[i], memory_order_acquire);
		if (address - a->address < a->size)
			return a;
	}
	return NULL;
}

bool window_has(CUdeviceptr address)
{
	return window_of(address);
}

struct extent *window_find(CUdeviceptr address)
{
	struct arena *a = window_of(address);
	return a ? arena_find(a, address) : NULL;
}

unsigned window_stray(void)
{
	return atomic_load_explicit(&stray_count, memory_order_relaxed);
}
