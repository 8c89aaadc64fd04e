// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Legacy IPC of memory. The driver names no memory that was made with cuMemCreate,
// so a handle of ours says which process has the memory, and there it can be asked
// for descriptors (channel.h).
//
// What is shared is the whole block that an allocation is in, as with the
// driver's own IPC: the channel_turn process can reach what lies beside a small
// allocation. It maps a block once for each context, at addresses of ours, and
// what was opened of it are allocations to the program. The exporting process may
// free its memory, or end: importers keep it, as long as they have it open.
//
// The answer is a struct reply, and if descriptors were asked for, all chunks in
// packets of at most CHANNEL_BATCH.
#include "ipc.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "block.h"
#include "books.h"
#include "channel.h"
#include "counters.h"
#include "managed.h"
#include "memory_free.h"
#include "overrides.h"
#include "park.h"
#include "real.h"
#include "window.h"

#define HANDLE_MAGIC 0x31637069746568u // "hetipc1"

enum { MAX_CHUNKS = 1 << 16 };

// What the program gets for a CUipcMemHandle.
struct handle {
	uint64_t magic;
	uint64_t token;   // of the process
	uint64_t address; // there
	uint64_t id;      // of the allocation
	uint8_t device[16];
	struct channel_peer peer;
	uint64_t number; // of the block
};
static_assert(sizeof(struct handle) == sizeof(CUipcMemHandle), "a handle of another size");

struct reply {
	uint64_t magic;
	int32_t status; // 0, a CUresult, or -EAGAIN: parked
	uint32_t count; // of chunks in the block
	uint64_t number; // of the block
	uint64_t size;   // of the block
	uint64_t offset; // of the allocation
	uint64_t asked;  // its size
};

// The exporting side.

// find returns the allocation that a request is about. Lock: books.
static struct extent *find(const struct channel_request *q)
{
	struct extent *e = q->token == channel_token() ? block_find(q->address) : NULL;
	return e && e->address == q->address && e->id == q->id && !e->leaving && !block_imported(e) ? e : NULL;
}

static CUresult export(struct chunk *list[], size_t count, struct channel *t)
{
	CUresult r = CUDA_SUCCESS;
	CHANNEL_LOCKED(channel_lock);
	for (size_t i = 0; i < count && r == CUDA_SUCCESS; i++) {
		int fd = -1;
		r = REAL(cuMemExportToShareableHandle)(&fd, list[i]->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
		if (r != CUDA_SUCCESS)
			break;
		fcntl(fd, F_SETFD, FD_CLOEXEC);
		t->fd[i] = fd;
	}
	return r;
}

// share exports chunks of an allocation's block, from the first one on.
static size_t share(const struct channel_request *q, struct reply *p, size_t first, size_t most)
{
	struct chunk *list[CHANNEL_BATCH];
	struct source s;
	BOOKS();
	// Under the lock: the program may be about to free it. An export is short.
	if (parking) {
		p->status = -EAGAIN;
		return 0;
	}
	struct extent *e = find(q);
	if (!e) {
		p->status = CUDA_ERROR_INVALID_HANDLE;
		return 0;
	}
	size_t n = block_share(e, &s, list, first, most);
	p->count = (uint32_t)s.count;
	p->number = s.number;
	p->size = s.size;
	p->offset = e->address - block_base(e);
	p->asked = e->asked;
	p->status = (int32_t)export(list, n, &channel_serving);
	if (p->status)
		return 0;
	for (size_t i = 0; i < n; i++)
		list[i]->shared = true;
	return n;
}

bool ipc_answer(const struct channel_request *q)
{
	if (q->magic != HANDLE_MAGIC)
		return false;
	uint64_t sizes[CHANNEL_BATCH];
	struct reply p = {.magic = HANDLE_MAGIC};
	share(q, &p, 0, 0);
	if (!channel_send(&channel_serving, &p, sizeof p, 0, CHANNEL_SERVER_PATIENCE_MS) || p.status || !q->descriptors)
		return true;
	for (size_t first = 0, n; first < p.count; first += n) {
		n = share(q, &p, first, CHANNEL_BATCH);
		// What the driver says of it comes in place of descriptors; else the end of
		// the connection is the answer now.
		if (n == 0 && p.status > 0)
			channel_send(&channel_serving, &(uint64_t){(uint64_t)p.status}, sizeof *sizes, 0, CHANNEL_SERVER_PATIENCE_MS);
		if (n == 0)
			return true;
		for (size_t i = 0; i < n; i++)
			sizes[i] = first + i;
		bool sent = channel_send(&channel_serving, sizes, n * sizeof *sizes, n, CHANNEL_SERVER_PATIENCE_MS);
		channel_clear(&channel_serving);
		if (!sent)
			return true;
	}
	return true;
}

CUresult hetcuda_cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address)
{
	if (!handle || !window_has(address))
		return REAL(cuIpcGetMemHandle)(handle, address);
	if (managed_look(address, NULL))
		return CUDA_ERROR_INVALID_VALUE; // as the driver has it
	struct handle h = {.magic = HANDLE_MAGIC, .token = channel_token()};
	CUdevice device = 0;
	{
		BOOKS();
		struct extent *e = block_find(address);
		if (!e || e->leaving || block_imported(e))
			return CUDA_ERROR_INVALID_VALUE;
		// Of what an address inside of an allocation is given, the driver
		// names all.
		h.address = e->address;
		h.id = e->id;
		h.number = block_number(e);
		device = block_device(e);
	}
	CUuuid uuid;
	CUresult r = REAL(cuDeviceGetUuid)(&uuid, device);
	if (r != CUDA_SUCCESS)
		return r;
	if (h.token == 0 || !channel_start(&h.peer))
		return CUDA_ERROR_MAP_FAILED;
	memcpy(h.device, uuid.bytes, sizeof h.device);
	memcpy(handle, &h, sizeof h);
	return CUDA_SUCCESS;
}

