// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Letting go of all device memory and taking it back, for control.c. Only its
// thread calls this, with the gate closed, so the lock (books.h) is not needed:
// no thread of the program is in our code.
//
// What this remembers is plain memory, so that a process that CRIU restored
// takes its memory back as if it had only waited.
#include "memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "block.h"
#include "books.h"
#include "capture.h"
#include "counters.h"
#include "events.h"
#include "idle.h"
#include "log.h"
#include "managed.h"
#include "mark.h"
#include "memory_free.h"
#include "moved.h"
#include "own.h"
#include "park.h"
#include "pools.h"
#include "real.h"

// The chunks that are parked, or about to be, in the order of their ids.
static struct chunk **list;
static uint32_t count;

// Those that others get anew, and for how many there is room. It is made for the park:
// on the way back nothing is to fail that can be had before.
static struct chunk **shared_list;
static uint32_t shared_count, shared_room;

// The chunk of the last MAKE.
static struct chunk *last_made;

// What was kept for later and has gone to the devices for the park, in bytes.
static uint64_t trimmed;

bool parking;

__attribute__((format(printf, 2, 3))) static void say(char *text, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(text, HETCUDA_TEXT, format, arguments);
	va_end(arguments);
}

static int failed(CUresult r, char *text, const char *call, const struct chunk *c)
{
	const char *name = NULL;
	if (!REAL(cuGetErrorName) || REAL(cuGetErrorName)(r, &name) != CUDA_SUCCESS || !name)
		name = "unknown";
	say(text, "%s of chunk %llu (%zu bytes): %s", call, (unsigned long long)c->id, c->size, name);
	return (int)r;
}

// on makes a context of a device current, if the program has one; off undoes
// that. The driver doesn't ask for one here, but has seen few callers without.
static CUcontext on(CUdevice device, CUcontext *before)
{
	struct context *c = context_first();
	while (c && (c->gone || c->device != device))
		c = c->next;
	return c && context_switch(c->handle, before) == CUDA_SUCCESS ? c->handle : NULL;
}

static void off(CUcontext context, CUcontext before)
{
	if (context)
		context_switch_back(context, before);
}

static void set_parking(bool now)
{
	BOOKS();
	parking = now;
}

static void forget(void)
{
	set_parking(false);
	last_made = NULL;
	free(list);
	list = NULL;
	count = 0;
}

void hetcuda_memory_count(uint32_t *chunk_total, uint64_t *bytes)
{
	*chunk_total = atomic_load(&chunk_count);
	*bytes = atomic_load(&chunk_bytes);
}

static int by_id(const void *a, const void *b)
{
	const struct chunk *x = *(struct chunk *const *)a, *y = *(struct chunk *const *)b;
	return x->id < y->id ? -1 : x->id > y->id;
}

// sharing tells why memory can't be taken from this process alone.
static int sharing(char *text)
{
	int64_t imported = COUNTED(imported), exported = COUNTED(exported), ipc = COUNTED(ipc), events = COUNTED(events);
	if (ipc || events)
		say(text, "the process has %lld memory handles and %lld events of other processes open that are the driver's (cuIpcOpenMemHandle, cuIpcOpenEventHandle)",
		    (long long)ipc, (long long)events);
	else if (imported || exported)
		say(text, "the process shares device memory with others in ways that can't be followed: %lld pieces imported, %lld exported",
		    (long long)imported, (long long)exported);
	else
		return 0;
	return -ENOTSUP;
}

int hetcuda_memory_idle(bool anew, uint32_t timeout_ms)
{
	return capture_running() ? -EBUSY : wait_idle(anew, timeout_ms);
}

// unmap unmaps every mapping of a chunk that is not yet, map the opposite. Both can
// be called again after a failure: each mapping knows whether it is there.
static CUresult unmap(struct chunk *c)
{
	CUresult first = CUDA_SUCCESS;
	for (struct mapping *m = c->mappings; m; m = m->next) {
		CUresult r = m->away ? CUDA_SUCCESS : chunk_unmap(m);
		if (first == CUDA_SUCCESS)
			first = r;
	}
	return first;
}

static CUresult map(struct chunk *c)
{
	CUresult r = CUDA_SUCCESS;
	for (struct mapping *m = c->mappings; m && r == CUDA_SUCCESS; m = m->next)
		r = m->away || m->barred ? chunk_map(m) : CUDA_SUCCESS;
	return r;
}

