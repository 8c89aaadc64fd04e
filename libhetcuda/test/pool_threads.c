// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Threads that allocate and free in streams which run at random, with memory that is
// really there: all that a stream writes into its memory has to be there when it
// looks at it, whoever got the memory before and gets it afterwards. In the midst of
// it memory is short, pools are trimmed, streams end, and everything is parked.
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "block.h"
#include "chunk.h"
#include "lane.h"
#include "memory.h"
#include "overrides.h"
#include "pools.h"
#include "ptsz.h"
#include "real.h"
#include "stream_fake.h"
#include "window.h"

#define MIB ((size_t)1 << 20)
#define MEMORY (100 * MIB)

enum { THREADS = 4, STEPS = 3000, LIVE = 24, PARKS = 20, MAX = 256 };

static CUcontext context;
static CUmemoryPool pool, other;
static CUstream shared;
static _Atomic unsigned looked, served, parked;

// So that a park comes in the midst of it.
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;
static int running = THREADS;

static void tell(int ended)
{
	pthread_mutex_lock(&mu);
	running -= ended;
	pthread_cond_signal(&more);
	pthread_mutex_unlock(&mu);
}

static void wait_for(unsigned pieces)
{
	pthread_mutex_lock(&mu);
	while (served < pieces && running > 0)
		pthread_cond_wait(&more, &mu);
	pthread_mutex_unlock(&mu);
}

// Calls are under way with it, a park excludes them: the gate, in a program without.
static pthread_rwlock_t gate = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;

static uint32_t draw(uint32_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 17;
	*seed ^= *seed << 5;
	return *seed;
}

// What a stream does with memory of its own: it writes, and later looks.
struct job {
	CUdeviceptr address;
	size_t size;
	uint64_t tag;
};

static void one(const struct job *j, size_t at, bool check)
{
	uint64_t *p = (uint64_t *)(j->address + at);
	if (!check)
		*p = j->tag ^ at;
	if (*p == (j->tag ^ at))
		return;
	fprintf(stderr, "%#llx of %zu bytes, at %zu: %#llx and not %#llx\n", (unsigned long long)j->address, j->size, at,
		(unsigned long long)*p, (unsigned long long)(j->tag ^ at));
	abort();
}

static void each(const struct job *j, bool check)
{
	if (j->size < 8)
		return;
	for (size_t at = 0; at + 8 <= j->size; at += 4096)
		one(j, at, check);
	one(j, (j->size - 8) / 8 * 8, check);
}

static void work_write(void *argument)
{
	each(argument, false);
}

static void work_look(void *argument)
{
	struct job *j = argument;
	each(j, true);
	looked++;
}

static void work_look_last(void *argument)
{
	work_look(argument);
	free(argument);
}

// A piece that a thread has, and the stream that it is used in.
struct live {
	struct job *job;
	CUstream stream;
	bool own;
};

struct thread {
	uint32_t seed;
	CUstream streams[2];
	struct live live[LIVE];
	uint64_t tag;
};

static void pick(struct thread *t, struct live *l)
{
	l->own = false;
	switch (draw(&t->seed) % 8) {
	case 0: l->stream = shared; break;
	case 1: l->stream = NULL; l->own = true; break;
	default: l->stream = t->streams[draw(&t->seed) % 2]; break;
	}
}

static size_t draw_size(struct thread *t)
{
	switch (draw(&t->seed) % 10) {
	case 0: return 8 * MIB + draw(&t->seed) % (12 * MIB);
	case 1:
	case 2: return 1 + draw(&t->seed) % (4 * MIB);
	default: return 8 + draw(&t->seed) % 60000;
	}
}

static void take(struct thread *t, struct live *l)
{
	pick(t, l);
	size_t size = draw_size(t);
	CUdeviceptr a;
	CUresult r;
	if (draw(&t->seed) % 4 == 0)
		r = l->own ? hetcuda_cuMemAllocFromPoolAsync_ptsz(&a, size, other, l->stream)
			   : hetcuda_cuMemAllocFromPoolAsync(&a, size, other, l->stream);
	else
		r = l->own ? hetcuda_cuMemAllocAsync_ptsz(&a, size, l->stream) : hetcuda_cuMemAllocAsync(&a, size, l->stream);
	CHECK(r == CUDA_SUCCESS || r == CUDA_ERROR_OUT_OF_MEMORY);
	if (r != CUDA_SUCCESS)
		return;
	if (!window_has(a)) { // the driver had room
		OK(hetcuda_cuMemFreeAsync(a, shared));
		return;
	}
	l->job = calloc(1, sizeof *l->job);
	*l->job = (struct job){.address = a, .size = size, .tag = ++t->tag};
	stream_work(l->stream, l->own, work_write, l->job);
	served++;
	tell(0);
}

// pass has another stream use a piece, after the first one.
static void pass(struct thread *t, struct live *l)
{
	CUevent event;
	OK(REAL(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING));
	OK((l->own ? hetcuda_cuEventRecord_ptsz : hetcuda_cuEventRecord)(event, l->stream));
	pick(t, l);
	OK((l->own ? hetcuda_cuStreamWaitEvent_ptsz : hetcuda_cuStreamWaitEvent)(l->stream, event, 0));
	OK(REAL(cuEventDestroy)(event));
	stream_work(l->stream, l->own, work_look, l->job);
}

