// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Virtual memory management by the program, over a driver of software: handles
// stay what they were while the driver's change.
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "chunk.h"
#include "counters.h"
#include "handles.h"
#include "memory.h"
#include "memory_fake.h"
#include "overrides.h"
#include "real.h"
#include "window.h"

#define GIB ((size_t)1 << 30)
#define MIB ((size_t)1 << 20)

static char text[HETCUDA_TEXT];
static uint32_t missing;

static CUmemAllocationProp on_device(int device)
{
	return (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
	};
}

static const CUmemAccessDesc writing[] = {
	{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
	{{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
};

// The descriptor of what the program has imported, which its maker gave the peer.
static int makers = -1;

#define NONCE UINT64_C(0x123456789abcdef0)

static uint64_t word_of(int fd, uint32_t place)
{
	uint64_t word;
	CHECK(pread(fd, &word, sizeof word, (off_t)hetcuda_mark_offset(NONCE, place, 4 * MIB)) == sizeof word);
	return word;
}

// park lets go of everything and takes it back, what is imported in a second turn.
static int park(void)
{
	struct hetcuda_chunk c[16];
	int fd[16];
	uint32_t n, imported = 0;
	uint64_t before[16];
	int r = hetcuda_memory_quiesce(1000, &n, text);
	if (r)
		return r;
	for (uint32_t i = 0; i < n; i++) {
		before[i] = makers >= 0 ? word_of(makers, i) : 0;
		OK(hetcuda_memory_export(i, &c[i], &fd[i], text));
		CHECK((fd[i] < 0) == !!(c[i].flags & HETCUDA_IMPORTED));
		imported += fd[i] < 0;
	}
	OK(hetcuda_memory_mark(NONCE, text));
	for (uint32_t i = 0; i < n; i++)
		CHECK(fd[i] >= 0 || (word_of(makers, i) == hetcuda_mark(NONCE, i) && word_of(makers, i) != before[i]));
	OK(hetcuda_memory_mark(0, text));
	for (uint32_t i = 0; i < n; i++)
		CHECK(fd[i] >= 0 || word_of(makers, i) == before[i]);
	OK(hetcuda_memory_mark(NONCE, text));
	OK(hetcuda_memory_commit(text));
	for (uint32_t i = 0; i < n; i++)
		CHECK(fd[i] >= 0 || word_of(makers, i) == before[i]);
	for (uint32_t i = 0; i < n; i++)
		if (fd[i] >= 0)
			OK(hetcuda_memory_take(&c[i], fd[i], text));
	OK(hetcuda_memory_take_finish(&missing, text));
	CHECK(missing == imported);
	for (uint32_t i = 0; i < n; i++)
		if (fd[i] < 0)
			OK(hetcuda_memory_take(&c[i], makers, text));
	if (imported)
		OK(hetcuda_memory_take_finish(&missing, text));
	for (uint32_t i = 0; i < n; i++)
		if (fd[i] >= 0)
			close(fd[i]);
	CHECK(missing == 0);
	return 0;
}

static void life(void)
{
	fake_start(2, 8 * GIB);
	CUmemAllocationProp prop = on_device(0), got;
	CUmemGenericAllocationHandle h, again;
	CUdeviceptr va;
	int fd = -1;
	OK(hetcuda_cuMemCreate(&h, 4 * MIB, &prop, 0));
	CHECK(handle_ours(h) && h >> 48 != 0);
	CHECK(fake.handles == 1);
	OK(hetcuda_cuMemGetAllocationPropertiesFromHandle(&got, h));
	CHECK(got.requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE && got.location.id == 0);
	CHECK(hetcuda_cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) == CUDA_ERROR_INVALID_VALUE);
	OK(REAL(cuMemAddressReserve)(&va, 64 * MIB, 0, 0, 0));
	OK(hetcuda_cuMemMap(va, 4 * MIB, 0, h, 0));
	OK(hetcuda_cuMemSetAccess(va, 4 * MIB, writing, 1));
	memset((void *)va, 5, 4 * MIB);
	// Released, the memory lives as long as the mapping; its handle comes
	// back from the address.
	OK(hetcuda_cuMemRelease(h));
	CHECK(hetcuda_cuMemRelease(h) == CUDA_ERROR_INVALID_VALUE);
	CHECK(hetcuda_cuMemMap(va + 8 * MIB, 4 * MIB, 0, h, 0) == CUDA_ERROR_INVALID_VALUE);
	CHECK(fake.handles == 1);
	OK(hetcuda_cuMemRetainAllocationHandle(&again, (void *)(va + 3 * MIB)));
	CHECK(handle_ours(again) && again != h);
	OK(hetcuda_cuMemRetainAllocationHandle(&h, (void *)va));
	CHECK(again == h);
	OK(hetcuda_cuMemMap(va + 8 * MIB, 2 * MIB, 2 * MIB, h, 0));
	OK(hetcuda_cuMemSetAccess(va + 8 * MIB, 2 * MIB, writing, 2));
	CHECK(*(char *)(va + 8 * MIB) == 5);
	OK(hetcuda_cuMemUnmap(va, 4 * MIB));
	CHECK(hetcuda_cuMemUnmap(va, 4 * MIB) == CUDA_ERROR_INVALID_VALUE);
	OK(hetcuda_cuMemRelease(h));
	OK(hetcuda_cuMemRelease(h));
	CHECK(fake.handles == 1 && chunk_count == 1);
	CHECK(hetcuda_cuMemUnmap(va + 8 * MIB, 4 * MIB) == CUDA_ERROR_INVALID_VALUE);
	OK(hetcuda_cuMemUnmap(va + 8 * MIB, 2 * MIB));
	CHECK(fake.handles == 0 && fake.maps == 0 && chunk_count == 0);
	CHECK(hetcuda_cuMemRetainAllocationHandle(&h, (void *)0x1234) != CUDA_SUCCESS);
	// What cuMemAlloc returned is no mapping of the program's.
	fake_context(0);
	CUdeviceptr a;
	OK(hetcuda_cuMemAlloc_v2(&a, 3 * MIB));
	CHECK(hetcuda_cuMemRetainAllocationHandle(&h, (void *)a) == CUDA_ERROR_INVALID_VALUE);
	CHECK(hetcuda_cuMemUnmap(a, 4 * MIB) == CUDA_ERROR_INVALID_VALUE);
	CHECK(hetcuda_cuMemSetAccess(a, 4 * MIB, writing, 1) == CUDA_ERROR_INVALID_VALUE);
	CHECK(hetcuda_cuMemAddressFree(0x200000000000, (size_t)1 << 40) == CUDA_ERROR_INVALID_VALUE);
	OK(hetcuda_cuMemFree_v2(a));
	OK(hetcuda_cuMemAddressFree(va, 64 * MIB));
}

static void parked(void)
{
	fake_start(2, 8 * GIB);
	CUmemAllocationProp prop = on_device(0);
	CUmemGenericAllocationHandle h[3];
	CUdeviceptr va;
	OK(REAL(cuMemAddressReserve)(&va, 64 * MIB, 0, 0, 0));
	for (int i = 0; i < 3; i++)
		OK(hetcuda_cuMemCreate(&h[i], 4 * MIB, &prop, 0));
	// One mapped twice, one mapped in part, one nowhere.
	OK(hetcuda_cuMemMap(va, 4 * MIB, 0, h[0], 0));
	OK(hetcuda_cuMemMap(va + 4 * MIB, 2 * MIB, 2 * MIB, h[1], 0));
	OK(hetcuda_cuMemMap(va + 16 * MIB, 4 * MIB, 0, h[0], 0));
	OK(hetcuda_cuMemSetAccess(va, 6 * MIB, writing, 1));
	OK(hetcuda_cuMemSetAccess(va + 16 * MIB, 4 * MIB, writing, 2));
	memset((void *)va, 1, 4 * MIB);
	memset((void *)(va + 4 * MIB), 2, 2 * MIB);
	for (int i = 0; i < 3; i++) {
		OK(park());
		CHECK(*(char *)(va + 4 * MIB - 1) == 1 + i && *(char *)(va + 20 * MIB - 1) == 1 + i && *(char *)(va + 4 * MIB) == 2);
		CHECK(fake_access(va, 0) && !fake_access(va, 1) && fake_access(va + 16 * MIB, 1));
		memset((void *)(va + 16 * MIB), 2 + i, 4 * MIB); // the other mapping sees it
	}
	OK(hetcuda_cuMemMap(va + 32 * MIB, 4 * MIB, 0, h[2], 0));
	OK(hetcuda_cuMemUnmap(va + 32 * MIB, 4 * MIB));
	CUmemGenericAllocationHandle again;
	OK(hetcuda_cuMemRetainAllocationHandle(&again, (void *)va));
	CHECK(again == h[0]);
	OK(hetcuda_cuMemRelease(again));
	OK(hetcuda_cuMemUnmap(va, 6 * MIB)); // two mappings at once
	OK(hetcuda_cuMemUnmap(va + 16 * MIB, 4 * MIB));
	for (int i = 0; i < 3; i++)
		OK(hetcuda_cuMemRelease(h[i]));
	CHECK(fake.handles == 0 && fake.maps == 0 && chunk_count == 0 && chunk_bytes == 0);
}

// What other processes have, or gave, is parked as well; what can't be exported
// is left where it is.
static void others(void)
{
	fake_start(1, 8 * GIB);
	CUmemAllocationProp prop = on_device(0), numa = on_device(0);
	CUmemGenericAllocationHandle shared, imported, host;
	struct hetcuda_chunk c;
	uint32_t n;
	int fd, again;
	prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	OK(hetcuda_cuMemCreate(&shared, 4 * MIB, &prop, 0));
	OK(park());
	OK(hetcuda_cuMemExportToShareableHandle(&fd, shared, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	OK(park());
	// To those that have it, it is given as it is now.
	uint32_t count;
	OK(hetcuda_memory_share(&count, text));
	CHECK(count == 1);
	OK(hetcuda_memory_export_shared(0, &c, &again, text));
	CHECK(c.flags == HETCUDA_EXPORTED && c.size == 4 * MIB && hetcuda_memory_export_shared(1, &c, &again, text) == -EINVAL);
	close(again);
	OK(hetcuda_cuMemRelease(shared));
	OK(hetcuda_memory_share(&count, text));
	CHECK(count == 0);
	OK(park());
	OK(hetcuda_cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	makers = fd;
	// How much that is shows when it is mapped.
	text[0] = 0;
	CHECK(handle_ours(imported) && park() == -ENOTSUP && strstr(text, "shares device memory"));
	CUdeviceptr va;
	OK(REAL(cuMemAddressReserve)(&va, 64 * MIB, 0, 0, 0));
	OK(hetcuda_cuMemMap(va, 4 * MIB, 0, imported, 0));
	OK(hetcuda_cuMemRelease(imported));
	CHECK(COUNTED(imported) == 0 && chunk_count == 1);
	OK(park());
	// Somebody who marks and doesn't go on has left nothing.
	OK(hetcuda_memory_quiesce(1000, &n, text));
	OK(hetcuda_memory_export(0, &c, &again, text));
	OK(hetcuda_memory_mark(NONCE, text));
	CHECK(n == 1 && word_of(makers, 0) == hetcuda_mark(NONCE, 0));
	hetcuda_memory_abandon();
	CHECK(word_of(makers, 0) == 0);
	// The same memory twice: each has a word of its own, and all is put back.
	OK(hetcuda_cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)makers, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	OK(hetcuda_cuMemMap(va + 8 * MIB, 4 * MIB, 0, imported, 0));
	OK(hetcuda_cuMemRelease(imported));
	CHECK(chunk_count == 2);
	OK(park());
	OK(park());
	OK(hetcuda_cuMemUnmap(va + 8 * MIB, 4 * MIB));
	close(makers);
	makers = -1;
	OK(hetcuda_cuMemUnmap(va, 4 * MIB));
	CHECK(COUNTED(imported) == 0 && chunk_count == 0);
	OK(park());
	numa.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
	OK(hetcuda_cuMemCreate(&host, 4 * MIB, &numa, 0));
	CHECK(chunk_count == 0 && COUNTED(fixed) == 1);
	OK(park());
	CHECK(fake.handles == 1);
	OK(hetcuda_cuMemRelease(host));
	CHECK(fake.handles == 0);
	// Multicast and whatever else we don't know pass.
	CHECK(hetcuda_cuMemRelease(12345) == CUDA_ERROR_INVALID_VALUE);
}

// What a process has made is there when what it has imported is refused, with whatever
// call of the driver: it can be given that once more. The end of the connection takes
// everything.
static void refused(void)
{
	fake_start(1, 8 * GIB);
	CUmemAllocationProp prop = on_device(0);
	CUmemGenericAllocationHandle made, foreign, imported;
	CUdeviceptr va, there;
	struct hetcuda_chunk c[2];
	int fd[2], other;
	uint32_t n, mine, count;
	prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	OK(REAL(cuMemAddressReserve)(&va, 64 * MIB, 0, 0, 0));
	OK(hetcuda_cuMemCreate(&made, 4 * MIB, &prop, 0));
	OK(hetcuda_cuMemMap(va, 4 * MIB, 0, made, 0));
	OK(hetcuda_cuMemSetAccess(va, 4 * MIB, writing, 1));
	OK(hetcuda_cuMemExportToShareableHandle(&other, made, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	close(other);
	// No list was made, in which there were room for it.
	text[0] = 0;
	CHECK(hetcuda_memory_share(&count, text) == -EINVAL && strstr(text, "SHARE"));
	OK(REAL(cuMemCreate)(&foreign, 4 * MIB, &prop, 0));
	OK(REAL(cuMemExportToShareableHandle)(&other, foreign, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	OK(REAL(cuMemRelease)(foreign));
	OK(hetcuda_cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)other, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	there = va + 8 * MIB;
	OK(hetcuda_cuMemMap(there, 4 * MIB, 0, imported, 0));
	OK(hetcuda_cuMemSetAccess(there, 4 * MIB, writing, 1));
	*(char *)va = 1;
	*(char *)there = 2;
	size_t maps = fake.maps, handles = fake.handles;
	OK(hetcuda_memory_quiesce(1000, &n, text));
	CHECK(n == 2);
	for (uint32_t i = 0; i < n; i++)
		OK(hetcuda_memory_export(i, &c[i], &fd[i], text));
	mine = fd[0] < 0;
	OK(hetcuda_memory_commit(text));
	OK(hetcuda_memory_take(&c[mine], fd[mine], text));
	OK(hetcuda_memory_take_finish(&missing, text));
	CHECK(missing == 1 && *(char *)va == 1);
	fake.fail = "";
	fake.with = CUDA_ERROR_UNKNOWN;
	unsigned refusals = 0;
	for (unsigned k = 1;; k++) {
		fake.nth = k;
		int r = hetcuda_memory_take(&c[!mine], other, text);
		fake.nth = 0;
		if (r == 0)
			break;
		refusals++;
		hetcuda_memory_take_undo(false);
		OK(hetcuda_memory_share(&count, text));
		CHECK(count == 1 && *(char *)va == 1 && fake.maps == maps - 1 && fake.handles == handles - 1);
		CHECK(hetcuda_memory_take(&c[mine], fd[mine], text) == -EINVAL); // it has that
	}
	CHECK(refusals >= 3); // the import, the mapping, the access
	hetcuda_memory_take_undo(true);
	CHECK(fake.maps == 0 && fake.handles == 0);
	OK(hetcuda_memory_take(&c[mine], fd[mine], text));
	OK(hetcuda_memory_take_finish(&missing, text));
	OK(hetcuda_memory_take(&c[!mine], other, text));
	OK(hetcuda_memory_take_finish(&missing, text));
	CHECK(missing == 0 && *(char *)va == 1 && *(char *)there == 2 && fake.maps == maps && fake.handles == handles);
	close(fd[mine]);
	close(other);
}

static void failures(void)
{
	fake_start(1, 8 * GIB);
	CUmemAllocationProp prop = on_device(0);
	CUmemGenericAllocationHandle h;
	CUdeviceptr va;
	OK(REAL(cuMemAddressReserve)(&va, 64 * MIB, 0, 0, 0));
	for (unsigned n = 1; n < 10; n++) {
		fake.fail = "";
		fake.with = CUDA_ERROR_OUT_OF_MEMORY;
		fake.nth = n;
		bool created = hetcuda_cuMemCreate(&h, 4 * MIB, &prop, 0) == CUDA_SUCCESS;
		bool mapped = created && hetcuda_cuMemMap(va, 4 * MIB, 0, h, 0) == CUDA_SUCCESS;
		bool usable = mapped && hetcuda_cuMemSetAccess(va, 4 * MIB, writing, 1) == CUDA_SUCCESS;
		if (mapped && hetcuda_cuMemUnmap(va, 4 * MIB) != CUDA_SUCCESS) {
			CHECK(chunks && chunks->mappings && fake.maps == 1);
			if (usable)
				memset((void *)va, 1, 4 * MIB);
			OK(hetcuda_cuMemUnmap(va, 4 * MIB));
		}
		if (created)
			hetcuda_cuMemRelease(h);
		fake.nth = 0;
		CHECK(chunk_count == 0 && fake.maps == 0);
	}
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		{"life", life}, {"parked", parked}, {"others", others}, {"refused", refused}, {"failures", failures}, {0},
	};
	return run_tests(tests, argc, argv);
}
