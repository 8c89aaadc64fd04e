// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// toy: a small program that uses a GPU and knows at every tick what must be on
// it. Each tick adds one to every word of device memory, reads all of it back
// and compares; a word that differs, or any CUDA error, ends it with status 1.
//
//     toy [-b bytes] [-n ranks] [-i ms] [-t ticks] [-l ms] [-g gpu] [-m [-s]] [-v plain|compressed] [-c] [-k pieces] [-p keep|event|close]
//
// It prints "tick K sum S" (with more than one rank: "rank R tick K sum S")
// every tick. See README.md for the options.
#define _GNU_SOURCE
#include <cuda.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cubin.h"
#include "toy_ptx.h"

#ifndef cuCtxCreate // a toolkit of CUDA 13 may not declare the old form
#define cuCtxCreate cuCtxCreate_v2
#endif

enum { MAX_RANKS = 64, MANAGED = 64 << 10 /* words */, PATIENCE_MS = 20000 };

// Memory that stays as it is: pieces of so many words, which are moved some at a time.
enum { MAX_KEPT = 256, KEPT = 1 << 20, WINDOW = 1 << 18 };

static struct {
	size_t bytes;
	int ranks, gpu, kept;
	unsigned interval_ms, long_ms;
	unsigned long ticks;
	bool managed, system_calls, collective;
	const char *ipc; // NULL, "keep", "event" or "close"
	const char *variables; // NULL, "plain" or "compressed"
} opt = {.bytes = 1 << 20, .ranks = 1, .gpu = -1, .interval_ms = 100};

// What the ranks share: host memory, registered with the GPU if they meet.
static struct shared {
	uint32_t counters[MAX_RANKS];
	_Atomic int exported;
	_Atomic uint32_t first;    // the tick of rank 0
	_Atomic uint32_t launched; // its last recorded one
	CUipcMemHandle handle;
	CUipcEventHandle event;
} *shared;

struct rank {
	int number;
	CUdeviceptr data, managed, beside, counters, imported, kept[MAX_KEPT];
	CUmodule module;
	CUlibrary library; // with -v
	CUfunction add, spin, meet;
	CUevent event;
	int file; // with -s, what the kernel writes managed memory to and reads it from
};

static void check(const char *what, CUresult r)
{
	const char *name = NULL;
	if (r == CUDA_SUCCESS)
		return;
	cuGetErrorName(r, &name);
	printf("error: %s: %s (%d)\n", what, name ? name : "?", (int)r);
	fflush(stdout);
	_exit(1);
}
#define CK(call) check(#call, call)

static void sleep_ms(unsigned ms)
{
	struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
	while (nanosleep(&t, &t) != 0 && errno == EINTR)
		;
}

static uint32_t pattern(const struct rank *k, size_t i)
{
	return (uint32_t)i * 2654435761u + (uint32_t)k->number * 977u;
}

static void launch(CUfunction f, unsigned blocks, unsigned threads, void **params)
{
	CK(cuLaunchKernel(f, blocks, 1, 1, threads, 1, 1, 0, NULL, params, NULL));
}

static void load(struct rank *k)
{
	CK(cuModuleLoadData(&k->module, toy_ptx));
	CK(cuModuleGetFunction(&k->add, k->module, "add"));
	CK(cuModuleGetFunction(&k->spin, k->module, "spin"));
	CK(cuModuleGetFunction(&k->meet, k->module, "meet"));
}

// Memory is moved some of it at a time: what the program has of it is little.
static uint32_t window[WINDOW];

static size_t window_at(size_t words, size_t first)
{
	return words - first < WINDOW ? words - first : WINDOW;
}

// put fills memory with a pattern, and compare looks whether it is that, every word so much
// more; it returns the sum.
static void put(const struct rank *k, CUdeviceptr to, size_t words, uint32_t with)
{
	for (size_t first = 0; first < words; first += WINDOW) {
		size_t n = window_at(words, first);
		for (size_t i = 0; i < n; i++)
			window[i] = pattern(k, first + i) ^ with;
		CK(cuMemcpyHtoD(to + first * 4, window, n * 4));
	}
}

