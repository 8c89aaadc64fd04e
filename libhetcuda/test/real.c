/*
 * SPDX-FileCopyrightText: The hetGPU authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A driver's library for tests of the forwarding: the functions that do
 * something. Some have other signatures than the driver's, to try what a stub
 * has to cope with; see signatures.h. All others are in rest.c.
 */
#include "signatures.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT atomic_int real_inside;
EXPORT atomic_ulong real_calls;
EXPORT atomic_bool real_go;
EXPORT atomic_int real_init_result;
EXPORT void (*real_hook)(void);
static pid_t initialized_by;

/* Signatures. */

#define A(i) a##i == UINT64_C(0x0101010101010101) * i
EXPORT long ARGS0(void) { return 0; }
EXPORT long ARGS1(uint64_t a1) { return A(1) ? 1 : -1; }
EXPORT long ARGS2(uint64_t a1, uint64_t a2) { return A(1) && A(2) ? 2 : -1; }
EXPORT long ARGS6(uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4, uint64_t a5, uint64_t a6)
{
	return A(1) && A(2) && A(3) && A(4) && A(5) && A(6) ? 6 : -1;
}
EXPORT long ARGS7(uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4, uint64_t a5, uint64_t a6, uint64_t a7)
{
	return A(1) && A(2) && A(3) && A(4) && A(5) && A(6) && A(7) ? 7 : -1;
}
EXPORT long ARGS8(uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4, uint64_t a5, uint64_t a6, uint64_t a7,
		  uint64_t a8)
{
	return A(1) && A(2) && A(3) && A(4) && A(5) && A(6) && A(7) && A(8) ? 8 : -1;
}
EXPORT long ARGS11(uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4, uint64_t a5, uint64_t a6, uint64_t a7,
		   uint64_t a8, uint64_t a9, uint64_t a10, uint64_t a11)
{
	return A(1) && A(2) && A(3) && A(4) && A(5) && A(6) && A(7) && A(8) && A(9) && A(10) && A(11) ? 11 : -1;
}
EXPORT long ARGS12(uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4, uint64_t a5, uint64_t a6, uint64_t a7,
		   uint64_t a8, uint64_t a9, uint64_t a10, uint64_t a11, uint64_t a12)
{
	return A(1) && A(2) && A(3) && A(4) && A(5) && A(6) && A(7) && A(8) && A(9) && A(10) && A(11) && A(12) ? 12 :
														-1;
}

EXPORT double DOUBLES(double a, float b, double c, double d, double e, double f, double g, double h, double i,
		      double j, double k, double l)
{
	return a + 2 * (double)b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h + 9 * i + 10 * j + 11 * k + 12 * l;
}

EXPORT double MIXED(double a, uint64_t b, float c, uint8_t d, double e, void *f, double g, uint64_t h, double i,
		    uint64_t j, double k, uint64_t l, double m, uint64_t n, double o, double p)
{
	return a + (double)b + (double)c + d + e + *(double *)f + g + (double)h + i + (double)j + k + (double)l + m +
	       (double)n + o + p;
}

EXPORT int BYVALUE(struct by_value s, int x)
{
	return s.c[0] + s.c[63] + x;
}

EXPORT struct two_words TWOWORDS(uint64_t x)
{
	return (struct two_words){ x, ~x };
}

EXPORT struct two_doubles TWODOUBLES(double x)
{
	return (struct two_doubles){ x, -x };
}

EXPORT struct by_value LARGE(int x)
{
	struct by_value s;

	memset(s.c, x, sizeof(s.c));
	return s;
}

EXPORT int VARIADIC(char *out, const char *format, ...)
{
	va_list list;
	int n;

	va_start(list, format);
	n = vsnprintf(out, 256, format, list);
	va_end(list);
	return n;
}

EXPORT int ERRNO(void)
{
	return errno;
}

/* What a program waits in. */

