// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Addresses of device memory. Each device has a window of 1 TiB at an address
// that we choose, so that addresses depend on nothing but the program. More of
// them follow if one is full or in too many pieces.
#ifndef HETCUDA_WINDOW_H
#define HETCUDA_WINDOW_H

#include "arena.h"
#include "cuda.h"

struct device {
	bool known;
	bool usable;        // we can serve its memory
	bool rdma;          // memory is made so that other devices on the bus can reach it
	size_t granularity; // of physical memory, and of addresses in the windows
	struct tree available; // free extents of its windows
};

// device_find returns a device, asked for what it can do; NULL if there is no
// place for it. Lock: held.
struct device *device_find(CUdevice number);

// window_take returns a range of free addresses, a multiple of the granularity
// long; NULL if there is none. Lock: held.
struct extent *window_take(CUdevice number, size_t size);

// window_has tells whether an address is in one of the windows. Needs no lock:
// what this says of an address that the program has never changes.
bool window_has(CUdeviceptr address);

// window_find returns the extent in use that has an address. Lock: held.
struct extent *window_find(CUdeviceptr address);

// window_stray is how many windows are not where we wanted them.
unsigned window_stray(void);

#endif