static uint64_t compare(const struct rank *k, CUdeviceptr from, size_t words, uint32_t with, uint32_t more)
{
	uint64_t sum = 0;
	for (size_t first = 0; first < words; first += WINDOW) {
		size_t n = window_at(words, first);
		CK(cuMemcpyDtoH(window, from + first * 4, n * 4));
		for (size_t i = 0; i < n; i++) {
			uint32_t want = (pattern(k, first + i) ^ with) + more;
			if (window[i] != want) {
				printf("error: word %zu is %u and not %u\n", first + i, window[i], want);
				fflush(stdout);
				_exit(1);
			}
			sum += (uint64_t)window[i] * ((first + i) | 1);
		}
	}
	return sum;
}

static void fill(struct rank *k)
{
	CK(cuMemAlloc(&k->data, opt.bytes));
	put(k, k->data, opt.bytes / 4, 0);
	for (int i = 0; i < opt.kept; i++) {
		CK(cuMemAlloc(&k->kept[i], KEPT * 4));
		put(k, k->kept[i], KEPT, (uint32_t)i + 1);
	}
}

static bool ipc(const char *how)
{
	return opt.ipc && strcmp(opt.ipc, how) == 0;
}

// share passes rank 0's memory to rank 1 through legacy IPC, and an event.
static void share(struct rank *k)
{
	if (k->number == 0) {
		if (ipc("event")) {
			CK(cuEventCreate(&k->event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
			CK(cuIpcGetEventHandle(&shared->event, k->event));
		}
		CK(cuIpcGetMemHandle(&shared->handle, k->data));
		shared->exported = 1;
	} else if (k->number == 1) {
		uint32_t word;
		while (!shared->exported)
			sleep_ms(1);
		CK(cuIpcOpenMemHandle(&k->imported, shared->handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
		if (ipc("event"))
			CK(cuIpcOpenEventHandle(&k->event, shared->event));
		CK(cuMemcpyDtoH(&word, k->imported, sizeof word));
		if (ipc("close"))
			CK(cuIpcCloseMemHandle(k->imported));
	}
}

// load_variables loads a library with a managed variable, as the CUDA runtimes do it: there
// is no context yet, and the CPU uses the variable at once. Beside it, in the same page, is
// one of the device.
static void load_variables(struct rank *k)
{
	static const struct cubin_variable variables[] = {{"managed", MANAGED * 4, NULL, true}, {"beside", 4, NULL, false}, {0}};
	static unsigned char cubin[1 << 14], fatbin[1 << 15];
	static struct fatbin_wrapper wrapper = {0x466243b1, 1, fatbin, NULL};
	size_t size = cubin_make(cubin, variables, NULL);
	fatbin_begin(fatbin);
	fatbin_add(fatbin, FATBIN_IS_ELF, cubin, size, strcmp(opt.variables, "compressed") == 0);
	CK(cuLibraryLoadData(&k->library, &wrapper, NULL, NULL, 0, NULL, NULL, 0));
	CK(cuLibraryGetManaged(&k->managed, &size, k->library, "managed"));
	for (uint32_t i = 0; i < MANAGED; i++)
		((uint32_t *)(uintptr_t)k->managed)[i] += 7;
}

static void setup(struct rank *k)
{
	int count;
	size_t size;
	CUcontext context;
	CK(cuInit(0));
	if (opt.variables)
		load_variables(k);
	CK(cuDeviceGetCount(&count));
	CK(cuDevicePrimaryCtxRetain(&context, opt.gpu >= 0 ? opt.gpu : k->number % count));
	CK(cuCtxSetCurrent(context));
	load(k);
	fill(k);
	if (opt.managed) {
		CK(cuMemAllocManaged(&k->managed, MANAGED * 4, CU_MEM_ATTACH_GLOBAL));
		CK(cuMemsetD32(k->managed, 7, MANAGED));
		k->file = opt.system_calls ? memfd_create("managed", MFD_CLOEXEC) : -1;
	}
	if (opt.variables)
		CK(cuLibraryGetGlobal(&k->beside, &size, k->library, "beside"));
	if (opt.collective) {
		CK(cuMemHostRegister(shared, sizeof *shared, CU_MEMHOSTREGISTER_DEVICEMAP));
		CK(cuMemHostGetDevicePointer(&k->counters, shared->counters, 0));
	}
	if (opt.ipc)
		share(k);
}

static void teardown(struct rank *k)
{
	CK(cuModuleUnload(k->module));
	CK(cuMemFree(k->data));
	for (int i = 0; i < opt.kept; i++)
		CK(cuMemFree(k->kept[i]));
	if (k->library)
		CK(cuLibraryUnload(k->library));
	else if (k->managed)
		CK(cuMemFree(k->managed));
	if (opt.collective)
		CK(cuMemHostUnregister(shared));
}

// work starts what the tick is about; it is asynchronous.
static void work(struct rank *k, uint32_t tick)
{
	uint64_t words = opt.bytes / 4, ns = (uint64_t)opt.long_ms * 1000000;
	uint32_t one = 1, ranks = (uint32_t)opt.ranks, me = (uint32_t)k->number;
	if (opt.collective)
		launch(k->meet, 1, 1, (void *[]){&k->counters, &ranks, &me, &tick});
	if (opt.long_ms)
		launch(k->spin, 1, 1, (void *[]){&ns});
	launch(k->add, (unsigned)((words + 255) / 256), 256, (void *[]){&k->data, &words, &one});
	words = MANAGED;
	if (k->managed)
		launch(k->add, MANAGED / 256, 256, (void *[]){&k->managed, &words, &one});
	words = 1;
	if (k->beside)
		launch(k->add, 1, 256, (void *[]){&k->beside, &words, &one});
}

// move has a system call use managed memory. While that is being saved it fails.
static void move(const char *what, ssize_t (*call)(const struct rank *), const struct rank *k)
{
	for (int i = 0; i < PATIENCE_MS; i++) {
		ssize_t n = call(k);
		if (n == MANAGED * 4)
			return;
		if (n < 0 && errno != EFAULT)
			break;
		sleep_ms(1);
	}
	printf("error: %s managed memory: %s\n", what, strerror(errno));
	fflush(stdout);
	_exit(1);
}

static ssize_t from_managed(const struct rank *k)
{
	return pwrite(k->file, (void *)(uintptr_t)k->managed, MANAGED * 4, 0);
}

static ssize_t to_managed(const struct rank *k)
{
	return pread(k->file, (void *)(uintptr_t)k->managed, MANAGED * 4, 0);
}

// verify_managed looks at managed memory from the CPU, which then adds one to
// every third word, as the GPU has to every word. With -s it is the kernel that
// reads all of it, and writes it back.
static void verify_managed(const struct rank *k, uint32_t tick)
{
	static uint32_t words[MANAGED];
	if (k->beside) {
		CK(cuMemcpyDtoH(words, k->beside, 4));
		if (words[0] != tick) {
			printf("error: the variable beside it is %u and not %u\n", words[0], tick);
			fflush(stdout);
			_exit(1);
		}
	}
	uint32_t *p = opt.system_calls ? words : (uint32_t *)(uintptr_t)k->managed;
	if (opt.system_calls) {
		move("write from", from_managed, k);
		if (pread(k->file, words, sizeof words, 0) != (ssize_t)sizeof words)
			check("pread", CUDA_ERROR_UNKNOWN);
	}
	for (uint32_t i = 0; i < MANAGED; i++) {
		uint32_t want = 7 + tick + (i % 3 == 0 ? tick - 1 : 0);
		if (p[i] != want) {
			printf("error: managed word %u is %u and not %u\n", i, p[i], want);
			fflush(stdout);
			_exit(1);
		}
		if (i % 3 == 0)
			p[i]++;
	}
	if (!opt.system_calls)
		return;
	if (pwrite(k->file, words, sizeof words, 0) != (ssize_t)sizeof words)
		check("pwrite", CUDA_ERROR_UNKNOWN);
	move("read into", to_managed, k);
}

static uint64_t verify(struct rank *k, uint32_t tick)
{
	if (opt.kept) {
		int i = (int)(tick % (uint32_t)opt.kept);
		compare(k, k->kept[i], KEPT, (uint32_t)i + 1, 0);
	}
	return compare(k, k->data, opt.bytes / 4, 0, tick);
}

// look checks that rank 1 still sees what rank 0 writes: with an event, all that
// it has launched before the record.
static void look(struct rank *k)
{
	const struct rank first = {.number = 0};
	const _Atomic uint32_t *tick = k->event ? &shared->launched : &shared->first;
	uint32_t before = *tick, word;
	if (k->event)
		CK(cuStreamWaitEvent(NULL, k->event, 0));
	CK(cuMemcpyDtoH(&word, k->imported, sizeof word));
	word -= pattern(&first, 0);
	if (word < before || word > *tick + 1) {
		printf("error: rank 0's word is of tick %u, between %u and %u\n", word, before, *tick);
		fflush(stdout);
		_exit(1);
	}
}

static int run(int number)
{
	struct rank k = {.number = number};
	char name[16];
	snprintf(name, sizeof name, "toy%d", number);
	prctl(PR_SET_NAME, name);
	setup(&k);
	for (uint32_t tick = 1; !opt.ticks || tick <= opt.ticks; tick++) {
		work(&k, tick);
		if (number == 0 && k.event) {
			CK(cuEventRecord(k.event, NULL));
			shared->launched = tick;
		}
		uint64_t sum = verify(&k, tick);
		if (number == 0)
			shared->first = tick;
		if (number == 1 && (ipc("keep") || ipc("event")))
			look(&k);
		if (k.managed)
			verify_managed(&k, tick);
		if (opt.ranks > 1)
			printf("rank %d ", number);
		printf("tick %u sum %llx\n", tick, (unsigned long long)sum);
		fflush(stdout);
		sleep_ms(opt.interval_ms);
	}
	teardown(&k);
	return 0;
}

// run_ranks starts a process for each rank. They are forked before CUDA is
// initialized, as CUDA demands. One that fails ends all.
static int run_ranks(void)
{
	pid_t pids[MAX_RANKS], pid;
	int status, failed = 0;
	for (int i = 0; i < opt.ranks; i++) {
		pids[i] = fork();
		if (pids[i] == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			_exit(run(i));
		}
	}
	while ((pid = wait(&status)) > 0 || errno == EINTR) {
		if (pid <= 0 || status == 0)
			continue;
		for (int i = 0; !failed && i < opt.ranks; i++)
			kill(pids[i], SIGKILL);
		failed = 1;
	}
	return failed;
}

static void options(int argc, char **argv)
{
	for (int o; (o = getopt(argc, argv, "b:n:i:t:l:g:msck:p:v:")) != -1;) {
		switch (o) {
		case 'b': opt.bytes = strtoull(optarg, NULL, 10) / 4 * 4; break;
		case 'n': opt.ranks = atoi(optarg); break;
		case 'i': opt.interval_ms = (unsigned)atoi(optarg); break;
		case 't': opt.ticks = strtoul(optarg, NULL, 10); break;
		case 'l': opt.long_ms = (unsigned)atoi(optarg); break;
		case 'g': opt.gpu = atoi(optarg); break;
		case 'm': opt.managed = true; break;
		case 's': opt.system_calls = true; break;
		case 'c': opt.collective = true; break;
		case 'k': opt.kept = atoi(optarg); break;
		case 'p': opt.ipc = optarg; break;
		case 'v': opt.variables = optarg; break;
		default: exit(2);
		}
	}
	if (opt.bytes == 0 || opt.ranks < 1 || opt.ranks > MAX_RANKS || opt.kept < 0 || opt.kept > MAX_KEPT)
		exit(2);
}

int main(int argc, char **argv)
{
	options(argc, argv);
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		return 2;
	return opt.ranks > 1 ? run_ranks() : run(0);
}
