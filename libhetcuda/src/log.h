/*
 * SPDX-FileCopyrightText: The hetGPU authors
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef HETCUDA_LOG_H
#define HETCUDA_LOG_H

#include <stdbool.h>

#define HETCUDA_LOG_ENV "HETCUDA_LOG"

/*
 * One line on stderr, if the environment variable HETCUDA_LOG was set when the
 * library was loaded: the process is not ours, and neither is its stderr. errno
 * stays as it is.
 */
void hetcuda_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The same, always: for what the linker would have said there. */
void hetcuda_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

void hetcuda_log_start(void);

#endif
