/* SPDX-FileCopyrightText: The hetGPU authors
 * SPDX-License-Identifier: Apache-2.0
 */
#include "gpu.h"

enum {
	ALLOCATION_PINNED = 1,
	LOCATION_DEVICE = 1,
	HANDLE_POSIX_FD = 1,
	ACCESS_READWRITE = 3,
	GRANULARITY_MINIMUM = 0,
	STREAM_NON_BLOCKING = 1,
	HOST_ALLOC_PORTABLE = 1,
	CTX_SCHED_BLOCKING_SYNC = 4,
};

/* Makes the context current and calls, or returns why that can't be. */
#define CALL(c, fn, type, ...) \
	do { \
		int r = ((pointer_fn *)(c).set_current)((c).context); \
		return r != 0 ? r : ((type *)(fn))(__VA_ARGS__); \
	} while (0)

typedef int pointer_fn(void *);
typedef int int_of_int_fn(int *, int);
typedef int uuid_fn(unsigned char *, int);
typedef int retain_fn(void **, int);
typedef int int_fn(int);
typedef int flags_fn(int, unsigned int);
typedef int granularity_fn(size_t *, const struct cu_mem_prop *, int);
typedef int info_fn(size_t *, size_t *);
typedef int create_fn(uint64_t *, size_t, const struct cu_mem_prop *, unsigned long long);
typedef int export_fn(void *, uint64_t, int, unsigned long long);
typedef int import_fn(uint64_t *, void *, int);
typedef int properties_fn(struct cu_mem_prop *, uint64_t);
typedef int reserve_fn(uint64_t *, size_t, size_t, uint64_t, unsigned long long);
typedef int map_fn(uint64_t, size_t, size_t, uint64_t, unsigned long long);
typedef int access_fn(uint64_t, size_t, const struct cu_mem_access *, size_t);
typedef int number_fn(uint64_t);
typedef int range_fn(uint64_t, size_t);
typedef int alloc_fn(uint64_t *, size_t);
typedef int host_alloc_fn(void **, size_t, unsigned int);
typedef int stream_fn(void **, unsigned int);
typedef int copy_out_fn(void *, uint64_t, size_t, void *);
typedef int copy_in_fn(uint64_t, const void *, size_t, void *);
typedef int copy_fn(uint64_t, uint64_t, size_t, void *);
typedef int zero_fn(uint64_t, unsigned char, size_t, void *);
typedef int module_fn(void **, const void *);
typedef int function_fn(void **, void *, const char *);
typedef int launch_fn(void *, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int,
		      void *, void **, void **);

static struct cu_mem_prop on(int device)
{
	return (struct cu_mem_prop){
		.type = ALLOCATION_PINNED,
		.handle_types = HANDLE_POSIX_FD,
		.location = {.type = LOCATION_DEVICE, .id = device},
	};
}

int hg_device_get(void *fn, int *device, int ordinal)
{
	return ((int_of_int_fn *)fn)(device, ordinal);
}

int hg_device_uuid(void *fn, unsigned char *uuid, int device)
{
	return ((uuid_fn *)fn)(uuid, device);
}

int hg_primary_retain(void *fn, void **context, int device)
{
	return ((retain_fn *)fn)(context, device);
}

int hg_primary_release(void *fn, int device)
{
	return ((int_fn *)fn)(device);
}

int hg_primary_blocking(void *fn, int device)
{
	return ((flags_fn *)fn)(device, CTX_SCHED_BLOCKING_SYNC);
}

int hg_granularity(void *fn, size_t *out, int device)
{
	struct cu_mem_prop prop = on(device);

	return ((granularity_fn *)fn)(out, &prop, GRANULARITY_MINIMUM);
}

int hg_mem_info(struct hg_ctx c, void *fn, size_t *free, size_t *total)
{
	CALL(c, fn, info_fn, free, total);
}

int hg_create(struct hg_ctx c, void *fn, uint64_t *handle, size_t size, int device)
{
	struct cu_mem_prop prop = on(device);

	CALL(c, fn, create_fn, handle, size, &prop, 0);
}

