// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

#ifndef HETCUDA_PARK_H
#define HETCUDA_PARK_H

#include <stdbool.h>

// The memory is being parked, or is: no other thread may touch it. Lock: books.
extern bool parking;

#endif
