// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

#include "channel.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "events.h"
#include "ipc.h"
#include "listen.h"
#include "log.h"
#include "spawn.h"
#include "thread.h"

#define SOCKET_PREFIX "hetcuda-ipc."

struct channel channel_serving = {.fd = {[0 ... CHANNEL_BATCH] = -1}}, channel_asking = {.fd = {[0 ... CHANNEL_BATCH] = -1}};
pthread_mutex_t channel_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t channel_turn = PTHREAD_MUTEX_INITIALIZER;

static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;
static atomic_int listener = -1;
static char path[HETCUDA_PATH];
static pid_t owner;
static uint32_t suffix;

void channel_release(pthread_mutex_t **lock)
{
	pthread_mutex_unlock(*lock);
}

uint64_t channel_token(void)
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

void channel_clear(struct channel *t)
{
	CHANNEL_LOCKED(channel_lock);
	for (int i = 0; i < CHANNEL_BATCH; i++) {
		if (t->fd[i] >= 0)
			close(t->fd[i]);
		t->fd[i] = -1;
	}
}

void channel_hang_up(struct channel *t)
{
	channel_clear(t);
	CHANNEL_LOCKED(channel_lock);
	if (t->fd[CHANNEL_BATCH] >= 0)
		close(t->fd[CHANNEL_BATCH]);
	t->fd[CHANNEL_BATCH] = -1;
}

static bool wait_for(int fd, short events, int patience_ms)
{
	struct pollfd p = {.fd = fd, .events = events};
	for (int steps = patience_ms / CHANNEL_STEP_MS; steps >= 0; steps--) {
		int r = poll(&p, 1, CHANNEL_STEP_MS);
		if (r > 0 || (r < 0 && errno != EINTR))
			return r > 0;
	}
	return false;
}

union ancillary {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(CHANNEL_BATCH * sizeof(int))];
};

bool channel_send(struct channel *t, const void *data, size_t size, size_t count, int patience_ms)
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
	for (int tries = 0; wait_for(t->fd[CHANNEL_BATCH], POLLOUT, patience_ms); tries++) {
		if (sendmsg(t->fd[CHANNEL_BATCH], &m, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)size)
			return true;
		// Others may have as many descriptors under way as there may be.
		if (errno == ETOOMANYREFS && tries < patience_ms)
			nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		else if (errno != EAGAIN && errno != EINTR)
			return false;
	}
	return false;
}

// many. The number of bytes, 0 at the end, -1.
ssize_t channel_receive(struct channel *t, void *data, size_t size, size_t *count, int patience_ms)
{
	union ancillary a;
	struct iovec io = {.iov_base = data, .iov_len = size};
	struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1};
	ssize_t n;
	*count = 0;
	do {
		if (!wait_for(t->fd[CHANNEL_BATCH], POLLIN, patience_ms))
			return -1;
		CHANNEL_LOCKED(channel_lock);
		m.msg_control = &a;
		m.msg_controllen = sizeof a;
		n = recvmsg(t->fd[CHANNEL_BATCH], &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
		for (struct cmsghdr *c = n >= 0 ? CMSG_FIRSTHDR(&m) : NULL; c; c = CMSG_NXTHDR(&m, c)) {
			if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
				continue;
			size_t k = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
			// No more than CHANNEL_BATCH fit into the buffer.
			for (size_t i = 0; i < k && *count < CHANNEL_BATCH; i++)
				memcpy(&t->fd[(*count)++], CMSG_DATA(c) + i * sizeof(int), sizeof(int));
		}
	} while (n < 0 && (errno == EAGAIN || errno == EINTR));
	return m.msg_flags & (MSG_TRUNC | MSG_CTRUNC) ? -1 : n;
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
			CHANNEL_LOCKED(channel_lock);
			fd = listener >= 0 ? accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK) : -1;
			channel_serving.fd[CHANNEL_BATCH] = fd;
		}
		if (fd >= 0) {
			struct channel_request q;
			size_t count;
			if (trusted(fd) && channel_receive(&channel_serving, &q, sizeof q, &count, CHANNEL_SERVER_PATIENCE_MS) == sizeof q &&
			    count == 0 && !ipc_answer(&q))
				events_answer(&q);
			channel_hang_up(&channel_serving);
		} else if (errno != EINTR && errno != ECONNABORTED) {
			nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
		}
	}
	hetcuda_log("ipc: the program has closed the socket");
	return NULL;
}

static bool start(void)
{
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
	int r = hetcuda_spawn_named(serve, NULL, "hetcuda-ipc");
	if (r) {
		hetcuda_log("ipc: no thread: %s", strerror(r));
		unlink(path);
		listener = -1;
		close(fd);
	}
	return r == 0;
}

bool channel_start(struct channel_peer *self)
{
	CHANNEL_LOCKED(starting);
	if (!start())
		return false;
	*self = (struct channel_peer){getpid(), suffix};
	return true;
}

bool channel_dial(const struct channel_peer *peer)
{
	const char *directory = hetcuda_control_directory();
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	char end[16] = "";
	if (peer->suffix)
		snprintf(end, sizeof end, ".%u", peer->suffix);
	int n = directory ? snprintf(a.sun_path, sizeof a.sun_path, "%s/" SOCKET_PREFIX "%d%s", directory, (int)peer->pid, end) : -1;
	if (n < 0 || (size_t)n >= sizeof a.sun_path)
		return false;
	int fd;
	{
		CHANNEL_LOCKED(channel_lock);
		fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		channel_asking.fd[CHANNEL_BATCH] = fd;
	}
	// Full is the queue of connections.
	for (int steps = CHANNEL_PATIENCE_MS / CHANNEL_STEP_MS; fd >= 0; steps--) {
		if (!connect(fd, (const void *)&a, sizeof a))
			return true;
		if ((errno != EAGAIN && errno != EINTR) || steps < 0)
			return false;
		nanosleep(&(struct timespec){.tv_nsec = CHANNEL_STEP_MS * 1000000L}, NULL);
	}
	return false;
}

__attribute__((destructor)) static void end(void)
{
	if (owner == getpid())
		unlink(path);
}

void hetcuda_ipc_lock(void)
{
	pthread_mutex_lock(&channel_lock);
}

void hetcuda_ipc_unlock(void)
{
	pthread_mutex_unlock(&channel_lock);
}

void hetcuda_ipc_forked(void)
{
	for (int i = 0; i <= CHANNEL_BATCH; i++) {
		if (channel_serving.fd[i] >= 0)
			close(channel_serving.fd[i]);
		if (channel_asking.fd[i] >= 0)
			close(channel_asking.fd[i]);
		channel_serving.fd[i] = channel_asking.fd[i] = -1;
	}
	if (hetcuda_listening(listener, path))
		close(listener);
	listener = -1;
	owner = 0;
	path[0] = 0;
	pthread_mutex_init(&starting, NULL);
	pthread_mutex_init(&channel_turn, NULL);
	events_forked();
	pthread_mutex_unlock(&channel_lock);
}
