// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// ranks: processes whose kernels wait for one another, as those of NCCL do, over
// device memory that they share. Nothing keeps them in step but that: each has
// kernels and pauses of its own between two meetings, by chance.
//
//     ranks [-n ranks] [-i ms] [-t ticks] [-k kernels] [-s seed] [-g gpu] [-p] [-b] [-d tick]
//
// A tick is two reductions, of two communicators on two streams. Each rank
// checks the sums, and prints "rank R tick K sum S". See README.md for the
// options.
#define _GNU_SOURCE
#include <cuda.h>
#include <errno.h>
#include <pthread.h>
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

#include "toy_ptx.h"

enum { MAX_RANKS = 16, COMMUNICATORS = 2, BOX = 24 };

static struct {
	int ranks, gpu, kernels;
	unsigned interval_ms, seed;
	unsigned long ticks, last;
	bool proxy, barrier;
} opt = {.ranks = 2, .gpu = -1, .kernels = 8, .interval_ms = 4};

// What the ranks share on the host.
static struct shared {
	_Atomic int exported;
	_Atomic uint32_t arrived[MAX_RANKS]; // at barriers
	CUipcMemHandle handles[MAX_RANKS];
} *shared;

// The memory that a rank gives to the others: a box for each communicator, and
// the word that the proxy of the rank before it writes.
struct gift {
	unsigned char boxes[COMMUNICATORS][32];
	uint32_t token, unused;
};