EXPORT int TICK(void)
{
	volatile int i;

	real_inside++;
	real_calls++;
	for (i = 0; i < 50; i++)
		;
	real_inside--;
	return 0;
}

EXPORT int BLOCK(void)
{
	struct timespec pause = { .tv_nsec = 1000000 };

	real_inside++;
	while (!real_go)
		nanosleep(&pause, NULL);
	real_inside--;
	return 0;
}

EXPORT int CALLBACK(int (*f)(int), int x)
{
	int r;

	real_inside++;
	r = f(x);
	real_inside--;
	return r;
}

EXPORT int NOTHING(void)
{
	return 0;
}

/* The driver's own. */

EXPORT int cuInit(unsigned int flags)
{
	(void)flags;
	if (real_init_result)
		return real_init_result;
	if (initialized_by && initialized_by != getpid())
		return 3;
	initialized_by = getpid();
	return 0;
}

EXPORT int cuDriverGetVersion(int *version)
{
	*version = 13000;
	return 0;
}

/* As the driver's functions do in the child of a process that had initialized it. */
EXPORT int USABLE(void)
{
	return initialized_by == getpid() ? 0 : 3;
}

/* Functions of a newer driver, which no list has. */
static int hidden(void) { return 4711; }

#define NEWER(n) static int newer##n(void) { return 5000 + n; }
#define NEWER10(n) NEWER(n##0) NEWER(n##1) NEWER(n##2) NEWER(n##3) NEWER(n##4) NEWER(n##5) NEWER(n##6) NEWER(n##7) NEWER(n##8) NEWER(n##9)
#define NEWER100(n) NEWER10(n##0) NEWER10(n##1) NEWER10(n##2) NEWER10(n##3) NEWER10(n##4) NEWER10(n##5) NEWER10(n##6) NEWER10(n##7) NEWER10(n##8) NEWER10(n##9)
NEWER100(1) NEWER100(2) NEWER100(3) NEWER100(4) NEWER100(5) NEWER100(6)
#define REF(n) newer##n,
#define REF10(n) REF(n##0) REF(n##1) REF(n##2) REF(n##3) REF(n##4) REF(n##5) REF(n##6) REF(n##7) REF(n##8) REF(n##9)
#define REF100(n) REF10(n##0) REF10(n##1) REF10(n##2) REF10(n##3) REF10(n##4) REF10(n##5) REF10(n##6) REF10(n##7) REF10(n##8) REF10(n##9)
static int (*const newer[])(void) = { REF100(1) REF100(2) REF100(3) REF100(4) REF100(5) REF100(6) };

extern long cuMemAlloc_v2(void), cuMemAllocAsync_ptsz(void), cuMemAllocAsync(void), cuMemFree_v2(void);
EXPORT int cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *status);
EXPORT int cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags);

EXPORT int cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *status)
{
	unsigned int n;

	*function = NULL;
	if (!strcmp(symbol, "cuMemAlloc"))
		*function = (void *)cuMemAlloc_v2;
	else if (!strcmp(symbol, "cuMemAllocAsync"))
		*function = flags & 2 ? (void *)cuMemAllocAsync_ptsz : (void *)cuMemAllocAsync;
	else if (!strcmp(symbol, "cuGetProcAddress"))
		*function = version >= 12000 ? (void *)cuGetProcAddress_v2 : (void *)cuGetProcAddress;
	else if (!strcmp(symbol, "cuInit"))
		*function = (void *)cuInit;
	else if (!strcmp(symbol, "cuHidden"))
		*function = (void *)hidden;
	else if (sscanf(symbol, "cuNewer%u", &n) == 1 && n < sizeof(newer) / sizeof(newer[0]))
		*function = (void *)newer[n];
	if (status)
		*status = *function ? 0 : 1;
	return *function ? 0 : 500;
}

EXPORT int cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags)
{
	return cuGetProcAddress_v2(symbol, function, version < 12000 ? version : 11080, flags, NULL);
}
