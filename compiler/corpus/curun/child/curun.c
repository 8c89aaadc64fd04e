// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
//
// Runs PTX through NVIDIA's driver for a parent process, which must live on when a
// kernel traps or hangs. Requests and their answers:
//
//     OPEN      u64 base, u64 size, path of libcuda        -> u64 base, lines of "key value"
//     COMPILE   PTX                                        -> u64 length, machine code, compiler's log
//     LOAD      u64 slot, machine code or PTX              -> log
//     SYMBOL    u64 slot, name                             -> u64 address, u64 size
//     FUNCTION  u64 slot, name                             -> u64 numbers, see function()
//     WRITE     u64 address, bytes                         -> nothing
//     READ      u64 address, u64 length                    -> bytes
//     FILL      u64 address, u64 length, u64 byte          -> nothing
//     RUN       struct run, parameters, name               -> struct ran, what was printed
//     BENCH     u64 rounds, u64 n, n times (u64 length, struct run, parameters, name)
//                                                          -> rounds * n floats: milliseconds
//
// Device memory is one window, at the base that was asked for if the driver has it
// free. A slot keeps the module before until the new one is loaded, so that a
// module that is loaded twice has its variables at two places. Types and numbers
// are those of CUDA 12's cuda.h.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <time.h>

#include "serve.h"

typedef int CUresult, CUdevice;
typedef uint64_t CUdeviceptr, CUmemHandle;
typedef struct opaque *CUcontext, *CUmodule, *CUfunction, *CUstream, *CUevent, *CUlinkState;

struct mem_location {
	int type, id;
};
struct mem_prop {
	int type, handle_types;
	struct mem_location location;
	void *win32;
	uint8_t flags[8];
};
struct mem_access {
	struct mem_location location;
	int flags;
};

enum { DEVICE = 1, PINNED = 1, READWRITE = 3, NON_BLOCKING = 1, INPUT_PTX = 1, NOT_READY = 600 };
enum { ATTR_SMS = 16, ATTR_MAJOR = 75, ATTR_MINOR = 76 };
enum { JIT_WALL = 2, JIT_INFO = 3, JIT_INFO_SIZE = 4, JIT_ERROR = 5, JIT_ERROR_SIZE = 6, JIT_VERBOSE = 12 };
enum { FUNC_MAX_DYNAMIC = 8 };

#define FUNCTIONS(F) \
	F(cuInit, unsigned) \
	F(cuDriverGetVersion, int *) \
	F(cuDeviceGet, CUdevice *, int) \
	F(cuDeviceGetName, char *, int, CUdevice) \
	F(cuDeviceGetAttribute, int *, int, CUdevice) \
	F(cuCtxCreate_v2, CUcontext *, unsigned, CUdevice) \
	F(cuCtxSynchronize, void) \
	F(cuModuleLoadDataEx, CUmodule *, const void *, unsigned, const int *, void **) \
	F(cuModuleUnload, CUmodule) \
	F(cuModuleGetFunction, CUfunction *, CUmodule, const char *) \
	F(cuModuleGetGlobal_v2, CUdeviceptr *, size_t *, CUmodule, const char *) \
	F(cuFuncGetAttribute, int *, int, CUfunction) \
	F(cuLaunchKernel, CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **) \
	F(cuStreamCreate, CUstream *, unsigned) \
	F(cuStreamQuery, CUstream) \
	F(cuStreamSynchronize, CUstream) \
	F(cuEventCreate, CUevent *, unsigned) \
	F(cuEventRecord, CUevent, CUstream) \
	F(cuEventSynchronize, CUevent) \
	F(cuEventElapsedTime, float *, CUevent, CUevent) \
	F(cuMemGetAllocationGranularity, size_t *, const struct mem_prop *, int) \
	F(cuMemAddressReserve, CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long) \
	F(cuMemCreate, CUmemHandle *, size_t, const struct mem_prop *, unsigned long long) \
	F(cuMemMap, CUdeviceptr, size_t, size_t, CUmemHandle, unsigned long long) \
	F(cuMemSetAccess, CUdeviceptr, size_t, const struct mem_access *, size_t) \
	F(cuMemHostAlloc, void **, size_t, unsigned) \
	F(cuMemcpyHtoDAsync_v2, CUdeviceptr, const void *, size_t, CUstream) \
	F(cuMemcpyDtoHAsync_v2, void *, CUdeviceptr, size_t, CUstream) \
	F(cuMemsetD8Async, CUdeviceptr, unsigned char, size_t, CUstream)

