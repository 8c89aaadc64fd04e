// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// conform.cu does what programs do with the CUDA runtime, and prints what they can
// tell of it: a line for each call with its result, and numbers that kernels
// computed. Nothing that it prints depends on the run: over libhetcuda it has to
// print what it prints over the driver itself, with the static and the shared runtime.
//
//     nvcc -std=c++17 -arch=sm_90 -cudart static|shared -o conform conform.cu -lcuda
#include <cooperative_groups.h>
#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <unistd.h>
#include <vector>

#include "crash.h"

static const char *section = "";

static cudaError_t said(cudaError_t e, const char *call)
{
	printf("%s: %s: %s\n", section, call, cudaGetErrorName(e));
	cudaGetLastError(); // and forget it
	return e;
}
#define CALL(...) said((__VA_ARGS__), #__VA_ARGS__)
#define VALUE(v) printf("%s: %s = %lld\n", section, #v, (long long)(v))

static const int N = 1 << 20;

__constant__ int by[4];
__device__ int table[1024];
__device__ int counter;

__global__ void add(int *p, int n, int k)
{
	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
		p[i] += k + by[0];
}

__global__ void reduce(const int *p, int n, unsigned long long *out)
{
	__shared__ unsigned long long part[256];
	unsigned long long s = 0;
	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
		s += (unsigned)p[i] * (unsigned long long)(i + 1);
	part[threadIdx.x] = s;
	__syncthreads();
	for (int k = 128; k > 0; k /= 2) {
		if (threadIdx.x < k)
			part[threadIdx.x] += part[threadIdx.x + k];
		__syncthreads();
	}
	if (threadIdx.x == 0)
		atomicAdd(out, part[0]);
}

__global__ void from_texture(cudaTextureObject_t t, float *out, int w, int h)
{
	int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
	if (x < w && y < h)
		out[y * w + x] = tex2D<float>(t, x + 0.5f, y + 0.5f);
}

__global__ void to_surface(cudaSurfaceObject_t s, int w, int h)
{
	int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
	if (x < w && y < h)
		surf2Dwrite((float)(x * 3 + y), s, x * 4, y);
}

__global__ void whole_grid(int *p)
{
	auto grid = cooperative_groups::this_grid();
	p[grid.thread_rank()] = 1;
	grid.sync();
	if (grid.thread_rank() == 0) {
		int s = 0;
		for (unsigned i = 0; i < grid.num_threads(); i++)
			s += p[i];
		counter = s;
	}
}

__global__ void use_table()
{
	for (int i = threadIdx.x; i < 1024; i += blockDim.x)
		table[i] = table[i] * 2 + by[1];
}

__global__ void from_heap(int *ok)
{
	int *p = (int *)malloc(64);
	if (p) {
		p[3] = threadIdx.x;
		atomicAdd(ok, p[3] == (int)threadIdx.x);
		free(p);
	}
}

__global__ void large_shared(int *out)
{
	extern __shared__ int s[];
	s[threadIdx.x * 100] = threadIdx.x;
	__syncthreads();
	if (threadIdx.x == 0)
		*out = s[100 * 100];
}

static unsigned long long total(const int *p, int n, cudaStream_t stream = 0)
{
	unsigned long long *out, sum = 0;
	cudaMalloc(&out, 8);
	cudaMemsetAsync(out, 0, 8, stream);
	reduce<<<64, 256, 0, stream>>>(p, n, out);
	cudaMemcpyAsync(&sum, out, 8, cudaMemcpyDeviceToHost, stream);
	cudaStreamSynchronize(stream);
	cudaFree(out);
	return sum;
}

static void device()
{
	int n = 0, runtime = 0, driver = 0;
	cudaDeviceProp p;
	size_t limit = 0;
	section = "device";
	CALL(cudaGetDeviceCount(&n));
	VALUE(n);
	CALL(cudaRuntimeGetVersion(&runtime));
	CALL(cudaDriverGetVersion(&driver));
	VALUE(runtime), VALUE(driver);
	CALL(cudaSetDevice(n));
	CALL(cudaSetDevice(0));
	CALL(cudaGetDeviceProperties(&p, 0));
	printf("device: %s, %d.%d, %d multiprocessors, %zu bytes, l2 %d, shared %zu, unified %d, managed %d, pool %d\n", p.name, p.major,
	       p.minor, p.multiProcessorCount, p.totalGlobalMem, p.l2CacheSize, p.sharedMemPerBlockOptin, p.unifiedAddressing, p.managedMemory,
	       p.memoryPoolsSupported);
	CALL(cudaDeviceGetLimit(&limit, cudaLimitStackSize));
	VALUE(limit);
	CALL(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 16 << 20));
	CALL(cudaDeviceGetLimit(&limit, cudaLimitMallocHeapSize));
	VALUE(limit);
	int least, greatest;
	CALL(cudaDeviceGetStreamPriorityRange(&least, &greatest));
	VALUE(least), VALUE(greatest);
	int can = 9;
	CALL(cudaDeviceCanAccessPeer(&can, 0, 0));
}

