// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Memory that came back to the process was made by somebody else: it let go of its
// own handles, and got others by an import. The driver lets nobody pass on what
// was imported (cuMemExportToShareableHandle: CUDA_ERROR_INVALID_VALUE; driver
// 580.159, docs/results), so such memory could not be parked again, nor shared by the
// program. It is copied into memory that the process makes, on the device: 18 ms
// for 32 GiB on an H200.
#ifndef HETCUDA_OWN_H
#define HETCUDA_OWN_H

#include "chunk.h"

// own_copy makes new memory with the contents of the chunk's. A context of a device that
// can reach it is current, and nothing runs that uses the memory. With an error there is
// none: there is no room for both, perhaps.
CUresult own_copy(const struct chunk *c, CUdevice device, CUmemGenericAllocationHandle *made);

// own_take puts a handle into the place of the chunk's, which is released.
void own_take(struct chunk *c, CUmemGenericAllocationHandle made);

#endif
