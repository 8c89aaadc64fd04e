// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Managed memory, over the stand-in of a driver with real memory on both sides.
// Every check looks at all words, from the CPU and through the device.
// HETCUDA_MANAGED_FAULTS=uffd is skipped where there is no userfaultfd.
//
//     managed [TEST...]
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda.h"
#include "random.h"
#include "test.h"

#define MIB ((size_t)1 << 20)
#define CU(call) \
	do { \
		CUresult r_ = (call); \
		CHECK(r_ == CUDA_SUCCESS, "%s: error %d", #call, (int)r_); \
	} while (0)

static const char image[] = ".version 7.0\n.entry step(\n.entry add(\n.entry spin(\n.entry fill(\n.entry sum(\n";
static CUmodule module;
static CUfunction step_kernel, spin_kernel;
static CUcontext context;
static bool signals; // the way that was forced

// A managed allocation, and what is in it.
struct area {
	uint64_t *p, *model;
	size_t words;
};

static void start(void)
{
	CU(cuInit(0));
	CU(cuDevicePrimaryCtxRetain(&context, 0));
	CU(cuCtxSetCurrent(context));
	CU(cuModuleLoadData(&module, image));
	CU(cuModuleGetFunction(&step_kernel, module, "step"));
	CU(cuModuleGetFunction(&spin_kernel, module, "spin"));
}

static struct area area(size_t words)
{
	CUdeviceptr p;
	struct area a = {.words = words};
	CU(cuMemAllocManaged(&p, words * 8, CU_MEM_ATTACH_GLOBAL));
	a.p = (uint64_t *)(uintptr_t)p;
	a.model = calloc(words, 8);
	CHECK(a.model);
	return a;
}

static void drop(struct area *a)
{
	CU(cuMemFree((uintptr_t)a->p));
	free(a->model);
	*a = (struct area){0};
}

static void cpu_write(struct area *a, size_t from, size_t n, uint64_t value)
{
	for (size_t i = from; i < from + n; i++)
		a->p[i] = a->model[i] = value + i;
}

static void cpu_check(struct area *a, size_t from, size_t n)
{
	for (size_t i = from; i < from + n; i++)
		CHECK(a->p[i] == a->model[i], "word %zu of %zu is %#llx, not %#llx", i, a->words, (unsigned long long)a->p[i],
		      (unsigned long long)a->model[i]);
}

static void gpu_step(struct area *a, size_t from, size_t n)
{
	CUdeviceptr p = (uintptr_t)(a->p + from);
	uint64_t count = n;
	void *params[] = {&p, &count};
	CU(cuLaunchKernel(step_kernel, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	for (size_t i = from; i < from + n; i++)
		a->model[i]++;
}

// By the other device, in a context of its own.
static CUcontext other;

static void gpu_step_there(struct area *a, size_t from, size_t n)
{
	if (!other)
		CU(cuDevicePrimaryCtxRetain(&other, 1));
	CU(cuCtxSynchronize()); // the program's own order
	CU(cuCtxSetCurrent(other));
	gpu_step(a, from, n);
	CU(cuCtxSynchronize());
	CU(cuCtxSetCurrent(context));
}

static void gpu_spin(uint64_t ns)
{
	void *params[] = {&ns};
	CU(cuLaunchKernel(spin_kernel, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
}

static void gpu_check(struct area *a, size_t from, size_t n)
{
	uint64_t *copy = malloc(n * 8);
	CHECK(copy);
	CU(cuMemcpyDtoH(copy, (uintptr_t)(a->p + from), n * 8));
	for (size_t i = 0; i < n; i++)
		CHECK(copy[i] == a->model[from + i], "word %zu of %zu is %#llx on the device, not %#llx", from + i, a->words,
		      (unsigned long long)copy[i], (unsigned long long)a->model[from + i]);
	free(copy);
}

static void both_check(struct area *a)
{
	gpu_check(a, 0, a->words);
	cpu_check(a, 0, a->words);
}

// The device and the CPU in turn.
static void test_turns(void)
{
	struct area a = area(3 * MIB / 8 + 77);
	cpu_check(&a, 0, a.words); // zero at first
	for (int turn = 0; turn < 5; turn++) {
		cpu_write(&a, 0, a.words, draw(1000000));
		gpu_step(&a, 0, a.words);
		CU(cuCtxSynchronize());
		cpu_check(&a, 0, a.words);
		gpu_step(&a, 100, 50);
		gpu_check(&a, 0, a.words);
		cpu_check(&a, a.words / 2, 1000);
	}
	drop(&a);
	// Far enough for what is fetched ahead.
	a = area(40 * MIB / 8);
	for (int turn = 0; turn < 2; turn++) {
		cpu_write(&a, 0, a.words, draw(1000000));
		gpu_step(&a, 0, a.words);
		cpu_check(&a, 0, a.words);
		gpu_step(&a, 0, a.words);
		cpu_write(&a, 0, a.words / 2, 3);
		both_check(&a);
	}
	drop(&a);
	// The device first.
	a = area(5 * MIB / 8);
	gpu_step(&a, 0, a.words);
	both_check(&a);
	drop(&a);
}

// One word of a granule, a page or two granules written by the CPU, the rest by
// the device.
static void test_partial(void)
{
	struct area a = area(4 * MIB / 8);
	cpu_write(&a, 0, a.words, 7);
	for (int i = 0; i < 200; i++) {
		gpu_step(&a, 0, a.words);
		size_t at = draw(a.words - 10000);
		if (i % 2)
			cpu_check(&a, at, 1); // CLEAN, then written
		cpu_write(&a, at, 1 + draw(i % 3 == 0 ? 10000 : 3), draw(1000000));
	}
	both_check(&a);
	drop(&a);
}

static struct area areas[12];

static void copies(struct area *a, struct area *b)
{
	size_t n = 1 + draw(a->words < b->words ? a->words : b->words);
	size_t x = draw(a->words - n + 1), y = draw(b->words - n + 1);
	uint64_t *plain = malloc(n * 8);
	CUdeviceptr from = (uintptr_t)(a->p + x), to = (uintptr_t)(b->p + y);
	CHECK(plain);
	if (a == b)
		goto out;
	switch (draw(6)) {
	case 0: CU(cuMemcpyDtoD(to, from, n * 8)); break;
	case 1: CU(cuMemcpyHtoD(to, a->p + x, n * 8)); break;
	case 2: CU(cuMemcpyDtoH(b->p + y, from, n * 8)); break;
	case 3: CU(cuMemcpy(to, from, n * 8)); break;
	case 4: CU(cuMemcpyHtoDAsync(to, a->p + x, n * 8, NULL)); break;
	case 5: memmove(b->p + y, a->p + x, n * 8); break; // by the CPU
	}
	memcpy(b->model + y, a->model + x, n * 8);
out:
	free(plain);
}

static void one_random(bool *parked);

static void test_random(void)
{
	bool parked = false;
	for (size_t i = 0; i < sizeof areas / sizeof *areas; i++)
		areas[i] = area(i % 3 == 0 ? 1 + draw(2000) : 1 + draw(3 * MIB / 8));
	for (int i = 0; i < 600; i++)
		one_random(&parked);
	for (size_t i = 0; i < sizeof areas / sizeof *areas; i++) {
		both_check(&areas[i]);
		drop(&areas[i]);
	}
}

static struct parked self;

static void one_random(bool *parked)
{
	size_t k = draw(sizeof areas / sizeof *areas);
	struct area *a = &areas[k];
	size_t from = draw(a->words), n = 1 + draw(a->words - from);
	(void)parked;
	switch (draw(14)) {
	case 0:
	case 1: cpu_write(a, from, n, draw(1u << 30)); break;
	case 2: cpu_check(a, from, n); break;
	case 3: cpu_write(a, from, 1, draw(1u << 30)); break;
	case 4:
	case 5: gpu_step(a, from, n); break;
	case 6: gpu_check(a, from, n); break;
	case 7:
		CU(cuMemsetD8((uintptr_t)(a->p + from), 0x5a, n * 8));
		memset(a->model + from, 0x5a, n * 8);
		break;
	case 8: copies(a, &areas[draw(sizeof areas / sizeof *areas)]); break;
	case 9:
		drop(a);
		*a = area(draw(3) == 0 ? 1 + draw(2000) : 1 + draw(3 * MIB / 8));
		if (draw(2)) // it may have been somebody's: nothing is known of it
			cpu_write(a, 0, a->words, draw(1u << 30));
		else
			memcpy(a->model, a->p, a->words * 8);
		break;
	case 10:
		if (draw(8) == 0) {
			park_self(&self);
			unpark_self(&self);
		}
		break;
	case 11: gpu_spin(1000000); break;
	case 12: CU(cuMemPrefetchAsync((uintptr_t)(a->p + from), n * 8, (CUdevice)draw(3) - 1, NULL)); break;
	case 13: gpu_step_there(a, from, n); break;
	}
}

// System calls.
static void test_calls(void)
{
	if (signals)
		return; // they fail with EFAULT
	struct area a = area(2 * MIB / 8);
	char name[] = "/tmp/hetcuda-managed-XXXXXX";
	int fd = mkstemp(name);
	CHECK(fd >= 0);
	unlink(name);
	cpu_write(&a, 0, a.words, 3);
	gpu_step(&a, 0, a.words);
	CHECK(write(fd, a.p, a.words * 8) == (ssize_t)(a.words * 8), "%s", strerror(errno));
	gpu_step(&a, 0, a.words);
	CHECK(pread(fd, a.p, a.words * 8, 0) == (ssize_t)(a.words * 8), "%s", strerror(errno));
	for (size_t i = 0; i < a.words; i++)
		a.model[i]--; // as it was when it was written
	both_check(&a);
	// What is CLEAN is written by a system call.
	cpu_check(&a, 0, a.words);
	CHECK(pread(fd, a.p, 4096, 4096) == 4096);
	memcpy(a.model, a.model + 512, 4096);
	both_check(&a);
	close(fd);
	drop(&a);
}

// Threads.
struct toucher {
	pthread_t thread;
	struct area *a;
	size_t from, n;
};

static void *touch(void *argument)
{
	struct toucher *t = argument;
	cpu_check(t->a, t->from, t->n);
	cpu_write(t->a, t->from, t->n, t->from);
	cpu_check(t->a, t->from, t->n);
	return NULL;
}

static void test_threads(void)
{
	struct area a = area(6 * MIB / 8);
	cpu_write(&a, 0, a.words, 1);
	for (int turn = 0; turn < 6; turn++) {
		struct toucher t[7];
		gpu_spin(2000000);
		gpu_step(&a, 0, a.words);
		for (int i = 0; i < 7; i++) {
			// Odd pieces, that share granules and pages.
			size_t piece = a.words / 7;
			t[i] = (struct toucher){.a = &a, .from = i * piece, .n = piece};
			CHECK(pthread_create(&t[i].thread, NULL, touch, &t[i]) == 0);
		}
		for (int i = 0; i < 7; i++)
			pthread_join(t[i].thread, NULL);
	}
	both_check(&a);
	drop(&a);
}

// One thread launches all the time, on one area; another touches a second one;
// a third makes and frees.
static _Atomic bool over;

static void *launches(void *argument)
{
	struct area *a = argument;
	CU(cuCtxSetCurrent(context));
	while (!over)
		gpu_step(a, 0, 1000);
	return NULL;
}

static void *makes(void *argument)
{
	(void)argument;
	CU(cuCtxSetCurrent(context));
	while (!over) {
		struct area a = area(1 + draw(MIB / 8));
		for (size_t i = 0; i < a.words; i += 512)
			a.p[i] = a.model[i] = i;
		cpu_check(&a, 0, 1);
		drop(&a);
	}
	return NULL;
}

static void test_busy(void)
{
	pthread_t launcher, maker;
	struct area a = area(MIB / 8), b = area(4 * MIB / 8);
	cpu_write(&a, 0, a.words, 5);
	cpu_write(&b, 0, b.words, 6);
	over = false;
	CHECK(pthread_create(&launcher, NULL, launches, &a) == 0);
	CHECK(pthread_create(&maker, NULL, makes, NULL) == 0);
	double end = now() + 1;
	int turns = 0;
	while (now() < end || turns < 3) {
		size_t from = draw(b.words - 5000);
		cpu_write(&b, from, 5000, turns++);
		cpu_check(&b, from, 5000);
	}
	over = true;
	pthread_join(launcher, NULL);
	pthread_join(maker, NULL);
	both_check(&a);
	both_check(&b);
	drop(&a);
	drop(&b);
}

// Parking, in every state, with threads that touch meanwhile.
// Descriptors that CRIU can't dump.
static int userfaultfds(void)
{
	char link[64], to[64];
	int n = 0;
	for (int fd = 0; fd < 256; fd++) {
		snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
		ssize_t size = readlink(link, to, sizeof to - 1);
		n += size > 0 && (to[size] = 0, strstr(to, "userfaultfd") != NULL);
	}
	return n;
}

// Nothing watches a parked process, also one that has no managed memory any more. The
// first of the tests.
static void test_gone(void)
{
	const char *way = getenv("HETCUDA_MANAGED_FAULTS");
	for (int turn = 0; turn < 2; turn++) {
		struct area a = area(MIB / 8);
		cpu_write(&a, 0, a.words, turn);
		gpu_step(&a, 0, a.words);
		both_check(&a);
		drop(&a);
		CHECK(!way || strcmp(way, "uffd") || userfaultfds() == 1);
		park_self(&self);
		CHECK(userfaultfds() == 0);
		unpark_self(&self);
	}
}

static void test_park(void)
{
	struct area device = area(3 * MIB / 8), clean = area(3 * MIB / 8), dirty = area(3 * MIB / 8), mixed = area(3 * MIB / 8);
	struct area fresh = area(2 * MIB / 8), small = area(10);
	struct area *all[] = {&device, &clean, &dirty, &mixed, &fresh, &small};
	for (int turn = 0; turn < 3; turn++) {
		struct toucher t[6];
		cpu_write(&device, 0, device.words, turn);
		cpu_write(&clean, 0, clean.words, turn);
		gpu_step(&device, 0, device.words);
		gpu_step(&clean, 0, clean.words);
		gpu_step(&mixed, 0, mixed.words);
		cpu_check(&clean, 0, clean.words);
		cpu_write(&dirty, 0, dirty.words, turn);
		for (size_t i = 0; i + 100 < mixed.words; i += 20000)
			cpu_write(&mixed, i, 1, i);
		cpu_write(&small, 0, small.words, turn);
		park_self(&self);
		struct hetcuda_hello hello = ask_hello(self.control);
		CHECK(hello.state == HETCUDA_PARKED);
	again:
		for (int i = 0; i < 6; i++) {
			t[i] = (struct toucher){.a = all[i], .from = 0, .n = all[i]->words};
			CHECK(pthread_create(&t[i].thread, NULL, touch, &t[i]) == 0);
		}
		sleep_ms(50);
		unpark_self(&self);
		for (int i = 0; i < 6; i++)
			pthread_join(t[i].thread, NULL);
		if (turn == 1) { // at once again
			turn++;
			park_self(&self);
			goto again;
		}
		for (int i = 0; i < 6; i++)
			gpu_step(all[i], 0, all[i]->words);
		for (int i = 0; i < 6; i++)
			both_check(all[i]);
	}
	// Held, asked and let go of again.
	int control = dial(getpid());
	struct parcel parcel;
	CHECK(ask(control, HETCUDA_HOLD, 5000, 0).status == 0);
	CHECK(ask_park(control, 5000, &parcel) == 0);
	close(control);
	drop_parcel(&parcel);
	for (int i = 0; i < 6; i++) {
		both_check(all[i]);
		drop(all[i]);
	}
}

// Host functions: what comes after them in the stream sees what they wrote.
static struct area host_area;
static int host_calls;

static void host(void *data)
{
	CHECK(data == &host_area);
	cpu_check(&host_area, 0, host_area.words);
	cpu_write(&host_area, 0, host_area.words, 99);
	host_calls++;
}

static void test_host(void)
{
	host_area = area(2 * MIB / 8);
	cpu_write(&host_area, 0, host_area.words, 1);
	for (int i = 0; i < 5; i++) {
		gpu_step(&host_area, 0, host_area.words);
		CU(cuLaunchHostFunc(NULL, host, &host_area));
		// The model is the function's until it has run.
		CUdeviceptr p = (uintptr_t)host_area.p;
		uint64_t n = host_area.words;
		void *params[] = {&p, &n};
		CU(cuLaunchKernel(step_kernel, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
		CU(cuCtxSynchronize());
		CHECK(host_calls == i + 1);
		for (size_t k = 0; k < host_area.words; k++)
			host_area.model[k]++;
		both_check(&host_area);
	}
	drop(&host_area);
}

// More than the device has.
static void test_oversubscribed(void)
{
	size_t available, total;
	CU(cuMemGetInfo(&available, &total));
	struct area parts[5];
	for (int i = 0; i < 5; i++) {
		parts[i] = area(total / 3 / 8);
		cpu_write(&parts[i], 0, parts[i].words, i);
	}
	for (int turn = 0; turn < 2; turn++) {
		for (int i = 0; i < 5; i++)
			gpu_step(&parts[i], 0, parts[i].words);
		CU(cuCtxSynchronize());
		for (int i = 0; i < 5; i++)
			cpu_check(&parts[i], 0, parts[i].words);
	}
	park_self(&self);
	unpark_self(&self);
	for (int i = 0; i < 5; i++) {
		gpu_step(&parts[i], 0, parts[i].words);
		CU(cuCtxSynchronize());
		both_check(&parts[i]);
		drop(&parts[i]);
	}
	size_t after;
	CU(cuMemGetInfo(&after, &total));
	CHECK(after == available, "%zu bytes before, %zu after", available, after);
}

// What the program is told.
static void test_attributes(void)
{
	int value = -1;
	CU(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 0));
	CHECK(value == 0);
	struct area a = area(3 * MIB / 8), b = area(5);
	struct area *both[] = {&a, &b};
	for (int i = 0; i < 2; i++) {
		CUdeviceptr p = (uintptr_t)both[i]->p, base = 0;
		size_t size = 0;
		unsigned int managed = 0, type = 0;
		void *host_pointer = NULL;
		CU(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, p + 8));
		CHECK(managed == 1);
		CU(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p + 8));
		CHECK(type == CU_MEMORYTYPE_DEVICE);
		CU(cuPointerGetAttribute(&host_pointer, CU_POINTER_ATTRIBUTE_HOST_POINTER, p + 8));
		CHECK(host_pointer == (char *)both[i]->p + 8);
		CU(cuMemGetAddressRange(&base, &size, p + 8));
		CHECK(base == p && size == both[i]->words * 8);
		CHECK(cuMemFree(p + 8) == CUDA_ERROR_INVALID_VALUE);
		CUipcMemHandle handle;
		CHECK(cuIpcGetMemHandle(&handle, p) == CUDA_ERROR_INVALID_VALUE);
	}
	CUdeviceptr p = (uintptr_t)a.p, out;
	drop(&a);
	drop(&b);
	CHECK(cuMemFree(p) == CUDA_ERROR_INVALID_VALUE);
	CHECK(cuMemAllocManaged(&out, 0, CU_MEM_ATTACH_GLOBAL) != CUDA_SUCCESS);
	CHECK(cuMemAllocManaged(NULL, 1, CU_MEM_ATTACH_GLOBAL) != CUDA_SUCCESS);
}

// The program's own handler sees what is not ours, before and after.
static sigjmp_buf back;
static volatile int caught;

static void on_fault(int signal, siginfo_t *info, void *unused)
{
	(void)signal;
	(void)info;
	(void)unused;
	caught++;
	siglongjmp(back, 1);
}

static void test_handler(void)
{
	struct area a = area(2 * MIB / 8);
	struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO}, before;
	char *guard = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(guard != MAP_FAILED);
	CHECK(sigaction(SIGSEGV, &action, &before) == 0);
	cpu_write(&a, 0, signals ? 0 : a.words, 4);
	for (int i = 0; i < 3; i++) {
		gpu_step(&a, 0, a.words); // with signals, ours is put in front again
		cpu_check(&a, 0, a.words);
		caught = 0;
		if (sigsetjmp(back, 1) == 0)
			*(volatile char *)guard = 1;
		CHECK(caught == 1, "%d", caught);
		both_check(&a);
	}
	sigaction(SIGSEGV, &before, NULL);
	gpu_step(&a, 0, 10);
	both_check(&a);
	munmap(guard, 4096);
	drop(&a);
}

// A child has no managed memory, and leaves the parent's alone.
static void test_fork(void)
{
	struct area a = area(2 * MIB / 8);
	cpu_write(&a, 0, a.words, 8);
	gpu_step(&a, 0, a.words);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		CUdeviceptr p;
		_exit(cuMemAllocManaged(&p, 10, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%#x", status);
	both_check(&a);
	drop(&a);
}

// Hints change nothing that can be seen, but say what is wrong.
static void test_hints(void)
{
	struct area a = area(5 * MIB / 8);
	CUdeviceptr p = (uintptr_t)a.p;
	size_t bytes = a.words * 8;
	int value = 0;
	for (int i = 0; i < 4; i++) {
		cpu_write(&a, 0, a.words, i);
		CU(cuMemPrefetchAsync(p + 4096, bytes / 2, 0, NULL));
		gpu_step(&a, 0, a.words);
		CU(cuMemPrefetchAsync(p, bytes, CU_DEVICE_CPU, NULL));
		if (i % 2)
			CU(cuCtxSynchronize());
		both_check(&a);
	}
	CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
	CU(cuMemPrefetchAsync_v2(p, bytes, here, 0, NULL));
	CHECK(cuMemPrefetchAsync(p, bytes * 3, 0, NULL) == CUDA_ERROR_INVALID_VALUE);
	CHECK(cuMemPrefetchAsync(p, 0, 0, NULL) == CUDA_ERROR_INVALID_VALUE);
	CHECK(cuMemPrefetchAsync(p, bytes, 77, NULL) == CUDA_ERROR_INVALID_DEVICE);
	CU(cuMemAdvise(p, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_DEVICE_CPU));
	CU(cuMemRangeGetAttribute(&value, sizeof value, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, p, bytes));
	CHECK(value == CU_DEVICE_CPU);
	CU(cuMemRangeGetAttribute(&value, sizeof value, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, p, bytes));
	CHECK(value == 0);
	CU(cuStreamAttachMemAsync(NULL, p, 0, CU_MEM_ATTACH_GLOBAL));
	CHECK(cuStreamAttachMemAsync(NULL, p, 0, 9) == CUDA_ERROR_INVALID_VALUE);
	both_check(&a);
	drop(&a);
}

// Two devices that reach one another use the same memory, after a parking too.
static void test_devices(void)
{
	struct area a = area(3 * MIB / 8);
	for (int i = 0; i < 3; i++) {
		cpu_write(&a, 0, a.words, i);
		gpu_step_there(&a, 0, a.words);
		gpu_step(&a, 0, a.words);
		both_check(&a);
		park_self(&self);
		unpark_self(&self);
	}
	// Nor does a park forget it that nothing comes of. The last of the two that are
	// unmapped is refused, so the other is mapped again.
	CUdeviceptr later;
	CU(cuMemAlloc(&later, 3 * MIB));
	for (int i = 0; i < 2; i++) {
		struct parcel parcel;
		int control = dial(getpid());
		CHECK(ask(control, HETCUDA_HOLD, 5000, 0).status == 0);
		CHECK(ask_park(control, 5000, &parcel) == 0);
		if (i == 0) {
			set_faults("unmap nth=2 error=999\n");
			CHECK(ask(control, HETCUDA_COMMIT, 0, 0).status == 999);
			set_faults("");
		} else {
			// And what becomes the process's own is mapped anew.
			CHECK(ask(control, HETCUDA_COMMIT, 0, 0).status == 0);
			for (uint32_t k = 0; k < parcel.count; k++)
				parcel.chunks[k].flags |= HETCUDA_LATER;
			CHECK(ask_unpark(control, &parcel, 64).status == 0);
		}
		drop_parcel(&parcel);
		if (i == 1) {
			struct hetcuda_reply r = ask(control, HETCUDA_OWN, 0, 0);
			CHECK(r.status == 0 && r.count == 0, "%s", r.text);
		}
		CHECK(ask(control, HETCUDA_RELEASE, 0, 0).status == 0);
		close(control);
		gpu_step_there(&a, 0, a.words);
		gpu_step(&a, 0, a.words);
		both_check(&a);
	}
	CU(cuMemFree(later));
	drop(&a);
}

// Many small ones share memory of the device.
static void test_small(void)
{
	struct area a[300];
	size_t available, after, total;
	CU(cuMemGetInfo(&available, &total));
	for (int i = 0; i < 300; i++) {
		a[i] = area(1 + draw(100));
		CHECK((uintptr_t)a[i].p % 256 == 0);
		memcpy(a[i].model, a[i].p, a[i].words * 8);
		cpu_write(&a[i], 0, a[i].words, i);
	}
	CU(cuMemGetInfo(&after, &total));
	CHECK(available - after <= 4 * MIB, "%zu", available - after);
	for (int i = 0; i < 300; i++)
		gpu_step(&a[i], 0, a[i].words);
	for (int i = 299; i >= 0; i--) {
		both_check(&a[i]);
		drop(&a[i]);
	}
	CU(cuMemGetInfo(&after, &total));
	CHECK(available == after);
}

// Variables of modules stay with the driver, so a process that has any isn't
// parked, and is told of them by name; then it goes on.
static void refused(const char *with, const char *without)
{
	int control = dial(getpid());
	CHECK(control >= 0);
	CHECK(ask(control, HETCUDA_HOLD, 5000, 0).status == 0);
	struct hetcuda_reply r = ask(control, HETCUDA_PARK, 5000, 0);
	CHECK(r.status == -ENOTSUP && strstr(r.text, with) && !(without && strstr(r.text, without)), "%d %s", r.status, r.text);
	CHECK(ask(control, HETCUDA_RELEASE, 0, 0).status == 0);
	close(control);
}

static void test_variables(void)
{
	static const char ptx[] = ".version 7.0\n"
				  ".visible .global .attribute(.managed) .align 8 .u64 counter;\n"
				  ".global .attribute(.managed) .align 4 .b8 table[4096];\n"
				  ".entry step(\n";
	struct area a = area(1000);
	CUmodule m;
	CUlibrary l;
	CUdeviceptr p, q;
	size_t size;
	int managed = 0;
	cpu_write(&a, 0, a.words, 3);
	CU(cuModuleLoadData(&m, ptx));
	park_self(&self); // nobody has asked where they are: the driver says what it can't do
	unpark_self(&self);
	CHECK(cuModuleGetGlobal(&p, &size, m, "nothing") == CUDA_ERROR_NOT_FOUND);
	park_self(&self);
	unpark_self(&self);
	CU(cuModuleGetGlobal(&p, &size, m, "counter"));
	CHECK(size == 8);
	CU(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, p));
	CHECK(managed == 1);
	*(volatile uint64_t *)(uintptr_t)p = 41;
	refused("1 __managed__ variables, which the driver keeps and can't checkpoint: counter", "table");
	refused("counter", NULL);
	gpu_step(&a, 0, a.words);
	both_check(&a);
	CHECK(*(volatile uint64_t *)(uintptr_t)p == 41);
	CU(cuLibraryLoadData(&l, ptx, NULL, NULL, 0, NULL, NULL, 0));
	CU(cuLibraryGetManaged(&q, &size, l, "table"));
	CHECK(size == 4096 && q != p);
	refused("2 __managed__ variables", NULL);
	refused("table, counter", NULL);
	CU(cuLibraryUnload(l));
	refused("1 __managed__ variables", "table");
	CU(cuModuleUnload(m));
	park_self(&self);
	unpark_self(&self);
	both_check(&a);
	drop(&a);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} tests[] = {
		{"gone", test_gone},	     {"turns", test_turns},	     {"partial", test_partial}, {"attributes", test_attributes}, {"small", test_small},
		{"calls", test_calls},	     {"threads", test_threads}, {"busy", test_busy},	     {"host", test_host},
		{"handler", test_handler},   {"fork", test_fork},	{"park", test_park},		     {"random", test_random},
		{"oversubscribed", test_oversubscribed}, {"hints", test_hints}, {"devices", test_devices}, {"variables", test_variables},
	};
	const char *way = getenv("HETCUDA_MANAGED_FAULTS");
	signals = way && !strcmp(way, "signal");
	if (getenv("HETCUDA_SEED"))
		seed += strtoull(getenv("HETCUDA_SEED"), NULL, 0);
	if (way && !strcmp(way, "uffd") && !uffd_here())
		SKIP("no userfaultfd");
	start();
	for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
		// The stand-in calls host functions with its lock held, so that
		// nothing can be copied meanwhile; a driver doesn't.
		bool wanted = argc < 2 && tests[i].run != test_host;
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
