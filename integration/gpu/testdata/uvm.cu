// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// uvm measures managed memory and checks every word of it, from both sides. It
// runs over the driver's own managed memory and over libhetcuda's; the same rows
// in both cases, one line of JSON each, are to be compared:
//
//     nvcc -O3 -arch=sm_90 -o uvm uvm.cu -lcuda
//     ./uvm [-s MIB] [-n ROUNDS] [-l MIB] [-r ROW]... [-L]
//
//   -s MIB     size of the managed memory (1024)
//   -n ROUNDS  of each row; the median is printed (5)
//   -l MIB     for oversubscription: so much is left of the device's memory, and
//              twice as much is allocated (2048)
//   -r ROW     only these rows
//   -L         for checkpoints: after the rows, CPU and GPU in turn for ever; a
//              line for each turn
//
// On anything wrong it prints a line with "ok": false and ends with 1.
#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

static std::string row = "start";

[[noreturn]] static void fail(const char *what, const char *why, long long at)
{
	printf("{\"row\": \"%s\", \"ok\": false, \"what\": \"%s\", \"why\": \"%s\", \"at\": %lld}\n", row.c_str(), what, why, at);
	fflush(stdout);
	_exit(1);
}

#define CK(call)                                                                        \
	do {                                                                            \
		cudaError_t e_ = (call);                                                \
		if (e_ != cudaSuccess)                                                  \
			fail(#call, cudaGetErrorString(e_), __LINE__);                  \
	} while (0)
#define CKU(call)                                                                       \
	do {                                                                            \
		CUresult e_ = (call);                                                   \
		if (e_ != CUDA_SUCCESS)                                                 \
			fail(#call, "driver error", (long long)e_);                     \
	} while (0)

static double now()
{
	timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

// The word at i after so many steps. Nothing that a stale page could have.
__host__ __device__ static inline uint64_t word(uint64_t i, uint64_t salt, uint64_t steps)
{
	return i * 0x9E3779B97F4A7C15ull + salt + steps;
}

__global__ void step(uint64_t *p, size_t n)
{
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
		p[i] += 1;
}

__global__ void check(const uint64_t *p, size_t n, uint64_t salt, uint64_t steps, unsigned long long *bad)
{
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
		if (p[i] != word(i, salt, steps))
			atomicMin(bad, (unsigned long long)i);
}

__global__ void nothing()
{
}

static int blocks()
{
	static int n;
	if (!n) {
		cudaDeviceProp properties;
		CK(cudaGetDeviceProperties(&properties, 0));
		n = properties.multiProcessorCount * 8;
	}
	return n;
}

static void gpu_step(uint64_t *p, size_t n, cudaStream_t stream = 0)
{
	step<<<blocks(), 256, 0, stream>>>(p, n);
	CK(cudaGetLastError());
}

static unsigned long long *bad; // device memory

static void gpu_check(const uint64_t *p, size_t n, uint64_t salt, uint64_t steps)
{
	unsigned long long none = ~0ull, found;
	CK(cudaMemcpy(bad, &none, sizeof none, cudaMemcpyHostToDevice));
	check<<<blocks(), 256>>>(p, n, salt, steps, bad);
	CK(cudaGetLastError());
	CK(cudaMemcpy(&found, bad, sizeof found, cudaMemcpyDeviceToHost));
	if (found != none)
		fail("data", "the device sees something else", (long long)found);
}

static void cpu_write(uint64_t *p, size_t n, uint64_t salt, size_t from = 0)
{
	for (size_t i = from; i < from + n; i++)
		p[i] = word(i, salt, 0);
}

static void cpu_check(const uint64_t *p, size_t n, uint64_t salt, uint64_t steps, size_t from = 0)
{
	uint64_t wrong = 0;
	for (size_t i = from; i < from + n; i++)
		wrong |= p[i] ^ word(i, salt, steps);
	if (!wrong)
		return;
	for (size_t i = from; i < from + n; i++)
		if (p[i] != word(i, salt, steps))
			fail("data", "the CPU sees something else", (long long)i);
}

static double median(std::vector<double> v)
{
	std::sort(v.begin(), v.end());
	return v[v.size() / 2];
}

struct result {
	std::string text;

	void add(const char *name, double value)
	{
		char buffer[128];
		snprintf(buffer, sizeof buffer, ", \"%s\": %.6g", name, value);
		text += buffer;
	}

	void rate(const char *name, double bytes, const std::vector<double> &seconds)
	{
		add(name, bytes / median(seconds) / 1e9);
	}

	void print()
	{
		printf("{\"row\": \"%s\", \"ok\": true%s}\n", row.c_str(), text.c_str());
		fflush(stdout);
	}
};

static size_t size = 1024ull << 20, leave = 2048ull << 20;
static int rounds = 5;
static uint64_t salts = 1;

static uint64_t *managed(size_t bytes)
{
	uint64_t *p;
	CK(cudaMallocManaged(&p, bytes));
	return p;
}

static void to_device(const void *p, size_t bytes, cudaStream_t stream = 0)
{
#if CUDART_VERSION >= 13000
	CK(cudaMemPrefetchAsync(p, bytes, cudaMemLocation{cudaMemLocationTypeDevice, {0}}, 0, stream));
#else
	CK(cudaMemPrefetchAsync(p, bytes, 0, stream));
#endif
}

static void to_host(const void *p, size_t bytes, cudaStream_t stream = 0)
{
#if CUDART_VERSION >= 13000
	CK(cudaMemPrefetchAsync(p, bytes, cudaMemLocation{cudaMemLocationTypeHost, {0}}, 0, stream));
#else
	CK(cudaMemPrefetchAsync(p, bytes, cudaCpuDeviceId, stream));
#endif
}

// All of it by the CPU, all of it by the GPU, all of it by the CPU.
static void turns(bool prefetch)
{
	size_t n = size / 8;
	uint64_t *p = managed(size);
	std::vector<double> write, gpu, read, whole;
	for (int k = 0; k <= rounds; k++) {
		uint64_t salt = salts++;
		double a = now();
		cpu_write(p, n, salt);
		double b = now();
		if (prefetch)
			to_device(p, size);
		gpu_step(p, n);
		CK(cudaDeviceSynchronize());
		double c = now();
		if (prefetch) {
			to_host(p, size);
			CK(cudaDeviceSynchronize());
		}
		cpu_check(p, n, salt, 1);
		double d = now();
		gpu_check(p, n, salt, 1);
		if (k == 0)
			continue; // the first touch of pages
		write.push_back(b - a);
		gpu.push_back(c - b);
		read.push_back(d - c);
		whole.push_back(d - a);
	}
	result r;
	r.add("bytes", (double)size);
	r.rate("cpu_write_gbs", (double)size, write);
	r.rate("gpu_gbs", (double)size, gpu);
	r.rate("cpu_read_gbs", (double)size, read);
	r.add("turn_s", median(whole));
	r.print();
	CK(cudaFree(p));
}

static void row_turns()
{
	turns(false);
}

static void row_prefetch()
{
	turns(true);
}

// The CPU reads all and writes one 32nd of it, in pieces, between two kernels.
static void row_partial()
{
	size_t n = size / 8, piece = (64 << 10) / 8, every = piece * 32;
	uint64_t *p = managed(size), salt = salts++;
	std::vector<double> whole;
	cpu_write(p, n, salt);
	for (int k = 0; k <= rounds; k++) {
		gpu_step(p, n);
		CK(cudaDeviceSynchronize());
		double a = now();
		for (size_t i = 0; i + piece <= n; i += every)
			for (size_t j = i; j < i + piece; j++) {
				if (p[j] != word(j, salt, (uint64_t)k + 1))
					fail("data", "the CPU sees something else", (long long)j);
				p[j] = word(j, salt, (uint64_t)k + 1);
			}
		gpu_check(p, n, salt, (uint64_t)k + 1);
		if (k > 0)
			whole.push_back(now() - a);
	}
	cpu_check(p, n, salt, (uint64_t)rounds + 1);
	result r;
	r.add("bytes", (double)(size / 32));
	r.add("seconds", median(whole));
	r.print();
	CK(cudaFree(p));
}

// Single words at random: what one fault costs.
static void row_faults()
{
	size_t n = size / 8, count = 2000;
	uint64_t *p = managed(size), salt = salts++, at = 12345;
	std::vector<double> each;
	cpu_write(p, n, salt);
	for (int k = 0; k < rounds; k++) {
		gpu_step(p, n);
		CK(cudaDeviceSynchronize());
		double a = now();
		for (size_t i = 0; i < count; i++) {
			at = at * 6364136223846793005ull + 1442695040888963407ull;
			size_t j = (at >> 20) % n;
			if (p[j] != word(j, salt, (uint64_t)k + 1))
				fail("data", "the CPU sees something else", (long long)j);
		}
		each.push_back((now() - a) / (double)count);
	}
	result r;
	r.add("us_per_word", median(each) * 1e6);
	r.print();
	CK(cudaFree(p));
}

// Kernels only.
static void row_gpu()
{
	size_t n = size / 8;
	uint64_t *p = managed(size), salt = salts++;
	int kernels = 50;
	std::vector<double> all;
	cpu_write(p, n, salt);
	gpu_step(p, n);
	CK(cudaDeviceSynchronize());
	for (int k = 0; k < rounds; k++) {
		double a = now();
		for (int i = 0; i < kernels; i++)
			gpu_step(p, n);
		CK(cudaDeviceSynchronize());
		all.push_back(now() - a);
	}
	cpu_check(p, n, salt, 1 + (uint64_t)rounds * kernels);
	result r;
	r.add("bytes", (double)size);
	r.rate("gpu_gbs", 2.0 * (double)size * kernels, all);
	r.print();
	CK(cudaFree(p));
}

// The GPU first, without the CPU ever having touched it.
static void row_gpu_first()
{
	size_t n = size / 8;
	std::vector<double> all;
	for (int k = 0; k < rounds; k++) {
		double a = now();
		uint64_t *p = managed(size);
		CK(cudaMemset(p, 0, size));
		gpu_step(p, n);
		CK(cudaDeviceSynchronize());
		all.push_back(now() - a);
		for (size_t i = 0; i < n; i += 1021)
			if (p[i] != 1)
				fail("data", "the CPU sees something else", (long long)i);
		CK(cudaFree(p));
	}
	result r;
	r.add("seconds", median(all));
	r.print();
}

// What a launch costs.
static void row_launch()
{
	uint64_t *p = managed(1 << 20);
	int count = 20000;
	std::vector<double> all;
	p[0] = 1;
	for (int k = 0; k < rounds; k++) {
		nothing<<<1, 1>>>();
		CK(cudaDeviceSynchronize());
		double a = now();
		for (int i = 0; i < count; i++)
			nothing<<<1, 1>>>();
		all.push_back((now() - a) / count);
		CK(cudaDeviceSynchronize());
	}
	result r;
	r.add("us", median(all) * 1e6);
	r.print();
	CK(cudaFree(p));
}

// What names managed memory as host memory, in every way there is.
static void row_copies()
{
	size_t n = (8 << 20) / 8, bytes = n * 8;
	uint64_t *p = managed(bytes), *q = managed(bytes), salt = salts++, *d, *pinned;
	std::vector<uint64_t> plain(n);
	CK(cudaMalloc(&d, bytes));
	CK(cudaMallocHost(&pinned, bytes));
	auto fresh = [&] {
		salt = salts++;
		cpu_write(p, n, salt);
		gpu_step(p, n); // now it is the device's
	};
	auto arrived = [&] {
		CK(cudaDeviceSynchronize());
		gpu_check(d, n, salt, 1);
	};
	fresh();
	CKU(cuMemcpyHtoD((CUdeviceptr)d, p, bytes));
	arrived();
	fresh();
	CKU(cuMemcpyHtoDAsync((CUdeviceptr)d, p, bytes, 0));
	arrived();
	fresh();
	CK(cudaMemcpy(d, p, bytes, cudaMemcpyHostToDevice));
	arrived();
	fresh();
	CK(cudaMemcpy2D(d, 4096, p, 4096, 4096, bytes / 4096, cudaMemcpyHostToDevice));
	arrived();
	fresh();
	CUDA_MEMCPY2D shape = {};
	shape.srcMemoryType = CU_MEMORYTYPE_HOST;
	shape.srcHost = p;
	shape.srcPitch = shape.dstPitch = shape.WidthInBytes = 8192;
	shape.Height = bytes / 8192;
	shape.dstMemoryType = CU_MEMORYTYPE_DEVICE;
	shape.dstDevice = (CUdeviceptr)d;
	CKU(cuMemcpy2D(&shape));
	arrived();
	// And back, into memory that the CPU had last.
	auto back = [&](std::function<void()> copy) {
		cpu_write(q, n, 77);
		copy();
		CK(cudaDeviceSynchronize());
		cpu_check(q, n, salt, 1);
		gpu_check(q, n, salt, 1);
	};
	back([&] { CKU(cuMemcpyDtoH(q, (CUdeviceptr)d, bytes)); });
	back([&] { CKU(cuMemcpyDtoHAsync(q, (CUdeviceptr)d, bytes, 0)); });
	back([&] { CK(cudaMemcpy(q, d, bytes, cudaMemcpyDeviceToHost)); });
	back([&] { CK(cudaMemcpy(q, p, bytes, cudaMemcpyDefault)); });
	back([&] { CK(cudaMemcpy(q, p, bytes, cudaMemcpyHostToHost)); });
	back([&] { CK(cudaMemcpy2D(q, 4096, d, 4096, 4096, bytes / 4096, cudaMemcpyDeviceToHost)); });
	back([&] {
		CK(cudaMemcpy(pinned, p, bytes, cudaMemcpyDeviceToHost));
		CK(cudaMemcpy(q, pinned, bytes, cudaMemcpyHostToDevice));
	});
	back([&] {
		CK(cudaMemcpy(plain.data(), p, bytes, cudaMemcpyDefault));
		CK(cudaMemcpy(q, plain.data(), bytes, cudaMemcpyDefault));
	});
	// Part of it.
	cpu_write(q, n, salt);
	CK(cudaMemcpy(q + 1000, d + 1000, 5000, cudaMemcpyDeviceToHost));
	cpu_check(q, 1000, salt, 0);
	cpu_check(q, 625, salt, 1, 1000);
	cpu_check(q, n - 1625, salt, 0, 1625);
	cudaPointerAttributes attributes;
	CK(cudaPointerGetAttributes(&attributes, p + 5));
	if (attributes.type != cudaMemoryTypeManaged || attributes.devicePointer != p + 5 || attributes.hostPointer != p + 5)
		fail("cudaPointerGetAttributes", "not what managed memory is", attributes.type);
	result().print();
	CK(cudaFree(p));
	CK(cudaFree(q));
	CK(cudaFree(d));
	CK(cudaFreeHost(pinned));
}

// System calls that are given managed memory which the device had last.
static void row_calls()
{
	size_t n = (16 << 20) / 8, bytes = n * 8;
	uint64_t *p = managed(bytes), salt = salts++;
	char name[] = "/tmp/uvm-XXXXXX";
	int fd = mkstemp(name);
	unlink(name);
	cpu_write(p, n, salt);
	gpu_step(p, n);
	CK(cudaDeviceSynchronize());
	if (pwrite(fd, p, bytes, 0) != (ssize_t)bytes)
		fail("write", strerror(errno), 0);
	gpu_step(p, n);
	CK(cudaDeviceSynchronize());
	if (pread(fd, p, bytes, 0) != (ssize_t)bytes)
		fail("read", strerror(errno), 0);
	close(fd);
	gpu_check(p, n, salt, 1);
	cpu_check(p, n, salt, 1);
	result().print();
	CK(cudaFree(p));
}

// Host functions: between two kernels of one stream, without the program's
// thread waiting for anything.
struct visit {
	uint64_t *p;
	size_t n;
	uint64_t salt, wrong;
};

static void CUDART_CB on_host(void *data)
{
	visit *v = (visit *)data;
	for (size_t i = 0; i < v->n; i++) {
		v->wrong |= v->p[i] ^ word(i, v->salt, 1);
		v->p[i] = word(i, v->salt + 5, 0);
	}
}

static void row_host()
{
	size_t n = (8 << 20) / 8;
	cudaStream_t stream;
	CK(cudaStreamCreate(&stream));
	visit v = {managed(n * 8), n, salts++, 0};
	cpu_write(v.p, n, v.salt);
	gpu_step(v.p, n, stream);
	CK(cudaLaunchHostFunc(stream, on_host, &v));
	gpu_step(v.p, n, stream);
	CK(cudaStreamSynchronize(stream));
	if (v.wrong)
		fail("data", "the host function sees something else", 0);
	gpu_check(v.p, n, v.salt + 5, 1);
	cpu_check(v.p, n, v.salt + 5, 1);
	salts += 10;
	result().print();
	CK(cudaFree(v.p));
	CK(cudaStreamDestroy(stream));
}

// A graph with kernels and a copy, captured in the strict mode while the CPU has
// the newer pages, and launched several times.
static void row_graph()
{
	size_t n = (8 << 20) / 8;
	uint64_t *p = managed(n * 8), *q = managed(n * 8), salt = salts++;
	cudaStream_t stream;
	cudaGraph_t graph;
	cudaGraphExec_t exec;
	CK(cudaStreamCreate(&stream));
	cpu_write(p, n, salt);
	CK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
	gpu_step(p, n, stream);
	CK(cudaMemcpyAsync(q, p, n * 8, cudaMemcpyDefault, stream));
	CK(cudaStreamEndCapture(stream, &graph));
	CK(cudaGraphInstantiate(&exec, graph, 0));
	for (int k = 0; k < 5; k++) {
		salt = salts++;
		cpu_write(p, n, salt);
		cpu_write(q, n, 1);
		CK(cudaGraphLaunch(exec, stream));
		CK(cudaStreamSynchronize(stream));
		cpu_check(p, n, salt, 1);
		cpu_check(q, n, salt, 1);
		gpu_check(q, n, salt, 1);
	}
	result().print();
	CK(cudaGraphExecDestroy(exec));
	CK(cudaGraphDestroy(graph));
	CK(cudaStreamDestroy(stream));
	CK(cudaFree(p));
	CK(cudaFree(q));
}

// Several threads of the CPU at once.
static void row_threads()
{
	size_t n = size / 8, threads = std::min<size_t>(8, std::max(1u, std::thread::hardware_concurrency()));
	uint64_t *p = managed(size), salt = salts++;
	std::vector<double> all;
	cpu_write(p, n, salt);
	for (int k = 0; k <= rounds; k++) {
		gpu_step(p, n);
		CK(cudaDeviceSynchronize());
		double a = now();
		std::vector<std::thread> list;
		for (size_t t = 0; t < threads; t++)
			list.emplace_back([=] { cpu_check(p, n / threads, salt, (uint64_t)k + 1, n / threads * t); });
		for (auto &t : list)
			t.join();
		if (k > 0)
			all.push_back(now() - a);
	}
	result r;
	r.add("threads", (double)threads);
	r.rate("cpu_read_gbs", (double)size, all);
	r.print();
	CK(cudaFree(p));
}

// Twice what the device has room for. The rest of its memory is taken first.
static void row_over()
{
	size_t available, total, piece = 256ull << 20;
	CK(cudaMemGetInfo(&available, &total));
	void *ballast = nullptr;
	if (available > leave)
		CK(cudaMalloc(&ballast, available - leave));
	else
		leave = available;
	size_t pieces = 2 * leave / piece;
	std::vector<uint64_t *> p;
	std::vector<double> all;
	uint64_t salt = salts++;
	for (size_t i = 0; i < pieces; i++) {
		p.push_back(managed(piece));
		cpu_write(p[i], piece / 8, salt + i);
	}
	for (int k = 0; k < rounds; k++) {
		double a = now();
		for (auto q : p)
			gpu_step(q, piece / 8);
		CK(cudaDeviceSynchronize());
		all.push_back(now() - a);
	}
	for (size_t i = 0; i < pieces; i++)
		gpu_check(p[i], piece / 8, salt + i, (uint64_t)rounds);
	for (size_t i = 0; i < pieces; i++)
		cpu_check(p[i], piece / 8, salt + i, (uint64_t)rounds);
	salts += pieces;
	result r;
	r.add("bytes", (double)(pieces * piece));
	r.add("room", (double)leave);
	r.rate("gpu_gbs", 2.0 * (double)(pieces * piece), all);
	r.print();
	for (auto q : p)
		CK(cudaFree(q));
	CK(cudaFree(ballast));
}

#ifdef MANAGED_VARIABLE
// Variables of a module: the driver's, with libhetcuda too. That they are there
// keeps the process from being checkpointed, so only where they are asked for.
__managed__ uint64_t variable[4096];

static void row_variable()
{
	cpu_write(variable, 4096, 3);
	gpu_step(variable, 4096);
	CK(cudaDeviceSynchronize());
	cpu_check(variable, 4096, 3, 1);
	result().print();
}
#endif

static void forever()
{
	size_t n = size / 8;
	uint64_t *p = managed(size), *q = managed(size), salt = salts++, steps = 0, turn = 0;
	cpu_write(p, n, salt);
	cpu_write(q, n, salt);
	row = "loop";
	for (;;) {
		gpu_step(p, n);
		gpu_step(q, n / 2); // the other half is the CPU's
		CK(cudaDeviceSynchronize());
		steps++;
		cpu_check(p, n, salt, steps);
		cpu_check(q, n / 2, salt, steps);
		cpu_check(q, n - n / 2, salt, 0, n / 2);
		gpu_check(p, n, salt, steps);
		result r;
		r.add("turn", (double)turn++);
		r.print();
	}
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)();
	} rows[] = {
		{"turns", row_turns}, {"prefetch", row_prefetch}, {"partial", row_partial}, {"faults", row_faults},
		{"gpu", row_gpu}, {"gpu_first", row_gpu_first}, {"launch", row_launch}, {"threads", row_threads},
		{"copies", row_copies}, {"calls", row_calls}, {"host", row_host}, {"graph", row_graph}, {"over", row_over},
#ifdef MANAGED_VARIABLE
		{"variable", row_variable},
#endif
	};
	std::vector<std::string> wanted;
	bool loop = false;
	for (int c; (c = getopt(argc, argv, "s:n:l:r:L")) != -1;) {
		switch (c) {
		case 's': size = strtoull(optarg, nullptr, 0) << 20; break;
		case 'n': rounds = atoi(optarg); break;
		case 'l': leave = strtoull(optarg, nullptr, 0) << 20; break;
		case 'r': wanted.push_back(optarg); break;
		case 'L': loop = true; break;
		default: return 2;
		}
	}
	int concurrent = -1, is_managed = -1;
	CK(cudaFree(0));
	CK(cudaMalloc(&bad, sizeof *bad));
	CK(cudaDeviceGetAttribute(&concurrent, cudaDevAttrConcurrentManagedAccess, 0));
	CK(cudaDeviceGetAttribute(&is_managed, cudaDevAttrManagedMemory, 0));
	result first;
	first.add("concurrent", concurrent);
	first.add("managed", is_managed);
	first.print();
	for (auto &r : rows) {
		row = r.name;
		if (wanted.empty() || std::find(wanted.begin(), wanted.end(), row) != wanted.end())
			r.run();
	}
	if (loop)
		forever();
	return 0;
}
