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

static void print(const char *format, va_list list)
{
	char line[512];
	int saved = errno, n, m;

	n = snprintf(line, sizeof(line) - 1, "hetcuda[%d]: ", (int)getpid());
	m = vsnprintf(line + n, sizeof(line) - 1 - (size_t)n, format, list);
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

void hetcuda_log(const char *format, ...)
{
	va_list list;

	if (!enabled)
		return;
	va_start(list, format);
	print(format, list);
	va_end(list);
}

void hetcuda_warn(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	print(format, list);
	va_end(list);
}
