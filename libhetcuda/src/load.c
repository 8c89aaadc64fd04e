/*
 * SPDX-FileCopyrightText: The hetGPU authors
 * SPDX-License-Identifier: Apache-2.0
 */
#include "load.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fork.h"
#include "log.h"
#include "overrides.h"
#include "procaddress.h"
#include "stub.h"
#include "thread.h"

/* For tests of the rest: all memory is the driver's. */
#ifdef HETCUDA_WITHOUT_MEMORY
#undef HETCUDA_MEMORY_OVERRIDES
#define HETCUDA_MEMORY_OVERRIDES(X)
#endif

static const char *const names[HETCUDA_EXPORTS] = {
#define HETCUDA_EXPORT(name) #name,
#include "exports.inc"
#undef HETCUDA_EXPORT
};

/* What a container's linker path may not have. */
static const char *const directories[] = {
	"/usr/lib/x86_64-linux-gnu",
	"/usr/lib64",
	"/usr/lib",
	"/usr/local/nvidia/lib64",
	"/usr/local/nvidia/lib",
};

void *hetcuda_real[HETCUDA_EXPORTS];
void *hetcuda_table[HETCUDA_EXPORTS + HETCUDA_SPARES];

static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Thread_local bool loading;

/*
 * What stands in the table for a function that is not there. They are called
 * with the arguments of any function, which the calling convention allows.
 */
static CUresult no_driver(void)
{
	return CUDA_ERROR_NOT_INITIALIZED;
}

static CUresult no_device(void)
{
	return CUDA_ERROR_NO_DEVICE;
}

static CUresult no_function(void)
{
	return CUDA_ERROR_NOT_SUPPORTED;
}

const char *hetcuda_name(unsigned int i)
{
	return i < HETCUDA_EXPORTS ? names[i] : hetcuda_spare_name(i - HETCUDA_EXPORTS);
}

bool hetcuda_is_stub(const void *p)
{
	return (uintptr_t)p - (uintptr_t)hetcuda_stubs < (uintptr_t)(HETCUDA_EXPORTS + HETCUDA_SPARES)
								     << HETCUDA_STUB_SHIFT;
}

/* What the linker said of a driver's library that is there. */
static char refused[384];

/*
 * NULL, unless it is a driver and not ourselves: our file has the driver's
 * soname, and may be what the linker finds under one of its other names too.
 */
static void *open_driver(const char *file)
{
	void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL), *init;

	if (!handle) {
		const char *reason = dlerror();

		hetcuda_log("%s", reason);
		if (file[0] == '/' && !access(file, F_OK))
			snprintf(refused, sizeof(refused), "%s", reason);
		return NULL;
	}
	init = dlsym(handle, names[HETCUDA_INDEX_cuInit]);
	if (init && !hetcuda_is_stub(init)) {
		hetcuda_log("the driver's library is %s", file);
		return handle;
	}
	hetcuda_log("%s is not a driver's library", file);
	dlclose(handle);
	return NULL;
}

/*
 * The version of the driver in the kernel, which is also the last part of its
 * library's name. In the first file it stands alone; in the second between
 * other words, the only one of digits and dots.
 */
static bool driver_version(char *version, size_t size)
{
	static const char *const files[] = { "/sys/module/nvidia/version", "/proc/driver/nvidia/version" };
	char text[256], *word, *rest;
	size_t n, i;
	FILE *f;

	for (i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		f = fopen(files[i], "re");
		if (!f)
			continue;
		n = fread(text, 1, sizeof(text) - 1, f);
		fclose(f);
		text[n] = 0;
		for (word = strtok_r(text, " \t\n", &rest); word; word = strtok_r(NULL, " \t\n", &rest)) {
			if (!strchr(word, '.') || word[strspn(word, "0123456789.")] || strlen(word) >= size)
				continue;
			strcpy(version, word);
			return true;
		}
	}
	return false;
}

