// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Whether the driver has restored the process to other GPUs than it began on. What the
// process imports the driver takes for memory of those that it began on: it then fails in
// cuMemImportFromShareableHandle (CUDA_ERROR_NOT_INITIALIZED) or in cuMemSetAccess
// (CUDA_ERROR_INVALID_DEVICE) if the process sees one device, and names the wrong
// device if it sees both. What the process makes itself is where it ought to be, and can be
// exported (driver 580.159.04, integration/gpu/probes/another).
#ifndef HETCUDA_MOVED_H
#define HETCUDA_MOVED_H

#include <stdbool.h>

// moved_start notes the devices of the process, after its first cuInit that succeeded.
void moved_start(void);

// moved compares them with those that it has now. It asks the driver.
bool moved(void);

#endif
