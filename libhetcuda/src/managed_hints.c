// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// What a program says about its use of managed memory: prefetch, advice, streams.
#include <stdlib.h>

#include "overrides.h"
#include "pages.h"
#include "parts.h"
#include "ptsz.h"
#include "real.h"
#include "serve.h"

// within returns the range that has all of some addresses, or of a variable's the
// first. Lock: held.
static struct range *within(CUdeviceptr address, size_t count)
{
	struct range *r = range_find(address);
	const struct part *p = r ? part_find(r, address) : NULL;
	CUdeviceptr end = p ? p->whole->address + p->whole->size : r && !r->placed ? r->address + r->size : address;
	return count <= end - address ? r : NULL;
}

static bool ours(CUdeviceptr address)
{
	if (!range_any())
		return false;
	PAGES();
	return range_of(address);
}

// To the device: at once, for what the CPU writes until the stream gets there is
// the device's with the work that uses it anyway. To the CPU: when the device is
// idle; it is a hint, so nobody waits for it.
static CUresult prefetch(CUdeviceptr address, size_t count, int device)
{
	int devices = 0;
	REAL(cuDeviceGetCount)(&devices);
	if (device < CU_DEVICE_CPU || device >= devices)
		return CUDA_ERROR_INVALID_DEVICE;
	PAGES();
	struct range *r = within(address, count);
	if (!r || count == 0)
		return CUDA_ERROR_INVALID_VALUE;
	r->prefetched = device;
	if (!r->split)
		return CUDA_SUCCESS;
	size_t offset = address - r->address;
	count = count < r->size - offset ? count : r->size - offset;
	if (device != CU_DEVICE_CPU)
		return pages_flush(r, offset / GRANULE, (offset + count + GRANULE - 1) / GRANULE);
	struct request *q = calloc(1, sizeof *q);
	if (q) {
		*q = (struct request){.what = FETCH, .address = address, .size = count, .heap = true};
		serve_push(q, false);
	}
	return CUDA_SUCCESS;
}

static int location(CUmemLocation l)
{
	switch ((int)l.type) {
	case CU_MEM_LOCATION_TYPE_DEVICE: return l.id;
	case CU_MEM_LOCATION_TYPE_HOST:
	case CU_MEM_LOCATION_TYPE_HOST_NUMA:
	case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT: return CU_DEVICE_CPU;
	default: return CU_DEVICE_INVALID;
	}
}

CUresult hetcuda_cuMemPrefetchAsync(CUdeviceptr address, size_t count, CUdevice device, CUstream stream)
{
	return ours(address) ? prefetch(address, count, device) : REAL(cuMemPrefetchAsync)(address, count, device, stream);
}

CUresult hetcuda_cuMemPrefetchAsync_ptsz(CUdeviceptr address, size_t count, CUdevice device, CUstream stream)
{
	return ours(address) ? prefetch(address, count, device) : REAL(cuMemPrefetchAsync_ptsz)(address, count, device, stream);
}

CUresult hetcuda_cuMemPrefetchAsync_v2(CUdeviceptr address, size_t count, CUmemLocation to, unsigned int flags, CUstream stream)
{
	return ours(address) ? prefetch(address, count, location(to))
			     : REAL(cuMemPrefetchAsync_v2)(address, count, to, flags, stream);
}

CUresult hetcuda_cuMemPrefetchAsync_v2_ptsz(CUdeviceptr address, size_t count, CUmemLocation to, unsigned int flags,
					    CUstream stream)
{
	return ours(address) ? prefetch(address, count, location(to))
			     : REAL(cuMemPrefetchAsync_v2_ptsz)(address, count, to, flags, stream);
}

// Batches (CUDA 13). One that has any memory of ours is taken apart: what is not
// ours goes to the driver one by one. Location i is for what comes from
// indexes[i] on. To discard is to allow that data is lost; here it stays.
struct batch {
	CUdeviceptr *addresses;
	size_t *sizes, count;
	CUmemLocation *locations;
	size_t *indexes, location_count;
};

