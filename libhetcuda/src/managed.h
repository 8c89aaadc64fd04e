// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// cuMemAllocManaged and its kin, over memory of ours (pages.h).
#ifndef HETCUDA_MANAGED_H
#define HETCUDA_MANAGED_H

#include "cuda.h"

#include <stdbool.h>
#include <stdint.h>

// HETCUDA_MANAGED: "driver" leaves managed memory to the driver, which can't
// checkpoint it; "split" is what is done without it.
#define HETCUDA_MANAGED_ENV "HETCUDA_MANAGED"

// HETCUDA_MANAGED_VARIABLES: "driver" leaves it the variables of modules alone.
#define HETCUDA_VARIABLES_ENV "HETCUDA_MANAGED_VARIABLES"

struct managed_found {
	CUdeviceptr address;
	size_t size; // that the program asked for
	uint64_t id;
	CUcontext context;
	CUdevice device;
	bool sync;
};

// managed_look tells whether an address is in a managed allocation of ours;
// found may be NULL. Nothing is locked, and it costs one load if there is none.
bool managed_look(CUdeviceptr address, struct managed_found *found);
void managed_set_sync(CUdeviceptr address, bool sync);

// managed_ready tells whether managed memory of a device is ours, and gets ready
// for it.
bool managed_ready(CUdevice device);

// managed_variables_wanted tells whether variables of modules are to be ours.
bool managed_variables_wanted(void);

// managed_free frees a managed allocation of ours; false if it is none. wait and
// stream are memory_free's.
bool managed_free(CUdeviceptr address, CUresult (*wait)(CUstream), CUstream stream, CUresult *result);

// managed_context_gone forgets the memory of a context that was destroyed. No
// lock is held.
void managed_context_gone(CUcontext context);

// For park.c. After managed_quiesce the device has everything, and threads that
// touch it wait, as they do after managed_pause; managed_abandon lets them go on.
// managed_commit is called when the device memory is gone, managed_resume when it is
// back, and managed_grant when some of it was mapped anew otherwise.
int managed_quiesce(char *text);
void managed_pause(void);
void managed_grant(void);
void managed_abandon(void);
void managed_commit(void);
void managed_resume(void);

void managed_forked(void);

#endif