// Those that not every driver has.
#define OPTIONAL(F) \
	F(cuLinkCreate_v2, unsigned, const int *, void **, CUlinkState *) \
	F(cuLinkAddData_v2, CUlinkState, int, void *, size_t, const char *, unsigned, const int *, void **) \
	F(cuLinkComplete, CUlinkState, void **, size_t *) \
	F(cuLinkDestroy, CUlinkState) \
	F(cuFuncSetAttribute, CUfunction, int, int) \
	F(cuGetErrorName, CUresult, const char **) \
	F(cuGetErrorString, CUresult, const char **)

#define DECLARE(name, ...) static CUresult (*name)(__VA_ARGS__);
FUNCTIONS(DECLARE)
OPTIONAL(DECLARE)

struct run {
	uint64_t slot;
	uint32_t grid[3], block[3], shared, params; // bytes
	uint64_t flag;                              // address of a u32 that becomes 1 while the kernel runs, or 0
	int64_t flag_after;                         // nanoseconds after the launch; before it, if negative
};

// Nanoseconds since the launch, or the flag, was called; 0: it did not happen.
struct ran {
	uint64_t launched, flag_sent, flag_there, done;
};

enum { SLOTS = 64, LOG = 1 << 16, STAGING = 8 << 20, NAME = 1024 };

static struct {
	CUdeviceptr window;
	uint64_t size;
	CUmodule modules[SLOTS];
	CUstream stream, copies;
	CUevent before, after;
	uint8_t *staging; // pinned
	uint32_t *one;    // pinned
	char info[LOG], error[LOG];
} g;

static bool is(CUresult r, const char *what)
{
	const char *name = "?", *text = "?";
	if (r == 0)
		return true;
	if (cuGetErrorName)
		cuGetErrorName(r, &name);
	if (cuGetErrorString)
		cuGetErrorString(r, &text);
	failed("%s: %s (%d): %s", what, name ? name : "?", r, text ? text : "?");
	return false;
}

