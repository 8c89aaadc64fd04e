/*
 * SPDX-FileCopyrightText: The hetGPU authors
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef HETCUDA_FORK_H
#define HETCUDA_FORK_H

/*
 * Once, from hetcuda_load. In the child of a fork nothing of the parent's
 * threads, gate and control is left. If the parent had not initialized CUDA,
 * the child can, and gets a socket of its own.
 */
void hetcuda_fork_start(void);

#endif
