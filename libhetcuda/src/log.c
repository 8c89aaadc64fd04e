/*
 * SPDX-FileCopyrightText: The hetGPU authors
 * SPDX-License-Identifier: Apache-2.0
 */
#include "log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static bool enabled;

void hetcuda_log_start(void)
{
	const char *value = secure_getenv(HETCUDA_LOG_ENV);

	enabled = value && *value && !(value[0] == '0' && !value[1]);
}

void hetcuda_log(const char *format, ...)
{
	char line[512];
	int saved = errno, n, m;
	va_list list;

	if (!enabled)
		return;
	n = snprintf(line, sizeof(line) - 1, "hetcuda[%d]: ", (int)getpid());
	va_start(list, format);
	m = vsnprintf(line + n, sizeof(line) - 1 - (size_t)n, format, list);
	va_end(list);
	if (m > 0)
		n += m;
	if (n > (int)sizeof(line) - 2)
		n = (int)sizeof(line) - 2;
	line[n++] = '\n';
	/* One write, so that lines of several processes do not mix; there is
	 * nobody to tell if it fails. */
	if (write(STDERR_FILENO, line, (size_t)n) < 0)
		errno = saved;
	errno = saved;
}
