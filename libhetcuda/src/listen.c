/*
 * SPDX-FileCopyrightText: The hetGPU authors
 * SPDX-License-Identifier: Apache-2.0
 */
#include "listen.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "hetcuda_control.h"
#include "log.h"

enum { SUFFIXES = 64 };

bool hetcuda_listening(int fd, const char *path)
{
	struct sockaddr_un address = { 0 };
	socklen_t size = sizeof(address);

	return fd >= 0 && !getsockname(fd, (void *)&address, &size) && address.sun_family == AF_UNIX &&
	       !strncmp(address.sun_path, path, HETCUDA_PATH);
}

/* Somebody listens there; otherwise the file is what a dead process has left. */
static bool alive(const struct sockaddr_un *address)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	bool refused;

	if (fd < 0)
		return true;
	refused = connect(fd, (const void *)address, sizeof(*address)) < 0 && errno == ECONNREFUSED;
	close(fd);
	return !refused;
}

/* 0 or an errno (negative); `path` is where. */
static int bind_socket(int fd, const char *directory, const char *prefix, char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	unsigned int suffix;
	int n;

	for (suffix = 0; suffix < SUFFIXES; suffix++) {
		n = snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s%d", directory, prefix, (int)getpid());
		if (suffix && n > 0 && (size_t)n < sizeof(address.sun_path))
			n += snprintf(address.sun_path + n, sizeof(address.sun_path) - (size_t)n, ".%u", suffix);
		if (n < 0 || (size_t)n >= sizeof(address.sun_path))
			return -ENAMETOOLONG;
		if (bind(fd, (const void *)&address, sizeof(address)) < 0) {
			if (errno != EADDRINUSE)
				return -errno;
			if (alive(&address))
				continue;
			unlink(address.sun_path);
			if (bind(fd, (const void *)&address, sizeof(address)) < 0) {
				if (errno != EADDRINUSE)
					return -errno;
				continue;
			}
		}
		memcpy(path, address.sun_path, HETCUDA_PATH);
		return 0;
	}
	return -EADDRINUSE;
}

/*
 * A file that is stale is looked at, removed and made anew: not by two
 * processes (of the same PID, in two namespaces) at once. Who can't get the
 * lock goes on without: a program never waits for another one here.
 */
static int lock_directory(const char *directory)
{
	struct timespec pause = { .tv_nsec = 1000000 };
	int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC), i;

	for (i = 0; fd >= 0 && i < 200; i++) {
		if (!flock(fd, LOCK_EX | LOCK_NB) || errno != EWOULDBLOCK)
			break;
		nanosleep(&pause, NULL);
	}
	return fd;
}

static int listen_in(const char *directory, const char *prefix, char *path)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), lock, r;

	if (fd < 0)
		return -errno;
	lock = lock_directory(directory);
	r = bind_socket(fd, directory, prefix, path);
	if (!r && listen(fd, 16) < 0)
		r = -errno;
	if (lock >= 0)
		close(lock);
	if (r) {
		close(fd);
		return r;
	}
	/* Who may connect is not who is listened to, but need not be more. */
	chmod(path, 0600);
	return fd;
}

const char *hetcuda_control_directory(void)
{
	/* Not of a program that has more rights than who started it. */
	const char *directory = secure_getenv(HETCUDA_CONTROL_ENV);

	if (!directory || !directory[0])
		return NULL;
	if (directory[0] == '/')
		return directory;
	hetcuda_log("%s is not an absolute path", HETCUDA_CONTROL_ENV);
	return NULL;
}

int hetcuda_listen(const char *prefix, char path[HETCUDA_PATH])
{
	const char *directory = hetcuda_control_directory();
	int fd;

	if (!directory)
		return -ENOENT;
	fd = listen_in(directory, prefix, path);
	if (fd < 0)
		hetcuda_log("control: no socket %s in %s: %s", prefix, directory, strerror(-fd));
	return fd;
}
