// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Managed memory that is the driver's own, and what a checkpoint has to say of
// it: the driver can't checkpoint a process that has any.
#ifndef HETCUDA_MANAGED_DRIVER_H
#define HETCUDA_MANAGED_DRIVER_H

#include <stdbool.h>

#include "cuda.h"

// managed_driver_note remembers memory that the driver made; name is that of a
// variable, NULL for an allocation.
void managed_driver_note(CUdeviceptr address, const char *name);

// managed_driver_has tells whether the driver has managed memory at an address, where a
// module may have been unloaded. If it does not say, there is.
bool managed_driver_has(CUdeviceptr address);

// managed_driver_freed forgets an allocation.
void managed_driver_freed(CUdeviceptr address);

// managed_driver_forked begins anew in a child, which has none of it.
void managed_driver_forked(void);

// managed_driver_check returns 0 if there is none, else -ENOTSUP and says in text
// (HETCUDA_TEXT) what there is.
int managed_driver_check(char *text);

#endif
