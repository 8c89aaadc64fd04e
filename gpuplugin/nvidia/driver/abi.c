/* SPDX-FileCopyrightText: The hetGPU authors
 * SPDX-License-Identifier: Apache-2.0
 */
#include "abi.h"

#include <dlfcn.h>

typedef int get_proc_address_fn(const char *, void **, int, uint64_t, int *);
typedef int flags_fn(unsigned int);
typedef int out_fn(int *);
typedef int text_fn(int, const char **);
typedef int pid_args_fn(int, void *);
typedef int pid_out_fn(int, int *);

void *hg_open(const char *path, const char **error)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);

	*error = library != NULL ? NULL : dlerror();
	return library;
}

void *hg_get_proc_address(void *library)
{
	return dlsym(library, "cuGetProcAddress_v2");
}

void *hg_lookup(void *get_proc_address, const char *name, int version)
{
	void *fn = NULL;
	int status = 0; /* CU_GET_PROC_ADDRESS_SUCCESS */
	int result = ((get_proc_address_fn *)get_proc_address)(name, &fn, version, 0, &status);

	return result == 0 && status == 0 ? fn : NULL;
}

int hg_call_flags(void *fn, unsigned int flags)
{
	return ((flags_fn *)fn)(flags);
}

int hg_call_out(void *fn, int *out)
{
	return ((out_fn *)fn)(out);
}

int hg_call_text(void *fn, int code, const char **text)
{
	return ((text_fn *)fn)(code, text);
}

int hg_call_pid(void *fn, int pid)
{
	return ((pid_args_fn *)fn)(pid, NULL);
}

int hg_call_pid_out(void *fn, int pid, int *out)
{
	return ((pid_out_fn *)fn)(pid, out);
}

int hg_call_lock(void *fn, int pid, unsigned int timeout_ms)
{
	struct cu_lock_args args = {.timeout_ms = timeout_ms};

	return ((pid_args_fn *)fn)(pid, &args);
}

int hg_call_restore(void *fn, int pid, const struct cu_gpu_pair *pairs, unsigned int count)
{
	struct cu_restore_args args = {.pairs = pairs, .count = count};

	return ((pid_args_fn *)fn)(pid, count > 0 ? &args : NULL);
}
