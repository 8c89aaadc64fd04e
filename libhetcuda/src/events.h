// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Events between processes (CU_EVENT_INTERPROCESS, cuIpcGetEventHandle and its
// kin), which the driver can't checkpoint: they are ours, over boards.
#ifndef HETCUDA_EVENTS_H
#define HETCUDA_EVENTS_H

#include <stdbool.h>

#include "cuda.h"

// events_recorded completes a record that the driver has done, with the result r;
// per_thread: no stream means the thread's own.
CUresult events_recorded(CUresult r, CUevent event, CUstream stream, bool per_thread, unsigned int flags);

// events_wait has a stream wait for an event; false if that is the driver's to do.
bool events_wait(CUstream stream, bool per_thread, CUevent event, CUresult *result);

// events_synchronize is cuEventSynchronize.
CUresult events_synchronize(CUevent event);

// events_park takes the boards from the driver. The devices are idle.
void events_park(void);

// events_forked begins anew in a child.
void events_forked(void);

#endif