// place is a context that can reach a chunk, made current. A program may have memory
// on a device and no context there: then one of a device that it has mapped the
// memory for, and else the primary one, for that long.
struct place {
	CUdevice device;
	CUcontext before, context, primary;
};

static struct place go_to(const struct chunk *c)
{
	struct place p = {.device = c->device};
	p.context = on(c->device, &p.before);
	for (const struct mapping *m = c->mappings; m && !p.context; m = m->next)
		for (CUdevice d = 0; d < ACCESS_DEVICES && !p.context; d++)
			if (m->access.readwrite >> d & 1 && (p.context = on(d, &p.before)))
				p.device = d;
	if (!p.context && REAL(cuDevicePrimaryCtxRetain)(&p.primary, c->device) == CUDA_SUCCESS &&
	    context_switch(p.primary, &p.before) == CUDA_SUCCESS)
		p.context = p.primary;
	return p;
}

static void leave(const struct place *p)
{
	off(p->context, p->before);
	if (p->primary)
		REAL(cuDevicePrimaryCtxRelease)(p->device);
}

static CUresult copy_of(const struct chunk *c, CUmemGenericAllocationHandle *made)
{
	struct place p = go_to(c);
	CUresult r = own_copy(c, p.device, made);
	leave(&p);
	return r;
}

// unmark puts back what was where marks are; false if it can't, all the same.
static bool unmark(char *text)
{
	bool all = true;
	for (uint32_t i = count; i-- > 0;) {
		if (!list[i]->marked)
			continue;
		struct place p = go_to(list[i]);
		CUresult r = mark_remove(list[i], p.device);
		leave(&p);
		if (r != CUDA_SUCCESS)
			failed(r, text, "removing a mark", list[i]);
		all = r == CUDA_SUCCESS && all;
	}
	return all;
}

int hetcuda_memory_mark(uint64_t nonce, char *text)
{
	char ignored[HETCUDA_TEXT];
	if (!unmark(text))
		return -EIO;
	for (uint32_t i = 0; nonce && i < count; i++) {
		if (!list[i]->imported)
			continue;
		struct place p = go_to(list[i]);
		CUresult r = mark_put(list[i], p.device, nonce, i);
		leave(&p);
		if (r == CUDA_SUCCESS)
			continue;
		unmark(ignored);
		return failed(r, text, "marking", list[i]);
	}
	return 0;
}

// replace maps other memory in the place of a chunk's; *other is then which of the two is
// not the chunk's. If it can't be mapped, the chunk has its own again; if that can't be
// mapped either, there is a hole.
static CUresult replace(struct chunk *c, CUmemGenericAllocationHandle *other)
{
	CUmemGenericAllocationHandle old = c->handle, made = *other;
	CUresult r = unmap(c);
	if (r == CUDA_SUCCESS) {
		c->handle = made;
		r = map(c);
		if (r != CUDA_SUCCESS && unmap(c) == CUDA_SUCCESS)
			c->handle = old;
	}
	if (r != CUDA_SUCCESS && map(c) != CUDA_SUCCESS)
		map(c); // once more: the program would go on with a hole
	*other = c->handle == made ? old : made;
	return r;
}

static bool hole(const struct chunk *c)
{
	for (const struct mapping *m = c->mappings; m; m = m->next)
		if (m->away || m->barred)
			return true;
	return false;
}

// mend maps what is not where the program looks for it, and ought to be.
static int mend(struct chunk *c, char *text)
{
	CUcontext before;
	if (!hole(c))
		return 0;
	CUcontext context = on(c->device, &before);
	CUresult r = map(c);
	off(context, before);
	return r == CUDA_SUCCESS ? 0 : failed(r, text, "cuMemMap", c);
}

static bool holes(void)
{
	for (const struct chunk *c = chunks; c; c = c->next)
		if (!c->parked && hole(c))
			return true;
	return false;
}

// serve lets threads go on that touch managed memory, if all of that is in its place.
static void serve(void)
{
	if (!holes())
		managed_abandon();
}

int hetcuda_memory_whole(char *text)
{
	char ignored[HETCUDA_TEXT];
	int first = 0;
	if (!holes())
		return 0;
	set_parking(true);
	managed_pause();
	for (struct chunk *c = chunks; c; c = c->next) {
		int result = c->parked ? 0 : mend(c, first ? ignored : text);
		if (!first)
			first = result;
	}
	managed_grant();
	serve();
	set_parking(false);
	return first;
}

