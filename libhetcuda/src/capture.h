// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Streams that are being captured. While one is, waiting for its context is an
// error that spoils the capture, so we have to know before we wait for anything
// that the program didn't ask us to wait for. Whether the driver itself would
// allow a cuMemFree then depends on the modes of the captures and of the thread
// (CUDA driver API, cuThreadExchangeStreamCaptureMode).
#ifndef HETCUDA_CAPTURE_H
#define HETCUDA_CAPTURE_H

#include <stdbool.h>

#include "cuda.h"

// capture_running tells whether any stream is being captured.
bool capture_running(void);

// capture_spared tells whether one is, and this thread may free memory all the
// same, without spoiling it.
bool capture_spared(void);

// capture_step_aside lets this thread do what would spoil the captures of others (ask
// an event, make memory), until capture_step_back.
struct aside {
	bool stepped;
	CUstreamCaptureMode mode;
};
struct aside capture_step_aside(void);
void capture_step_back(struct aside aside);

// capture_forget drops the captures of a context that was destroyed.
void capture_forget(CUcontext context);

#endif
