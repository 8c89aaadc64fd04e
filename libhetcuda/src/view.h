// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// A view shows memories of one size for a moment, one behind the other, at
// addresses that the program does not know.
#ifndef HETCUDA_VIEW_H
#define HETCUDA_VIEW_H

#include <stdbool.h>
#include <stddef.h>

#include "cuda.h"

struct view {
	CUdeviceptr address;
	size_t size; // of one
	unsigned mapped, count;
};

// view_open makes them accessible to a device, of which a context is current. Also
// after an error, view_close follows.
CUresult view_open(struct view *v, CUdevice device, size_t size, unsigned count, const CUmemGenericAllocationHandle *handles);

// view_close leaves what can't be unmapped where nobody looks.
void view_close(struct view *v);

#endif