// own_mapped makes a chunk the process's own that is mapped.
static int own_mapped(struct chunk *c, char *text)
{
	CUcontext before;
	CUmemGenericAllocationHandle made;
	// The others have it by the peer's handle, as this one.
	if (c->shared) {
		say(text, "%zu bytes of device memory that other processes have too came back from a park as they were, since there was no room for two of them, or one of the processes failed",
		    c->size);
		return -ENOMEM;
	}
	CUresult r = copy_of(c, &made);
	if (r != CUDA_SUCCESS)
		return failed(r, text, "the copy into memory of the process's own", c);
	CUcontext context = on(c->device, &before);
	CUmemGenericAllocationHandle unwanted = made;
	r = replace(c, &unwanted);
	c->borrowed = unwanted == made;
	if (REAL(cuMemRelease)(unwanted) != CUDA_SUCCESS)
		COUNT(unreleased);
	off(context, before);
	return c->borrowed || hole(c) ? failed(r, text, "cuMemMap", c) : 0;
}

// own_borrowed makes chunks the process's own that came back as they were, and maps what a
// try before could not. It goes on after the first of the errors, which it returns; *left
// are the bytes that they are about.
static int own_borrowed(uint64_t *left, char *text)
{
	char ignored[HETCUDA_TEXT];
	bool any = false;
	int first = 0;
	*left = 0;
	for (struct chunk *c = chunks; c; c = c->next) {
		if (!c->borrowed && !hole(c))
			continue;
		any = true;
		int result = mend(c, first ? ignored : text);
		if (!result && c->borrowed)
			result = own_mapped(c, first ? ignored : text);
		if (result)
			*left += c->size;
		if (!first)
			first = result;
	}
	if (any)
		managed_grant();
	return first;
}

int hetcuda_memory_own(uint64_t *left, char *text)
{
	set_parking(true);
	managed_pause();
	int result = own_borrowed(left, text);
	serve();
	set_parking(false);
	return result ? hetcuda_memory_whole(text) : 0;
}

static int quiesce(uint32_t timeout_ms, char *text)
{
	int result = sharing(text);
	if (result)
		return result;
	if (capture_running()) {
		say(text, "a stream is being captured; waiting for the GPU would spoil it");
		return -EAGAIN;
	}
	result = wait_idle(true, timeout_ms);
	if (result == -ETIMEDOUT)
		say(text, "GPU work is still running after %u ms", timeout_ms);
	else if (result)
		say(text, "waiting for the GPU: error %d", result);
	if (result)
		return result;
	uint64_t before = chunk_bytes;
	memory_flush();
	block_trim();
	pools_quiesce();
	trimmed = before - chunk_bytes;
	list = calloc(chunk_count + 1, sizeof *list);
	shared_list = calloc(chunk_count + 1, sizeof *shared_list);
	if (!list || !shared_list) {
		say(text, "there is no memory for the list of %u chunks", chunk_count);
		return -ENOMEM;
	}
	shared_room = chunk_count;
	result = managed_quiesce(text);
	if (result)
		return result;
	// Nobody is served any more who would use the memory meanwhile.
	uint64_t left;
	result = own_borrowed(&left, text);
	if (result)
		serve();
	return result;
}

int hetcuda_memory_quiesce(uint32_t timeout_ms, uint32_t *total, char *text)
{
	forget();
	free(shared_list);
	shared_list = NULL;
	shared_count = shared_room = 0;
	// From here on no descriptor is made for another process (ipc.c).
	set_parking(true);
	int result = quiesce(timeout_ms, text);
	if (result) {
		forget();
		return result;
	}
	for (struct chunk *c = chunks; c; c = c->next)
		list[count++] = c;
	qsort(list, count, sizeof *list, by_id);
	*total = count;
	return 0;
}