static void memory()
{
	int *p = nullptr, *q = nullptr;
	void *v;
	size_t pitch;
	cudaPointerAttributes a;
	cudaPitchedPtr box;
	section = "memory";
	CALL(cudaMalloc(&p, 0));
	CALL(cudaMalloc(&p, 1ull << 50));
	CALL(cudaFree(nullptr));
	CALL(cudaMalloc(&p, N * 4));
	CALL(cudaMalloc(&q, N * 4));
	CALL(cudaMemset(p, 0, N * 4));
	add<<<128, 256>>>(p, N, 5);
	CALL(cudaGetLastError());
	VALUE(total(p, N));
	CALL(cudaMemcpy(q, p, N * 4, cudaMemcpyDefault));
	VALUE(total(q, N));
	CALL(cudaMemcpy2D(q, 4096, p, 2048, 1024, 512, cudaMemcpyDeviceToDevice));
	CALL(cudaMemset2D(p, 4096, 7, 100, 1000));
	VALUE(total(p, N));
	CALL(cudaPointerGetAttributes(&a, p + 3));
	VALUE(a.type), VALUE(a.device), VALUE(a.devicePointer == p + 3), VALUE(a.hostPointer == nullptr);
	CALL(cudaPointerGetAttributes(&a, &a));
	VALUE(a.type);
	CALL(cudaMallocPitch(&v, &pitch, 1001, 33));
	VALUE(pitch);
	CALL(cudaFree(v));
	CALL(cudaMalloc3D(&box, make_cudaExtent(1001, 33, 5)));
	VALUE(box.pitch);
	CALL(cudaMemset3D(box, 1, make_cudaExtent(1001, 33, 5)));
	CALL(cudaFree(box.ptr));
	CALL(cudaMallocHost(&v, 1 << 20));
	memset(v, 3, 1 << 20);
	CALL(cudaMemcpyAsync(p, v, 1 << 20, cudaMemcpyHostToDevice));
	VALUE(total(p, N));
	CALL(cudaPointerGetAttributes(&a, v));
	VALUE(a.type);
	CALL(cudaFreeHost(v));
	CALL(cudaFree(p + 1));
	CALL(cudaFree(p));
	CALL(cudaFree(p));
	CALL(cudaFree(q));
	std::vector<int *> many(3000);
	int failed = 0;
	for (size_t i = 0; i < many.size(); i++)
		failed += cudaMalloc(&many[i], 100 + i * 37) != cudaSuccess || (uintptr_t)many[i] % 256 != 0;
	VALUE(failed);
	for (int *one : many)
		failed += cudaFree(one) != cudaSuccess;
	VALUE(failed);
}

static void symbols()
{
	int values[4] = {10, 3, 0, 0}, back = 0;
	void *at;
	size_t size;
	section = "symbols";
	CALL(cudaMemcpyToSymbol(by, values, sizeof values));
	CALL(cudaGetSymbolAddress(&at, table));
	CALL(cudaGetSymbolSize(&size, table));
	VALUE(size);
	CALL(cudaMemset(at, 0, size));
	use_table<<<1, 256>>>();
	use_table<<<1, 256>>>();
	CALL(cudaMemcpyFromSymbol(&back, table, 4, 400));
	VALUE(back);
}

static void textures()
{
	const int w = 64, h = 32;
	cudaArray_t array;
	cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
	cudaResourceDesc resource = {};
	cudaTextureDesc how = {};
	cudaTextureObject_t texture;
	cudaSurfaceObject_t surface;
	float *out;
	std::vector<float> host(w * h);
	section = "textures";
	CALL(cudaMallocArray(&array, &format, w, h, cudaArraySurfaceLoadStore));
	resource.resType = cudaResourceTypeArray;
	resource.res.array.array = array;
	how.addressMode[0] = how.addressMode[1] = cudaAddressModeClamp;
	how.filterMode = cudaFilterModeLinear;
	CALL(cudaCreateTextureObject(&texture, &resource, &how, nullptr));
	CALL(cudaCreateSurfaceObject(&surface, &resource));
	CALL(cudaMalloc(&out, w * h * 4));
	to_surface<<<dim3(4, 2), dim3(16, 16)>>>(surface, w, h);
	from_texture<<<dim3(4, 2), dim3(16, 16)>>>(texture, out, w, h);
	CALL(cudaMemcpy(host.data(), out, w * h * 4, cudaMemcpyDeviceToHost));
	VALUE(host[5 * w + 7]), VALUE(host[31 * w + 63]);
	CALL(cudaMemcpy2DFromArray(host.data(), w * 4, array, 0, 0, w * 4, h, cudaMemcpyDeviceToHost));
	VALUE(host[31 * w + 63]);
	CALL(cudaDestroyTextureObject(texture));
	CALL(cudaDestroySurfaceObject(surface));
	CALL(cudaFreeArray(array));
	CALL(cudaFree(out));
	// Over memory of its own.
	size_t pitch;
	CALL(cudaMallocPitch(&out, &pitch, w * 4, h));
	resource = {};
	resource.resType = cudaResourceTypePitch2D;
	resource.res.pitch2D.devPtr = out;
	resource.res.pitch2D.desc = format;
	resource.res.pitch2D.width = w;
	resource.res.pitch2D.height = h;
	resource.res.pitch2D.pitchInBytes = pitch;
	CALL(cudaCreateTextureObject(&texture, &resource, &how, nullptr));
	CALL(cudaDestroyTextureObject(texture));
	CALL(cudaFree(out));
}

