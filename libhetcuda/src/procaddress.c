/*
 * SPDX-FileCopyrightText: The hetGPU authors
 * SPDX-License-Identifier: Apache-2.0
 */
#include "procaddress.h"

#include <assert.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "load.h"
#include "log.h"
#include "overrides.h"
#include "stub.h"

/*
 * The driver's exports by their address, open addressing. Several exports may
 * have one address. Written once.
 */
enum { SLOTS = 2048 };
static_assert(SLOTS >= 2 * HETCUDA_EXPORTS, "the map is too small");
static uint16_t map[SLOTS]; /* index + 1 */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned int spares;
static char spare_names[HETCUDA_SPARES][48];
static bool spares_gone;

static unsigned int slot(const void *p)
{
	/* Functions are aligned to 16; the multiplier spreads what is left. */
	return (unsigned int)(((uintptr_t)p >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 53) % SLOTS;
}

void hetcuda_procaddress_start(void)
{
	unsigned int i, s;

	for (i = 0; i < HETCUDA_EXPORTS; i++) {
		if (!hetcuda_real[i])
			continue;
		for (s = slot(hetcuda_real[i]); map[s]; s = (s + 1) % SLOTS)
			;
		map[s] = (uint16_t)(i + 1);
	}
}

/* name is symbol, perhaps with a version and the kind of default stream. */
static bool is_of(const char *name, const char *symbol)
{
	size_t n = strlen(symbol);

	if (strncmp(name, symbol, n))
		return false;
	name += n;
	if (!strncmp(name, "_v", 2))
		name += 2 + strspn(name + 2, "0123456789");
	return !*name || !strcmp(name, "_ptsz") || !strcmp(name, "_ptds");
}

/* The export at p; of several the one that symbol means. -1: none. */
static int find(const void *p, const char *symbol)
{
	int found = -1;
	unsigned int s;

	for (s = slot(p); map[s]; s = (s + 1) % SLOTS) {
		unsigned int i = map[s] - 1u;

		if (hetcuda_real[i] != p)
			continue;
		if (is_of(hetcuda_name(i), symbol))
			return (int)i;
		if (found < 0)
			found = (int)i;
	}
	return found;
}

/*
 * A stub for a function that we know nothing of, so that it waits at the gate
 * as all others do. The function itself if there is none left.
 */
static void *spare(void *p, const char *symbol)
{
	void *stub = p;
	unsigned int i;

	pthread_mutex_lock(&lock);
	for (i = 0; i < spares; i++)
		if (hetcuda_table[HETCUDA_EXPORTS + i] == p)
			break;
	if (i == spares && spares < HETCUDA_SPARES) {
		snprintf(spare_names[i], sizeof(spare_names[i]), "%s", symbol);
		hetcuda_table[HETCUDA_EXPORTS + i] = p;
		spares++;
		hetcuda_log("%s is not in our list of functions: passed on", symbol);
	}
	if (i < HETCUDA_SPARES)
		stub = hetcuda_stub(HETCUDA_EXPORTS + i);
	else if (!spares_gone)
		hetcuda_log("%s and more go past us: no stub is left", symbol);
	spares_gone = i >= HETCUDA_SPARES;
	pthread_mutex_unlock(&lock);
	return stub;
}

const char *hetcuda_spare_name(unsigned int i)
{
	return i < HETCUDA_SPARES ? spare_names[i] : "?";
}

static void *translate(void *p, const char *symbol)
{
	int i;

	/* A driver whose own references can be interposed answers with us. */
	if (hetcuda_is_stub(p))
		return p;
	i = find(p, symbol);
	return i >= 0 ? hetcuda_stub((unsigned int)i) : spare(p, symbol);
}

CUresult hetcuda_cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
				     CUdriverProcAddressQueryResult *status)
{
	CUresult result = REAL(cuGetProcAddress_v2)(symbol, function, version, flags, status);

	if (result == CUDA_SUCCESS && symbol && function && *function)
		*function = translate(*function, symbol);
	return result;
}

/* Of CUDA 11.3 to 11.8; programs that were built with those still call it. */
CUresult hetcuda_cuGetProcAddress_v1(const char *symbol, void **function, int version, cuuint64_t flags)
{
	CUresult (*real)(const char *, void **, int, cuuint64_t) = hetcuda_real[HETCUDA_INDEX_cuGetProcAddress];
	CUresult result = real(symbol, function, version, flags);

	if (result == CUDA_SUCCESS && symbol && function && *function)
		*function = translate(*function, symbol);
	return result;
}

void hetcuda_procaddress_lock(void)
{
	pthread_mutex_lock(&lock);
}

void hetcuda_procaddress_unlock(void)
{
	pthread_mutex_unlock(&lock);
}
