// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
//
// Runs kernels in OpenCL C for a parent process, which must live on when a driver
// aborts. Requests and their answers:
//
//     OPEN   u64 base, u64 size, platform's name or a part of it   -> u64 base, name and version
//     BUILD  options, 0, source                                    -> compiler's log
//     WRITE  u64 address, bytes                                    -> nothing
//     READ   u64 address, u64 length                               -> bytes
//     RUN    struct run, entry point's name                        -> what the kernel printed
//
// With CLRUN_BUFFER in the environment the window is a buffer instead, whose address
// a kernel tells.
//
// Device memory is one window. On a CPU it is mapped at the base that was asked
// for; other devices' drivers choose one (the answer says which) and get the whole
// window as shared virtual memory.
#define _GNU_SOURCE
#define CL_TARGET_OPENCL_VERSION 200
#include <CL/cl.h>
#include <pthread.h>
#include <stdbool.h>
#include <time.h>

#include "serve.h"

struct run {
	uint64_t launch;      // address of the struct hg_launch, the first argument
	uint64_t local_bytes; // the second one
	uint64_t global[3], local[3];
	uint64_t flag;       // address of a u32 that becomes 1 while the kernel runs, or 0
	uint64_t flag_after; // nanoseconds after the start
};

static struct {
	cl_device_id device;
	cl_context context;
	cl_command_queue queue, copies;
	cl_program program;
	bool cpu;
	cl_mem buffer; // the window, unless it is shared virtual memory
	uint8_t *window;
	uint64_t size;
} g;

// inside tells whether the window has n bytes at an address.
static bool inside(uint64_t addr, uint64_t n)
{
	uint64_t base = (uint64_t)(uintptr_t)g.window;
	return g.window && addr >= base && addr - base <= g.size && n <= g.size - (addr - base);
}

static cl_int copy(void *to, const void *from, size_t n)
{
	if (g.cpu) {
		memcpy(to, from, n);
		return CL_SUCCESS;
	}
	if (g.buffer && n && inside((uint64_t)(uintptr_t)to, n))
		return clEnqueueWriteBuffer(g.copies, g.buffer, CL_TRUE, (size_t)((uint8_t *)to - g.window), n, from, 0, NULL, NULL);
	if (g.buffer && n)
		return clEnqueueReadBuffer(g.copies, g.buffer, CL_TRUE, (size_t)((const uint8_t *)from - g.window), n, to, 0, NULL, NULL);
	return n ? clEnqueueSVMMemcpy(g.copies, CL_TRUE, to, from, n, 0, NULL, NULL) : CL_SUCCESS;
}

// told keeps the first that the driver tells of an error that it found by itself.
static char told_text[512];

static void CL_CALLBACK told(const char *text, const void *data, size_t size, void *user)
{
	(void)data, (void)size, (void)user;
	if (!told_text[0])
		snprintf(told_text, sizeof told_text, "; the driver: %s", text);
}

static bool pick(const char *wanted, char *name, size_t size)
{
	cl_platform_id platforms[16];
	cl_uint n = 0;
	if (clGetPlatformIDs(16, platforms, &n) != CL_SUCCESS)
		return false;
	for (cl_uint i = 0; i < n && i < 16; i++) {
		if (clGetPlatformInfo(platforms[i], CL_PLATFORM_NAME, size, name, NULL) != CL_SUCCESS || !strstr(name, wanted))
			continue;
		size_t n = strlen(name);
		name[n] = ' '; // and the version
		if (n + 2 > size || clGetPlatformInfo(platforms[i], CL_PLATFORM_VERSION, size - n - 1, name + n + 1, NULL) != CL_SUCCESS)
			name[n] = 0;
		return clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_ALL, 1, &g.device, NULL) == CL_SUCCESS;
	}
	return false;
}

// make_buffer makes the window a buffer, and lets a kernel tell where it is.
static void *make_buffer(uint64_t size)
{
	static const char *source = "__kernel void where(__global ulong *at) { at[0] = (ulong)at; }";
	static const size_t one = 1;
	uint64_t at = 0;
	cl_int err;
	g.buffer = clCreateBuffer(g.context, CL_MEM_READ_WRITE, size, NULL, &err);
	cl_program program = clCreateProgramWithSource(g.context, 1, &source, NULL, &err);
	if (!g.buffer || err != CL_SUCCESS || clBuildProgram(program, 1, &g.device, "", NULL, NULL) != CL_SUCCESS)
		return NULL;
	cl_kernel kernel = clCreateKernel(program, "where", &err);
	if (err == CL_SUCCESS)
		err = clSetKernelArg(kernel, 0, sizeof g.buffer, &g.buffer);
	if (err == CL_SUCCESS)
		err = clEnqueueNDRangeKernel(g.queue, kernel, 1, NULL, &one, &one, 0, NULL, NULL);
	if (err == CL_SUCCESS)
		err = clFinish(g.queue);
	if (err == CL_SUCCESS)
		err = clEnqueueReadBuffer(g.queue, g.buffer, CL_TRUE, 0, sizeof at, &at, 0, NULL, NULL);
	return err == CL_SUCCESS ? (void *)(uintptr_t)at : NULL;
}

