/*
 * SPDX-FileCopyrightText: The hetGPU authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * cuGetProcAddress: the driver's answer, with our stub in place of its function.
 */
#ifndef HETCUDA_PROCADDRESS_H
#define HETCUDA_PROCADDRESS_H

/* Once, when hetcuda_real is filled. */
void hetcuda_procaddress_start(void);

/* The name of what spare stub i calls. */
const char *hetcuda_spare_name(unsigned int i);

/* Around a fork. */
void hetcuda_procaddress_lock(void);
void hetcuda_procaddress_unlock(void);

#endif