static void synchronize(const struct live *l)
{
	OK(l->own ? hetcuda_cuStreamSynchronize_ptsz(l->stream) : hetcuda_cuStreamSynchronize(l->stream));
}

static void drop(struct thread *t, struct live *l)
{
	CUdeviceptr a = l->job->address;
	stream_work(l->stream, l->own, work_look_last, l->job);
	l->job = NULL;
	if (draw(&t->seed) % 16 == 0) {
		synchronize(l);
		OK(hetcuda_cuMemFree_v2(a));
		return;
	}
	OK(l->own ? hetcuda_cuMemFreeAsync_ptsz(a, l->stream) : hetcuda_cuMemFreeAsync(a, l->stream));
}

static void act(struct thread *t, int step)
{
	struct live *l = &t->live[draw(&t->seed) % LIVE];
	unsigned what = draw(&t->seed) % 64;
	if (what == 0)
		OK(hetcuda_cuMemPoolTrimTo(draw(&t->seed) % 2 ? pool : other, 0));
	else if (what == 1)
		OK(hetcuda_cuCtxSynchronize());
	else if (what == 2) {
		// Nothing of it is needed any more but what has been submitted.
		unsigned i = draw(&t->seed) % 2;
		for (int k = 0; k < LIVE; k++)
			if (t->live[k].job && t->live[k].stream == t->streams[i])
				return;
		OK(hetcuda_cuStreamDestroy_v2(t->streams[i]));
		OK(REAL(cuStreamCreate)(&t->streams[i], 0));
	} else if (l->job && what < 10)
		synchronize(l);
	else if (l->job && what < 20)
		pass(t, l);
	else if (l->job)
		drop(t, l);
	else if (step < STEPS)
		take(t, l);
}

static void *run(void *argument)
{
	struct thread *t = argument;
	OK(REAL(cuCtxSetCurrent)(context));
	for (int i = 0; i < 2; i++)
		OK(REAL(cuStreamCreate)(&t->streams[i], 0));
	for (int step = 0; step < STEPS; step++) {
		pthread_rwlock_rdlock(&gate);
		act(t, step);
		pthread_rwlock_unlock(&gate);
	}
	pthread_rwlock_rdlock(&gate);
	for (int k = 0; k < LIVE; k++)
		if (t->live[k].job)
			drop(t, &t->live[k]);
	pthread_rwlock_unlock(&gate);
	tell(1);
	return NULL;
}

static void park(void)
{
	static struct hetcuda_chunk taken[MAX];
	static int fds[MAX];
	uint32_t count;
	char text[HETCUDA_TEXT] = "";
	int r = hetcuda_memory_quiesce(20000, &count, text);
	if (r)
		fprintf(stderr, "%s\n", text);
	CHECK(r == 0 && count <= MAX && streams_fake.events == 0 && !lane_first());
	for (uint32_t i = 0; i < count; i++)
		OK(hetcuda_memory_export(i, &taken[i], &fds[i], text));
	if (parked % 3 == 2) {
		hetcuda_memory_abandon();
	} else {
		OK(hetcuda_memory_commit(text));
		CHECK(fake.handles == 0 && fake.maps == 0);
		for (uint32_t i = count; i-- > 0;)
			OK(hetcuda_memory_take(&taken[i], fds[i], text));
		OK(hetcuda_memory_take_finish(&(uint32_t){0}, text));
	}
	for (uint32_t i = 0; i < count; i++)
		close(fds[i]);
	parked++;
}

static void threads(void)
{
	fake_start(1, MEMORY);
	streams_start();
	context = fake_context(0);
	OK(REAL(cuStreamCreate)(&shared, 0));
	OK(REAL(cuDeviceGetDefaultMemPool)(&pool, 0));
	CUmemPoolProps p = {CU_MEM_ALLOCATION_TYPE_PINNED, 0, {CU_MEM_LOCATION_TYPE_DEVICE, 0}, NULL, 40 * MIB, 0, {0}};
	OK(hetcuda_cuMemPoolCreate(&other, &p));
	cuuint64_t all = UINT64_MAX;
	OK(hetcuda_cuMemPoolSetAttribute(other, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
	streams_go(11);
	static struct thread t[THREADS];
	pthread_t thread[THREADS];
	for (unsigned i = 0; i < THREADS; i++) {
		t[i].seed = 1000 + i * 77;
		t[i].tag = (uint64_t)(i + 1) << 40;
		CHECK(pthread_create(&thread[i], NULL, run, &t[i]) == 0);
	}
	for (int i = 0; i < PARKS; i++) {
		wait_for(served + THREADS * 20);
		pthread_rwlock_wrlock(&gate);
		fake.memory = 2 * MEMORY; // for this test is not of a device that is full (memory_park.c)
		park();
		fake.memory = MEMORY;
		pthread_rwlock_unlock(&gate);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	streams_halt();
	streams_drain();
	OK(hetcuda_cuMemPoolDestroy(other));
	pools_quiesce();
	CHECK(chunk_count == 0 && fake.handles == 0 && fake.maps == 0 && streams_fake.events == 0);
	CHECK(block_stats.allocations == 0 && block_stats.held == 0);
	printf("%u pieces, looked at %u times, %u waits of one stream for another, %u events\n", served, looked,
	       streams_fake.waits, streams_fake.created);
	CHECK(parked == PARKS && served > STEPS / 2 && looked >= served);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {{"threads", threads}, {0}};
	return run_tests(tests, argc, argv);
}
