// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// gpuload keeps a GPU's memory full of numbers that nobody could guess, changes
// all of them at every tick by a kernel, and checks them: the sum of all of them
// has to be what arithmetic says, and the words at both ends are computed anew
// on the CPU. It prints "rank R tick N sum S"; on anything wrong it prints
// "error: ..." and exits with 1.
//
//     gpuload [-b MIB] [-n RANKS] [-i MS] [-c PERCENT] [-m] [-s [-e]] [-k] [-z] [-d]
//
//   -b MIB    device memory of each rank (64)
//   -n RANKS  so many processes, one rank each (1: no child)
//   -i MS     pause between ticks (100)
//   -m        the memory is managed (cuMemAllocManaged)
//   -c PERCENT only so much of it changes at a tick (100)
//   -s        rank 1 opens the memory of rank 0 by legacy IPC, and reads it
//   -e        and waits on the device for an event of rank 0's, by which that
//             tells how far it has come (cuIpcOpenEventHandle)
//   -k        beat: kernels that each take 5 ms are queued 100 ms ahead, and
//             each adds one to a word of host memory; prints "beat ADDRESS"
//   -z        as much memory again, in which nothing but zeros is
//   -d        besides some allocations of odd sizes; at every tick all device memory
//             is copied out, each word compared with what the CPU computes, and S
//             is a digest of it all
//
// It needs the driver's API alone: no runtime library, no compiler.
#define _GNU_SOURCE
#include <cuda.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "kernels.h"

enum { MAX_RANKS = 16, ENDS = 512, BEAT_MS = 5, AHEAD = 20, THREADS = 256, BLOCKS = 2048, PIECE = 1 << 20 };

static struct {
	size_t mib;
	int ranks;
	unsigned interval_ms, percent;
	bool managed, share, event, beat, zeros, digest;
} opt = {.mib = 64, .ranks = 1, .interval_ms = 100, .percent = 100};

// What the ranks share: how rank 1 gets at the memory of rank 0.
static struct shared {
	_Atomic int exported;
	CUipcMemHandle handle;
	CUipcEventHandle event;
	uint64_t seed; // rank 0's
	// The tick that rank 0's device has come to; with an event, the one whose end
	// the event says.
	_Atomic uint64_t tick;
} *shared;

// In words: what a digest is of besides, from less than a page to several of the
// device's.
static const uint64_t odd_sizes[] = {3, 513, 8750, (1 << 17) + 1, 3 * (1 << 17) + 7};
enum { ODD = sizeof odd_sizes / sizeof *odd_sizes };

struct rank {
	int number;
	CUdeviceptr data, out, imported, odd[ODD];
	// changed are those of the words that a tick changes.
	uint64_t words, changed, seed, first;
	CUevent event;
	CUfunction fill, step, sum, beat;
};

__attribute__((noreturn, format(printf, 1, 2))) static void fail(const char *format, ...)
{
	va_list args;
	char text[256];
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	printf("error: %s\n", text);
	fflush(stdout);
	_exit(1);
}

static void check(const char *what, CUresult r)
{
	const char *name = NULL;
	if (r == CUDA_SUCCESS)
		return;
	cuGetErrorName(r, &name);
	fail("%s: %s (%d)", what, name ? name : "?", (int)r);
}
#define CK(call) check(#call, call)

static void pause_ms(unsigned ms)
{
	struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
	while (nanosleep(&t, &t) != 0 && errno == EINTR)
		;
}

static uint64_t mix(uint64_t x)
{
	x *= 0x9E3779B97F4A7C15;
	x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
	x = (x ^ x >> 27) * 0x94D049BB133111EB;
	return x ^ x >> 31;
}

static void launch(CUfunction f, void **params)
{
	CK(cuLaunchKernel(f, BLOCKS, 1, 1, THREADS, 1, 1, 0, NULL, params, NULL));
}

static void open_device(struct rank *k)
{
	CUdevice device;
	CUcontext context;
	CUmodule module;
	CK(cuInit(0));
	CK(cuDeviceGet(&device, 0));
	CK(cuDevicePrimaryCtxRetain(&context, device));
	CK(cuCtxSetCurrent(context));
	CK(cuModuleLoadData(&module, kernels_ptx));
	CK(cuModuleGetFunction(&k->fill, module, "fill"));
	CK(cuModuleGetFunction(&k->step, module, "step"));
	CK(cuModuleGetFunction(&k->sum, module, "sum"));
	CK(cuModuleGetFunction(&k->beat, module, "beat"));
}