static int export(struct chunk *c, struct hetcuda_chunk *out, int *fd, char *text)
{
	CUuuid uuid;
	CUcontext before;
	CUresult r = REAL(cuDeviceGetUuid)(&uuid, c->device);
	if (r != CUDA_SUCCESS)
		return failed(r, text, "cuDeviceGetUuid", c);
	*fd = -1;
	if (!c->imported) {
		CUcontext context = on(c->device, &before);
		r = REAL(cuMemExportToShareableHandle)(fd, c->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
		off(context, before);
		if (r != CUDA_SUCCESS)
			return failed(r, text, "cuMemExportToShareableHandle", c);
		fcntl(*fd, F_SETFD, FD_CLOEXEC);
	}
	*out = (struct hetcuda_chunk){.id = c->id, .address = c->mappings ? c->mappings->address : 0, .size = c->size};
	out->flags = (c->shared ? HETCUDA_EXPORTED : 0) | (c->imported ? HETCUDA_IMPORTED : 0);
	memcpy(out->device, uuid.bytes, sizeof out->device);
	return 0;
}

int hetcuda_memory_export(uint32_t i, struct hetcuda_chunk *out, int *fd, char *text)
{
	return i < count ? export(list[i], out, fd, text) : -EINVAL;
}

int hetcuda_memory_share(uint32_t *total, char *text)
{
	shared_count = 0;
	for (struct chunk *c = chunks; c; c = c->next) {
		if (!c->shared || c->imported || c->borrowed || (c->parked && !c->taken))
			continue;
		if (shared_count == shared_room) {
			say(text, "SHARE without UNPARK");
			return -EINVAL;
		}
		shared_list[shared_count++] = c;
	}
	*total = shared_count;
	return 0;
}

int hetcuda_memory_export_shared(uint32_t i, struct hetcuda_chunk *out, int *fd, char *text)
{
	return i < shared_count ? export(shared_list[i], out, fd, text) : -EINVAL;
}

// let_go unmaps a chunk and releases its handle. A handle that can't be released
// keeps its memory and makes the driver's checkpoint larger; the data that the
// peer has is the same. A mapping that stays is tried again when the chunk is taken.
static CUresult let_go(struct chunk *c)
{
	CUcontext before, context = on(c->device, &before);
	CUresult r = unmap(c);
	if (c->handle && REAL(cuMemRelease)(c->handle) != CUDA_SUCCESS)
		COUNT(unreleased);
	c->handle = 0;
	c->made = false;
	off(context, before);
	return r;
}

// roll_back maps the first chunks again; false if not all of them are.
static bool roll_back(uint32_t chunks_done)
{
	bool all = true;
	for (uint32_t i = 0; i < chunks_done; i++) {
		CUcontext before, context = on(list[i]->device, &before);
		all = map(list[i]) == CUDA_SUCCESS && all;
		off(context, before);
	}
	if (all)
		managed_grant();
	return all;
}

int hetcuda_memory_commit(char *text)
{
	CUcontext before, context;
	if (!unmark(text))
		return -EIO;
	pools_commit();
	events_park();
	// First all is unmapped: that can be undone, for the handles are still
	// there.
	for (uint32_t i = 0; i < count; i++) {
		context = on(list[i]->device, &before);
		CUresult r = unmap(list[i]);
		off(context, before);
		if (r == CUDA_SUCCESS)
			continue;
		int result = failed(r, text, "cuMemUnmap", list[i]);
		// Memory that is not where the program looks for it is the peer's to
		// give back, as if all had gone well.
		if (!roll_back(i + 1))
			break;
		forget();
		managed_abandon();
		return result;
	}
	// Nothing comes back from here on.
	for (uint32_t i = 0; i < count; i++) {
		let_go(list[i]);
		list[i]->parked = true;
		list[i]->taken = list[i]->settled = false;
	}
	managed_commit();
	return 0;
}

uint64_t hetcuda_memory_trimmed(void)
{
	return trimmed;
}

void hetcuda_memory_abandon(void)
{
	char text[HETCUDA_TEXT] = "";
	if (!unmark(text))
		hetcuda_log("memory: %s", text);
	forget();
	managed_abandon();
}

static struct chunk *parked(uint64_t id)
{
	uint32_t low = 0, high = count;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		if (list[middle]->id < id)
			low = middle + 1;
		else
			high = middle;
	}
	return low < count && list[low]->id == id && list[low]->parked ? list[low] : NULL;
}

// wanted is a chunk that is parked, and that a request of the peer's may be about.
static struct chunk *wanted(uint64_t id, char *text)
{
	struct chunk *c = parked(id);
	if (c && !c->taken)
		return c;
	say(text, "chunk %llu is not one that is parked", (unsigned long long)id);
	return NULL;
}

bool hetcuda_memory_moved(void)
{
	return moved();
}

