// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// conform makes calls of the driver API, good ones and bad ones, and prints what each
// returns and what a program can tell of it. Nothing that it prints depends on the
// run: over libhetcuda it has to print what it prints over the driver itself.
//
//     conform       a line for each call
//     conform -l    what a launch costs: "launch_ns N", the median of nine
//
// Addresses are not printed, but what they have in common.
#define _GNU_SOURCE
#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "crash.h"
#include "kernels.h"

static const char *section = "";

static CUresult said(CUresult r, const char *call)
{
	const char *name = NULL;
	cuGetErrorName(r, &name);
	printf("%s: %s: %s\n", section, call, name ? name : "?");
	return r;
}
// CALL prints what a call returns. VALUE prints a number or a truth.
#define CALL(call) said(call, #call)
#define VALUE(v) printf("%s: %s = %lld\n", section, #v, (long long)(v))

static CUdevice device;
static CUcontext context;
static CUmodule module;
static CUfunction fill, step, sum;

static const size_t MiB = 1 << 20;

static void init(void)
{
	int version, count, value;
	char name[64];
	CUcontext now;
	unsigned int flags = 7;
	int active = 7;
	size_t total;
	CUresult r;
	section = "init";
	CALL(cuDeviceGetCount(&count));
	CALL(cuInit(1));
	CALL(cuInit(0));
	CALL(cuDriverGetVersion(&version));
	VALUE(version);
	CALL(cuDriverGetVersion(NULL));
	CALL(cuDeviceGetCount(&count));
	VALUE(count);
	CALL(cuDeviceGet(&device, count));
	CALL(cuDeviceGet(&device, -1));
	CALL(cuDeviceGet(&device, 0));
	CALL(cuDeviceGetName(name, sizeof name, device));
	printf("%s: name = %s\n", section, name);
	CALL(cuDeviceTotalMem(&total, device));
	VALUE(total);
	CALL(cuCtxGetCurrent(&now));
	VALUE(now == NULL);
	CALL(cuDevicePrimaryCtxGetState(device, &flags, &active));
	VALUE(flags);
	VALUE(active);
	CALL(cuMemAlloc(&(CUdeviceptr){0}, 256));
	CALL(cuDevicePrimaryCtxRetain(&context, device));
	CALL(cuCtxSetCurrent(context));
	CALL(cuDevicePrimaryCtxGetState(device, &flags, &active));
	VALUE(active);
	for (int i = 1; i < 160; i++) {
		r = cuDeviceGetAttribute(&value, (CUdevice_attribute)i, device);
		printf("attribute %d: %d, %d\n", i, (int)r, r == CUDA_SUCCESS ? value : 0);
	}
	for (int i = 0; i < 1000; i++) {
		const char *text = NULL;
		if (cuGetErrorString((CUresult)i, &text) == CUDA_SUCCESS)
			printf("error %d: %s\n", i, text);
	}
}

// named asks for functions as runtimes do.
static void named(void)
{
	static const char *const names[] = {
		"cuInit", "cuMemAlloc", "cuMemFree", "cuMemAllocAsync", "cuMemcpy", "cuMemcpyAsync", "cuLaunchKernel", "cuLaunchKernelEx",
		"cuCtxCreate", "cuCtxSynchronize", "cuStreamBeginCapture", "cuGraphInstantiate", "cuGraphLaunch", "cuIpcOpenMemHandle",
		"cuEventElapsedTime", "cuMemAllocManaged", "cuMemPrefetchAsync", "cuMemAdvise", "cuModuleLoadData", "cuLibraryLoadData",
		"cuGetProcAddress", "cuGetExportTable", "cuMemPoolCreate", "cuStreamSynchronize", "cuArrayCreate", "cuTexObjectCreate",
		"cuDeviceGetUuid", "cuOccupancyMaxActiveBlocksPerMultiprocessor", "cuLinkCreate", "cuMulticastCreate", "cuNothing",
	};
	static const int versions[] = {2000, 3020, 4000, 7000, 10000, 11020, 12000, 12050, 13000, 99000};
	section = "names";
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		for (size_t v = 0; v < sizeof versions / sizeof *versions; v++)
			for (cuuint64_t flags = 0; flags <= 4; flags++) {
				void *f = NULL;
				CUdriverProcAddressQueryResult status = (CUdriverProcAddressQueryResult)9;
				CUresult r = cuGetProcAddress(names[i], &f, versions[v], flags, &status);
				printf("%s: %s, %d, %d: %d, %d, %s\n", section, names[i], versions[v], (int)flags, (int)r, (int)status,
				       f ? "a function" : "none");
			}
}