static bool batch_ours(const struct batch *b)
{
	if (!range_any() || !b->addresses || !b->sizes)
		return false;
	for (size_t i = 0; i < b->count; i++)
		if (ours(b->addresses[i]))
			return true;
	return false;
}

static CUresult prefetch_batch(const struct batch *b, unsigned long long flags, CUstream stream,
			       __typeof__(&cuMemPrefetchBatchAsync) others)
{
	size_t at = 0, first = 0;
	if (!b->locations || !b->indexes || b->location_count == 0 || b->indexes[0] != 0)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < b->count; i++) {
		while (at + 1 < b->location_count && b->indexes[at + 1] <= i)
			at++;
		CUresult r = ours(b->addresses[i])
				     ? prefetch(b->addresses[i], b->sizes[i], location(b->locations[at]))
				     : others(&b->addresses[i], &b->sizes[i], 1, &b->locations[at], &first, 1, flags, stream);
		if (r != CUDA_SUCCESS)
			return r;
	}
	return CUDA_SUCCESS;
}

static CUresult discard_batch(const struct batch *b, unsigned long long flags, CUstream stream,
			      __typeof__(&cuMemDiscardBatchAsync) others)
{
	for (size_t i = 0; i < b->count; i++) {
		CUresult r = CUDA_SUCCESS;
		if (!ours(b->addresses[i]))
			r = others(&b->addresses[i], &b->sizes[i], 1, flags, stream);
		if (r != CUDA_SUCCESS)
			return r;
	}
	return CUDA_SUCCESS;
}

#define PREFETCH_BATCH(name)                                                                                            \
	CUresult hetcuda_##name(CUdeviceptr *addresses, size_t *sizes, size_t count, CUmemLocation *locations,           \
				size_t *indexes, size_t location_count, unsigned long long flags, CUstream stream)       \
	{                                                                                                                \
		struct batch b = {addresses, sizes, count, locations, indexes, location_count};                          \
		if (!batch_ours(&b))                                                                                     \
			return REAL(name)(addresses, sizes, count, locations, indexes, location_count, flags, stream);   \
		return prefetch_batch(&b, flags, stream, REAL(name));                                                    \
	}
#define DISCARD_BATCH(name)                                                                                             \
	CUresult hetcuda_##name(CUdeviceptr *addresses, size_t *sizes, size_t count, unsigned long long flags,           \
				CUstream stream)                                                                         \
	{                                                                                                                \
		struct batch b = {.addresses = addresses, .sizes = sizes, .count = count};                               \
		return batch_ours(&b) ? discard_batch(&b, flags, stream, REAL(name))                                     \
				      : REAL(name)(addresses, sizes, count, flags, stream);                              \
	}

PREFETCH_BATCH(cuMemPrefetchBatchAsync)
PREFETCH_BATCH(cuMemPrefetchBatchAsync_ptsz)
PREFETCH_BATCH(cuMemDiscardAndPrefetchBatchAsync)
PREFETCH_BATCH(cuMemDiscardAndPrefetchBatchAsync_ptsz)
DISCARD_BATCH(cuMemDiscardBatchAsync)
DISCARD_BATCH(cuMemDiscardBatchAsync_ptsz)

// Advice changes nothing here but what is answered when it is asked for.
static CUresult advise(CUdeviceptr address, size_t count, CUmem_advise advice, int device)
{
	PAGES();
	struct range *r = within(address, count);
	if (!r || count == 0)
		return CUDA_ERROR_INVALID_VALUE;
	switch (advice) {
	case CU_MEM_ADVISE_SET_READ_MOSTLY: r->read_mostly = true; return CUDA_SUCCESS;
	case CU_MEM_ADVISE_UNSET_READ_MOSTLY: r->read_mostly = false; return CUDA_SUCCESS;
	case CU_MEM_ADVISE_SET_PREFERRED_LOCATION: r->preferred = device; return CUDA_SUCCESS;
	case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION: r->preferred = CU_DEVICE_INVALID; return CUDA_SUCCESS;
	case CU_MEM_ADVISE_SET_ACCESSED_BY:
	case CU_MEM_ADVISE_UNSET_ACCESSED_BY: return CUDA_SUCCESS;
	}
	return CUDA_ERROR_INVALID_VALUE;
}

