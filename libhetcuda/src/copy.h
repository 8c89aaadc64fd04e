// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

#ifndef HETCUDA_COPY_H
#define HETCUDA_COPY_H

#include <stddef.h>

// copy is memcpy, by several threads where it is worth it: one alone moves about
// 10 GB/s, a fifth of what the bus takes. One caller at a time.
void copy(void *to, const void *from, size_t size);

// In the child of a fork.
void copy_forked(void);

#endif
