/* SPDX-FileCopyrightText: The hetGPU authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What of the CUDA driver API moves device memory: one trampoline for each kind
 * of signature, as in abi.h. A call that needs a context makes it current first,
 * in the same C call and so on the same thread, whichever that is.
 */
#ifndef HETGPU_DRIVER_GPU_H
#define HETGPU_DRIVER_GPU_H

#include <stddef.h>
#include <stdint.h>

/* A context, and cuCtxSetCurrent. */
struct hg_ctx {
	void *set_current;
	void *context;
};

/* CUmemLocation, CUmemAllocationProp, CUmemAccessDesc (cuda.h, CUDA 12 and 13). */
struct cu_mem_location {
	int type;
	int id;
};

struct cu_mem_prop {
	int type;
	int handle_types;
	struct cu_mem_location location;
	void *win32_metadata;
	unsigned char compression;
	unsigned char rdma;
	unsigned short usage;
	unsigned char reserved[4];
};

struct cu_mem_access {
	struct cu_mem_location location;
	int flags;
};

_Static_assert(sizeof(struct cu_mem_prop) == 32, "CUmemAllocationProp");
_Static_assert(sizeof(struct cu_mem_access) == 12, "CUmemAccessDesc");

/* Without a context. */
int hg_device_get(void *fn, int *device, int ordinal);
int hg_device_uuid(void *fn, unsigned char *uuid, int device);
int hg_primary_retain(void *fn, void **context, int device);
int hg_primary_release(void *fn, int device);
/* Has waits sleep rather than spin. */
int hg_primary_blocking(void *fn, int device);
int hg_granularity(void *fn, size_t *out, int device);

/* With one. */
int hg_mem_info(struct hg_ctx c, void *fn, size_t *free, size_t *total);
int hg_create(struct hg_ctx c, void *fn, uint64_t *handle, size_t size, int device);
int hg_export(struct hg_ctx c, void *fn, int *fd, uint64_t handle);
int hg_import(struct hg_ctx c, void *fn, uint64_t *handle, int fd);
/* The device that it is memory of, in *device, or -1 for none. */
int hg_device_of(struct hg_ctx c, void *fn, int *device, uint64_t handle);
int hg_reserve(struct hg_ctx c, void *fn, uint64_t *address, size_t size, size_t alignment);
int hg_map(struct hg_ctx c, void *fn, uint64_t address, size_t size, uint64_t handle);
int hg_access(struct hg_ctx c, void *fn, uint64_t address, size_t size, int device);
/* A device pointer or a handle; a range of addresses; a host pointer or a stream. */
int hg_number(struct hg_ctx c, void *fn, uint64_t number);
int hg_range(struct hg_ctx c, void *fn, uint64_t address, size_t size);
int hg_pointer(struct hg_ctx c, void *fn, void *pointer);
int hg_alloc(struct hg_ctx c, void *fn, uint64_t *address, size_t size);
int hg_host_alloc(struct hg_ctx c, void *fn, void **pointer, size_t size);
int hg_stream_create(struct hg_ctx c, void *fn, void **stream);
int hg_copy_out(struct hg_ctx c, void *fn, void *to, uint64_t from, size_t size, void *stream);
int hg_copy_in(struct hg_ctx c, void *fn, uint64_t to, const void *from, size_t size, void *stream);
int hg_copy(struct hg_ctx c, void *fn, uint64_t to, uint64_t from, size_t size, void *stream);
int hg_zero(struct hg_ctx c, void *fn, uint64_t to, size_t size, void *stream);
int hg_module(struct hg_ctx c, void *fn, void **module, const void *image);
int hg_function(struct hg_ctx c, void *fn, void **function, void *module, const char *name);
/* A kernel with two pointers, in a grid of one dimension. */
int hg_launch(struct hg_ctx c, void *fn, void *function, unsigned int blocks, unsigned int threads, void *stream, uint64_t a, uint64_t b);

#endif
