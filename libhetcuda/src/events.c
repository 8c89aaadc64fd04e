// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// An event of ours is one of the driver's, of this process, and a slot of a board.
// A record goes to both. Who asks or waits for the last record asks the driver if
// this process made it, and else goes by the slot: a stream waits for the value
// of a word.
//
// To a graph, and to a stream that is being captured, it is an event of this
// process. A process that dies with a record under way leaves those waiting that
// wait for it.
#include "events.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "board.h"
#include "books.h"
#include "capture.h"
#include "channel.h"
#include "context.h"
#include "counters.h"
#include "listen.h"
#include "overrides.h"
#include "park.h"
#include "real.h"

#define HANDLE_MAGIC 0x31747665746568u // "hetevt1"

enum {
	BUCKETS = 256,
	// How long a record waits for the record BOARD_WORDS before it.
	FULL_MS = 60000,
	CAN_USE_64_BIT_STREAM_MEM_OPS = 122, // CUdevice_attribute, cuda.h of CUDA 12.0
};

// What the program gets for a CUipcEventHandle.
struct handle {
	uint64_t magic;
	uint64_t token;
	uint64_t board, slot, id;
	struct channel_peer peer;
	uint64_t unused[2];
};
static_assert(sizeof(struct handle) == sizeof(CUipcEventHandle), "a handle of another size");

struct reply {
	uint64_t magic;
	int64_t status; // 0, a CUresult, or -EAGAIN: parked
};

struct event {
	struct event *next; // in its bucket
	CUevent handle;
	struct board *board;
	struct slot *slot;
	uint64_t mine; // the last number that this process has recorded
};

static struct event *buckets[BUCKETS];
static _Atomic unsigned count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

// Events that are the driver's own: who has one open can't be checkpointed.
static CUevent *foreign;
static size_t foreign_room;

#define LOCKED()                                                                                    \
	__attribute__((cleanup(channel_release), unused)) pthread_mutex_t *locked = &lock; \
	pthread_mutex_lock(&lock)

