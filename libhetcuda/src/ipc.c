// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Legacy IPC. The driver names no memory that was made with cuMemCreate, so a
// handle of ours says which process has the memory and where it can be asked for
// descriptors: a socket "hetcuda-ipc.<pid>" in the control directory, that a
// process listens on once it has given out a handle, with a thread of its own. It
// answers any process of the same user, and root; it is not held by the gate, for
// who asks is inside of a call and would be waited for.
//
// What is shared is the whole block that an allocation is in, as with the
// driver's own IPC: the importing process can reach what lies beside a small
// allocation. It maps a block once for each context, at addresses of ours, and
// what was opened of it are allocations to the program. The exporting process may
// free its memory, or end: importers keep it, as long as they have it open.
//
// One connection is one request: struct request, struct reply, and if descriptors
// were asked for, all chunks in packets of at most BATCH. The server closes
// first, so that when cuIpcOpenMemHandle returns, neither process has a
// descriptor that was not there before (CRIU could not dump it).
#include "ipc.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "block.h"
#include "books.h"
#include "counters.h"
#include "listen.h"
#include "log.h"
#include "managed.h"
#include "memory_free.h"
#include "overrides.h"
#include "park.h"
#include "real.h"
#include "thread.h"
#include "window.h"

#define SOCKET_PREFIX "hetcuda-ipc."
#define HANDLE_MAGIC 0x31637069746568u // "hetipc1"

enum {
	BATCH = 64,
	STEP_MS = 50,
	// How long the other side may be silent. Time in which this process is
	// frozen hardly counts.
	PATIENCE_MS = 30000,
	SERVER_PATIENCE_MS = 5000,
	// How long a process is waited for that is parked; it is where its
	// container is, and so are we.
	PARKED_MS = 600000,
	MAX_CHUNKS = 1 << 16,
};

// What the program gets for a CUipcMemHandle.
struct handle {
	uint64_t magic;
	uint64_t token;   // of the process
	uint64_t address; // there
	uint64_t id;      // of the allocation
	uint8_t device[16];
	int32_t pid;
	uint32_t suffix; // of the socket
	uint64_t number; // of the block
};
static_assert(sizeof(struct handle) == sizeof(CUipcMemHandle), "a handle of another size");

struct request {
	uint64_t magic;
	uint64_t token;
	uint64_t address;
	uint64_t id;
	uint32_t descriptors; // 1: are wanted
	uint32_t unused;
};

struct reply {
	uint64_t magic;
	int32_t status; // 0, a CUresult, or -EAGAIN: parked
	uint32_t count; // of chunks in the block
	uint64_t number; // of the block
	uint64_t size;   // of the block
	uint64_t offset; // of the allocation
	uint64_t asked;  // its size
};

// Descriptors that are under way, for a fork. One for the server, one for the
// thread that imports; index BATCH is the connection's.
struct transit {
	int fd[BATCH + 1]; // -1: none
};
static struct transit serving = {.fd = {[0 ... BATCH] = -1}}, receiving = {.fd = {[0 ... BATCH] = -1}};
static pthread_mutex_t transit_lock = PTHREAD_MUTEX_INITIALIZER;

// One thread imports at a time. Outside of the books and of transit_lock.
static pthread_mutex_t importing = PTHREAD_MUTEX_INITIALIZER;

static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;
static atomic_int listener = -1;
static char path[HETCUDA_PATH];
static pid_t owner;
static uint32_t suffix;

static void release(pthread_mutex_t **lock)
{
	pthread_mutex_unlock(*lock);
}

#define LOCKED(mutex)                                                                        \
	__attribute__((cleanup(release), unused)) pthread_mutex_t *locked = &(mutex); \
	pthread_mutex_lock(locked)

// token is this process's, made when it is first needed; 0 if there is none. Only
// a process that uses the driver has one, so no child of a fork has its parent's.
static uint64_t token(void)
{
	static _Atomic uint64_t made;
	uint64_t t = atomic_load(&made), none = 0;
	if (t)
		return t;
	if (getrandom(&t, sizeof t, 0) != sizeof t)
		return 0;
	t |= 1;
	return atomic_compare_exchange_strong(&made, &none, t) ? t : none;
}

static void clear(struct transit *t)
{
	LOCKED(transit_lock);
	for (int i = 0; i < BATCH; i++) {
		if (t->fd[i] >= 0)
			close(t->fd[i]);
		t->fd[i] = -1;
	}
}

