// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

#ifndef HETCUDA_MEMORY_FREE_H
#define HETCUDA_MEMORY_FREE_H

#include "cuda.h"

// memory_free frees an allocation of ours once what `wait` says of the stream is
// over; without it, once the work of the allocation's context is.
CUresult memory_free(CUdeviceptr address, CUresult (*wait)(CUstream), CUstream stream);

// memory_close frees an allocation of another process's when it is closed as often
// as it was opened.
CUresult memory_close(CUdeviceptr address);

// memory_flush carries out frees that had to wait for a capture's end.
void memory_flush(void);

#endif
