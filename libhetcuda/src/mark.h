// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Marks tell the peer which memory an imported chunk is: it can't have a descriptor
// of it (own.h), but it has one from the process that made the memory, and what is
// written through the one mapping can be read through the other.
#ifndef HETCUDA_MARK_H
#define HETCUDA_MARK_H

#include <stdint.h>

#include "chunk.h"

// mark_put writes the number that hetcuda_control.h says for its place into the
// chunk, and remembers what was there; mark_remove puts that back, if there is a
// mark. A context of a device that can reach it is current, and nothing runs that
// uses the memory.
CUresult mark_put(struct chunk *c, CUdevice device, uint64_t nonce, uint32_t place);
CUresult mark_remove(struct chunk *c, CUdevice device);

#endif
