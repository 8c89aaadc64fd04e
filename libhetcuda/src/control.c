/*
 * SPDX-FileCopyrightText: The hetGPU authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * One thread, which waits in accept, serves one connection, and waits again.
 * Between connections it holds one listening socket and nothing else, which is
 * what CRIU can dump; and it keeps nothing that another host could change.
 *
 * What the peer sends is not trusted: a packet that is not what the protocol
 * says ends the connection, and with it the hold. A request that comes at the
 * wrong time is answered with an error.
 */
#include "control.h"

#include <assert.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "gate.h"
#include "hetcuda_control.h"
#include "listen.h"
#include "log.h"
#include "memory.h"
#include "overrides.h"
#include "real.h"
#include "spawn.h"
#include "step.h"
#include "thread.h"

#ifndef HETCUDA_VERSION
#define HETCUDA_VERSION "unknown"
#endif

/*
 * How long a peer may take for the rest of what it has begun to say, or to read
 * what it has asked for; and how long it may think between two requests, while
 * others (ranks on other devices) are loaded, say. Only one that hangs is meant:
 * one that dies ends the connection. A program that is parked waits for any
 * peer, so there it may be for ever.
 */
#ifndef HETCUDA_PATIENCE_MS
#define HETCUDA_PATIENCE_MS 30000
#define HETCUDA_THINKING_MS 600000
#else
#define HETCUDA_THINKING_MS HETCUDA_PATIENCE_MS
#endif

/* Patience is counted in steps: time in which this process is frozen is none. */
enum { STEP_MS = 100 };

/* More than any program's; a count that is not one. */
enum { MAX_CHUNKS = 1 << 20, MIB = 1 << 20 };

/* Which of the steps of a process is done. */
static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool started;
static bool initialized;

static char path[HETCUDA_PATH];
static pid_t owner;
static int driver;
static atomic_int listener = -1;
static atomic_int connection = -1;
static enum hetcuda_state state;
static bool exported; /* PARK was answered, COMMIT may follow */

/*
 * Descriptors of device memory that are on their way through. A child of a fork
 * would keep the memory alive with them, and CRIU from dumping it; so they are
 * made under the lock that a fork takes, and the child closes them.
 */
static pthread_mutex_t transit_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	int fd[HETCUDA_BATCH];
	unsigned int count;
} transit;

static void close_transit(void)
{
	unsigned int i;

	pthread_mutex_lock(&transit_lock);
	for (i = 0; i < transit.count; i++)
		close(transit.fd[i]);
	transit.count = 0;
	pthread_mutex_unlock(&transit_lock);
}

/* The reader of what we send is gone, or never was one of ours. */
enum { ENDED = -1 };

/* 0 or ENDED. -1: for ever. */
static int wait_for(short events, int patience_ms)
{
	struct pollfd p = { .fd = connection, .events = events };
	int steps = patience_ms / STEP_MS, r;

	do {
		r = poll(&p, 1, patience_ms < 0 ? -1 : STEP_MS);
	} while ((r < 0 && errno == EINTR) || (r == 0 && steps-- > 0));
	if (r == 0)
		hetcuda_log("control: the peer was silent for %d ms", patience_ms);
	return r > 0 ? 0 : ENDED;
}

static bool peer_gone(void)
{
	struct pollfd p = { .fd = connection, .events = POLLRDHUP };

	return poll(&p, 1, 0) > 0 && p.revents & (POLLRDHUP | POLLHUP | POLLERR);
}

/*
 * One packet. Its descriptors are in transit afterwards, also with an error.
 * The number of bytes, or ENDED.
 */
static ssize_t receive(void *data, size_t size, int patience_ms)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(HETCUDA_BATCH * sizeof(int))];
	} control;
	struct iovec io = { .iov_base = data, .iov_len = size };
	struct msghdr message = {
		.msg_iov = &io, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)
	};
	struct cmsghdr *c;
	ssize_t n;

	close_transit();
	do {
		if (wait_for(POLLIN, patience_ms))
			return ENDED;
		pthread_mutex_lock(&transit_lock);
		n = recvmsg(connection, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
		for (c = n >= 0 ? CMSG_FIRSTHDR(&message) : NULL; c; c = CMSG_NXTHDR(&message, c)) {
			size_t k = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int), i;

			if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
				continue;
			/* No more than BATCH fit into `control`. */
			for (i = 0; i < k && transit.count < HETCUDA_BATCH; i++)
				memcpy(&transit.fd[transit.count++], CMSG_DATA(c) + i * sizeof(int), sizeof(int));
		}
		pthread_mutex_unlock(&transit_lock);
	} while (n < 0 && (errno == EAGAIN || errno == EINTR));
	if (n <= 0)
		return ENDED;
	if (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
		hetcuda_log("control: a packet does not fit");
		return ENDED;
	}
	return n;
}

