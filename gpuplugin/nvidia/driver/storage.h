/* SPDX-FileCopyrightText: The hetGPU authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The custom storage of CUDA 13.4 (API version 13040, driver 615): where a
 * checkpoint shows a process's device memory to its caller instead of copying
 * it into the process. Sources of the layouts: NVIDIA's CUDA Driver API
 * reference 13.4, sections 7.46 CUcheckpointCheckpointArgs, 7.47
 * CUcheckpointCustomStorageInfo, 7.48 CUcheckpointCustomStoragePerDeviceData and
 * 7.51 CUcheckpointRestoreArgs, which list the members in their order and give
 * the sizes of what is reserved; the handle is a pointer to a structure that is
 * not declared, and the same order is in NVIDIA's own declarations for builds
 * with older headers (ai-dynamo/snapshot, cuda_checkpoint_compat). It has never
 * been called on a real driver by us.
 */
#ifndef HETGPU_DRIVER_STORAGE_H
#define HETGPU_DRIVER_STORAGE_H

#include "abi.h"
#include "gpu.h"

struct cu_storage_device {
	uint64_t address;
	size_t size;
	void *stream;
};

struct cu_storage {
	void *handle;
	struct cu_storage_device *devices;
	unsigned int count;
};

struct cu_checkpoint_storage_args {
	struct cu_storage **out;
	char reserved[64 - sizeof(struct cu_storage **)];
};

struct cu_restore_storage_args {
	const struct cu_gpu_pair *pairs;
	unsigned int count;
	unsigned int padding0;
	struct cu_storage **out;
	char reserved[64 - sizeof(struct cu_gpu_pair *) - 2 * sizeof(unsigned int) - sizeof(struct cu_storage **)];
};

_Static_assert(sizeof(struct cu_storage_device) == 24, "CUcheckpointCustomStoragePerDeviceData");
_Static_assert(sizeof(struct cu_storage) == 24, "CUcheckpointCustomStorageInfo");
_Static_assert(offsetof(struct cu_storage, count) == 16, "CUcheckpointCustomStorageInfo");
_Static_assert(sizeof(struct cu_checkpoint_storage_args) == 64, "CUcheckpointCheckpointArgs");
_Static_assert(sizeof(struct cu_restore_storage_args) == 64, "CUcheckpointRestoreArgs");
_Static_assert(offsetof(struct cu_restore_storage_args, out) == 16, "CUcheckpointRestoreArgs");

/* *out is the driver's, and of no use any more once the operation is complete. */
int hg_storage_checkpoint(struct hg_ctx c, void *fn, int pid, struct cu_storage **out);
int hg_storage_restore(struct hg_ctx c, void *fn, int pid, const struct cu_gpu_pair *pairs, unsigned int count, struct cu_storage **out);
int hg_storage_complete(struct hg_ctx c, void *fn, void *handle);
/* cuStreamGetCtx in its form of CUDA 9.2. */
int hg_stream_context(void *fn, void *stream, void **context);

#endif