CUresult hetcuda_cuMemAdvise(CUdeviceptr address, size_t count, CUmem_advise advice, CUdevice device)
{
	return ours(address) ? advise(address, count, advice, device) : REAL(cuMemAdvise)(address, count, advice, device);
}

CUresult hetcuda_cuMemAdvise_v2(CUdeviceptr address, size_t count, CUmem_advise advice, CUmemLocation where)
{
	return ours(address) ? advise(address, count, advice, location(where))
			     : REAL(cuMemAdvise_v2)(address, count, advice, where);
}

static int location_type(int device)
{
	return device >= 0 ? CU_MEM_LOCATION_TYPE_DEVICE : device == CU_DEVICE_CPU ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_INVALID;
}

static CUresult attribute_of(int *data, size_t size, CUmem_range_attribute attribute, CUdeviceptr address, size_t count)
{
	PAGES();
	const struct range *r = within(address, count);
	if (!r || !data || size < sizeof *data || size % sizeof *data != 0)
		return CUDA_ERROR_INVALID_VALUE;
	switch (attribute) {
	case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY: *data = r->read_mostly; break;
	case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION: *data = r->preferred; break;
	case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
		// Nobody needs a mapping made: CPU and home device have one.
		for (size_t i = 0; i < size / sizeof *data; i++)
			data[i] = CU_DEVICE_INVALID;
		break;
	case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION: *data = r->prefetched; break;
	case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE: *data = location_type(r->preferred); break;
	case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID: *data = r->preferred >= 0 ? r->preferred : 0; break;
	case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE: *data = location_type(r->prefetched); break;
	case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID: *data = r->prefetched >= 0 ? r->prefetched : 0; break;
	default: return CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_SUCCESS;
}

CUresult hetcuda_cuMemRangeGetAttribute(void *data, size_t size, CUmem_range_attribute attribute, CUdeviceptr address,
					size_t count)
{
	return ours(address) ? attribute_of(data, size, attribute, address, count)
			     : REAL(cuMemRangeGetAttribute)(data, size, attribute, address, count);
}

CUresult hetcuda_cuMemRangeGetAttributes(void **data, size_t *sizes, CUmem_range_attribute *attributes, size_t n,
					 CUdeviceptr address, size_t count)
{
	if (!data || !sizes || !attributes || !ours(address))
		return REAL(cuMemRangeGetAttributes)(data, sizes, attributes, n, address, count);
	for (size_t i = 0; i < n; i++) {
		CUresult r = attribute_of(data[i], sizes[i], attributes[i], address, count);
		if (r != CUDA_SUCCESS)
			return r;
	}
	return CUDA_SUCCESS;
}

// Memory that only one stream uses may be touched while others work. Here any
// access is served, after the device's work.
CUresult hetcuda_cuStreamAttachMemAsync(CUstream stream, CUdeviceptr address, size_t length, unsigned int flags)
{
	if (!ours(address))
		return REAL(cuStreamAttachMemAsync)(stream, address, length, flags);
	return flags == 1 || flags == 2 || flags == 4 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult hetcuda_cuStreamAttachMemAsync_ptsz(CUstream stream, CUdeviceptr address, size_t length, unsigned int flags)
{
	if (!ours(address))
		return REAL(cuStreamAttachMemAsync_ptsz)(stream, address, length, flags);
	return flags == 1 || flags == 2 || flags == 4 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
