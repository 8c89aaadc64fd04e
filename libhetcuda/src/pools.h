// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// What the rest of the memory part asks of pools.
#ifndef HETCUDA_POOLS_H
#define HETCUDA_POOLS_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda.h"

struct pooled {
	CUdeviceptr address;
	size_t size; // that the program asked for
	uint64_t id;
	CUdevice device;
	CUmemoryPool pool;
};

// pools_look tells whether an address is in an allocation of a pool of ours. Lock:
// not held.
bool pools_look(CUdeviceptr address, struct pooled *found);

// pools_have tells whether an address is a pool's of ours, in use or not; pools_free
// frees an allocation for which the program has waited. Lock: not held.
bool pools_have(CUdeviceptr address);
CUresult pools_free(CUdeviceptr address);

// pools_make_room gives back what the pools of a device keep for later; false if
// that is nothing. Memory was asked for that there isn't. Lock: not held.
bool pools_make_room(CUdevice device);

// pools_context_gone is called when a context was destroyed, with all its streams.
// Lock: not held.
void pools_context_gone(CUcontext context);

// For park.c. pools_quiesce is called when GPU work is done: all that is free goes,
// and all events of ours. pools_commit gives back what the driver's pools keep,
// which its checkpoint would copy out, used or not; pools_held is what was left in
// them then, in bytes.
void pools_quiesce(void);
void pools_commit(void);
uint64_t pools_held(void);

#endif