/* One packet with what is in transit. 0 or ENDED. */
static int send_packet(const void *data, size_t size)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(HETCUDA_BATCH * sizeof(int))];
	} control;
	struct iovec io = { .iov_base = (void *)data, .iov_len = size };
	struct msghdr message = { .msg_iov = &io, .msg_iovlen = 1 };
	struct timespec pause = { .tv_nsec = 1000000 };
	size_t length = transit.count * sizeof(int);
	int tries = 0;

	if (transit.count) {
		memset(&control, 0, sizeof(control));
		control.align.cmsg_level = SOL_SOCKET;
		control.align.cmsg_type = SCM_RIGHTS;
		control.align.cmsg_len = CMSG_LEN(length);
		memcpy(CMSG_DATA(&control.align), transit.fd, length);
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(length);
	}
	for (;;) {
		if (wait_for(POLLOUT, HETCUDA_PATIENCE_MS))
			return ENDED;
		if (sendmsg(connection, &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
			return 0;
		/* As many descriptors as RLIMIT_NOFILE allows are under way to
		 * a peer that has not read them yet. */
		if (errno == ETOOMANYREFS && tries++ < HETCUDA_PATIENCE_MS)
			nanosleep(&pause, NULL);
		else if (errno != EAGAIN && errno != EINTR)
			return ENDED;
	}
}

static int answer(const struct hetcuda_request *request, int status, uint32_t count, const char *text)
{
	struct hetcuda_reply reply = { .magic = HETCUDA_MAGIC, .op = request->op, .status = status, .count = count };

	snprintf(reply.text, sizeof(reply.text), "%s", text);
	return send_packet(&reply, sizeof(reply));
}

/* Our own build id, from the note that the linker wrote. */
static void build_id(char *out, size_t size)
{
	extern const char __ehdr_start[] __attribute__((visibility("hidden")));
	const ElfW(Ehdr) *header = (const void *)__ehdr_start;
	const ElfW(Phdr) *p = (const void *)(__ehdr_start + header->e_phoff);
	size_t i, j;

	for (i = 0; i < header->e_phnum; i++) {
		const char *note = __ehdr_start + p[i].p_vaddr, *end = note + p[i].p_memsz;

		while (p[i].p_type == PT_NOTE && note + sizeof(ElfW(Nhdr)) <= end) {
			const ElfW(Nhdr) *n = (const void *)note;
			const char *name = note + sizeof(*n);
			const unsigned char *id = (const unsigned char *)name + ((n->n_namesz + 3) & ~3u);

			if (n->n_type == NT_GNU_BUILD_ID && n->n_namesz == 4 && !memcmp(name, "GNU", 4)) {
				for (j = 0; j < n->n_descsz && 2 * j + 1 < size; j++) {
					out[2 * j] = "0123456789abcdef"[id[j] >> 4];
					out[2 * j + 1] = "0123456789abcdef"[id[j] & 15];
				}
				return;
			}
			note = (const char *)id + ((n->n_descsz + 3) & ~3u);
		}
	}
}

static int hello(const struct hetcuda_request *request)
{
	struct {
		struct hetcuda_reply reply;
		struct hetcuda_hello hello;
	} packet = {
		.reply = { .magic = HETCUDA_MAGIC, .op = request->op },
		.hello = { .state = state, .pid = getpid(), .driver = driver, .protocol = HETCUDA_PROTOCOL },
	};

	static_assert(sizeof(packet) == sizeof(struct hetcuda_reply) + sizeof(struct hetcuda_hello), "padding");
	hetcuda_memory_count(&packet.hello.chunks, &packet.hello.bytes);
	hetcuda_memory_describe(packet.reply.text);
	snprintf(packet.hello.version, sizeof(packet.hello.version), "%s", HETCUDA_VERSION);
	build_id(packet.hello.build, sizeof(packet.hello.build));
	return send_packet(&packet, sizeof(packet));
}

static int hold(const struct hetcuda_request *request)
{
	char text[HETCUDA_TEXT] = "";
	int r = hetcuda_gate_hold(request->timeout_ms, peer_gone, text);

	if (!r)
		state = HETCUDA_HELD;
	else if (!hetcuda_gate_steps())
		state = HETCUDA_RUNNING;
	return answer(request, r, 0, text);
}

/* The reply to STEP and STATUS. */
static int tell(const struct hetcuda_request *request, int r, uint32_t timeout_ms, char *text)
{
	struct {
		struct hetcuda_reply reply;
		struct hetcuda_status status;
	} packet = { .reply = { .magic = HETCUDA_MAGIC, .op = request->op } };

	static_assert(sizeof(packet) == sizeof(struct hetcuda_reply) + sizeof(struct hetcuda_status), "padding");
	if (!r)
		r = hetcuda_step_status(timeout_ms, peer_gone, &packet.status, text);
	packet.reply.status = r;
	memcpy(packet.reply.text, text, sizeof(packet.reply.text));
	return send_packet(&packet, sizeof(packet));
}

static int step(const struct hetcuda_request *request)
{
	char text[HETCUDA_TEXT] = "";
	int r = hetcuda_step(request->count, text);

	state = hetcuda_gate_steps() ? HETCUDA_STEPPED : HETCUDA_RUNNING;
	return tell(request, r, 0, text);
}

static int tell_status(const struct hetcuda_request *request)
{
	char text[HETCUDA_TEXT] = "";

	return tell(request, 0, request->timeout_ms, text);
}

static void abandon(void)
{
	if (exported)
		hetcuda_memory_abandon();
	exported = false;
}

typedef int export(uint32_t i, struct hetcuda_chunk *chunk, int *fd, char *text);

/* Exports chunks from *next on, sends them as one packet. 0, ENDED, or 1: text says what went wrong. */
static int send_batch(export *one, uint32_t *next, uint32_t count, char *text)
{
	struct hetcuda_chunk chunks[HETCUDA_BATCH];
	unsigned int n;
	int r = 0;

	pthread_mutex_lock(&transit_lock);
	for (n = 0; n < HETCUDA_BATCH && *next < count; n++, ++*next) {
		memset(&chunks[n], 0, sizeof(chunks[0]));
		r = one(*next, &chunks[n], &transit.fd[transit.count], text);
		if (r)
			break;
		transit.count += transit.fd[transit.count] >= 0;
	}
	pthread_mutex_unlock(&transit_lock);
	/* With what there is: the program may be near its limit of descriptors. */
	if (r && !n)
		return 1;
	r = send_packet(chunks, n * sizeof(chunks[0]));
	close_transit();
	return r;
}

/* The reply, and then all chunks that it has promised. */
static int send_all(const struct hetcuda_request *request, export *one, uint32_t count)
{
	char text[HETCUDA_TEXT] = "";
	uint32_t next = 0;
	int r = answer(request, 0, count, "");

	while (!r && next < count)
		r = send_batch(one, &next, count, text);
	/* Only the end of the connection can take that back. */
	if (r > 0)
		hetcuda_log("control: chunk %u of %u was not exported: %s", next, count, text);
	return r ? ENDED : 0;
}

static int mark(const struct hetcuda_request *request)
{
	char text[HETCUDA_TEXT] = "";

	if (!exported)
		return answer(request, -EINVAL, 0, "MARK without PARK");
	return answer(request, hetcuda_memory_mark((uint64_t)request->count << 32 | request->timeout_ms, text), 0, text);
}

static int share(const struct hetcuda_request *request)
{
	char text[HETCUDA_TEXT] = "";
	uint32_t count = 0;
	int r = hetcuda_memory_share(&count, text);

	return r ? answer(request, r, 0, text) : send_all(request, hetcuda_memory_export_shared, count);
}

static int make(const struct hetcuda_request *request)
{
	char text[HETCUDA_TEXT] = "";
	uint64_t id = (uint64_t)request->count << 32 | request->timeout_ms;
	int r;

	if (!id)
		return answer(request, 0, hetcuda_memory_moved(), "");
	r = hetcuda_memory_make(id, text);
	return r ? answer(request, r, 0, text) : send_all(request, hetcuda_memory_export_made, 1);
}

static int park(const struct hetcuda_request *request)
{
	char text[HETCUDA_TEXT] = "";
	uint32_t count = 0;
	int r;

	abandon();
	r = hetcuda_memory_quiesce(request->timeout_ms, &count, text);
	if (r)
		return answer(request, r, 0, text);
	exported = true;
	return send_all(request, hetcuda_memory_export, count);
}

static uint32_t mib(uint64_t bytes)
{
	uint64_t n = (bytes + MIB - 1) / MIB;

	return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

static int commit(const struct hetcuda_request *request)
{
	char text[HETCUDA_TEXT] = "";
	uint64_t trimmed;
	int r;

	if (!exported)
		return answer(request, -EINVAL, 0, "COMMIT without PARK");
	r = hetcuda_memory_commit(text);
	if (r) {
		abandon();
	} else {
		exported = false;
		state = HETCUDA_PARKED;
	}
	trimmed = r ? 0 : hetcuda_memory_trimmed();
	return answer(request, r, mib(trimmed), text);
}

/* All chunks are received even if one was refused: the reply comes after them. */
static int unpark(const struct hetcuda_request *request)
{
	struct hetcuda_chunk chunks[HETCUDA_BATCH];
	char text[HETCUDA_TEXT] = "";
	uint32_t left = request->count, missing = 0;
	bool as_is = request->timeout_ms == 1; /* of a peer that knows protocol 3 */
	int status = 0;
	ssize_t n;

	if (left > MAX_CHUNKS)
		return ENDED;
	while (left) {
		uint32_t k, i;

		n = receive(chunks, sizeof(chunks), HETCUDA_PATIENCE_MS);
		k = n > 0 ? (uint32_t)((size_t)n / sizeof(chunks[0])) : 0;
		if (!k || (size_t)n % sizeof(chunks[0]) || k > left || k != transit.count) {
			hetcuda_log("control: UNPARK ended with %u chunks to come", left);
			close_transit();
			return ENDED;
		}
		for (i = 0; as_is && i < k; i++)
			chunks[i].flags |= HETCUDA_AS_IS;
		for (i = 0; !status && i < k; i++)
			status = hetcuda_memory_take(&chunks[i], transit.fd[i], text);
		close_transit();
		left -= k;
	}
	if (!status)
		status = hetcuda_memory_take_finish(&missing, text);
	if (status)
		hetcuda_memory_take_undo(false);
	else if (!missing)
		state = HETCUDA_HELD;
	return answer(request, status, status ? 0 : missing, text);
}

static int own(const struct hetcuda_request *request)
{
	char text[HETCUDA_TEXT] = "";
	uint64_t left = 0;
	int r;

	if (exported)
		return answer(request, -EINVAL, 0, "OWN after PARK");
	r = hetcuda_memory_own(&left, text);
	return answer(request, r, mib(left), text);
}

static int release(const struct hetcuda_request *request)
{
	char text[HETCUDA_TEXT] = "";
	int r;

	abandon();
	r = state == HETCUDA_HELD ? hetcuda_memory_whole(text) : 0;
	if (r)
		return answer(request, r, 0, text);
	state = HETCUDA_RUNNING;
	hetcuda_gate_release();
	return answer(request, 0, 0, "");
}

static int perform(const struct hetcuda_request *request)
{
	enum { RUNNING = 1 << HETCUDA_RUNNING, HELD = 1 << HETCUDA_HELD, PARKED = 1 << HETCUDA_PARKED, STEPPED = 1 << HETCUDA_STEPPED };
	static const struct {
		int (*run)(const struct hetcuda_request *request);
		unsigned int when;
		const char *refused;
	} ops[] = {
		[HETCUDA_HOLD] = { hold, RUNNING | STEPPED, "HOLD of a program that is held" },
		[HETCUDA_PARK] = { park, HELD, "PARK of a program that is not held, or parked" },
		[HETCUDA_COMMIT] = { commit, HELD, "COMMIT of a program that is not held, or parked" },
		[HETCUDA_UNPARK] = { unpark, PARKED, "UNPARK of a program that is not parked" },
		[HETCUDA_RELEASE] = { release, HELD | STEPPED, "RELEASE of a program that is not held, or parked" },
		[HETCUDA_STEP] = { step, RUNNING | STEPPED, "STEP of a program that is held" },
		[HETCUDA_MARK] = { mark, HELD, "MARK of a program that is not held, or parked" },
		[HETCUDA_SHARE] = { share, HELD | PARKED, "SHARE of a program that is not held" },
		[HETCUDA_OWN] = { own, HELD, "OWN of a program that is not held, or parked" },
		[HETCUDA_MAKE] = { make, PARKED, "MAKE of a program that is not parked" },
		[HETCUDA_STATUS] = { tell_status, STEPPED, "STATUS of a program that is not stepped" },
	};

	if (request->op == HETCUDA_HELLO)
		return hello(request);
	if (request->op >= sizeof(ops) / sizeof(ops[0]) || !ops[request->op].run) {
		hetcuda_log("control: no such request: %u", request->op);
		return ENDED;
	}
	if (!(ops[request->op].when & 1u << state)) {
		/* The chunks of an UNPARK are on their way and would be taken
		 * for requests. */
		answer(request, -EINVAL, 0, ops[request->op].refused);
		return request->op == HETCUDA_UNPARK && request->count ? ENDED : 0;
	}
	return ops[request->op].run(request);
}

/* Root, or somebody who sees this process from outside (hetcuda_control.h). */
static bool trusted(void)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);

	if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
		return false;
	if (peer.pid == 0 || peer.uid == 0)
		return true;
	hetcuda_log("control: refused process %d of user %u", (int)peer.pid, peer.uid);
	return false;
}

