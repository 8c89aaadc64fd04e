// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Handles of physical memory as the program knows them. The driver's change
// when memory is taken back, the program's don't, so it gets numbers of ours: no
// pointer and no number of the driver's looks like one (the upper bits are those
// of no address), and a number that was given back is not soon used again.
#ifndef HETCUDA_HANDLES_H
#define HETCUDA_HANDLES_H

#include "chunk.h"

// handle_ours tells whether a number is of that kind at all.
bool handle_ours(CUmemGenericAllocationHandle handle);

// handle_name gives a chunk that has none a number; false without memory. Lock:
// held.
bool handle_name(struct chunk *c);
void handle_unname(struct chunk *c);

// handle_find returns the chunk that a number stands for, or NULL. Lock: held.
struct chunk *handle_find(CUmemGenericAllocationHandle handle);

#endif
