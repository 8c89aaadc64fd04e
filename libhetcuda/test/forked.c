/*
 * SPDX-FileCopyrightText: The hetGPU authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * fork, before and after CUDA is initialized and while the parent is held, and
 * whose socket is where.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "signatures.h"
#include "test.h"

static void in_child(void (*f)(void))
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		f();
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(status == 0, "%x", status);
}

static const char *socket_path(const char *suffix)
{
	static char path[128];

	snprintf(path, sizeof(path), "%s/hetcuda.%d%s", getenv(HETCUDA_CONTROL_ENV), (int)getpid(), suffix);
	return path;
}

static void works(void)
{
	int fd;

	CHECK(cuInit(0) == 0);
	CHECK(USABLE() == 0);
	fd = dial(getpid());
	CHECK(ask_hello(fd).pid == getpid());
	CHECK(ask(fd, HETCUDA_HOLD, 1000, 0).status == 0);
	CHECK(ask(fd, HETCUDA_RELEASE, 0, 0).status == 0);
	close(fd);
	/* What exit would do. */
	unlink(socket_path(""));
}

static void fails(void)
{
	int before = count_descriptors();

	/* CUDA_ERROR_NOT_INITIALIZED, and nothing hangs. */
	CHECK(USABLE() == 3);
	CHECK(cuInit(0) == 3);
	CHECK(count_descriptors() == before);
	CHECK(access(socket_path(""), F_OK) < 0);
}

static void fails_with_child(void)
{
	fails();
	in_child(fails);
}

/* The file of a process that was killed, with this one's PID. */
static void stale(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", socket_path(""));
	CHECK(!bind(fd, (void *)&address, sizeof(address)) && !listen(fd, 1));
	close(fd);
	works();
}

/* One that lives: of another PID namespace. */
static void alive(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", socket_path(""));
	CHECK(!bind(fd, (void *)&address, sizeof(address)) && !listen(fd, 1));
	CHECK(cuInit(0) == 0);
	CHECK(access(socket_path(""), F_OK) == 0);
	CHECK(access(socket_path(".1"), F_OK) == 0);
	unlink(socket_path(".1"));
	unlink(socket_path(""));
}

static void no_directory(void)
{
	setenv(HETCUDA_CONTROL_ENV, "/nonexistent/directory", 1);
	CHECK(cuInit(0) == 0);
	CHECK(USABLE() == 0);
}

/* A program that closes what it does not know, and listens itself. */
static void closes_all(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd, client, server, i;

	CHECK(cuInit(0) == 0);
	close(dial(getpid()));
	/* Until the thread is in accept. */
	sleep_ms(100);
	for (i = 3; i < 100; i++)
		close(i);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s/own", getenv(HETCUDA_CONTROL_ENV));
	for (i = 3; i < 20; i++) {
		fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
		if (i == 3)
			CHECK(fd == 3);
		CHECK(i > 3 || (!bind(fd, (void *)&address, sizeof(address)) && !listen(fd, 1)));
	}
	/* The thread is still in accept; then it sees that it has lost. */
	client = dial(getpid());
	CHECK(ask_hello(client).pid == getpid());
	close(client);
	for (i = 0; i < 10; i++) {
		client = socket(AF_UNIX, SOCK_SEQPACKET, 0);
		CHECK(!connect(client, (void *)&address, sizeof(address)));
		server = accept4(3, NULL, NULL, SOCK_NONBLOCK);
		CHECK(server >= 0, "somebody else has accepted");
		close(server);
		close(client);
		sleep_ms(1);
	}
	unlink(address.sun_path);
	unlink(socket_path(""));
}

static void failing_init(void)
{
	atomic_int *result = theirs("real_init_result");

	*result = 999;
	CHECK(cuInit(0) == 999);
	CHECK(access(socket_path(""), F_OK) < 0);
	*result = 0;
	works();
}

/* Its file goes with it. */
static void exits(void)
{
	CHECK(cuInit(0) == 0);
	CHECK(access(socket_path(""), F_OK) == 0);
	exit(0);
}

static void exits_cleanly(void)
{
	pid_t pid = fork();
	char path[128];
	int status;

	if (!pid)
		exits();
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	snprintf(path, sizeof(path), "%s/hetcuda.%d", getenv(HETCUDA_CONTROL_ENV), (int)pid);
	CHECK(access(path, F_OK) < 0);
}

int main(void)
{
	int fd;

	if (getuid())
		SKIP("not root: the control socket would refuse");
	/* A thread that has a record, and no CUDA yet. */
	CHECK(NOTHING() == 0);
	in_child(works);
	in_child(stale);
	in_child(alive);
	in_child(no_directory);
	in_child(failing_init);
	in_child(closes_all);
	exits_cleanly();

	CHECK(cuInit(0) == 0);
	in_child(fails_with_child);
	fd = dial(getpid());
	CHECK(ask(fd, HETCUDA_HOLD, 1000, 0).status == 0);
	/* Its gate is open, and it does not keep the connection. */
	in_child(fails_with_child);
	CHECK(ask(fd, HETCUDA_RELEASE, 0, 0).status == 0);
	close(fd);
	CHECK(USABLE() == 0);
	return 0;
}