static struct event **bucket(CUevent handle)
{
	return &buckets[((uintptr_t)handle >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 56 & (BUCKETS - 1)];
}

static struct event *find(CUevent handle)
{
	struct event *e = *bucket(handle);
	while (e && e->handle != handle)
		e = e->next;
	return e;
}

// is_ours costs a program that has none a load.
static bool is_ours(CUevent handle)
{
	if (atomic_load_explicit(&count, memory_order_relaxed) == 0)
		return false;
	LOCKED();
	return find(handle) != NULL;
}

static bool own(const struct event *e)
{
	return e->board->fd >= 0;
}

static bool enter(CUevent handle, struct board *b, struct slot *s)
{
	struct event *e = calloc(1, sizeof *e);
	if (!e)
		return false;
	*e = (struct event){.next = *bucket(handle), .handle = handle, .board = b, .slot = s};
	*bucket(handle) = e;
	atomic_fetch_add(&count, 1);
	return true;
}

// leave gives up what a handle stands for.
static void leave(CUevent handle)
{
	for (struct event **link = bucket(handle); *link; link = &(*link)->next) {
		struct event *e = *link;
		if (e->handle != handle)
			continue;
		if (own(e))
			atomic_store(&e->slot->id, 0);
		else
			atomic_fetch_sub(&e->slot->users, 1);
		*link = e->next;
		free(e);
		atomic_fetch_sub(&count, 1);
		return;
	}
}

// possible tells whether the current device can do it.
static bool possible(void)
{
	CUdevice device;
	int can = 0;
	return REAL(cuStreamWriteValue64_v2) && REAL(cuStreamWaitValue64_v2) && REAL(cuStreamIsCapturing) &&
	       hetcuda_control_directory() && channel_token() && REAL(cuCtxGetDevice)(&device) == CUDA_SUCCESS &&
	       REAL(cuDeviceGetAttribute)(&can, (CUdevice_attribute)CAN_USE_64_BIT_STREAM_MEM_OPS, device) == CUDA_SUCCESS && can;
}

CUresult hetcuda_cuEventCreate(CUevent *event, unsigned int flags)
{
	const unsigned int between = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;
	bool ours = event && (flags & between) == between && possible();
	CUresult r = REAL(cuEventCreate)(event, ours ? flags & ~(unsigned int)CU_EVENT_INTERPROCESS : flags);
	if (r != CUDA_SUCCESS || (!ours && atomic_load_explicit(&count, memory_order_relaxed) == 0))
		return r;
	LOCKED();
	leave(*event); // of a context that was destroyed
	if (!ours)
		return r;
	struct board *b;
	struct slot *s = board_take(&b);
	if (s && enter(*event, b, s))
		return r;
	if (s)
		atomic_store(&s->id, 0);
	REAL(cuEventDestroy)(*event);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

static void forget(CUevent event)
{
	if (atomic_load(&count) > 0) {
		LOCKED();
		leave(event);
	}
	if (COUNTED(events) == 0)
		return;
	LOCKED();
	size_t n = (size_t)COUNTED(events), i = 0;
	while (i < n && foreign[i] != event)
		i++;
	if (i == n)
		return;
	foreign[i] = foreign[n - 1];
	UNCOUNT(events);
}

// Before it is destroyed: another may get its handle at once.
CUresult hetcuda_cuEventDestroy(CUevent event)
{
	forget(event);
	return ((__typeof__(&cuEventDestroy_v2))hetcuda_real[HETCUDA_INDEX_cuEventDestroy])(event);
}

CUresult hetcuda_cuEventDestroy_v2(CUevent event)
{
	forget(event);
	return REAL(cuEventDestroy)(event);
}

static bool captured(CUstream stream)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	return capture_running() && REAL(cuStreamIsCapturing)(stream, &status) == CUDA_SUCCESS &&
	       status != CU_STREAM_CAPTURE_STATUS_NONE;
}

// number takes the next one of a slot; false while the record that has its word is
// under way.
static bool number(struct slot *s, uint64_t *taken)
{
	uint64_t n = atomic_load(&s->recorded);
	do {
		if (n + 1 > BOARD_WORDS && !slot_reached(s, n + 1 - BOARD_WORDS))
			return false;
	} while (!atomic_compare_exchange_weak(&s->recorded, &n, n + 1));
	*taken = n + 1;
	return true;
}

// post has the stream write a record's number. CUDA_ERROR_NOT_READY: not yet.
static CUresult post(CUevent event, CUstream stream)
{
	CUdeviceptr address;
	uint64_t n;
	LOCKED();
	struct event *e = find(event);
	if (!e)
		return CUDA_ERROR_INVALID_HANDLE;
	// Before a number is taken: who sees it waits for it.
	CUresult r = board_word(e->board, e->slot->words, &address);
	if (r != CUDA_SUCCESS)
		return r;
	if (!number(e->slot, &n))
		return CUDA_ERROR_NOT_READY;
	r = REAL(cuStreamWriteValue64_v2)(stream, address + n % BOARD_WORDS * sizeof *e->slot->words, n, 0);
	if (r == CUDA_SUCCESS)
		e->mine = n;
	else
		atomic_store(slot_word(e->slot, n), n); // it is not going to come
	return r;
}

// own_default is what no stream means to those that have one for each thread.
static CUstream own_default(CUstream stream, bool per_thread)
{
	return stream || !per_thread ? stream : CU_STREAM_PER_THREAD;
}

CUresult events_recorded(CUresult r, CUevent event, CUstream stream, bool per_thread, unsigned int flags)
{
	if (r != CUDA_SUCCESS || !is_ours(event))
		return r;
	stream = own_default(stream, per_thread);
	if (captured(stream))
		return flags & CU_EVENT_RECORD_EXTERNAL ? CUDA_ERROR_NOT_SUPPORTED : r;
	for (int i = 0; i < FULL_MS && (r = post(event, stream)) == CUDA_ERROR_NOT_READY; i++) {
		REAL(cuEventQuery)(event); // nothing is to be left waiting to be submitted
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	return r;
}

// Who knows of an event's last record: the driver, if it is none of ours or this
// process made that record; else it is known to be reached, or has to be awaited.
struct view {
	enum { DRIVERS, REACHED, AWAITED } is;
	const struct board *board;
	struct slot *slot; // stays until the event is destroyed
	uint64_t number;
};

static struct view look(CUevent event)
{
	struct view v = {.is = DRIVERS};
	if (atomic_load_explicit(&count, memory_order_relaxed) == 0)
		return v;
	LOCKED();
	const struct event *e = find(event);
	if (!e)
		return v;
	v.board = e->board;
	v.slot = e->slot;
	v.number = atomic_load(&e->slot->recorded);
	if (v.number == e->mine)
		return v;
	// Of an event that was never recorded nobody waits for anything.
	bool reached = v.number == atomic_load(&e->slot->first) || slot_reached(e->slot, v.number);
	v.is = reached ? REACHED : AWAITED;
	return v;
}

bool events_wait(CUstream stream, bool per_thread, CUevent event, CUresult *result)
{
	struct view v = look(event);
	CUdeviceptr address;
	*result = CUDA_SUCCESS;
	if (v.is != AWAITED)
		return v.is == REACHED;
	stream = own_default(stream, per_thread);
	if (captured(stream)) {
		*result = CUDA_ERROR_STREAM_CAPTURE_ISOLATION; // it is of outside the capture
		return true;
	}
	LOCKED();
	*result = board_word(v.board, slot_word(v.slot, v.number), &address);
	if (*result == CUDA_SUCCESS)
		*result = REAL(cuStreamWaitValue64_v2)(stream, address, v.number, CU_STREAM_WAIT_VALUE_GEQ);
	return true;
}

CUresult hetcuda_cuEventQuery(CUevent event)
{
	switch (look(event).is) {
	case REACHED: return CUDA_SUCCESS;
	case AWAITED: return CUDA_ERROR_NOT_READY;
	default: return REAL(cuEventQuery)(event);
	}
}

CUresult events_synchronize(CUevent event)
{
	struct view v = look(event);
	if (v.is == DRIVERS)
		return REAL(cuEventSynchronize)(event);
	for (long pause = 10000; v.is == AWAITED && !slot_reached(v.slot, v.number); pause = pause < 1000000 ? pause * 2 : pause)
		nanosleep(&(struct timespec){.tv_nsec = pause}, NULL);
	return CUDA_SUCCESS;
}

// Between processes.

CUresult hetcuda_cuIpcGetEventHandle(CUipcEventHandle *handle, CUevent event)
{
	struct handle h = {.magic = HANDLE_MAGIC, .token = channel_token()};
	if (!handle || !is_ours(event))
		return REAL(cuIpcGetEventHandle)(handle, event);
	{
		LOCKED();
		const struct event *e = find(event);
		if (!e || !own(e))
			return CUDA_ERROR_INVALID_HANDLE;
		h.board = e->board->number;
		h.slot = (uint64_t)(e->slot - e->board->slots);
		h.id = atomic_load(&e->slot->id);
	}
	if (!channel_start(&h.peer))
		return CUDA_ERROR_MAP_FAILED;
	memcpy(handle, &h, sizeof h);
	return CUDA_SUCCESS;
}

void events_answer(const struct channel_request *q)
{
	struct reply p = {HANDLE_MAGIC, CUDA_ERROR_INVALID_HANDLE};
	size_t n = 0;
	if (q->magic != HANDLE_MAGIC)
		return;
	{
		BOOKS();
		if (parking)
			p.status = -EAGAIN;
	}
	if (p.status != -EAGAIN && q->token == channel_token()) {
		LOCKED();
		const struct board *b = board_find(q->token, q->address);
		CHANNEL_LOCKED(channel_lock);
		int fd = b ? board_descriptor(b) : -1;
		channel_serving.fd[0] = fd;
		n = fd >= 0;
		p.status = n ? 0 : p.status;
	}
	channel_send(&channel_serving, &p, sizeof p, n, CHANNEL_SERVER_PATIENCE_MS);
}

// ask gets a board from the process that made it. -EAGAIN: it is parked.
static int64_t ask(const struct handle *h)
{
	struct channel_request q = {.magic = HANDLE_MAGIC, .token = h->token, .address = h->board, .descriptors = 1};
	struct reply p;
	size_t n;
	char end;
	int64_t status = CUDA_ERROR_INVALID_HANDLE;
	if (channel_dial(&h->peer) && channel_send(&channel_asking, &q, sizeof q, 0, CHANNEL_PATIENCE_MS) &&
	    channel_receive(&channel_asking, &p, sizeof p, &n, CHANNEL_PATIENCE_MS) == sizeof p && p.magic == HANDLE_MAGIC) {
		status = p.status;
		if (status == 0) {
			LOCKED();
			if (n != 1 || !board_map(h->token, h->board, channel_asking.fd[0]))
				status = CUDA_ERROR_INVALID_HANDLE;
		}
		channel_clear(&channel_asking);
		// Until it has closed its side.
		channel_receive(&channel_asking, &end, sizeof end, &n, CHANNEL_PATIENCE_MS);
	}
	channel_hang_up(&channel_asking);
	return status;
}

// join makes an event of this process for a slot.
static CUresult join(CUevent *event, const struct handle *h)
{
	LOCKED();
	struct board *b = board_find(h->token, h->board);
	if (!b || h->slot >= BOARD_SLOTS)
		return CUDA_ERROR_INVALID_HANDLE;
	struct slot *s = &b->slots[h->slot];
	CUresult r = CUDA_ERROR_INVALID_HANDLE;
	atomic_fetch_add(&s->users, 1);
	if (h->id && atomic_load(&s->id) == h->id)
		r = REAL(cuEventCreate)(event, CU_EVENT_DISABLE_TIMING);
	if (r == CUDA_SUCCESS) {
		leave(*event);
		if (enter(*event, b, s))
			return r;
		REAL(cuEventDestroy)(*event);
		r = CUDA_ERROR_OUT_OF_MEMORY;
	}
	atomic_fetch_sub(&s->users, 1);
	return r;
}

static CUresult import(CUevent *event, const struct handle *h)
{
	bool known;
	CHANNEL_LOCKED(channel_turn);
	{
		LOCKED();
		known = board_find(h->token, h->board);
	}
	int64_t status = known ? 0 : -EAGAIN;
	for (int i = 0; status == -EAGAIN && i < CHANNEL_PARKED_MS / CHANNEL_STEP_MS; i++) {
		status = ask(h);
		if (status == -EAGAIN)
			nanosleep(&(struct timespec){.tv_nsec = CHANNEL_STEP_MS * 1000000L}, NULL);
	}
	return status ? CUDA_ERROR_INVALID_HANDLE : join(event, h);
}

static CUresult open_foreign(CUevent *event, CUipcEventHandle handle)
{
	CUresult r = REAL(cuIpcOpenEventHandle)(event, handle);
	if (r != CUDA_SUCCESS)
		return r;
	LOCKED();
	size_t n = (size_t)COUNTED(events);
	if (n == foreign_room) {
		CUevent *larger = realloc(foreign, (foreign_room + 64) * sizeof *foreign);
		if (!larger) {
			REAL(cuEventDestroy)(*event);
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
		foreign = larger;
		foreign_room += 64;
	}
	foreign[n] = *event;
	COUNT(events);
	return r;
}

CUresult hetcuda_cuIpcOpenEventHandle(CUevent *event, CUipcEventHandle handle)
{
	struct handle h;
	memcpy(&h, &handle, sizeof h);
	if (h.magic != HANDLE_MAGIC)
		return open_foreign(event, handle);
	if (!event)
		return CUDA_ERROR_INVALID_VALUE;
	if (!possible())
		return CUDA_ERROR_NOT_SUPPORTED;
	// As with memory: of its own it has no use for another one.
	return h.token == channel_token() ? CUDA_ERROR_INVALID_CONTEXT : import(event, &h);
}

void events_park(void)
{
	CUcontext before;
	if (!board_any())
		return;
	for (const struct context *c = context_first(); c; c = c->next) {
		if (c->gone || context_switch(c->handle, &before) != CUDA_SUCCESS)
			continue;
		board_unregister_all();
		context_switch_back(c->handle, before);
		return;
	}
}

void events_forked(void)
{
	pthread_mutex_init(&lock, NULL);
	memset(buckets, 0, sizeof buckets);
	atomic_store(&count, 0);
	board_forked();
}