static void CUDART_CB on_host(void *data)
{
	++*(int *)data;
}

static void streams()
{
	cudaStream_t s, t;
	cudaEvent_t e, f;
	int *p, visits = 0;
	float ms = -1;
	section = "streams";
	CALL(cudaMalloc(&p, N * 4));
	CALL(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
	CALL(cudaStreamCreateWithPriority(&t, cudaStreamDefault, -1));
	CALL(cudaEventCreate(&e));
	CALL(cudaEventCreateWithFlags(&f, cudaEventDisableTiming));
	CALL(cudaMemsetAsync(p, 0, N * 4, s));
	CALL(cudaEventRecord(e, s));
	for (int i = 0; i < 10; i++)
		add<<<64, 256, 0, s>>>(p, N, i);
	CALL(cudaLaunchHostFunc(s, on_host, &visits));
	CALL(cudaEventRecord(f, s));
	CALL(cudaStreamWaitEvent(t, f));
	add<<<64, 256, 0, t>>>(p, N, 100);
	VALUE(total(p, N, t));
	VALUE(visits);
	CALL(cudaEventElapsedTime(&ms, e, f));
	CALL(cudaStreamQuery(s));
	CALL(cudaStreamSynchronize(cudaStreamPerThread));
	std::thread([&] {
		cudaSetDevice(0);
		add<<<64, 256, 0, cudaStreamPerThread>>>(p, N, 1);
		cudaStreamSynchronize(cudaStreamPerThread);
	}).join();
	VALUE(total(p, N));
	CALL(cudaStreamDestroy(s));
	CALL(cudaStreamDestroy(t));
	CALL(cudaEventDestroy(e));
	CALL(cudaEventDestroy(f));
	CALL(cudaFree(p));
}

static void graphs()
{
	cudaStream_t s;
	cudaGraph_t graph;
	cudaGraphExec_t exec;
	int *p, *temporary;
	section = "graphs";
	CALL(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
	CALL(cudaMalloc(&p, N * 4));
	CALL(cudaMemset(p, 0, N * 4));
	CALL(cudaDeviceSynchronize());
	CALL(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
	add<<<64, 256, 0, s>>>(p, N, 1);
	CALL(cudaMallocAsync(&temporary, N * 4, s));
	CALL(cudaMemcpyAsync(temporary, p, N * 4, cudaMemcpyDeviceToDevice, s));
	add<<<64, 256, 0, s>>>(temporary, N, 1);
	CALL(cudaMemcpyAsync(p, temporary, N * 4, cudaMemcpyDeviceToDevice, s));
	CALL(cudaFreeAsync(temporary, s));
	CALL(cudaStreamEndCapture(s, &graph));
	size_t nodes = 0;
	CALL(cudaGraphGetNodes(graph, nullptr, &nodes));
	VALUE(nodes);
	CALL(cudaGraphInstantiate(&exec, graph, 0));
	for (int i = 0; i < 5; i++)
		CALL(cudaGraphLaunch(exec, s));
	VALUE(total(p, N, s));
	CALL(cudaGraphExecDestroy(exec));
	CALL(cudaGraphDestroy(graph));
	// What a capture forbids.
	CALL(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
	CALL(cudaStreamSynchronize(s));
	CALL(cudaStreamEndCapture(s, &graph));
	CALL(cudaDeviceGraphMemTrim(0));
	CALL(cudaStreamDestroy(s));
	CALL(cudaFree(p));
}

static void ordered()
{
	cudaStream_t s;
	cudaMemPool_t pool, own;
	cudaMemPoolProps props = {};
	int *p;
	uint64_t value = 0;
	section = "ordered";
	CALL(cudaStreamCreate(&s));
	CALL(cudaMallocAsync(&p, N * 4, s));
	CALL(cudaMemsetAsync(p, 0, N * 4, s));
	add<<<64, 256, 0, s>>>(p, N, 4);
	VALUE(total(p, N, s));
	CALL(cudaFreeAsync(p, s));
	CALL(cudaDeviceGetDefaultMemPool(&pool, 0));
	CALL(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &value));
	VALUE(value);
	props.allocType = cudaMemAllocationTypePinned;
	props.location.type = cudaMemLocationTypeDevice;
	CALL(cudaMemPoolCreate(&own, &props));
	CALL(cudaMallocFromPoolAsync(&p, 100000, own, s));
	CALL(cudaFree(p));
	CALL(cudaStreamSynchronize(s));
	CALL(cudaMemPoolDestroy(own));
	CALL(cudaStreamDestroy(s));
}

static void launches()
{
	int *p, blocks = 0, size = 0, n = 0;
	section = "launches";
	CALL(cudaMalloc(&p, 1 << 20));
	CALL(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add, 256, 0));
	VALUE(blocks);
	CALL(cudaOccupancyMaxPotentialBlockSize(&n, &size, reduce));
	VALUE(n), VALUE(size);
	void *args[] = {&p};
	CALL(cudaLaunchCooperativeKernel((void *)whole_grid, dim3(64), dim3(128), args, 0, 0));
	int seen = 0;
	CALL(cudaMemcpyFromSymbol(&seen, counter, 4));
	VALUE(seen);
	CALL(cudaMemset(p, 0, 4));
	from_heap<<<4, 64>>>(p);
	CALL(cudaMemcpy(&seen, p, 4, cudaMemcpyDeviceToHost));
	VALUE(seen);
	large_shared<<<1, 128, 128 * 400>>>(p);
	CALL(cudaGetLastError());
	CALL(cudaFuncSetAttribute(large_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, 128 * 400));
	large_shared<<<1, 128, 128 * 400>>>(p);
	CALL(cudaMemcpy(&seen, p, 4, cudaMemcpyDeviceToHost));
	VALUE(seen);
	add<<<1, 4096>>>(p, 1, 1);
	CALL(cudaGetLastError());
	cudaFuncAttributes attributes;
	CALL(cudaFuncGetAttributes(&attributes, reduce));
	VALUE(attributes.maxThreadsPerBlock), VALUE(attributes.sharedSizeBytes);
	cudaLaunchConfig_t config = {};
	cudaLaunchAttribute attribute[1];
	attribute[0].id = cudaLaunchAttributeClusterDimension;
	attribute[0].val.clusterDim.x = 2;
	attribute[0].val.clusterDim.y = attribute[0].val.clusterDim.z = 1;
	config.gridDim = dim3(4);
	config.blockDim = dim3(64);
	config.attrs = attribute;
	config.numAttrs = 1;
	CALL(cudaLaunchKernelEx(&config, add, p, 256, 1));
	CALL(cudaDeviceSynchronize());
	CALL(cudaFree(p));
}

static void entry_points()
{
	void *f = nullptr;
	cudaDriverEntryPointQueryResult status;
	section = "entry points";
	for (const char *name : {"cuMemAlloc", "cuMemFree", "cuLaunchKernel", "cuIpcGetMemHandle", "cuNothing"}) {
		cudaError_t e = cudaGetDriverEntryPointByVersion(name, &f, 12000, cudaEnableDefault, &status);
		printf("entry points: %s: %s, %d, %d\n", name, cudaGetErrorName(e), (int)status, f != nullptr);
	}
	CUdeviceptr p = 0;
	size_t n = 0;
	CUdeviceptr start = 0;
	int *q;
	CALL(cudaMalloc(&q, 12345));
	printf("entry points: %d\n", (int)cuMemGetAddressRange(&start, &n, (CUdeviceptr)(q + 100)));
	VALUE(start == (CUdeviceptr)q), VALUE(n);
	printf("entry points: %d\n", (int)cuMemAlloc(&p, 4096));
	CALL(cudaMemset((void *)p, 1, 4096));
	CALL(cudaFree((void *)p)); // the runtime frees what the driver API made
	CALL(cudaFree(q));
}

static void reset()
{
	int *p;
	section = "reset";
	CALL(cudaMalloc(&p, 1 << 20));
	CALL(cudaDeviceReset());
	CALL(cudaFree(p));
	CALL(cudaMalloc(&p, N * 4));
	CALL(cudaMemset(p, 0, N * 4));
	add<<<64, 256>>>(p, N, 2);
	VALUE(total(p, N)); // by is new, too
	CALL(cudaFree(p));
}

int main()
{
	tell_crashes();
	device();
	memory();
	symbols();
	textures();
	streams();
	graphs();
	ordered();
	launches();
	entry_points();
	reset();
	printf("done\n");
	fflush(stdout);
	for (;;)
		pause(); // the suite ends the container, so that its output is read to the end
}
