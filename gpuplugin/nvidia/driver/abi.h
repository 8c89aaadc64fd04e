/* SPDX-FileCopyrightText: The hetGPU authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What of the CUDA driver API the helper calls: the layouts of cuda.h, CUDA
 * 12.8 to 13.4 (CUcheckpoint*Args), written anew so that no CUDA installation
 * is needed to build, and one trampoline for each kind of signature, since cgo
 * can't call a function pointer. Every args structure is 64 bytes, zeroed but
 * for the fields that are named here; CUDA 13.4 uses some of the reserved
 * bytes for its custom storage (storage.h), where zero asks for what 12.8 does.
 */
#ifndef HETGPU_DRIVER_ABI_H
#define HETGPU_DRIVER_ABI_H

#include <stddef.h>
#include <stdint.h>

struct cu_lock_args {
	unsigned int timeout_ms;
	unsigned int reserved0;
	uint64_t reserved1[7];
};

struct cu_gpu_pair {
	unsigned char old_uuid[16];
	unsigned char new_uuid[16];
};

struct cu_restore_args {
	const struct cu_gpu_pair *pairs;
	unsigned int count;
	char reserved[52 - sizeof(struct cu_gpu_pair *)];
	uint64_t reserved1;
};

_Static_assert(sizeof(struct cu_lock_args) == 64, "CUcheckpointLockArgs");
_Static_assert(sizeof(struct cu_gpu_pair) == 32, "CUcheckpointGpuPair");
_Static_assert(sizeof(struct cu_restore_args) == 64, "CUcheckpointRestoreArgs");
_Static_assert(offsetof(struct cu_restore_args, count) == 8, "CUcheckpointRestoreArgs");

/* Loads the library; on failure returns NULL and says why in *error. */
void *hg_open(const char *path, const char **error);
/* Finds cuGetProcAddress_v2, the one symbol that is taken by dlsym. */
void *hg_get_proc_address(void *library);
/* Finds a function as of one version of CUDA; NULL if there is none. */
void *hg_lookup(void *get_proc_address, const char *name, int version);

int hg_call_flags(void *fn, unsigned int flags);
int hg_call_out(void *fn, int *out);
int hg_call_text(void *fn, int code, const char **text);
int hg_call_pid(void *fn, int pid);
int hg_call_pid_out(void *fn, int pid, int *out);
int hg_call_lock(void *fn, int pid, unsigned int timeout_ms);
int hg_call_restore(void *fn, int pid, const struct cu_gpu_pair *pairs, unsigned int count);

#endif