int hetcuda_memory_make(uint64_t id, char *text)
{
	CUcontext before;
	struct chunk *c = wanted(id, text);
	last_made = NULL;
	if (!c)
		return -EINVAL;
	if (c->imported) {
		say(text, "chunk %llu is memory that another process has made", (unsigned long long)id);
		return -EINVAL;
	}
	// What was made before, and what a try before could not undo.
	CUresult r = let_go(c);
	if (r != CUDA_SUCCESS)
		return failed(r, text, "cuMemUnmap", c);
	CUcontext context = on(c->device, &before);
	r = REAL(cuMemCreate)(&c->handle, c->size, &c->prop, 0);
	off(context, before);
	if (r != CUDA_SUCCESS) {
		c->handle = 0;
		return failed(r, text, "cuMemCreate", c);
	}
	c->borrowed = false;
	c->made = true;
	last_made = c;
	return 0;
}

int hetcuda_memory_export_made(uint32_t i, struct hetcuda_chunk *out, int *fd, char *text)
{
	return i == 0 && last_made ? export(last_made, out, fd, text) : -EINVAL;
}

// borrow imports memory of the peer's for a chunk, and makes it the process's own if that
// is wanted and there is room.
static int borrow(struct chunk *c, uint32_t flags, int fd, char *text)
{
	CUmemGenericAllocationHandle made;
	CUcontext before;
	// What a try before could not undo is of other memory, perhaps.
	CUresult r = let_go(c);
	if (r != CUDA_SUCCESS)
		return failed(r, text, "cuMemUnmap", c);
	CUcontext context = on(c->device, &before);
	r = REAL(cuMemImportFromShareableHandle)(&c->handle, (void *)(intptr_t)fd,
						 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	off(context, before);
	if (r != CUDA_SUCCESS)
		return failed(r, text, "cuMemImportFromShareableHandle", c);
	c->borrowed = !c->imported;
	bool now = !(flags & HETCUDA_AS_IS) && (c->shared || !(flags & HETCUDA_LATER));
	if (c->borrowed && now && copy_of(c, &made) == CUDA_SUCCESS)
		own_take(c, made); // else it is so later (hetcuda_memory_own), or before the next park
	return 0;
}

// The device's UUID is not compared: a process restored on another GPU has the
// same devices under other names, and the driver checks what it imports.
int hetcuda_memory_take(const struct hetcuda_chunk *in, int fd, char *text)
{
	CUcontext before;
	struct chunk *c = wanted(in->id, text);
	if (!c)
		return -EINVAL;
	if (c->size != in->size) {
		say(text, "chunk %llu has %zu bytes, not %llu", (unsigned long long)in->id, c->size, (unsigned long long)in->size);
		return -EINVAL;
	}
	int result = c->made ? 0 : borrow(c, in->flags, fd, text);
	if (result)
		return result;
	CUcontext context = on(c->device, &before);
	CUresult r = map(c);
	off(context, before);
	if (r != CUDA_SUCCESS) {
		let_go(c);
		return failed(r, text, "cuMemMap", c);
	}
	c->taken = true;
	c->made = false;
	return 0;
}

void hetcuda_memory_take_undo(bool all)
{
	for (uint32_t i = 0; i < count; i++) {
		if (!(list[i]->taken || (list[i]->made && all)) || (list[i]->settled && !all))
			continue;
		let_go(list[i]);
		list[i]->taken = list[i]->settled = false;
	}
}

int hetcuda_memory_take_finish(uint32_t *missing, char *text)
{
	uint32_t own = 0;
	*missing = 0;
	for (uint32_t i = 0; i < count; i++) {
		*missing += !list[i]->taken;
		own += !list[i]->taken && !list[i]->imported;
	}
	if (own > 0) {
		say(text, "%u of %u chunks are missing", *missing, count);
		return -ENOENT;
	}
	for (uint32_t i = 0; i < count; i++)
		list[i]->settled = list[i]->taken;
	if (*missing > 0)
		return 0;
	for (uint32_t i = 0; i < count; i++)
		list[i]->parked = list[i]->taken = list[i]->settled = false;
	forget();
	managed_resume();
	return 0;
}

void hetcuda_memory_start(void)
{
	moved_start();
}

void hetcuda_memory_forked(int initialized)
{
	managed_forked();
	// A thread that is no more may have held the lock. There is nothing in
	// the books of a process that had not initialized CUDA.
	if (!initialized)
		pthread_mutex_init(&books, NULL);
}