static void hang_up(struct transit *t)
{
	clear(t);
	LOCKED(transit_lock);
	if (t->fd[BATCH] >= 0)
		close(t->fd[BATCH]);
	t->fd[BATCH] = -1;
}

static bool wait_for(int fd, short events, int patience_ms)
{
	struct pollfd p = {.fd = fd, .events = events};
	for (int steps = patience_ms / STEP_MS; steps >= 0; steps--) {
		int r = poll(&p, 1, STEP_MS);
		if (r > 0 || (r < 0 && errno != EINTR))
			return r > 0;
	}
	return false;
}

union ancillary {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(BATCH * sizeof(int))];
};

// send_packet sends what is in transit along, the first so many.
static bool send_packet(struct transit *t, const void *data, size_t size, size_t count, int patience_ms)
{
	union ancillary a = {0};
	struct iovec io = {.iov_base = (void *)data, .iov_len = size};
	struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1};
	if (count > 0) {
		m.msg_control = &a;
		m.msg_controllen = CMSG_SPACE(count * sizeof(int));
		struct cmsghdr *c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(count * sizeof(int));
		memcpy(CMSG_DATA(c), t->fd, count * sizeof(int));
	}
	for (int tries = 0; wait_for(t->fd[BATCH], POLLOUT, patience_ms); tries++) {
		if (sendmsg(t->fd[BATCH], &m, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)size)
			return true;
		// Others may have as many descriptors under way as there may be.
		if (errno == ETOOMANYREFS && tries < patience_ms)
			nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		else if (errno != EAGAIN && errno != EINTR)
			return false;
	}
	return false;
}

// receive_packet puts descriptors into transit, which was clear; *count is how
// many. The number of bytes, 0 at the end, -1.
static ssize_t receive_packet(struct transit *t, void *data, size_t size, size_t *count, int patience_ms)
{
	union ancillary a;
	struct iovec io = {.iov_base = data, .iov_len = size};
	struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1};
	ssize_t n;
	*count = 0;
	do {
		if (!wait_for(t->fd[BATCH], POLLIN, patience_ms))
			return -1;
		LOCKED(transit_lock);
		m.msg_control = &a;
		m.msg_controllen = sizeof a;
		n = recvmsg(t->fd[BATCH], &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
		for (struct cmsghdr *c = n >= 0 ? CMSG_FIRSTHDR(&m) : NULL; c; c = CMSG_NXTHDR(&m, c)) {
			if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
				continue;
			size_t k = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
			// No more than BATCH fit into the buffer.
			for (size_t i = 0; i < k && *count < BATCH; i++)
				memcpy(&t->fd[(*count)++], CMSG_DATA(c) + i * sizeof(int), sizeof(int));
		}
	} while (n < 0 && (errno == EAGAIN || errno == EINTR));
	return m.msg_flags & (MSG_TRUNC | MSG_CTRUNC) ? -1 : n;
}

// The exporting side.

// find returns the allocation that a request is about. Lock: books.
static struct extent *find(const struct request *q)
{
	struct extent *e = q->token == token() ? block_find(q->address) : NULL;
	return e && e->address == q->address && e->id == q->id && !e->leaving && !block_imported(e) ? e : NULL;
}

static CUresult export(struct chunk *list[], size_t count, struct transit *t)
{
	CUresult r = CUDA_SUCCESS;
	LOCKED(transit_lock);
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
static size_t share(const struct request *q, struct reply *p, size_t first, size_t most)
{
	struct chunk *list[BATCH];
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
	p->status = (int32_t)export(list, n, &serving);
	return p->status ? 0 : n;
}

static void answer(const struct request *q)
{
	uint64_t sizes[BATCH];
	struct reply p = {.magic = HANDLE_MAGIC};
	share(q, &p, 0, 0);
	if (!send_packet(&serving, &p, sizeof p, 0, SERVER_PATIENCE_MS) || p.status || !q->descriptors)
		return;
	for (size_t first = 0, n; first < p.count; first += n) {
		n = share(q, &p, first, BATCH);
		// The end of the connection is the answer now.
		if (n == 0)
			return;
		for (size_t i = 0; i < n; i++)
			sizes[i] = first + i;
		bool sent = send_packet(&serving, sizes, n * sizeof *sizes, n, SERVER_PATIENCE_MS);
		clear(&serving);
		if (!sent)
			return;
	}
}

static bool trusted(int fd)
{
	struct ucred peer;
	socklen_t size = sizeof peer;
	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) && (peer.uid == 0 || peer.uid == geteuid());
}