static void attributes(CUdeviceptr p)
{
	CUmemorytype type = 0;
	int ordinal = -5;
	unsigned int is_managed = 7, sync = 7;
	unsigned long long id = 0;
	CUdeviceptr at = 0, start = 0;
	void *host = NULL;
	size_t size = 0;
	CUcontext of = NULL;
	CALL(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
	VALUE(type);
	CALL(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_CONTEXT, p));
	VALUE(of == context);
	CALL(cuPointerGetAttribute(&at, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, p));
	VALUE(at == p);
	CALL(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, p));
	CALL(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, p));
	VALUE(is_managed & 1);
	CALL(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p));
	VALUE(ordinal);
	CALL(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, p));
	VALUE(id != 0);
	CALL(cuPointerGetAttribute(&sync, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
	VALUE(sync & 1);
	CALL(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, p));
	CALL(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, p));
	VALUE(size);
	VALUE(start ? p - start : 0);
	start = size = 0;
	CALL(cuMemGetAddressRange(&start, &size, p));
	VALUE(start ? p - start : 0);
	VALUE(size);
}

static void memory(void)
{
	static const size_t sizes[] = {1, 255, 256, 257, 4096, 70000, 1 << 20, (2 << 20) + 1, 33 << 20};
	CUdeviceptr p = 0, q, all[9];
	size_t pitch, before, after, total;
	section = "memory";
	CALL(cuMemAlloc(&p, 0));
	CALL(cuMemAlloc(NULL, 256));
	CALL(cuMemAlloc(&p, (size_t)1 << 50));
	CALL(cuMemFree(0));
	CALL(cuMemGetInfo(&before, &total));
	for (int i = 0; i < 9; i++) {
		CALL(cuMemAlloc(&all[i], sizes[i]));
		VALUE(all[i] % 256);
		attributes(all[i]);
		attributes(all[i] + sizes[i] - 1);
	}
	CALL(cuMemGetAddressRange(&q, &pitch, all[0] + 1));
	CALL(cuMemFree(all[3] + 1));
	for (int i = 0; i < 9; i++)
		CALL(cuMemFree(all[i]));
	CALL(cuMemGetInfo(&after, &total));
	VALUE(total >= after);
	CALL(cuMemFree(all[8]));
	CALL(cuMemFree(0x1000));
	attributes(all[8]);
	CALL(cuMemGetAddressRange(&q, &pitch, 0x1000));
	for (unsigned int element = 3; element <= 16; element++) {
		CALL(cuMemAllocPitch(&p, &pitch, 1000, 7, element));
		VALUE(pitch);
		if (element == 4 || element == 8 || element == 16)
			CALL(cuMemFree(p));
	}
	CALL(cuMemAllocPitch(&p, &pitch, 0, 7, 4));
	CALL(cuMemAllocPitch(&p, &pitch, 7, 0, 4));
	int value = 1;
	CALL(cuMemAlloc(&p, 4096));
	CALL(cuPointerSetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
	attributes(p);
	CUpointer_attribute list[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
	CUmemorytype type = 9;
	size_t size = 9;
	int ordinal = 9;
	void *values[] = {&type, &size, &ordinal};
	CALL(cuPointerGetAttributes(3, list, values, p + 17));
	VALUE(type), VALUE(size), VALUE(ordinal);
	CALL(cuPointerGetAttributes(3, list, values, 0x1000));
	VALUE(type), VALUE(size), VALUE(ordinal);
	CALL(cuMemFree(p));
}

static bool filled(const unsigned char *p, size_t n, unsigned char with)
{
	for (size_t i = 0; i < n; i++)
		if (p[i] != with)
			return false;
	return true;
}

static void copies(void)
{
	enum { N = 1 << 16 };
	static unsigned char host[N], back[N];
	CUdeviceptr p, q;
	void *pinned;
	section = "copies";
	CALL(cuMemAlloc(&p, N));
	CALL(cuMemAlloc(&q, N));
	for (int i = 0; i < N; i++)
		host[i] = (unsigned char)(i * 7 + i / 256);
	CALL(cuMemcpyHtoD(p, host, N));
	CALL(cuMemcpyDtoD(q, p, N));
	CALL(cuMemcpyDtoH(back, q, N));
	VALUE(memcmp(host, back, N));
	CALL(cuMemcpyHtoD(p, host, 0));
	CALL(cuMemsetD8(p, 0x5a, N));
	CALL(cuMemcpy((CUdeviceptr)(uintptr_t)back, p, N));
	VALUE(filled(back, N, 0x5a));
	CALL(cuMemsetD32(p, 0x01010101, N / 4));
	CALL(cuMemsetD32(p + 2, 0, 1));
	CALL(cuMemcpyDtoH(back, p, N));
	VALUE(filled(back, N, 1));
	CALL(cuMemAllocHost(&pinned, N));
	CALL(cuMemsetD8Async(p, 0x77, N, NULL));
	CALL(cuMemcpyDtoHAsync(pinned, p, N, NULL));
	CALL(cuStreamSynchronize(NULL));
	VALUE(filled(pinned, N, 0x77));
	memset(pinned, 0x33, N);
	CALL(cuMemcpyHtoDAsync(q, pinned, N, NULL));
	CALL(cuMemcpyDtoDAsync(p, q, N, NULL));
	CALL(cuMemcpyAsync((CUdeviceptr)(uintptr_t)back, p, N, NULL));
	CALL(cuStreamSynchronize(NULL));
	VALUE(filled(back, N, 0x33));
	CALL(cuMemFreeHost(pinned));
	CALL(cuMemFreeHost(pinned));
	CALL(cuMemFree(p));
	CALL(cuMemFree(q));
}

static void host(void)
{
	void *p, *q = aligned_alloc(4096, 8192);
	CUdeviceptr d = 0;
	section = "host";
	CALL(cuMemHostAlloc(&p, 4096, CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE));
	CALL(cuMemHostGetDevicePointer(&d, p, 0));
	VALUE(d == (CUdeviceptr)(uintptr_t)p);
	attributes(d);
	CALL(cuMemHostAlloc(&p, 0, 0));
	CALL(cuMemHostAlloc(&p, 4096, 0xff00));
	CALL(cuMemHostRegister(q, 8192, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
	CALL(cuMemHostRegister(q, 8192, 0));
	CALL(cuMemHostGetDevicePointer(&d, q, 0));
	CALL(cuMemHostUnregister(q));
	CALL(cuMemHostUnregister(q));
	CALL(cuMemHostGetDevicePointer(&d, q, 0));
	free(q);
}

static void on_host(void *data)
{
	++*(int *)data;
}

static void streams(void)
{
	CUstream s, t;
	CUevent e, f;
	CUcontext of = NULL;
	CUstreamCaptureStatus capturing = 9;
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUdeviceptr p;
	unsigned long long a = 0, b = 0;
	float ms = -1;
	int visits = 0;
	uint64_t words = 1 << 16, seed = 1, total = 0;
	section = "streams";
	CALL(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CALL(cuStreamCreate(&t, 99));
	CALL(cuStreamCreateWithPriority(&t, CU_STREAM_DEFAULT, -1));
	CALL(cuStreamGetCtx(s, &of));
	VALUE(of == context);
	CALL(cuStreamGetId(s, &a));
	CALL(cuStreamGetId(t, &b));
	VALUE(a != b);
	CALL(cuStreamQuery(s));
	CALL(cuEventCreate(&e, CU_EVENT_DEFAULT));
	CALL(cuEventCreate(&f, CU_EVENT_DISABLE_TIMING));
	CALL(cuEventQuery(e));
	CALL(cuEventSynchronize(e));
	CALL(cuEventElapsedTime(&ms, e, e));
	CALL(cuMemAlloc(&p, words * 8 + 8));
	CUdeviceptr out = p + words * 8;
	CALL(cuEventRecord(e, s));
	CALL(cuLaunchKernel(fill, 64, 1, 1, 256, 1, 1, 0, s, (void *[]){&p, &words, &seed}, NULL));
	CALL(cuLaunchHostFunc(s, on_host, &visits));
	CALL(cuEventRecord(f, s));
	CALL(cuStreamWaitEvent(t, f, 0));
	CALL(cuMemsetD8Async(out, 0, 8, t));
	CALL(cuLaunchKernel(sum, 64, 1, 1, 256, 1, 1, 0, t, (void *[]){&p, &words, &out}, NULL));
	CALL(cuStreamSynchronize(t));
	CALL(cuMemcpyDtoH(&total, out, 8));
	VALUE(total);
	VALUE(visits);
	CALL(cuEventElapsedTime(&ms, e, f));
	CALL(cuEventRecord(e, t));
	CALL(cuEventSynchronize(e));
	CALL(cuEventElapsedTime(&ms, e, e));
	VALUE(ms == 0);
	CALL(cuStreamWriteValue64_v2(s, out, 41, 0));
	CALL(cuStreamWaitValue64_v2(t, out, 41, CU_STREAM_WAIT_VALUE_GEQ));
	CALL(cuStreamSynchronize(t));
	CALL(cuMemcpyDtoH(&total, out, 8));
	VALUE(total);
	CALL(cuStreamIsCapturing(s, &capturing));
	VALUE(capturing);
	CALL(cuThreadExchangeStreamCaptureMode(&mode));
	VALUE(mode);
	CALL(cuThreadExchangeStreamCaptureMode(&mode));
	VALUE(mode);
	CALL(cuStreamDestroy(s));
	CALL(cuStreamDestroy(t));
	CALL(cuStreamDestroy(NULL));
	CALL(cuEventDestroy(e));
	CALL(cuEventDestroy(f));
	CALL(cuMemFree(p));
}

static void pools(void)
{
	CUmemoryPool pool = NULL, again = NULL, own = NULL;
	CUmemPoolProps props;
	CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
	CUmemAccess_flags access = 0;
	CUdeviceptr p = 0, q = 0;
	CUstream s;
	cuuint64_t threshold = 123;
	int flag = 7;
	section = "pools";
	memset(&props, 0, sizeof props);
	props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
	props.location = here;
	CALL(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CALL(cuDeviceGetDefaultMemPool(&pool, device));
	CALL(cuDeviceGetMemPool(&again, device));
	VALUE(pool == again);
	CALL(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
	VALUE(threshold);
	CALL(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &flag));
	VALUE(flag);
	CALL(cuMemPoolGetAccess(&access, pool, &here));
	VALUE(access);
	CALL(cuMemPoolCreate(&own, &props));
	CALL(cuDeviceSetMemPool(device, own));
	CALL(cuDeviceGetMemPool(&again, device));
	VALUE(again == own);
	CALL(cuMemAllocAsync(&p, 5 * MiB, s));
	CALL(cuMemAllocFromPoolAsync(&q, 70000, pool, s));
	CALL(cuMemsetD8Async(p, 3, 5 * MiB, s));
	CALL(cuStreamSynchronize(s));
	attributes(p);
	CALL(cuMemPoolGetAttribute(own, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &threshold));
	VALUE(threshold >= 5 * MiB);
	CALL(cuMemAllocAsync(&(CUdeviceptr){0}, 0, s));
	CALL(cuMemFreeAsync(p, s));
	CALL(cuMemFreeAsync(q, s));
	CALL(cuStreamSynchronize(s));
	CALL(cuMemFreeAsync(q + 1, s));
	threshold = 1 << 25;
	CALL(cuMemPoolSetAttribute(own, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
	CALL(cuMemPoolTrimTo(own, 0));
	CALL(cuMemPoolGetAttribute(own, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &threshold));
	VALUE(threshold);
	CALL(cuDeviceSetMemPool(device, pool));
	CALL(cuMemPoolDestroy(pool));
	CALL(cuMemPoolDestroy(own));
	CALL(cuStreamDestroy(s));
}

static void virtual_memory(void)
{
	CUmemAllocationProp prop, got;
	CUmemGenericAllocationHandle h = 0, again = 0, imported = 0;
	CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUdeviceptr va = 0;
	size_t granularity = 0, size;
	unsigned long long flags = 9;
	int fd = -1;
	unsigned char byte = 0;
	section = "virtual";
	memset(&prop, 0, sizeof prop);
	memset(&got, 0, sizeof got);
	prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	CALL(cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
	VALUE(granularity);
	size = 2 * granularity;
	CALL(cuMemAddressReserve(&va, size, 0, 0, 0));
	CALL(cuMemAddressReserve(&(CUdeviceptr){0}, size + 1, 0, 0, 0));
	CALL(cuMemCreate(&h, size + 1, &prop, 0));
	CALL(cuMemCreate(&h, size, &prop, 0));
	CALL(cuMemMap(va, size, 0, h, 0));
	CALL(cuMemMap(va, size, 0, h, 0));
	CALL(cuMemSetAccess(va, size, &access, 1));
	CALL(cuMemGetAccess(&flags, &access.location, va));
	VALUE(flags);
	CALL(cuMemsetD8(va, 9, size));
	CALL(cuMemGetAllocationPropertiesFromHandle(&got, h));
	VALUE(got.requestedHandleTypes), VALUE(got.location.id), VALUE(got.type);
	CALL(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(va + 5)));
	VALUE(again == h);
	CALL(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	VALUE(fd >= 0);
	CALL(cuMemImportFromShareableHandle(&imported, (void *)(uintptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	close(fd);
	CALL(cuMemRelease(imported));
	CALL(cuMemRelease(again));
	CALL(cuMemRelease(h));
	CALL(cuMemcpyDtoH(&byte, va + size - 1, 1));
	VALUE(byte);
	attributes(va);
	CALL(cuMemUnmap(va, size));
	CALL(cuMemUnmap(va, size));
	CALL(cuMemAddressFree(va, size));
}

static void sharing(void)
{
	CUdeviceptr p, q = 0;
	CUipcMemHandle memory;
	CUipcEventHandle event;
	CUevent e, opened = NULL;
	section = "sharing";
	CALL(cuMemAlloc(&p, 3 * MiB));
	CALL(cuIpcGetMemHandle(&memory, p));
	CALL(cuIpcGetMemHandle(&memory, 0x1000));
	CALL(cuIpcGetMemHandle(&memory, p));
	CALL(cuIpcOpenMemHandle(&q, memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	CALL(cuIpcOpenMemHandle(&q, memory, 0));
	CALL(cuIpcCloseMemHandle(p));
	CALL(cuEventCreate(&e, CU_EVENT_INTERPROCESS));
	CALL(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
	CALL(cuIpcGetEventHandle(&event, e));
	CALL(cuEventDestroy(e));
	CALL(cuEventCreate(&e, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
	CALL(cuIpcGetEventHandle(&event, e));
	CALL(cuEventQuery(e));
	CALL(cuEventRecord(e, NULL));
	CALL(cuEventSynchronize(e));
	CALL(cuEventQuery(e));
	VALUE(opened == NULL);
	CALL(cuEventDestroy(e));
	CALL(cuMemFree(p));
}

static void modules(void)
{
	CUmodule other;
	CUfunction f;
	CUdeviceptr g;
	size_t n;
	int value;
	section = "modules";
	CALL(cuModuleLoadData(&other, "nonsense"));
	CALL(cuModuleLoadData(&other, kernels_ptx));
	CALL(cuModuleGetFunction(&f, other, "fill"));
	CALL(cuModuleGetFunction(&f, other, "none"));
	CALL(cuModuleGetGlobal(&g, &n, other, "none"));
	CALL(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, fill));
	VALUE(value);
	CALL(cuModuleUnload(other));
	uint64_t nowhere = 0, none = 0;
	void *params[] = {&nowhere, &none};
	CALL(cuLaunchKernel(step, 0, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	CALL(cuLaunchKernel(step, 1, 1, 1, 100000, 1, 1, 0, NULL, params, NULL));
}

static void contexts(void)
{
	CUcontext now = NULL, popped = NULL;
	CUdevice of = 9;
	unsigned int flags = 9;
	section = "contexts";
	CALL(cuCtxGetDevice(&of));
	VALUE(of);
	CALL(cuCtxGetFlags(&flags));
	CALL(cuCtxPushCurrent(context));
	CALL(cuCtxPopCurrent(&popped));
	VALUE(popped == context);
	CALL(cuCtxSetCurrent(NULL));
	CALL(cuCtxGetDevice(&of));
	CALL(cuMemAlloc(&(CUdeviceptr){0}, 256));
	CALL(cuCtxSynchronize());
	CALL(cuCtxPopCurrent(&popped));
	CALL(cuCtxSetCurrent(context));
	CALL(cuCtxGetCurrent(&now));
	VALUE(now == context);
	CALL(cuCtxSynchronize());
	CALL(cuDevicePrimaryCtxRelease(device));
	CALL(cuDevicePrimaryCtxRelease(device));
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

// launches times launches of a kernel that does nothing.
static void launches(void)
{
	enum { N = 20000, TIMES = 9 };
	double took[TIMES];
	uint64_t none = 0;
	CUdeviceptr p;
	cuMemAlloc(&p, 256);
	void *params[] = {&p, &none};
	for (int i = -1; i < TIMES; i++) {
		double start = now();
		for (int k = 0; k < N; k++)
			cuLaunchKernel(step, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL);
		if (i >= 0)
			took[i] = (now() - start) / N;
		cuCtxSynchronize();
	}
	qsort(took, TIMES, sizeof *took, by_value);
	printf("launch_ns %.1f\n", took[TIMES / 2]);
}

int main(int argc, char **argv)
{
	bool only_launches = argc > 1 && strcmp(argv[1], "-l") == 0;
	tell_crashes();
	if (only_launches) {
		cuInit(0);
		cuDeviceGet(&device, 0);
		cuDevicePrimaryCtxRetain(&context, device);
		cuCtxSetCurrent(context);
	} else {
		init();
		named();
	}
	section = "load";
	if (cuModuleLoadData(&module, kernels_ptx) != CUDA_SUCCESS || cuModuleGetFunction(&fill, module, "fill") != CUDA_SUCCESS ||
	    cuModuleGetFunction(&step, module, "step") != CUDA_SUCCESS || cuModuleGetFunction(&sum, module, "sum") != CUDA_SUCCESS) {
		printf("the kernels can't be loaded\n");
		return 1;
	}
	if (only_launches) {
		launches();
	} else {
		memory();
		copies();
		host();
		streams();
		pools();
		virtual_memory();
		sharing();
		modules();
		contexts();
	}
	printf("done\n");
	fflush(stdout);
	for (;;)
		pause(); // the suite ends the container, so that its output is read to the end
}
