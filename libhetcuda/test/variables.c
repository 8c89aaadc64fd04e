// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Managed variables of modules and libraries, over the stand-in of a driver, on one
// device. Their neighbours, which are variables of the device, are looked at as well.
// HETCUDA_MANAGED_FAULTS=uffd is skipped where there is no userfaultfd.
//
//     variables [TEST...]
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cubin.h"
#include "cuda.h"
#include "random.h"
#include "test.h"

#define CU(call) \
	do { \
		CUresult r_ = (call); \
		CHECK(r_ == CUDA_SUCCESS, "%s: error %d", #call, (int)r_); \
	} while (0)

enum { ROOM = 4 << 20, BIG = 300 << 10 };

static CUcontext context;
static CUfunction add_kernel;
static struct parked self;

static const char *const kernels[] = {"add", NULL};
static const uint32_t eleven[] = {11, 12, 13, 14}, twenty[] = {21, 22, 23, 24};
static const struct cubin_variable usual[] = {
	{"big", BIG, NULL, true}, {"small", 16, eleven, true}, {"plain", BIG, NULL, false}, {"tiny", 16, twenty, false}, {0}};

static unsigned char image[ROOM];

static size_t cubin(const struct cubin_variable *variables)
{
	memset(image, 0, sizeof image);
	return cubin_make(image, variables, kernels);
}

// wrapped is a fatbin as programs have it, in its wrapper.
static const void *wrapped(const struct cubin_variable *variables, bool compressed)
{
	static unsigned char fatbin[ROOM];
	static struct fatbin_wrapper wrapper;
	size_t size = cubin(variables);
	memset(fatbin, 0, sizeof fatbin);
	fatbin_begin(fatbin);
	fatbin_add(fatbin, FATBIN_IS_ELF, image, size, compressed);
	wrapper = (struct fatbin_wrapper){0x466243b1, 1, fatbin, NULL};
	return &wrapper;
}

// A variable, and what is in it.
struct var {
	uint32_t *p, *model;
	size_t words;
};

// All that there was; a variable's is zero at first.
static uint32_t models[8 << 20];
static size_t used;

static struct var var(CUdeviceptr address, size_t size, const uint32_t *initial)
{
	struct var v = {(uint32_t *)(uintptr_t)address, models + used, size / 4};
	CHECK(address && size / 4 <= sizeof models / sizeof *models - used);
	used += size / 4;
	if (initial)
		memcpy(v.model, initial, size);
	return v;
}

static struct var of_module(CUmodule m, const char *name, const uint32_t *initial)
{
	CUdeviceptr p;
	size_t size;
	CU(cuModuleGetGlobal(&p, &size, m, name));
	return var(p, size, initial);
}

static struct var of_library(CUlibrary l, const char *name, const uint32_t *initial)
{
	CUdeviceptr p;
	size_t size;
	CU(cuLibraryGetManaged(&p, &size, l, name));
	return var(p, size, initial);
}

static void gpu_add(struct var *v, uint32_t d)
{
	uint64_t n = v->words;
	void *params[] = {&v->p, &n, &d};
	CU(cuLaunchKernel(add_kernel, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	for (size_t i = 0; i < v->words; i++)
		v->model[i] += d;
}

static void cpu_add(struct var *v, uint32_t d)
{
	for (size_t i = 0; i < v->words; i++)
		v->p[i] = v->model[i] += d;
}

static void gpu_check(const struct var *v)
{
	uint32_t *copy = malloc(v->words * 4);
	CHECK(copy);
	CU(cuMemcpyDtoH(copy, (uintptr_t)v->p, v->words * 4));
	for (size_t i = 0; i < v->words; i++)
		CHECK(copy[i] == v->model[i], "word %zu of %zu is %u on the device, not %u", i, v->words, copy[i], v->model[i]);
	free(copy);
}

static void cpu_check(const struct var *v)
{
	for (size_t i = 0; i < v->words; i++)
		CHECK(v->p[i] == v->model[i], "word %zu of %zu is %u, not %u", i, v->words, v->p[i], v->model[i]);
}

static int is_managed(CUdeviceptr p)
{
	int managed = -1;
	CU(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, p));
	return managed;
}

// Rights of the mapping at an address.
static void expect_rights(const void *p, const char *rights)
{
	char line[512], found[5] = "none";
	unsigned long long from, to;
	FILE *f = fopen("/proc/self/maps", "re");
	CHECK(f);
	while (fgets(line, sizeof line, f))
		if (sscanf(line, "%llx-%llx %4s", &from, &to, found) == 3 && from <= (uintptr_t)p && (uintptr_t)p < to)
			break;
	fclose(f);
	// With signals, what is the device's has no rights either.
	CHECK(found[3] == rights[3] && (rights[3] == 's' || strcmp(found, rights) == 0), "%s and not %s", found, rights);
}

static void refused(const char *with)
{
	int control = dial(getpid());
	CHECK(control >= 0);
	CHECK(ask(control, HETCUDA_HOLD, 5000, 0).status == 0);
	struct hetcuda_reply r = ask(control, HETCUDA_PARK, 5000, 0);
	CHECK(r.status == -ENOTSUP && strstr(r.text, with), "%d %s", r.status, r.text);
	CHECK(ask(control, HETCUDA_RELEASE, 0, 0).status == 0);
	close(control);
}

static void park(void)
{
	park_self(&self);
	unpark_self(&self);
}

static void start(void)
{
	static const char ptx[] = ".version 7.0\n.entry add(\n";
	static CUmodule modules[4]; // those of contexts that have ended are lost
	static unsigned count;
	CUmodule *module = &modules[count++];
	CHECK(count <= 4);
	CU(cuDevicePrimaryCtxRetain(&context, 0));
	CU(cuCtxSetCurrent(context));
	CU(cuModuleLoadData(module, ptx));
	CU(cuModuleGetFunction(&add_kernel, *module, "add"));
}

// As the CUDA runtimes do it: all this before there is a context.
static void test_library(void)
{
	CUlibrary l;
	CUdeviceptr p;
	size_t size;
	unsigned int flags;
	int active;
	CU(cuInit(0));
	CU(cuLibraryLoadData(&l, wrapped(usual, false), NULL, NULL, 0, NULL, NULL, 0));
	struct var big = of_library(l, "big", NULL), small = of_library(l, "small", eleven);
	CHECK(big.words == BIG / 4 && small.words == 4);
	CHECK(cuLibraryGetManaged(&p, &size, l, "plain") == CUDA_ERROR_NOT_FOUND);
	CHECK(cuLibraryGetManaged(&p, &size, l, "nothing") == CUDA_ERROR_NOT_FOUND);
	CU(cuLibraryGetManaged(&p, NULL, l, "small"));
	CHECK(p == (uintptr_t)small.p);
	CU(cuLibraryGetManaged(NULL, &size, l, "small"));
	CHECK(size == 16);
	cpu_check(&big);
	cpu_check(&small);
	cpu_add(&big, 5);
	cpu_add(&small, 7);
	start();
	CU(cuLibraryGetGlobal(&p, &size, l, "plain"));
	struct var plain = var(p, size, NULL);
	CU(cuLibraryGetGlobal(&p, &size, l, "tiny"));
	struct var tiny = var(p, size, twenty), *all[] = {&big, &small, &plain, &tiny};
	// The image was read with its marks cleared, and plain lies behind small.
	CHECK(is_managed((uintptr_t)small.p) == 1 && is_managed((uintptr_t)plain.p) == 0);
	CHECK((uintptr_t)plain.p / 4096 == (uintptr_t)small.p / 4096);
	for (int turn = 0; turn < 6; turn++) {
		for (int i = 0; i < 4; i++)
			gpu_add(all[i], 1 + (uint32_t)i);
		if (turn % 2)
			CU(cuCtxSynchronize());
		cpu_check(&big);
		cpu_check(&small);
		for (int i = 0; i < 4; i++)
			gpu_check(all[i]);
		cpu_add(&big, 100);
		if (turn % 3)
			cpu_add(&small, 1000);
		if (turn > 2)
			park();
	}
	// The library holds the context.
	CU(cuDevicePrimaryCtxRelease(0));
	CU(cuDevicePrimaryCtxGetState(0, &flags, &active));
	CHECK(active == 1);
	CU(cuDevicePrimaryCtxRetain(&context, 0));
	expect_rights(big.p, "rw-s");
	CU(cuLibraryUnload(l));
	expect_rights(big.p, "---p");
	expect_rights(small.p, "---p");
	CU(cuDevicePrimaryCtxRelease(0));
	CU(cuDevicePrimaryCtxGetState(0, &flags, &active));
	CHECK(active == 0);
	start();
}

static void test_attributes(void)
{
	CUmodule m;
	cubin(usual);
	CU(cuModuleLoadData(&m, image));
	struct var big = of_module(m, "big", NULL), plain = of_module(m, "plain", NULL);
	unsigned int type;
	int ordinal, managed;
	CUdeviceptr start_of, inside = (uintptr_t)big.p + 1000;
	size_t size;
	CU(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside));
	CU(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, inside));
	CHECK(type == CU_MEMORYTYPE_DEVICE && ordinal == 0 && is_managed(inside) == 1);
	CU(cuMemGetAddressRange(&start_of, &size, inside));
	CHECK(start_of == (uintptr_t)big.p && size == BIG);
	CUpointer_attribute both[] = {CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
	void *data[] = {&managed, &size};
	managed = 0;
	CU(cuPointerGetAttributes(2, both, data, inside));
	CHECK(managed == 1 && size == BIG);
	CU(cuMemGetAddressRange(&start_of, &size, (uintptr_t)plain.p));
	CHECK(start_of == (uintptr_t)plain.p && size == BIG);
	CHECK(cuMemFree((uintptr_t)big.p) == CUDA_ERROR_INVALID_VALUE);
	// Hints, fills and copies.
	CU(cuMemPrefetchAsync((uintptr_t)big.p, BIG, 0, NULL));
	CU(cuMemPrefetchAsync((uintptr_t)big.p, BIG, CU_DEVICE_CPU, NULL));
	CHECK(cuMemPrefetchAsync((uintptr_t)big.p, BIG + 1, 0, NULL) == CUDA_ERROR_INVALID_VALUE);
	CU(cuMemAdvise((uintptr_t)big.p, BIG, CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
	CHECK(cuMemAdvise((uintptr_t)plain.p, 16, CU_MEM_ADVISE_SET_READ_MOSTLY, 0) != CUDA_SUCCESS);
	int value = 0;
	CU(cuMemRangeGetAttribute(&value, sizeof value, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, (uintptr_t)big.p, BIG));
	CHECK(value == 1);
	cpu_add(&big, 3);
	CU(cuMemsetD32((uintptr_t)big.p, 9, 100));
	for (int i = 0; i < 100; i++)
		big.model[i] = 9;
	cpu_check(&big);
	cpu_add(&big, 1);
	CU(cuMemcpyHtoD((uintptr_t)plain.p, big.p, BIG));
	memcpy(plain.model, big.model, BIG);
	gpu_check(&plain);
	gpu_add(&plain, 1);
	CU(cuMemcpyDtoH(big.p, (uintptr_t)plain.p, BIG));
	memcpy(big.model, plain.model, BIG);
	cpu_check(&big);
	gpu_check(&big);
	CU(cuModuleUnload(m));
}

// Variables of several modules in one page, which come and go.
static void test_neighbours(void)
{
	enum { N = 8 };
	static const struct cubin_variable few[] = {{"a", 100, NULL, true}, {"b", 8, NULL, false}, {"c", 700, NULL, true}, {0}};
	CUmodule m[N];
	struct var v[N][3];
	cubin(few);
	for (int turn = 0; turn < 3; turn++) {
		for (int i = 0; i < N; i++) {
			CU(cuModuleLoadData(&m[i], image));
			v[i][0] = of_module(m[i], "a", NULL);
			v[i][1] = of_module(m[i], "b", NULL);
			v[i][2] = of_module(m[i], "c", NULL);
			for (int k = 0; k <= i; k++) {
				cpu_check(&v[k][0]);
				cpu_add(&v[k][2], (uint32_t)k);
				gpu_add(&v[k][1], 3);
				gpu_add(&v[k][i % 2 ? 0 : 2], 1);
			}
		}
		for (int i = 0; i < N; i++) {
			int gone = (i * 3 + turn) % N;
			for (int k = 0; k < 3; k++)
				gpu_check(&v[gone][k]);
			cpu_add(&v[gone][0], 1); // and it goes with that
			CU(cuModuleUnload(m[gone]));
			v[gone][0].p = NULL;
			for (int k = 0; k < N; k++) {
				if (!v[k][0].p)
					continue;
				cpu_check(&v[k][0]);
				gpu_check(&v[k][1]);
				cpu_add(&v[k][2], 5);
				gpu_check(&v[k][2]);
			}
			if (i == N / 2)
				park();
		}
	}
	// The same addresses once more, with other contents.
	CU(cuModuleLoadData(&m[0], image));
	struct var a = of_module(m[0], "a", NULL);
	cpu_check(&a);
	CU(cuModuleUnload(m[0]));
}

static void check_usual(CUmodule m)
{
	struct var big = of_module(m, "big", NULL), small = of_module(m, "small", eleven);
	CHECK(is_managed((uintptr_t)big.p) == 1);
	expect_rights(big.p, "rw-s");
	cpu_check(&small);
	cpu_add(&big, 1);
	gpu_add(&big, 1);
	gpu_add(&small, 1);
	cpu_check(&big);
	cpu_check(&small);
}

// All the ways to load one.
static void test_loads(void)
{
	static const char ptx[] = ".version 7.0\n.visible .global .attribute(.managed) .align 8 .u64 counter;\n"
				  ".global .align 4 .u32 big[10];\n.entry add(\n";
	char file[] = "/tmp/hetcuda-variables-XXXXXX";
	CUmodule m;
	CUlibrary l;
	int fd = mkstemp(file);
	size_t size = cubin(usual);
	CHECK(fd >= 0 && write(fd, image, size) == (ssize_t)size);
	close(fd);
	CU(cuModuleLoadDataEx(&m, image, 0, NULL, NULL));
	check_usual(m);
	CU(cuModuleUnload(m));
	CU(cuModuleLoadFatBinary(&m, wrapped(usual, false)));
	check_usual(m);
	CU(cuModuleUnload(m));
	CU(cuModuleLoad(&m, file));
	check_usual(m);
	CU(cuModuleUnload(m));
	CHECK(cuModuleLoad(&m, "/nothing/there") == CUDA_ERROR_FILE_NOT_FOUND);
	CU(cuLibraryLoadFromFile(&l, file, NULL, NULL, 0, NULL, NULL, 0));
	unlink(file);
	CU(cuLibraryGetModule(&m, l));
	check_usual(m);
	CU(cuLibraryUnload(l));
	CU(cuModuleLoadData(&m, ptx));
	struct var counter = of_module(m, "counter", NULL);
	cpu_add(&counter, 4);
	gpu_add(&counter, 4);
	cpu_check(&counter);
	CHECK(is_managed((uintptr_t)counter.p) == 1 && is_managed((uintptr_t)of_module(m, "big", NULL).p) == 0);
	park();
	cpu_check(&counter);
	CU(cuModuleUnload(m));
}

// What can't be read stays the driver's, and the process isn't parked.
static void test_compressed(void)
{
	CUlibrary l;
	CU(cuLibraryLoadData(&l, wrapped(usual, true), NULL, NULL, 0, NULL, NULL, 0));
	park(); // nobody has asked for any
	struct var small = of_library(l, "small", eleven);
	cpu_add(&small, 1);
	gpu_add(&small, 1);
	CU(cuCtxSynchronize());
	cpu_check(&small);
	refused("1 __managed__ variables, which the driver keeps and can't checkpoint: small");
	CU(cuLibraryUnload(l));
	park();
}

// With another context there would be another variable.
static void test_contexts(void)
{
	CUcontext other, none = NULL;
	CUmodule m;
	cubin(usual);
	CU(cuModuleLoadData(&m, image));
	CHECK(cuCtxCreate(&none, 0, 0) == CUDA_ERROR_NOT_SUPPORTED && !none);
	check_usual(m);
	CU(cuModuleUnload(m));
	CU(cuCtxCreate(&other, 0, 0));
	CU(cuCtxSetCurrent(context));
	CU(cuModuleLoadData(&m, image));
	struct var small = of_module(m, "small", eleven);
	CHECK(is_managed((uintptr_t)small.p) == 1);
	cpu_check(&small);
	refused("small");
	CU(cuModuleUnload(m));
	CU(cuCtxDestroy(other));
	CU(cuCtxSetCurrent(context));
	CU(cuModuleLoadData(&m, image));
	check_usual(m);
	park();
	CU(cuModuleUnload(m));
}

// Left to the driver by HETCUDA_MANAGED_VARIABLES: what a program may do with the
// driver it may do, and is refused by name when it is to be parked.
static void test_left(void)
{
	CUcontext other;
	CUmodule m;
	CU(cuInit(0));
	start();
	cubin(usual);
	CU(cuModuleLoadData(&m, image));
	struct var small = of_module(m, "small", eleven);
	CHECK(is_managed((uintptr_t)small.p) == 1);
	CU(cuCtxCreate(&other, 0, 0));
	CU(cuCtxDestroy(other));
	CU(cuCtxSetCurrent(context));
	cpu_check(&small);
	refused("small");
	CU(cuModuleUnload(m));
	park();
}

// The context is reset: a module has gone, a library has its variables anew.
static void test_reset(void)
{
	static CUmodule m; // lost with its context
	CUlibrary l;
	CU(cuLibraryLoadData(&l, wrapped(usual, false), NULL, NULL, 0, NULL, NULL, 0));
	CU(cuModuleLoadData(&m, image));
	struct var big = of_library(l, "big", NULL), small = of_module(m, "small", eleven);
	cpu_add(&big, 1);
	cpu_add(&small, 1);
	CU(cuDevicePrimaryCtxReset(0));
	expect_rights(big.p, "---p");
	expect_rights(small.p, "---p");
	start();
	struct var again = of_library(l, "big", NULL);
	cpu_check(&again);
	gpu_add(&again, 2);
	cpu_check(&again);
	park();
	CU(cuLibraryUnload(l));
}

static void test_fork(void)
{
	CUmodule m;
	cubin(usual);
	CU(cuModuleLoadData(&m, image));
	struct var big = of_module(m, "big", NULL);
	cpu_add(&big, 8);
	gpu_add(&big, 1);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0)
		_exit(cuModuleLoadData(&m, image) == CUDA_SUCCESS);
	int status;
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0, "%#x", status);
	gpu_check(&big);
	cpu_check(&big);
	CU(cuModuleUnload(m));
}

// Variables of any size, some larger than what is copied at once, in any order.
static void test_random(void)
{
	enum { MODULES = 3, EACH = 5 };
	static const char *const names[] = {"v0", "v1", "v2", "v3", "v4"};
	CUmodule m[MODULES];
	struct var v[MODULES][EACH];
	bool managed[MODULES][EACH];
	for (int i = 0; i < MODULES; i++) {
		struct cubin_variable list[EACH + 1] = {0};
		for (int k = 0; k < EACH; k++) {
			managed[i][k] = draw(3) > 0;
			list[k] = (struct cubin_variable){names[k], 4 * (1 + draw(draw(3) ? 100 : 200000)), NULL, managed[i][k]};
		}
		cubin(list);
		CU(cuModuleLoadData(&m[i], image));
		for (int k = 0; k < EACH; k++)
			v[i][k] = of_module(m[i], names[k], NULL);
	}
	for (int turn = 0; turn < 400; turn++) {
		uint64_t i = draw(MODULES), k = draw(EACH), n = draw(8);
		struct var *one = &v[i][k];
		size_t w = draw(one->words);
		if (n < 3)
			gpu_add(one, (uint32_t)n + 1);
		else if (n == 3 && managed[i][k])
			cpu_add(one, 17);
		else if (n == 4 && managed[i][k])
			one->p[w] = one->model[w] = (uint32_t)draw(1000);
		else if (n == 5 && managed[i][k])
			CHECK(one->p[w] == one->model[w], "turn %d: word %zu of %zu is %u, not %u", turn, w, one->words, one->p[w], one->model[w]);
		else if (n == 6)
			gpu_check(one);
		else if (n == 7 && draw(8) == 0)
			park();
	}
	for (int i = 0; i < MODULES; i++)
		for (int k = 0; k < EACH; k++) {
			gpu_check(&v[i][k]);
			if (managed[i][k])
				cpu_check(&v[i][k]);
		}
	for (int i = 0; i < MODULES; i++)
		CU(cuModuleUnload(m[i]));
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} tests[] = {
		{"library", test_library}, // the first: it begins without a context
		{"attributes", test_attributes}, {"neighbours", test_neighbours}, {"loads", test_loads}, {"compressed", test_compressed},
		{"contexts", test_contexts}, {"reset", test_reset}, {"fork", test_fork}, {"random", test_random},
	};
	if (getenv("HETCUDA_MANAGED_VARIABLES")) {
		test_left();
		return 0;
	}
	const char *way = getenv("HETCUDA_MANAGED_FAULTS");
	if (way && !strcmp(way, "uffd") && !uffd_here())
		SKIP("no userfaultfd");
	if (getenv("HETCUDA_SEED"))
		seed += strtoull(getenv("HETCUDA_SEED"), NULL, 0);
	for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
		bool wanted = argc < 2 || i == 0;
		for (int k = 1; k < argc; k++)
			wanted = wanted || !strcmp(argv[k], tests[i].name);
		if (!wanted)
			continue;
		double begin = now();
		tests[i].run();
		printf("%s %.2f s\n", tests[i].name, now() - begin);
		fflush(stdout);
	}
	return 0;
}