static void *serve(void *unused)
{
	(void)unused;
	hetcuda_thread_internal();
	while (hetcuda_listening(listener, path)) {
		struct pollfd p = {.fd = listener, .events = POLLIN};
		poll(&p, 1, -1);
		int fd;
		{
			// So that a fork finds it.
			LOCKED(transit_lock);
			fd = listener >= 0 ? accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK) : -1;
			serving.fd[BATCH] = fd;
		}
		if (fd >= 0) {
			struct request q;
			size_t count;
			if (trusted(fd) && receive_packet(&serving, &q, sizeof q, &count, SERVER_PATIENCE_MS) == sizeof q &&
			    q.magic == HANDLE_MAGIC && count == 0)
				answer(&q);
			hang_up(&serving);
		} else if (errno != EINTR && errno != ECONNABORTED) {
			nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
		}
	}
	hetcuda_log("ipc: the program has closed the socket");
	return NULL;
}

// start begins to listen, once.
static bool start(void)
{
	LOCKED(starting);
	if (hetcuda_listening(listener, path))
		return true;
	int fd = hetcuda_listen(SOCKET_PREFIX, path);
	if (fd < 0)
		return false;
	// The kernel blocks nobody: several may wake up for one connection.
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	const char *name = strrchr(path, '/') + sizeof SOCKET_PREFIX, *dot = strchr(name, '.');
	suffix = dot ? (uint32_t)strtoul(dot + 1, NULL, 10) : 0;
	owner = getpid();
	listener = fd;
	int r = hetcuda_listen_thread(serve, "hetcuda-ipc");
	if (r) {
		hetcuda_log("ipc: no thread: %s", strerror(-r));
		unlink(path);
		listener = -1;
		close(fd);
	}
	return r == 0;
}

CUresult hetcuda_cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address)
{
	if (!handle || !window_has(address))
		return REAL(cuIpcGetMemHandle)(handle, address);
	if (managed_look(address, NULL))
		return CUDA_ERROR_INVALID_VALUE; // as the driver has it
	struct handle h = {.magic = HANDLE_MAGIC, .token = token(), .pid = getpid()};
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
	if (h.token == 0 || !start())
		return CUDA_ERROR_MAP_FAILED;
	memcpy(h.device, uuid.bytes, sizeof h.device);
	h.suffix = suffix;
	memcpy(handle, &h, sizeof h);
	return CUDA_SUCCESS;
}

// The importing side.

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