int hg_export(struct hg_ctx c, void *fn, int *fd, uint64_t handle)
{
	CALL(c, fn, export_fn, fd, handle, HANDLE_POSIX_FD, 0);
}

int hg_import(struct hg_ctx c, void *fn, uint64_t *handle, int fd)
{
	/* The descriptor is given as the pointer itself. */
	CALL(c, fn, import_fn, handle, (void *)(intptr_t)fd, HANDLE_POSIX_FD);
}

static int properties(struct hg_ctx c, void *fn, struct cu_mem_prop *prop, uint64_t handle)
{
	CALL(c, fn, properties_fn, prop, handle);
}

int hg_device_of(struct hg_ctx c, void *fn, int *device, uint64_t handle)
{
	struct cu_mem_prop prop = {0};
	int r = properties(c, fn, &prop, handle);

	*device = r == 0 && prop.location.type == LOCATION_DEVICE ? prop.location.id : -1;
	return r;
}

int hg_reserve(struct hg_ctx c, void *fn, uint64_t *address, size_t size, size_t alignment)
{
	CALL(c, fn, reserve_fn, address, size, alignment, 0, 0);
}

int hg_map(struct hg_ctx c, void *fn, uint64_t address, size_t size, uint64_t handle)
{
	CALL(c, fn, map_fn, address, size, 0, handle, 0);
}

int hg_access(struct hg_ctx c, void *fn, uint64_t address, size_t size, int device)
{
	struct cu_mem_access access = {
		.location = {.type = LOCATION_DEVICE, .id = device},
		.flags = ACCESS_READWRITE,
	};

	CALL(c, fn, access_fn, address, size, &access, 1);
}

int hg_number(struct hg_ctx c, void *fn, uint64_t number)
{
	CALL(c, fn, number_fn, number);
}

int hg_range(struct hg_ctx c, void *fn, uint64_t address, size_t size)
{
	CALL(c, fn, range_fn, address, size);
}

int hg_pointer(struct hg_ctx c, void *fn, void *pointer)
{
	CALL(c, fn, pointer_fn, pointer);
}

int hg_alloc(struct hg_ctx c, void *fn, uint64_t *address, size_t size)
{
	CALL(c, fn, alloc_fn, address, size);
}

int hg_host_alloc(struct hg_ctx c, void *fn, void **pointer, size_t size)
{
	CALL(c, fn, host_alloc_fn, pointer, size, HOST_ALLOC_PORTABLE);
}

int hg_stream_create(struct hg_ctx c, void *fn, void **stream)
{
	CALL(c, fn, stream_fn, stream, STREAM_NON_BLOCKING);
}

int hg_copy_out(struct hg_ctx c, void *fn, void *to, uint64_t from, size_t size, void *stream)
{
	CALL(c, fn, copy_out_fn, to, from, size, stream);
}

int hg_copy_in(struct hg_ctx c, void *fn, uint64_t to, const void *from, size_t size, void *stream)
{
	CALL(c, fn, copy_in_fn, to, from, size, stream);
}

int hg_copy(struct hg_ctx c, void *fn, uint64_t to, uint64_t from, size_t size, void *stream)
{
	CALL(c, fn, copy_fn, to, from, size, stream);
}

int hg_zero(struct hg_ctx c, void *fn, uint64_t to, size_t size, void *stream)
{
	CALL(c, fn, zero_fn, to, 0, size, stream);
}

int hg_module(struct hg_ctx c, void *fn, void **module, const void *image)
{
	CALL(c, fn, module_fn, module, image);
}

int hg_function(struct hg_ctx c, void *fn, void **function, void *module, const char *name)
{
	CALL(c, fn, function_fn, function, module, name);
}

int hg_launch(struct hg_ctx c, void *fn, void *function, unsigned int blocks, unsigned int threads, void *stream, uint64_t a, uint64_t b)
{
	void *params[] = {&a, &b};

	CALL(c, fn, launch_fn, function, blocks, 1, 1, threads, 1, 1, 0, stream, params, NULL);
}