struct rank {
	uint32_t number;
	CUcontext context;
	CUdeviceptr gifts[MAX_RANKS];            // of all ranks
	CUdeviceptr lists[COMMUNICATORS];        // of the boxes, on the device
	CUdeviceptr mine[COMMUNICATORS];         // what is brought to a meeting
	CUdeviceptr sums[COMMUNICATORS];
	uint64_t *seen, expected[COMMUNICATORS]; // of the sums
	CUstream streams[COMMUNICATORS], passing;
	CUevent done[COMMUNICATORS], passed;
	CUmodule module;
	CUfunction add, reduce, await;
	CUdeviceptr scratch;
	_Atomic uint32_t tick; // for the proxy
	unsigned chance;
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

static void sleep_us(unsigned us)
{
	struct timespec t = {.tv_sec = us / 1000000, .tv_nsec = (long)(us % 1000000) * 1000};
	while (nanosleep(&t, &t) != 0 && errno == EINTR)
		;
}

// rest pauses for up to the interval, and often not at all.
static void rest(struct rank *k)
{
	unsigned us = opt.interval_ms * 1000;
	if (us && rand_r(&k->chance) % 4 == 0)
		sleep_us((unsigned)rand_r(&k->chance) % us);
}

// brings is what a rank brings to a communicator's meeting.
static uint64_t brings(uint32_t rank, int communicator, uint32_t tick)
{
	return (uint64_t)(rank + 1) * 1000 + (uint64_t)tick * (unsigned)(communicator + 1);
}

static void launch(CUfunction f, CUstream stream, void **params)
{
	CK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

// exchange maps the memory of all ranks.
static void exchange(struct rank *k)
{
	CUdeviceptr own = k->gifts[k->number];
	CK(cuIpcGetMemHandle(&shared->handles[k->number], own));
	shared->exported++;
	while (shared->exported < opt.ranks)
		sleep_us(1000);
	for (int i = 0; i < opt.ranks; i++)
		if (i != (int)k->number)
			CK(cuIpcOpenMemHandle(&k->gifts[i], shared->handles[i], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
}

static void setup(struct rank *k)
{
	int count;
	CK(cuInit(0));
	CK(cuDeviceGetCount(&count));
	CK(cuDevicePrimaryCtxRetain(&k->context, opt.gpu >= 0 ? opt.gpu : (int)k->number % count));
	CK(cuCtxSetCurrent(k->context));
	CK(cuModuleLoadData(&k->module, toy_ptx));
	CK(cuModuleGetFunction(&k->add, k->module, "add"));
	CK(cuModuleGetFunction(&k->reduce, k->module, "reduce"));
	CK(cuModuleGetFunction(&k->await, k->module, "await"));
	// All of a block is shared, so nothing else is to be in it.
	CK(cuMemAlloc(&k->gifts[k->number], 2 << 20));
	CK(cuMemsetD8(k->gifts[k->number], 0, sizeof(struct gift)));
	CK(cuMemAlloc(&k->scratch, 4));
	CK(cuMemsetD32(k->scratch, 0, 1));
	CK(cuMemHostAlloc((void **)&k->seen, sizeof k->expected, CU_MEMHOSTALLOC_PORTABLE));
	CK(cuStreamCreate(&k->passing, CU_STREAM_NON_BLOCKING));
	CK(cuEventCreate(&k->passed, CU_EVENT_DISABLE_TIMING));
	exchange(k);
	for (int c = 0; c < COMMUNICATORS; c++) {
		CUdeviceptr boxes[MAX_RANKS];
		uint64_t first = brings(k->number, c, 0);
		for (int i = 0; i < opt.ranks; i++)
			boxes[i] = k->gifts[i] + (CUdeviceptr)c * sizeof((struct gift *)0)->boxes[0];
		CK(cuMemAlloc(&k->lists[c], sizeof boxes));
		CK(cuMemAlloc(&k->mine[c], 8));
		CK(cuMemAlloc(&k->sums[c], 8));
		CK(cuMemcpyHtoD(k->lists[c], boxes, sizeof boxes));
		CK(cuMemcpyHtoD(k->mine[c], &first, 8));
		CK(cuMemsetD8(k->sums[c], 0, 8));
		CK(cuStreamCreate(&k->streams[c], CU_STREAM_NON_BLOCKING));
		CK(cuEventCreate(&k->done[c], CU_EVENT_DISABLE_TIMING));
	}
}

// meet is kernels of its own and a reduction.
static void meet(struct rank *k, int c, uint32_t tick)
{
	uint32_t n = (uint32_t)opt.ranks, one = 1, by = (uint32_t)c + 1;
	uint64_t words = 1;
	for (int i = rand_r(&k->chance) % (opt.kernels + 1); i > 0; i--) {
		launch(k->add, k->streams[c], (void *[]){&k->scratch, &words, &one});
		rest(k);
	}
	launch(k->add, k->streams[c], (void *[]){&k->mine[c], &words, &by});
	launch(k->reduce, k->streams[c], (void *[]){&k->lists[c], &n, &k->number, &tick, &k->mine[c], &k->sums[c]});
	CK(cuMemcpyDtoHAsync(&k->seen[c], k->sums[c], 8, k->streams[c]));
	CK(cuEventRecord(k->done[c], k->streams[c]));
	for (int i = 0; i < opt.ranks; i++)
		k->expected[c] += brings((uint32_t)i, c, tick);
}

// proxy passes a token to the next rank in every tick, whose kernel waits for it,
// as NCCL's proxies copy for kernels of their own and of other ranks.
static void *proxy(void *rank)
{
	struct rank *k = rank;
	CUdeviceptr next = k->gifts[(k->number + 1) % (uint32_t)opt.ranks] + offsetof(struct gift, token);
	CK(cuCtxSetCurrent(k->context));
	for (uint32_t tick = 1;; tick++) {
		CUresult r;
		while (k->tick < tick)
			sleep_us(200);
		CK(cuMemsetD32Async(next, tick, 1, k->passing));
		CK(cuEventRecord(k->passed, k->passing));
		while ((r = cuEventQuery(k->passed)) == CUDA_ERROR_NOT_READY)
			sleep_us(100);
		check("cuEventQuery of the proxy", r);
	}
	return NULL;
}

// wait waits for a communicator, in one of the ways in which programs do.
static void wait_for(struct rank *k, int c)
{
	CUresult r = CUDA_SUCCESS;
	switch (rand_r(&k->chance) % 3) {
	case 0:
		CK(cuStreamSynchronize(k->streams[c]));
		break;
	case 1:
		CK(cuEventSynchronize(k->done[c]));
		break;
	default:
		while ((r = cuEventQuery(k->done[c])) == CUDA_ERROR_NOT_READY)
			sleep_us(100);
		check("cuEventQuery", r);
	}
}

// barrier waits for the other ranks on the host alone.
static void barrier(struct rank *k, uint32_t tick)
{
	shared->arrived[k->number] = tick;
	for (int i = 0; i < opt.ranks; i++)
		while (shared->arrived[i] < tick)
			sleep_us(200);
}

static int run(int number)
{
	struct rank k = {.number = (uint32_t)number, .chance = opt.seed + (unsigned)number};
	char name[16];
	pthread_t thread;
	snprintf(name, sizeof name, "toy%d", number);
	prctl(PR_SET_NAME, name);
	setup(&k);
	if (opt.proxy && pthread_create(&thread, NULL, proxy, &k) != 0)
		return 2;
	for (uint32_t tick = 1; !opt.ticks || tick <= opt.ticks; tick++) {
		if (opt.last && tick > opt.last && number == 1)
			for (;;)
				pause();
		k.tick = tick;
		if (opt.barrier && tick % 3 == 0)
			barrier(&k, tick);
		if (opt.proxy) {
			CUdeviceptr token = k.gifts[number] + offsetof(struct gift, token);
			launch(k.await, k.streams[0], (void *[]){&token, &tick});
		}
		for (int c = 0; c < COMMUNICATORS; c++)
			meet(&k, c, tick);
		for (int c = 0; c < COMMUNICATORS; c++) {
			wait_for(&k, c);
			if (k.seen[c] != k.expected[c]) {
				printf("error: rank %d: the sum of communicator %d is %llu and not %llu\n", number, c,
				       (unsigned long long)k.seen[c], (unsigned long long)k.expected[c]);
				fflush(stdout);
				_exit(1);
			}
		}
		printf("rank %d tick %u sum %llx\n", number, tick, (unsigned long long)(k.seen[0] + k.seen[1]));
		fflush(stdout);
		rest(&k);
	}
	return 0;
}

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
		// One that is killed leaves the others waiting, as it would be.
		if (pid <= 0 || status == 0 || WIFSIGNALED(status))
			continue;
		for (int i = 0; !failed && i < opt.ranks; i++)
			kill(pids[i], SIGKILL);
		failed = 1;
	}
	return failed;
}

int main(int argc, char **argv)
{
	for (int o; (o = getopt(argc, argv, "n:i:t:k:s:g:d:pb")) != -1;) {
		switch (o) {
		case 'n': opt.ranks = atoi(optarg); break;
		case 'i': opt.interval_ms = (unsigned)atoi(optarg); break;
		case 't': opt.ticks = strtoul(optarg, NULL, 10); break;
		case 'k': opt.kernels = atoi(optarg); break;
		case 's': opt.seed = (unsigned)atoi(optarg); break;
		case 'g': opt.gpu = atoi(optarg); break;
		case 'd': opt.last = strtoul(optarg, NULL, 10); break;
		case 'p': opt.proxy = true; break;
		case 'b': opt.barrier = true; break;
		default: return 2;
		}
	}
	if (opt.ranks < 2 || opt.ranks > MAX_RANKS || opt.kernels < 0)
		return 2;
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return shared == MAP_FAILED ? 2 : run_ranks();
}