// dial connects to the process of a handle.
static bool dial(const struct handle *h)
{
	const char *directory = hetcuda_control_directory();
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	char end[16] = "";
	if (h->suffix)
		snprintf(end, sizeof end, ".%u", h->suffix);
	int n = directory ? snprintf(a.sun_path, sizeof a.sun_path, "%s/" SOCKET_PREFIX "%d%s", directory, (int)h->pid, end) : -1;
	if (n < 0 || (size_t)n >= sizeof a.sun_path)
		return false;
	int fd;
	{
		LOCKED(transit_lock);
		fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		receiving.fd[BATCH] = fd;
	}
	// Full is the queue of connections.
	for (int steps = PATIENCE_MS / STEP_MS; fd >= 0; steps--) {
		if (!connect(fd, (const void *)&a, sizeof a))
			return true;
		if ((errno != EAGAIN && errno != EINTR) || steps < 0)
			return false;
		nanosleep(&(struct timespec){.tv_nsec = STEP_MS * 1000000L}, NULL);
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
		uint64_t numbers[BATCH];
		size_t count;
		ssize_t n = receive_packet(&receiving, numbers, sizeof numbers, &count, PATIENCE_MS);
		if (n == 0)
			r = -EAGAIN; // it is being parked, or was freed, or ended: the next try tells
		else if (n < 0 || count == 0 || (size_t)n != count * sizeof *numbers || have + count > p->count)
			r = CUDA_ERROR_INVALID_HANDLE;
		for (size_t i = 0; r == 0 && i < count; i++, have++) {
			size_t left = p->size - have * CHUNK;
			r = (int)import_one(&list[have], device, left < CHUNK ? left : CHUNK, receiving.fd[i]);
		}
		clear(&receiving);
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
	struct request q = {
		.magic = HANDLE_MAGIC, .token = h->token, .address = h->address, .id = h->id, .descriptors = want};
	size_t count;
	int r = CUDA_ERROR_INVALID_HANDLE;
	if (dial(h) && send_packet(&receiving, &q, sizeof q, 0, PATIENCE_MS) &&
	    receive_packet(&receiving, p, sizeof *p, &count, PATIENCE_MS) == sizeof *p && p->magic == HANDLE_MAGIC &&
	    count == 0) {
		r = p->status;
		if (r == 0 && want)
			r = import_all(p, device, list);
		// Until it has closed its side.
		char end;
		receive_packet(&receiving, &end, sizeof end, &count, PATIENCE_MS);
	}
	hang_up(&receiving);
	return r;
}

static CUresult import(struct context *c, const struct handle *h, CUdeviceptr *address)
{
	struct source s = {.owner = h->token, .number = h->number};
	bool want;
	CUresult r;
	LOCKED(importing);
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
		int status, steps = PARKED_MS / STEP_MS;
		while ((status = ask(h, s.device, want, &p, &list)) == -EAGAIN && steps-- > 0)
			nanosleep(&(struct timespec){.tv_nsec = STEP_MS * 1000000L}, NULL);
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
	if (!address || (flags & ~(unsigned int)CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS))
		return CUDA_ERROR_INVALID_VALUE;
	struct context *c = context_current(&r);
	if (!c)
		return r;
	memory_flush();
	// Of its own memory a process has no use for another mapping.
	r = h.token == token() ? CUDA_ERROR_INVALID_CONTEXT : import(c, &h, address);
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

// Events of other processes are the driver's. It can't checkpoint a process that
// has one open, so they are counted.
static CUevent *events;
static size_t event_room;
static pthread_mutex_t event_lock = PTHREAD_MUTEX_INITIALIZER;

CUresult hetcuda_cuIpcOpenEventHandle(CUevent *event, CUipcEventHandle handle)
{
	CUresult r = REAL(cuIpcOpenEventHandle)(event, handle);
	if (r != CUDA_SUCCESS)
		return r;
	LOCKED(event_lock);
	size_t n = (size_t)COUNTED(events);
	if (n == event_room) {
		CUevent *larger = realloc(events, (event_room + 64) * sizeof *events);
		if (!larger) {
			REAL(cuEventDestroy)(*event);
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
		events = larger;
		event_room += 64;
	}
	events[n] = *event;
	COUNT(events);
	return r;
}

// forget_event is called before an event is destroyed: another may get its
// handle at once.
static void forget_event(CUevent event)
{
	if (COUNTED(events) == 0)
		return;
	LOCKED(event_lock);
	size_t n = (size_t)COUNTED(events), i = 0;
	while (i < n && events[i] != event)
		i++;
	if (i == n)
		return;
	events[i] = events[n - 1];
	UNCOUNT(events);
}

CUresult hetcuda_cuEventDestroy(CUevent event)
{
	forget_event(event);
	return ((__typeof__(&cuEventDestroy_v2))hetcuda_real[HETCUDA_INDEX_cuEventDestroy])(event);
}

CUresult hetcuda_cuEventDestroy_v2(CUevent event)
{
	forget_event(event);
	return REAL(cuEventDestroy)(event);
}

__attribute__((destructor)) static void end(void)
{
	if (owner == getpid())
		unlink(path);
}

void hetcuda_ipc_lock(void)
{
	pthread_mutex_lock(&transit_lock);
}

void hetcuda_ipc_unlock(void)
{
	pthread_mutex_unlock(&transit_lock);
}

void hetcuda_ipc_forked(void)
{
	for (int i = 0; i <= BATCH; i++) {
		if (serving.fd[i] >= 0)
			close(serving.fd[i]);
		if (receiving.fd[i] >= 0)
			close(receiving.fd[i]);
		serving.fd[i] = receiving.fd[i] = -1;
	}
	if (hetcuda_listening(listener, path))
		close(listener);
	listener = -1;
	owner = 0;
	path[0] = 0;
	pthread_mutex_init(&starting, NULL);
	pthread_mutex_init(&importing, NULL);
	pthread_mutex_unlock(&transit_lock);
}