/* By its soname, where the linker would look, if only we were not there. */
static void *find_by_soname(void)
{
	const char *path = secure_getenv("LD_LIBRARY_PATH"), *end;
	void *handle = NULL;
	char file[512];
	size_t i;

	for (; !handle && path && *path; path = *end ? end + 1 : end) {
		end = strchrnul(path, ':');
		/* Relative to where we happen to be is nobody's driver. */
		if (*path != '/' || (size_t)(end - path) > sizeof(file) - 32)
			continue;
		snprintf(file, sizeof(file), "%.*s/libcuda.so.1", (int)(end - path), path);
		handle = open_driver(file);
	}
	for (i = 0; !handle && i < sizeof(directories) / sizeof(directories[0]); i++) {
		snprintf(file, sizeof(file), "%s/libcuda.so.1", directories[i]);
		handle = open_driver(file);
	}
	return handle;
}

static void *find_driver(void)
{
	/* Not of a program that has more rights than who started it. */
	const char *named = secure_getenv(HETCUDA_REAL_ENV);
	char version[32], file[128];
	void *handle;
	size_t i;

	if (named && named[0] == '/') {
		handle = open_driver(named);
		if (handle)
			return handle;
	} else if (named && named[0]) {
		hetcuda_log("%s is not an absolute path", HETCUDA_REAL_ENV);
	}
	if (!driver_version(version, sizeof(version)))
		return find_by_soname();
	snprintf(file, sizeof(file), "libcuda.so.%s", version);
	handle = open_driver(file);
	for (i = 0; !handle && i < sizeof(directories) / sizeof(directories[0]); i++) {
		snprintf(file, sizeof(file), "%s/libcuda.so.%s", directories[i], version);
		handle = open_driver(file);
	}
	return handle ? handle : find_by_soname();
}

/* musl has not got it; what lets programs for glibc run over musl has. */
extern const char *gnu_get_libc_version(void) __attribute__((weak));

/*
 * The program is told that there is no device, as programs can bear. Why is what
 * the linker would have told it, were we not there.
 */
static void explain(void)
{
	if (!refused[0]) {
		hetcuda_log("there is no driver: every call fails");
		return;
	}
	hetcuda_warn("the driver's library can't be loaded, so every call fails: %s", refused);
	if (!gnu_get_libc_version)
		hetcuda_warn("NVIDIA's driver is made for glibc, and this program runs with another C library: "
			     "take an image with glibc, or add glibc's functions to this one (Alpine: gcompat)");
}

static void override(unsigned int i, void *ours)
{
	if (hetcuda_real[i])
		hetcuda_table[i] = ours;
}

static void load(void)
{
	void *handle;
	unsigned int i;

	/* Before anything else: a constructor of the driver's may call us. */
	for (i = 0; i < HETCUDA_EXPORTS; i++)
		hetcuda_table[i] = i == HETCUDA_INDEX_cuInit ? (void *)no_device : (void *)no_driver;

	hetcuda_log_start();
	hetcuda_thread_start();
	hetcuda_fork_start();
	handle = find_driver();
	if (!handle) {
		explain();
		return;
	}
	for (i = 0; i < HETCUDA_EXPORTS; i++) {
		void *f = dlsym(handle, names[i]);

		/* The handle's dependencies are searched too, and we may be one. */
		if (f && hetcuda_is_stub(f))
			f = NULL;
		hetcuda_real[i] = f;
		hetcuda_table[i] = f ? f : (void *)no_function;
	}
	hetcuda_procaddress_start();
#define OVERRIDE(name) override(HETCUDA_INDEX_##name, (void *)hetcuda_##name);
	HETCUDA_CORE_OVERRIDES(OVERRIDE)
	HETCUDA_MEMORY_OVERRIDES(OVERRIDE)
#undef OVERRIDE
	override(HETCUDA_INDEX_cuGetProcAddress, (void *)hetcuda_cuGetProcAddress_v1);
}

void hetcuda_load(void)
{
	/* A call out of load, in the same thread: it gets an error. */
	if (loading)
		return;
	loading = true;
	pthread_once(&once, load);
	loading = false;
}

/* The driver is loaded as it would be without us: when the program starts. */
__attribute__((constructor)) static void start(void)
{
	hetcuda_load();
}

void hetcuda_load_forked(bool initialized)
{
	if (!initialized)
		return;
#define RESTORE(name) \
	if (hetcuda_real[HETCUDA_INDEX_##name]) \
		hetcuda_table[HETCUDA_INDEX_##name] = hetcuda_real[HETCUDA_INDEX_##name];
	HETCUDA_MEMORY_OVERRIDES(RESTORE)
#undef RESTORE
}