#define DO(call) \
	do { \
		if (!is((call), #call)) \
			return; \
	} while (0)

static uint64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

// inside tells whether the window has n bytes at an address.
static bool inside(uint64_t addr, uint64_t n)
{
	return g.window && addr >= g.window && addr - g.window <= g.size && n <= g.size - (addr - g.window);
}

static bool load_driver(const char *path)
{
	void *lib = dlopen(*path ? path : "libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
	if (!lib) {
		failed("%s", dlerror());
		return false;
	}
#define FIND(name, ...) *(void **)&name = dlsym(lib, #name);
	OPTIONAL(FIND)
#define NEED(name, ...) \
	FIND(name) \
	if (!name) { \
		failed("the driver has no " #name); \
		return false; \
	}
	FUNCTIONS(NEED)
	return true;
}

static void open_device(const uint8_t *data, size_t n)
{
	uint64_t want[2];
	if (n < sizeof want || g.window) {
		failed("OPEN comes first, and once");
		return;
	}
	memcpy(want, data, sizeof want);
	if (!load_driver((const char *)data + sizeof want))
		return;
	CUdevice device;
	CUcontext context;
	int version, major, minor, sms;
	char name[256] = "";
	DO(cuInit(0));
	DO(cuDriverGetVersion(&version));
	DO(cuDeviceGet(&device, 0));
	DO(cuDeviceGetName(name, sizeof name - 1, device));
	DO(cuDeviceGetAttribute(&major, ATTR_MAJOR, device));
	DO(cuDeviceGetAttribute(&minor, ATTR_MINOR, device));
	DO(cuDeviceGetAttribute(&sms, ATTR_SMS, device));
	DO(cuCtxCreate_v2(&context, 0, device));
	DO(cuStreamCreate(&g.stream, NON_BLOCKING));
	DO(cuStreamCreate(&g.copies, NON_BLOCKING));
	DO(cuEventCreate(&g.before, 0));
	DO(cuEventCreate(&g.after, 0));
	DO(cuMemHostAlloc((void **)&g.staging, STAGING, 0));
	DO(cuMemHostAlloc((void **)&g.one, sizeof *g.one, 0));
	*g.one = 1;

	struct mem_prop prop = {.type = PINNED, .location = {DEVICE, device}};
	struct mem_access access = {{DEVICE, device}, READWRITE};
	CUmemHandle memory;
	CUdeviceptr window;
	size_t unit;
	DO(cuMemGetAllocationGranularity(&unit, &prop, 0));
	size_t size = (want[1] + unit - 1) / unit * unit;
	DO(cuMemAddressReserve(&window, size, 0, want[0], 0));
	DO(cuMemCreate(&memory, size, &prop, 0));
	DO(cuMemMap(window, size, 0, memory, 0));
	DO(cuMemSetAccess(window, size, &access, 1));
	g.window = window;
	g.size = want[1];

	char text[512];
	memcpy(text, &window, sizeof window);
	int m = snprintf(text + sizeof window, sizeof text - sizeof window, "name %s\ncuda %d\nsm %d%d\nmultiprocessors %d\n",
			 name, version, major, minor, sms);
	answer(0, text, sizeof window + (size_t)m);
}

// The compiler's logs go to g.info and g.error.
static const int jit_options[] = {JIT_INFO, JIT_INFO_SIZE, JIT_ERROR, JIT_ERROR_SIZE, JIT_VERBOSE};
enum { JIT_OPTIONS = sizeof jit_options / sizeof jit_options[0] };

static void jit(void *values[JIT_OPTIONS])
{
	memset(g.info, 0, sizeof g.info);
	memset(g.error, 0, sizeof g.error);
	values[0] = g.info;
	values[1] = (void *)(uintptr_t)(sizeof g.info - 1);
	values[2] = g.error;
	values[3] = (void *)(uintptr_t)(sizeof g.error - 1);
	values[4] = (void *)(uintptr_t)1;
}

static void jit_failed(const char *what, CUresult r)
{
	const char *name = NULL;
	if (cuGetErrorName)
		cuGetErrorName(r, &name);
	size_t room = sizeof g.info + sizeof g.error + 256;
	char *text = malloc(room);
	if (!text)
		_exit(4);
	int n = snprintf(text, room, "%s: %s (%d)\n%s\n%s", what, name ? name : "?", r, g.error, g.info);
	answer(1, text, (size_t)n);
	free(text);
}

static void compile(const uint8_t *data, size_t n)
{
	void *values[JIT_OPTIONS], *code;
	CUlinkState link;
	size_t length;
	if (!cuLinkCreate_v2 || !cuLinkAddData_v2 || !cuLinkComplete || !cuLinkDestroy || !g.window) {
		failed("COMPILE: this driver has no linker, or there is no device");
		return;
	}
	jit(values);
	DO(cuLinkCreate_v2(JIT_OPTIONS, jit_options, values, &link));
	CUresult r = cuLinkAddData_v2(link, INPUT_PTX, (void *)(uintptr_t)data, n + 1, "corpus", 0, NULL, NULL);
	if (r == 0)
		r = cuLinkComplete(link, &code, &length);
	if (r != 0) {
		jit_failed("cuLink", r);
		cuLinkDestroy(link);
		return;
	}
	size_t log = strlen(g.info), all = sizeof(uint64_t) + length + log;
	uint8_t *text = malloc(all);
	if (!text)
		_exit(4);
	uint64_t n64 = length;
	memcpy(text, &n64, sizeof n64);
	memcpy(text + sizeof n64, code, length);
	memcpy(text + sizeof n64 + length, g.info, log);
	answer(0, text, all);
	free(text);
	cuLinkDestroy(link);
}

static void load(const uint8_t *data, size_t n)
{
	uint64_t slot;
	if (n < sizeof slot || (memcpy(&slot, data, sizeof slot), slot >= SLOTS) || !g.window) {
		failed("LOAD: no such slot, or no device");
		return;
	}
	// Aligned, as machine code must be; PTX has its zero byte behind it.
	uint8_t *image = calloc(1, n);
	if (!image)
		_exit(4);
	memcpy(image, data + sizeof slot, n - sizeof slot);
	void *values[JIT_OPTIONS];
	CUmodule module = NULL;
	jit(values);
	CUresult r = cuModuleLoadDataEx(&module, image, JIT_OPTIONS, jit_options, values);
	free(image);
	if (r != 0) {
		jit_failed("cuModuleLoadDataEx", r);
		return;
	}
	CUmodule before = g.modules[slot];
	g.modules[slot] = module;
	if (before)
		DO(cuModuleUnload(before));
	answer(0, g.info, strlen(g.info));
}

static CUmodule module_of(const uint8_t **data, size_t n)
{
	uint64_t slot;
	if (n <= sizeof slot || (memcpy(&slot, *data, sizeof slot), slot >= SLOTS) || !g.modules[slot]) {
		failed("no module there, or no name");
		return NULL;
	}
	*data += sizeof slot;
	return g.modules[slot];
}

static void symbol(const uint8_t *data, size_t n)
{
	CUdeviceptr address;
	size_t size;
	CUmodule module = module_of(&data, n);
	if (!module)
		return;
	DO(cuModuleGetGlobal_v2(&address, &size, module, (const char *)data));
	uint64_t reply[] = {address, size};
	answer(0, reply, sizeof reply);
}

// function tells the attributes 0 to 7 of cuFuncGetAttribute: threads at most,
// shared, constant and local bytes, registers, PTX's and the code's versions, and
// whether caches are as loads say.
static void function(const uint8_t *data, size_t n)
{
	CUfunction f;
	uint64_t reply[8];
	CUmodule module = module_of(&data, n);
	if (!module)
		return;
	DO(cuModuleGetFunction(&f, module, (const char *)data));
	for (int i = 0; i < 8; i++) {
		int value = 0;
		DO(cuFuncGetAttribute(&value, i, f));
		reply[i] = (uint64_t)value;
	}
	answer(0, reply, sizeof reply);
}

static void write_memory(const uint8_t *data, size_t n)
{
	uint64_t addr;
	if (n < sizeof addr) {
		failed("WRITE: too short");
		return;
	}
	memcpy(&addr, data, sizeof addr);
	data += sizeof addr;
	n -= sizeof addr;
	for (size_t done = 0; done < n;) {
		size_t part = n - done < STAGING ? n - done : STAGING;
		memcpy(g.staging, data + done, part);
		DO(cuMemcpyHtoDAsync_v2(addr + done, g.staging, part, g.stream));
		DO(cuStreamSynchronize(g.stream));
		done += part;
	}
	answer(0, NULL, 0);
}

static void read_memory(const uint8_t *data, size_t n)
{
	uint64_t want[2];
	if (n != sizeof want || (memcpy(want, data, sizeof want), want[1] > SERVE_MAX_REQUEST)) {
		failed("READ: too short, or too much");
		return;
	}
	uint8_t *bytes = malloc(want[1] + 1);
	if (!bytes)
		_exit(4);
	for (size_t done = 0; done < want[1];) {
		size_t part = want[1] - done < STAGING ? want[1] - done : STAGING;
		CUresult r = cuMemcpyDtoHAsync_v2(g.staging, want[0] + done, part, g.stream);
		if (!is(r, "READ: copy") || !is(cuStreamSynchronize(g.stream), "READ"))
			goto end;
		memcpy(bytes + done, g.staging, part);
		done += part;
	}
	answer(0, bytes, want[1]);
end:
	free(bytes);
}

static void fill(const uint8_t *data, size_t n)
{
	uint64_t want[3];
	if (n != sizeof want || (memcpy(want, data, sizeof want), !inside(want[0], want[1]))) {
		failed("FILL: outside the window");
		return;
	}
	DO(cuMemsetD8Async(want[0], (unsigned char)want[2], want[1], g.stream));
	DO(cuStreamSynchronize(g.stream));
	answer(0, NULL, 0);
}

// A launch that is ready: a run, its parameters, and the kernel's name.
struct launch {
	struct run run;
	CUfunction f;
	uint8_t params[4096 + 8];
	size_t size;
};

static bool prepare(struct launch *l, const uint8_t *data, size_t n)
{
	char name[NAME] = "";
	if (n <= sizeof l->run || (memcpy(&l->run, data, sizeof l->run), l->run.params > sizeof l->params) ||
	    n - sizeof l->run <= l->run.params || n - sizeof l->run - l->run.params >= sizeof name || l->run.slot >= SLOTS ||
	    !g.modules[l->run.slot] || (l->run.flag && !inside(l->run.flag, sizeof(uint32_t)))) {
		failed("RUN: no module in the slot, or a wrong length or address");
		return false;
	}
	memcpy(l->params, data + sizeof l->run, l->run.params);
	memcpy(name, data + sizeof l->run + l->run.params, n - sizeof l->run - l->run.params);
	l->size = l->run.params;
	if (!is(cuModuleGetFunction(&l->f, g.modules[l->run.slot], name), name))
		return false;
	return l->run.shared <= 48 << 10 || !cuFuncSetAttribute ||
	       is(cuFuncSetAttribute(l->f, FUNC_MAX_DYNAMIC, (int)l->run.shared), "dynamic shared memory");
}

static CUresult launch(struct launch *l)
{
	void *extra[] = {(void *)1, l->params, (void *)2, &l->size, NULL};
	const uint32_t *grid = l->run.grid, *block = l->run.block;
	return cuLaunchKernel(l->f, grid[0], grid[1], grid[2], block[0], block[1], block[2], l->run.shared, g.stream, NULL,
			      l->size ? extra : NULL);
}

static void run(const uint8_t *data, size_t n)
{
	struct launch l;
	struct ran times = {0};
	if (!prepare(&l, data, n))
		return;
	bool to_send = l.run.flag != 0, sent = false;
	uint64_t start = now();
	CUresult r = 0;
	if (to_send && l.run.flag_after < 0) {
		r = cuMemcpyHtoDAsync_v2(l.run.flag, g.one, sizeof *g.one, g.copies);
		to_send = false;
		sent = true;
		times.flag_sent = 1;
		while (now() - start < (uint64_t)-l.run.flag_after)
			;
	}
	if (r == 0)
		r = launch(&l);
	times.launched = now() - start;
	bool waiting = r == 0;
	while (waiting) {
		r = cuStreamQuery(g.stream);
		uint64_t t = now() - start;
		waiting = r == NOT_READY;
		if (!waiting)
			times.done = t;
		if (waiting && to_send && t >= times.launched + (uint64_t)l.run.flag_after) {
			times.flag_sent = now() - start;
			r = cuMemcpyHtoDAsync_v2(l.run.flag, g.one, sizeof *g.one, g.copies);
			to_send = false;
			sent = r == 0;
			waiting = r == 0;
		}
		if (sent && !times.flag_there && cuStreamQuery(g.copies) != NOT_READY)
			times.flag_there = now() - start;
	}
	if (r == 0)
		r = cuStreamSynchronize(g.copies);
	if (r == 0)
		r = cuCtxSynchronize(); // prints what the kernel printed
	if (!is(r, "the kernel"))
		return;
	size_t length;
	char *text = printed(sizeof times, &length);
	memcpy(text, &times, sizeof times);
	answer(0, text, length);
	free(text);
}

enum { BENCH_MOST = 8 };

// bench runs kernels in turns and times each by events.
static void bench(const uint8_t *data, size_t n)
{
	static struct launch all[BENCH_MOST];
	uint64_t head[2];
	if (n < sizeof head || (memcpy(head, data, sizeof head), head[1] > BENCH_MOST || head[0] > 10000)) {
		failed("BENCH: too much");
		return;
	}
	size_t at = sizeof head;
	for (uint64_t i = 0; i < head[1]; i++) {
		uint64_t length;
		if (n - at < sizeof length || (memcpy(&length, data + at, sizeof length), at += sizeof length, length > n - at)) {
			failed("BENCH: too short");
			return;
		}
		if (!prepare(&all[i], data + at, length))
			return;
		at += length;
	}
	float *ms = calloc(head[0] * head[1] + 1, sizeof *ms);
	if (!ms)
		_exit(4);
	for (uint64_t i = 0; i < head[0] * head[1]; i++) {
		CUresult r = cuEventRecord(g.before, g.stream);
		if (r == 0)
			r = launch(&all[i % head[1]]);
		if (r == 0)
			r = cuEventRecord(g.after, g.stream);
		if (r == 0)
			r = cuEventSynchronize(g.after);
		if (r == 0)
			r = cuEventElapsedTime(&ms[i], g.before, g.after);
		if (!is(r, "the kernel")) {
			free(ms);
			return;
		}
	}
	answer(0, ms, head[0] * head[1] * sizeof *ms);
	free(ms);
}

int main(void)
{
	static void (*const handlers[])(const uint8_t *, size_t) = {
		open_device, compile, load, symbol, function, write_memory, read_memory, fill, run, bench,
	};
	return serve(handlers, sizeof handlers / sizeof handlers[0]);
}