static void fill(struct rank *k)
{
	size_t bytes = opt.mib << 20;
	k->words = bytes / 8;
	k->changed = k->words * opt.percent / 100 & ~(uint64_t)1;
	k->seed = (uint64_t)(k->number + 1) << 40;
	if (opt.managed)
		CK(cuMemAllocManaged(&k->data, bytes, CU_MEM_ATTACH_GLOBAL));
	else
		CK(cuMemAlloc(&k->data, bytes));
	CK(cuMemAlloc(&k->out, 8));
	if (opt.zeros) {
		CUdeviceptr zeros;
		CK(cuMemAlloc(&zeros, bytes));
		CK(cuMemsetD32(zeros, 0, bytes / 4));
	}
	launch(k->fill, (void *[]){&k->data, &k->words, &k->seed});
	for (int i = 0; opt.digest && i < ODD; i++) {
		uint64_t words = odd_sizes[i];
		CK(cuMemAlloc(&k->odd[i], words * 8));
		launch(k->fill, (void *[]){&k->odd[i], &words, &k->seed});
	}
}

// share passes rank 0's memory to rank 1, which keeps it open.
static void share(struct rank *k)
{
	if (k->number == 0) {
		CK(cuCtxSynchronize());
		CK(cuIpcGetMemHandle(&shared->handle, k->data));
		if (opt.event) {
			CK(cuEventCreate(&k->event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
			CK(cuIpcGetEventHandle(&shared->event, k->event));
		}
		shared->seed = k->seed;
		shared->exported = 1;
	} else if (k->number == 1) {
		while (!shared->exported)
			pause_ms(1);
		CK(cuIpcOpenMemHandle(&k->imported, shared->handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
		if (opt.event)
			CK(cuIpcOpenEventHandle(&k->event, shared->event));
	}
}

static uint64_t total(struct rank *k)
{
	uint64_t sum = 0;
	CK(cuMemsetD32(k->out, 0, 2));
	launch(k->sum, (void *[]){&k->data, &k->words, &k->out});
	CK(cuMemcpyDtoH(&sum, k->out, 8));
	return sum;
}

// check_ends compares words of the device with what the CPU computes.
static void check_ends(struct rank *k, uint64_t from, uint64_t tick)
{
	uint64_t words[ENDS];
	CK(cuMemcpyDtoH(words, k->data + from * 8, sizeof words));
	for (uint64_t i = 0; i < ENDS; i++)
		if (words[i] != mix(k->seed + from + i) + tick)
			fail("rank %d tick %" PRIu64 ": word %" PRIu64 " is %" PRIx64 ", not %" PRIx64, k->number, tick,
			     from + i, words[i], mix(k->seed + from + i) + tick);
}

static uint64_t rotate(uint64_t x, int by)
{
	return x << by | x >> (64 - by);
}

// check_words copies memory out and compares all of it with what the CPU computes;
// the first changed words have grown by the tick. It goes on with the digest.
static void check_words(const struct rank *k, CUdeviceptr at, uint64_t words, uint64_t changed, uint64_t tick, uint64_t digest[4])
{
	static uint64_t piece[PIECE];
	for (uint64_t from = 0; from < words; from += PIECE) {
		uint64_t n = words - from < PIECE ? words - from : PIECE;
		CK(cuMemcpyDtoH(piece, at + from * 8, n * 8));
		for (uint64_t i = 0; i < n; i++) {
			uint64_t want = mix(k->seed + from + i) + (from + i < changed ? tick : 0);
			if (piece[i] != want)
				fail("rank %d tick %" PRIu64 ": word %" PRIu64 " is %" PRIx64 ", not %" PRIx64, k->number, tick, from + i,
				     piece[i], want);
			digest[i % 4] = rotate(digest[i % 4] ^ piece[i], 23) * 0x9E3779B97F4A7C15;
		}
	}
}

// digest is of all of the rank's device memory.
static uint64_t digest(struct rank *k, uint64_t tick)
{
	uint64_t d[4] = {1, 2, 3, 4};
	check_words(k, k->data, k->words, k->changed, tick, d);
	for (int i = 0; i < ODD; i++)
		check_words(k, k->odd[i], odd_sizes[i], odd_sizes[i], tick, d);
	return mix(d[0] ^ mix(d[1] ^ mix(d[2] ^ mix(d[3]))));
}

// look reads the memory of rank 0, which is at the tick that it has told of or a
// later one.
static void look(const struct rank *k, uint64_t n)
{
	uint64_t word, before = shared->tick;
	if (opt.event)
		CK(cuStreamWaitEvent(NULL, k->event, 0));
	CK(cuMemcpyDtoH(&word, k->imported, sizeof word));
	word -= mix(shared->seed);
	if (word < before || word > shared->tick + 1)
		fail("rank %d tick %" PRIu64 ": rank 0's memory is of tick %" PRIu64 ", not from %" PRIu64 " on", k->number, n, word, before);
}

static void tick(struct rank *k, uint64_t n)
{
	launch(k->step, (void *[]){&k->data, &k->changed});
	if (k->number == 0 && k->event) {
		CK(cuEventRecord(k->event, NULL));
		shared->tick = n; // it is on its way, and the event says when it is there
	}
	for (int i = 0; opt.digest && i < ODD; i++) {
		uint64_t words = odd_sizes[i];
		launch(k->step, (void *[]){&k->odd[i], &words});
	}
	uint64_t sum = total(k);
	// The words that change grew by n, and the sum of (i | 1) over all of them is
	// half of the square of how many they are.
	if (sum != k->first + n * (k->changed * (k->changed / 2)))
		fail("rank %d tick %" PRIu64 ": the sum is %" PRIx64, k->number, n, sum);
	check_ends(k, 0, n);
	check_ends(k, k->words - ENDS, k->changed == k->words ? n : 0);
	if (opt.digest)
		sum = digest(k, n);
	if (k->number == 0)
		shared->tick = n;
	if (k->imported)
		look(k, n);
	printf("rank %d tick %" PRIu64 " sum %" PRIx64 "\n", k->number, n, sum);
	fflush(stdout);
}

// beat keeps the GPU busy ahead of time, and never lets the queue run dry.
__attribute__((noreturn)) static void beat(struct rank *k)
{
	long page = sysconf(_SC_PAGESIZE);
	volatile uint32_t *count = mmap(NULL, (size_t)page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t ns = BEAT_MS * 1000000ull;
	CUdeviceptr p;
	if (count == MAP_FAILED)
		fail("mmap: %s", strerror(errno));
	*count = 0;
	CK(cuMemHostRegister((void *)(uintptr_t)count, (size_t)page, CU_MEMHOSTREGISTER_DEVICEMAP));
	CK(cuMemHostGetDevicePointer(&p, (void *)(uintptr_t)count, 0));
	printf("beat %" PRIxPTR "\n", (uintptr_t)count);
	fflush(stdout);
	for (uint32_t launched = 0;; launched++) {
		while (launched - *count >= AHEAD) {
			int unused;
			CK(cuDeviceGetCount(&unused)); // the stand-in works only while it is called
			pause_ms(1);
		}
		CK(cuLaunchKernel(k->beat, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&p, &ns}, NULL));
		if (launched % AHEAD == 0) {
			printf("rank %d tick %u sum 0\n", k->number, launched / AHEAD + 1);
			fflush(stdout);
		}
	}
}

__attribute__((noreturn)) static void run(int number)
{
	struct rank k = {.number = number};
	char name[16];
	snprintf(name, sizeof name, "gpuload%d", number);
	prctl(PR_SET_NAME, name);
	open_device(&k);
	if (opt.beat)
		beat(&k);
	fill(&k);
	if (opt.share)
		share(&k);
	k.first = total(&k);
	check_ends(&k, 0, 0);
	check_ends(&k, k.words - ENDS, 0);
	for (uint64_t n = 1;; n++) {
		tick(&k, n);
		pause_ms(opt.interval_ms);
	}
}

// run_ranks starts a process for each rank, before CUDA is initialized, as CUDA
// demands. One that ends ends all.
static int run_ranks(void)
{
	pid_t pids[MAX_RANKS];
	for (int i = 0; i < opt.ranks; i++) {
		pids[i] = fork();
		if (pids[i] < 0)
			fail("fork: %s", strerror(errno));
		if (pids[i] == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			run(i);
		}
	}
	while (wait(NULL) < 0 && errno == EINTR)
		;
	for (int i = 0; i < opt.ranks; i++)
		kill(pids[i], SIGKILL);
	return 1;
}

int main(int argc, char **argv)
{
	for (int o; (o = getopt(argc, argv, "b:n:i:c:msekzd")) != -1;) {
		switch (o) {
		case 'b': opt.mib = strtoull(optarg, NULL, 10); break;
		case 'n': opt.ranks = atoi(optarg); break;
		case 'i': opt.interval_ms = (unsigned)atoi(optarg); break;
		case 'c': opt.percent = (unsigned)atoi(optarg); break;
		case 'm': opt.managed = true; break;
		case 's': opt.share = true; break;
		case 'e': opt.event = true; break;
		case 'k': opt.beat = true; break;
		case 'z': opt.zeros = true; break;
		case 'd': opt.digest = true; break;
		default: return 2;
		}
	}
	if (opt.mib == 0 || opt.ranks < 1 || opt.ranks > MAX_RANKS || (opt.share && opt.ranks < 2) || (opt.event && !opt.share) ||
	    opt.percent < 1 || opt.percent > 100)
		return 2;
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		fail("mmap: %s", strerror(errno));
	if (opt.ranks > 1)
		return run_ranks();
	run(0);
}