static void serve_connection(void)
{
	char text[HETCUDA_TEXT] = "";
	struct hetcuda_request request;
	ssize_t n;

	if (!trusted())
		return;
	for (;;) {
		n = receive(&request, sizeof(request), state == HETCUDA_PARKED ? -1 : HETCUDA_THINKING_MS);
		if (n == ENDED)
			break;
		if (n != sizeof(request) || request.magic != HETCUDA_MAGIC || transit.count) {
			hetcuda_log("control: not a request: %zd bytes, %u descriptors", n, transit.count);
			break;
		}
		if (perform(&request) == ENDED)
			break;
	}
	close_transit();
	abandon();
	/* Of an UNPARK that waited for another one. */
	if (state == HETCUDA_PARKED)
		hetcuda_memory_take_undo(true);
	/* Nobody is there who could be told, and nobody may come: the program is not to wait for ever. */
	if (state == HETCUDA_HELD && hetcuda_memory_whole(text)) {
		hetcuda_log("control: memory is not where the program looks for it: %s", text);
		hetcuda_memory_abandon();
	}
	if (state == HETCUDA_HELD || state == HETCUDA_STEPPED) {
		hetcuda_log("control: the connection ended: going on");
		state = HETCUDA_RUNNING;
		hetcuda_gate_release();
	}
}