// The channel_turn side.

static bool find_device(const struct handle *h, CUdevice *device)
{
	int count = 0;
	REAL(cuDeviceGetCount)(&count);
	for (int i = 0; i < count; i++) {
		CUuuid uuid;
		if (REAL(cuDeviceGet)(device, i) == CUDA_SUCCESS && REAL(cuDeviceGetUuid)(&uuid, *device) == CUDA_SUCCESS &&
		    !memcmp(uuid.bytes, h->device, sizeof h->device))
			return true;
	}
	return false;
}

static void drop(struct chunk *list[], size_t count)
{
	for (size_t i = 0; list && i < count; i++)
		if (list[i])
			chunk_destroy(list[i]);
	free(list);
}

// import_one makes a chunk of the next descriptor in transit.
static CUresult import_one(struct chunk **made, CUdevice device, size_t size, int fd)
{
	struct chunk *k = calloc(1, sizeof *k);
	if (!k)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult r = REAL(cuMemImportFromShareableHandle)(&k->handle, (void *)(intptr_t)fd,
							  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	if (r != CUDA_SUCCESS) {
		free(k);
		return r;
	}
	k->id = new_id();
	k->size = size;
	k->device = device;
	k->parkable = true;
	k->imported = true;
	*made = k;
	return CUDA_SUCCESS;
}

// import_all receives all chunks of a block.
static int import_all(const struct reply *p, CUdevice device, struct chunk ***result)
{
	if (p->count == 0 || p->count > MAX_CHUNKS || p->size == 0 || p->count != (p->size + CHUNK - 1) / CHUNK)
		return CUDA_ERROR_INVALID_HANDLE;
	struct chunk **list = calloc(p->count, sizeof *list);
	int r = list ? 0 : CUDA_ERROR_OUT_OF_MEMORY;
	for (size_t have = 0; r == 0 && have < p->count;) {
		uint64_t numbers[CHANNEL_BATCH];
		size_t count;
		ssize_t n = channel_receive(&channel_asking, numbers, sizeof numbers, &count, CHANNEL_PATIENCE_MS);
		if (n == 0)
			r = -EAGAIN; // it is being parked, or was freed, or ended: the next try tells
		else if (n == sizeof *numbers && count == 0 && numbers[0] > 0 && numbers[0] <= CUDA_ERROR_UNKNOWN)
			r = (int)numbers[0];
		else if (n < 0 || count == 0 || (size_t)n != count * sizeof *numbers || have + count > p->count)
			r = CUDA_ERROR_INVALID_HANDLE;
		for (size_t i = 0; r == 0 && i < count; i++, have++) {
			size_t left = p->size - have * CHUNK;
			r = (int)import_one(&list[have], device, left < CHUNK ? left : CHUNK, channel_asking.fd[i]);
		}
		channel_clear(&channel_asking);
	}
	if (r == 0)
		*result = list;
	else
		drop(list, p->count);
	return r;
}

// ask asks the process of a handle for what is in *p, and for the memory if that
// is wanted. -EAGAIN: it is parked.
static int ask(const struct handle *h, CUdevice device, bool want, struct reply *p, struct chunk ***list)
{
	struct channel_request q = {
		.magic = HANDLE_MAGIC, .token = h->token, .address = h->address, .id = h->id, .descriptors = want};
	size_t count;
	int r = CUDA_ERROR_INVALID_HANDLE;
	if (channel_dial(&h->peer) && channel_send(&channel_asking, &q, sizeof q, 0, CHANNEL_PATIENCE_MS) &&
	    channel_receive(&channel_asking, p, sizeof *p, &count, CHANNEL_PATIENCE_MS) == sizeof *p && p->magic == HANDLE_MAGIC &&
	    count == 0) {
		r = p->status;
		if (r == 0 && want)
			r = import_all(p, device, list);
		// Until it has closed its side.
		char end;
		channel_receive(&channel_asking, &end, sizeof end, &count, CHANNEL_PATIENCE_MS);
	}
	channel_hang_up(&channel_asking);
	return r;
}

static CUresult import(struct context *c, const struct handle *h, CUdeviceptr *address)
{
	struct source s = {.owner = h->token, .number = h->number};
	bool want;
	CUresult r;
	CHANNEL_LOCKED(channel_turn);
	{
		BOOKS();
		if (block_open(c, &s, h->id, 0, 0, &r, address))
			return r;
		want = !block_has(c, &s);
	}
	if (!find_device(h, &s.device))
		return CUDA_ERROR_MAP_FAILED;
	for (;; want = true) {
		struct chunk **list = NULL;
		struct reply p = {0};
		int status, steps = CHANNEL_PARKED_MS / CHANNEL_STEP_MS;
		while ((status = ask(h, s.device, want, &p, &list)) == -EAGAIN && steps-- > 0)
			nanosleep(&(struct timespec){.tv_nsec = CHANNEL_STEP_MS * 1000000L}, NULL);
		if (status || p.number != h->number) {
			drop(list, p.count);
			return status > 0 ? (CUresult)status : CUDA_ERROR_INVALID_HANDLE;
		}
		if (want) {
			s.size = p.size;
			s.count = p.count;
			r = block_adopt(c, &s, list);
			if (r != CUDA_SUCCESS) {
				drop(list, p.count);
				// Also where this device can't reach the other one's memory.
				return r == CUDA_ERROR_OUT_OF_MEMORY ? r : CUDA_ERROR_MAP_FAILED;
			}
			free(list);
		}
		BOOKS();
		if (block_open(c, &s, h->id, p.offset, p.asked, &r, address))
			return r;
		// Another thread has closed what there was.
		if (want)
			return CUDA_ERROR_INVALID_HANDLE;
	}
}

static CUresult open_handle(CUdeviceptr *address, const CUipcMemHandle *handle, unsigned int flags,
			    __typeof__(&cuIpcOpenMemHandle_v2) real)
{
	struct handle h;
	CUresult r;
	memcpy(&h, handle, sizeof h);
	if (h.magic != HANDLE_MAGIC) {
		r = real(address, *handle, flags);
		if (r == CUDA_SUCCESS)
			COUNT(ipc);
		return r;
	}
	if (!address || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) // so does driver 580 with 0
		return CUDA_ERROR_INVALID_VALUE;
	struct context *c = context_current(&r);
	if (!c)
		return r;
	memory_flush();
	// Of its own memory a process has no use for another mapping.
	r = h.token == channel_token() ? CUDA_ERROR_INVALID_CONTEXT : import(c, &h, address);
	context_done(c);
	return r;
}

CUresult hetcuda_cuIpcOpenMemHandle(CUdeviceptr *address, CUipcMemHandle handle, unsigned int flags)
{
	return open_handle(address, &handle, flags,
			   (__typeof__(&cuIpcOpenMemHandle_v2))hetcuda_real[HETCUDA_INDEX_cuIpcOpenMemHandle]);
}

CUresult hetcuda_cuIpcOpenMemHandle_v2(CUdeviceptr *address, CUipcMemHandle handle, unsigned int flags)
{
	return open_handle(address, &handle, flags, REAL(cuIpcOpenMemHandle));
}

CUresult hetcuda_cuIpcCloseMemHandle(CUdeviceptr address)
{
	if (window_has(address))
		return memory_close(address);
	CUresult r = REAL(cuIpcCloseMemHandle)(address);
	if (r == CUDA_SUCCESS && COUNTED(ipc) > 0)
		UNCOUNT(ipc);
	return r;
}

