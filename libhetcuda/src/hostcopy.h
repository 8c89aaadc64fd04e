// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Calls that name managed memory as host memory, and host functions. They stand
// behind the trampolines (submit.h), so only where there is managed memory.
#ifndef HETCUDA_HOSTCOPY_H
#define HETCUDA_HOSTCOPY_H

// hostcopy_instead returns what is called in place of a function, or the
// function itself.
void *hostcopy_instead(unsigned index, void *function);

#endif