static void *serve(void *unused)
{
	struct timespec pause = { .tv_nsec = 100000000 };

	(void)unused;
	hetcuda_thread_internal();
	while (hetcuda_listening(listener, path)) {
		/* So that a fork finds it in `connection`. */
		int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

		if (fd >= 0) {
			connection = fd;
			serve_connection();
			/* In this order: a child that closes it twice, never another's. */
			connection = -1;
			close(fd);
		} else if (errno != EINTR && errno != ECONNABORTED) {
			/* No descriptor left, or no memory: not for ever. */
			nanosleep(&pause, NULL);
		}
	}
	hetcuda_log("control: the program has closed the socket");
	return NULL;
}

/* The program runs on whatever happens here; it just can't be asked to park. */
static void start_control(void)
{
	int fd = hetcuda_listen(HETCUDA_SOCKET_PREFIX, path), r;

	if (fd < 0)
		return;
	listener = fd;
	owner = getpid();
	r = hetcuda_spawn_named(serve, NULL, "hetcuda");
	if (r) {
		hetcuda_log("control: no thread: %s", strerror(r));
		unlink(path);
		listener = -1;
		close(fd);
	}
}

CUresult hetcuda_cuInit(unsigned int flags)
{
	CUresult result = REAL(cuInit)(flags);
	int saved = errno;

	if (result != CUDA_SUCCESS || atomic_load(&started))
		return result;
	pthread_mutex_lock(&starting);
	if (!atomic_load(&started)) {
		initialized = true;
		/* Asked now, since a driver that is locked does not answer. It
		 * is the library's own version, not that of the host. */
		if (REAL(cuDriverGetVersion))
			REAL(cuDriverGetVersion)(&driver);
		hetcuda_memory_start();
		start_control();
		atomic_store(&started, true);
	}
	pthread_mutex_unlock(&starting);
	errno = saved;
	return result;
}

/* A program that ends leaves no file behind, unless it is killed. */
__attribute__((destructor)) static void end(void)
{
	if (owner == getpid())
		unlink(path);
}

void hetcuda_control_lock(void)
{
	pthread_mutex_lock(&transit_lock);
}

void hetcuda_control_unlock(void)
{
	pthread_mutex_unlock(&transit_lock);
}

bool hetcuda_control_forked(void)
{
	bool was = initialized;
	unsigned int i;

	for (i = 0; i < transit.count; i++)
		close(transit.fd[i]);
	transit.count = 0;
	if (connection >= 0)
		close(connection);
	connection = -1;
	if (hetcuda_listening(listener, path))
		close(listener);
	listener = -1;
	owner = 0;
	path[0] = 0;
	state = HETCUDA_RUNNING;
	exported = false;
	/* `initialized` stays: a grandchild can't use CUDA either, and cuInit
	 * does not succeed again. The mutex can't be taken before a fork: the
	 * driver forks helpers of its own, perhaps in the thread that has it. */
	atomic_store(&started, was);
	pthread_mutex_init(&starting, NULL);
	hetcuda_control_unlock();
	return was;
}
