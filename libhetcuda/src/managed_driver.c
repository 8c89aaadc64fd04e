// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Variables of modules (__managed__, PTX .attribute(.managed)) and allocations
// that are left to the driver: the variables that variables.c doesn't take.
//
// The driver makes a module's managed variables when it loads the module, at an
// address of its own that the device's code has in it. The CPU can only use one
// whose address somebody asks for, as the runtime does for each that a program
// registers with it (__cudaRegisterManagedVar); the driver then says of the
// address that it is managed. So here we go by its answers and not by the module's
// image, which may be compressed and may come to the driver past us (through
// cuGetExportTable). What nobody asks for is found by the driver's own
// checkpoint, which refuses it.
#include "managed_driver.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "counters.h"
#include "hetcuda_control.h"
#include "log.h"
#include "overrides.h"
#include "real.h"
#include "variables.h"

enum { NAMED = 4 }; // in a text

static struct own {
	struct own *next;
	CUdeviceptr address;
	char name[64]; // "": an allocation
} *all;
static bool overlooked; // there was no memory for an entry
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void release(pthread_mutex_t **held)
{
	pthread_mutex_unlock(*held);
}

#define LOCKED()                                                                            \
	__attribute__((cleanup(release), unused)) pthread_mutex_t *locked = &lock; \
	pthread_mutex_lock(&lock)

bool managed_driver_has(CUdeviceptr address)
{
	unsigned int managed = 0;
	if (!REAL(cuPointerGetAttribute))
		return true;
	CUresult r = REAL(cuPointerGetAttribute)(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address);
	return r == CUDA_SUCCESS ? managed & 0xff : r != CUDA_ERROR_INVALID_VALUE;
}

void managed_driver_note(CUdeviceptr address, const char *name)
{
	LOCKED();
	struct own *o = all;
	while (o && o->address != address)
		o = o->next;
	if (!o) {
		o = calloc(1, sizeof *o);
		if (!o) {
			overlooked = true;
			return;
		}
		o->address = address;
		o->next = all;
		all = o;
		COUNT(managed);
	}
	snprintf(o->name, sizeof o->name, "%s", name ? name : "");
}

// drop removes the entries of an address, or those that the driver has no more.
static void drop(CUdeviceptr address)
{
	for (struct own **link = &all; *link;) {
		struct own *o = *link;
		if (address ? o->address != address : managed_driver_has(o->address)) {
			link = &o->next;
			continue;
		}
		*link = o->next;
		free(o);
		UNCOUNT(managed);
	}
}

void managed_driver_freed(CUdeviceptr address)
{
	LOCKED();
	// Another thread may have got the address by now.
	if (address && !managed_driver_has(address))
		drop(address);
}

void managed_driver_forked(void)
{
	pthread_mutex_init(&lock, NULL);
	all = NULL;
	overlooked = false;
}

int managed_driver_check(char *text)
{
	char names[HETCUDA_TEXT / 2] = "";
	size_t variables = 0, allocations = 0, n = 0;
	LOCKED();
	drop(0);
	for (const struct own *o = all; o; o = o->next) {
		if (!o->name[0]) {
			allocations++;
		} else if (variables++ < NAMED) {
			int k = snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "", o->name);
			n += k > 0 && (size_t)k < sizeof names - n ? (size_t)k : 0;
		}
	}
	if (variables > NAMED)
		snprintf(names + n, sizeof names - n, ", ...");
	if (variables)
		snprintf(text, HETCUDA_TEXT, "the process has %zu __managed__ variables, which the driver keeps and can't checkpoint: %s",
			 variables, names);
	else if (allocations || overlooked)
		snprintf(text, HETCUDA_TEXT, "the process has %zu managed allocations (cuMemAllocManaged) that were left to the driver, which can't checkpoint them",
			 allocations);
	return variables || allocations || overlooked ? -ENOTSUP : 0;
}

// asked notes a variable whose address the driver has just told.
static CUresult asked(CUresult r, const CUdeviceptr *address, const char *name, bool managed)
{
	if (r == CUDA_SUCCESS && address && *address && (managed || managed_driver_has(*address)))
		managed_driver_note(*address, name);
	return r;
}

CUresult hetcuda_cuLibraryGetManaged(CUdeviceptr *address, size_t *size, CUlibrary library, const char *name)
{
	if (variables_find(library, name, address, size))
		return CUDA_SUCCESS;
	return asked(REAL(cuLibraryGetManaged)(address, size, library, name), address, name, true);
}

CUresult hetcuda_cuLibraryGetGlobal(CUdeviceptr *address, size_t *size, CUlibrary library, const char *name)
{
	return asked(REAL(cuLibraryGetGlobal)(address, size, library, name), address, name, false);
}

CUresult hetcuda_cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *size, CUmodule module, const char *name)
{
	return asked(REAL(cuModuleGetGlobal)(address, size, module, name), address, name, false);
}