static void *map(uint64_t base, uint64_t size)
{
	if (getenv("CLRUN_BUFFER"))
		return make_buffer(size);
	if (!g.cpu)
		return clSVMAlloc(g.context, CL_MEM_READ_WRITE, size, 0);
	void *p = mmap((void *)(uintptr_t)base, size, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
	return p == MAP_FAILED ? NULL : p;
}

static void open_device(const uint8_t *data, size_t n)
{
	uint64_t want[2];
	char name[256] = "";
	if (n < sizeof want || g.window) {
		failed("OPEN comes first, and once");
		return;
	}
	memcpy(want, data, sizeof want);
	if (!pick((const char *)data + sizeof want, name, sizeof name)) {
		failed("no OpenCL platform named '%s' with a device", (const char *)data + sizeof want);
		return;
	}
	cl_device_type type = 0;
	cl_int err = clGetDeviceInfo(g.device, CL_DEVICE_TYPE, sizeof type, &type, NULL);
	g.cpu = type & CL_DEVICE_TYPE_CPU && !getenv("CLRUN_BUFFER");
	if (err == CL_SUCCESS)
		g.context = clCreateContext(NULL, 1, &g.device, told, NULL, &err);
	if (err == CL_SUCCESS)
		g.queue = clCreateCommandQueueWithProperties(g.context, g.device, NULL, &err);
	if (err == CL_SUCCESS)
		g.copies = clCreateCommandQueueWithProperties(g.context, g.device, NULL, &err);
	if (err != CL_SUCCESS) {
		failed("platform %s: no context or queue: error %d", name, err);
		return;
	}
	g.window = map(want[0], want[1]);
	if (!g.window) {
		failed("no %llu bytes of device memory at %#llx", (unsigned long long)want[1], (unsigned long long)want[0]);
		return;
	}
	g.size = want[1];
	uint8_t reply[sizeof(uint64_t) + sizeof name];
	uint64_t base = (uint64_t)(uintptr_t)g.window;
	memcpy(reply, &base, sizeof base);
	memcpy(reply + sizeof base, name, strlen(name));
	answer(0, reply, sizeof base + strlen(name));
}

static void build(const uint8_t *data, size_t n)
{
	const char *options = (const char *)data, *source = memchr(data, 0, n);
	if (!source++ || !g.context) {
		failed("BUILD: no options, or no device");
		return;
	}
	size_t length = n - (size_t)((const uint8_t *)source - data);
	cl_int err;
	if (g.program)
		clReleaseProgram(g.program);
	g.program = clCreateProgramWithSource(g.context, 1, &source, &length, &err);
	if (err != CL_SUCCESS) {
		failed("clCreateProgramWithSource: error %d", err);
		return;
	}
	err = clBuildProgram(g.program, 1, &g.device, options, NULL, NULL);
	size_t size = 0;
	clGetProgramBuildInfo(g.program, g.device, CL_PROGRAM_BUILD_LOG, 0, NULL, &size);
	char *log = calloc(1, size + 1);
	if (!log)
		_exit(4);
	clGetProgramBuildInfo(g.program, g.device, CL_PROGRAM_BUILD_LOG, size, log, NULL);
	answer(err != CL_SUCCESS, log, strlen(log));
	free(log);
}

// A timer that raises a kernel's flag, unless the kernel ends before.
struct timer {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool over;
	struct timespec when;
	uint64_t flag;
};

static void *raise_flag(void *arg)
{
	struct timer *t = arg;
	static const uint32_t one = 1;
	int err = 0;
	pthread_mutex_lock(&t->lock);
	while (!t->over && err != ETIMEDOUT)
		err = pthread_cond_timedwait(&t->changed, &t->lock, &t->when);
	bool over = t->over;
	pthread_mutex_unlock(&t->lock);
	if (over)
		return NULL;
	if (g.cpu)
		__atomic_store_n((uint32_t *)(uintptr_t)t->flag, 1, __ATOMIC_RELEASE);
	else
		copy((void *)(uintptr_t)t->flag, &one, sizeof one);
	return NULL;
}

static char stage[32]; // of an error of enqueue

static cl_int enqueue(const struct run *r, const char *entry)
{
	cl_int err;
	void *window = g.window;
	cl_kernel kernel = clCreateKernel(g.program, entry, &err);
	if (err != CL_SUCCESS)
		return err;
	if (g.buffer) // the launch must be described where it begins
		err = r->launch == (uint64_t)(uintptr_t)window ? clSetKernelArg(kernel, 0, sizeof g.buffer, &g.buffer) : CL_INVALID_ARG_VALUE;
	else
		err = clSetKernelArgSVMPointer(kernel, 0, (void *)(uintptr_t)r->launch);
	if (err == CL_SUCCESS)
		err = clSetKernelArg(kernel, 1, r->local_bytes ? r->local_bytes : 1, NULL);
	if (err == CL_SUCCESS && !g.cpu && !g.buffer)
		err = clSetKernelExecInfo(kernel, CL_KERNEL_EXEC_INFO_SVM_PTRS, sizeof window, &window);
	size_t global[3], local[3];
	for (int i = 0; i < 3; i++) {
		global[i] = r->global[i];
		local[i] = r->local[i];
	}
	if (err == CL_SUCCESS)
		err = clEnqueueNDRangeKernel(g.queue, kernel, 3, NULL, global, local, 0, NULL, NULL);
	if (err != CL_SUCCESS)
		snprintf(stage, sizeof stage, "before it ran");
	cl_int finished = clFinish(g.queue);
	if (err == CL_SUCCESS && finished != CL_SUCCESS)
		snprintf(stage, sizeof stage, "when it ran");
	clReleaseKernel(kernel);
	return err != CL_SUCCESS ? err : finished;
}

static void run(const uint8_t *data, size_t n)
{
	struct run r;
	if (n <= sizeof r || !g.program) {
		failed("RUN: too short, or no program");
		return;
	}
	memcpy(&r, data, sizeof r);
	const char *entry = (const char *)data + sizeof r;
	if (!inside(r.launch, 1) || (r.flag && !inside(r.flag, sizeof(uint32_t)))) {
		failed("RUN: an address is outside the window");
		return;
	}
	struct timer t = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .flag = r.flag};
	pthread_t thread;
	if (r.flag) {
		clock_gettime(CLOCK_REALTIME, &t.when);
		uint64_t ns = (uint64_t)t.when.tv_nsec + r.flag_after;
		t.when.tv_sec += (time_t)(ns / 1000000000);
		t.when.tv_nsec = (long)(ns % 1000000000);
		if (pthread_create(&thread, NULL, raise_flag, &t) != 0)
			_exit(4);
	}
	cl_int err = enqueue(&r, entry);
	if (r.flag) {
		pthread_mutex_lock(&t.lock);
		t.over = true;
		pthread_cond_signal(&t.changed);
		pthread_mutex_unlock(&t.lock);
		pthread_join(thread, NULL);
	}
	if (err != CL_SUCCESS) {
		failed("kernel %s: OpenCL error %d %s%s", entry, err, stage, told_text);
		return;
	}
	size_t length;
	char *text = printed(0, &length);
	answer(0, text, length);
	free(text);
}

static void write_memory(const uint8_t *data, size_t n)
{
	uint64_t addr;
	if (n < sizeof addr || (memcpy(&addr, data, sizeof addr), !inside(addr, n - sizeof addr)))
		failed("WRITE: outside the window");
	else if (copy((void *)(uintptr_t)addr, data + sizeof addr, n - sizeof addr) != CL_SUCCESS)
		failed("WRITE: the copy failed");
	else
		answer(0, NULL, 0);
}

static void read_memory(const uint8_t *data, size_t n)
{
	uint64_t want[2];
	if (n != sizeof want || (memcpy(want, data, sizeof want), !inside(want[0], want[1]))) {
		failed("READ: outside the window");
		return;
	}
	uint8_t *bytes = malloc(want[1] + 1);
	if (!bytes)
		_exit(4);
	if (copy(bytes, (void *)(uintptr_t)want[0], want[1]) != CL_SUCCESS)
		failed("READ: the copy failed");
	else
		answer(0, bytes, want[1]);
	free(bytes);
}

int main(void)
{
	static void (*const handlers[])(const uint8_t *, size_t) = {open_device, build, write_memory, read_memory, run};
	return serve(handlers, sizeof handlers / sizeof handlers[0]);
}
