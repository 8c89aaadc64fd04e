// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Copies between the two memories of managed memory, through pinned memory at
// another address: a copy of which both ends carry the address of a managed
// range is one within the device for the driver (measured), and a pageable one
// runs at a fifth of the bus's rate.
//
// Whoever calls holds the lock of pages.h.
#ifndef HETCUDA_RING_H
#define HETCUDA_RING_H

#include "cuda.h"

struct ring;

// ring_of returns the ring of a context, made if need be.
CUresult ring_of(CUcontext context, struct ring **r);

// ring_begin makes the ring's context current, in a mode in which a stream that
// the program is capturing is not disturbed; ring_end waits for what was put
// into the ring and undoes that. The result is the first error since begin.
CUresult ring_begin(struct ring *r);
CUresult ring_end(struct ring *r);

// ring_up copies to the device; `from` is free again at once, the data there
// after ring_end. ring_down copies from the device, and has when it returns.
void ring_up(struct ring *r, CUdeviceptr to, const void *from, size_t size);
void ring_down(struct ring *r, void *to, CUdeviceptr from, size_t size);

// ring_zero clears memory of the device.
void ring_zero(struct ring *r, CUdeviceptr at, size_t size);

// ring_drop forgets the ring of a context that was destroyed; ring_drop_all
// frees all that there are.
void ring_drop(CUcontext context);
void ring_drop_all(void);

// ring_forked forgets everything: it was the parent's.
void ring_forked(void);

#endif
