// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Managed variables of modules and libraries (__managed__). The driver can't checkpoint
// its own. Without their marks (image.h) they are ordinary variables of the device, which
// it can: so they are loaded without, and become managed memory of ours where they are
// (parts.h).
//
// A managed variable is one for all devices and contexts, an ordinary one belongs to a
// context. So this is done where there is one device, for its primary context, while the
// program has no other; and while there are such variables it gets no other. In all
// other cases, and where an image can't be read, the variable stays the driver's, and
// managed_driver.c refuses the checkpoint.
//
// A library is of no context until something of it is used. Its variables have to be
// somewhere as soon as the program asks where, which the CUDA runtimes do before they
// have a context: so a library with such variables retains the primary one.
//
// Lock: one of its own, held while images are loaded and unloaded; under it those of
// pages.h and books.h.
#ifndef HETCUDA_VARIABLES_H
#define HETCUDA_VARIABLES_H

#include <stdbool.h>

#include "cuda.h"

// variables_find answers cuLibraryGetManaged; false if it isn't ours to answer.
bool variables_find(CUlibrary library, const char *name, CUdeviceptr *address, size_t *size);

// variables_any tells whether there are any, or may be in a moment.
bool variables_any(void);

// variables_context_gone forgets those of a context that was destroyed. No lock is held.
void variables_context_gone(CUcontext context);

// In the child of a fork.
void variables_forked(void);

#endif
