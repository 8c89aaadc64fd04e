/*
 * SPDX-FileCopyrightText: The hetGPU authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The thread that answers on the control socket: hetcuda_control.h.
 */
#ifndef HETCUDA_CONTROL_THREAD_H
#define HETCUDA_CONTROL_THREAD_H

#include <stdbool.h>

/*
 * Around a fork; lock waits until the thread has no new descriptor in its hands
 * that it could not name to the child.
 */
void hetcuda_control_lock(void);
void hetcuda_control_unlock(void);

/* In the child. Whether the parent had initialized CUDA. */
bool hetcuda_control_forked(void);

#endif
