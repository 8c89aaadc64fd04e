/*
 * SPDX-FileCopyrightText: The hetGPU authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The control socket, over memory that is files (fakememory.c): what the
 * protocol says, and everything that it does not.
 */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "signatures.h"
#include "test.h"

enum { CHUNKS = 150 };

/* Before the first connection. */
static int descriptors;

/* The library closes its end of a connection when it gets to it. */
static void check_descriptors(void)
{
	int i;

	for (i = 0; count_descriptors() != descriptors; i++) {
		CHECK(i < 500, "%d instead of %d", count_descriptors(), descriptors);
		sleep_ms(10);
	}
}

/* Reads until the other side ends the connection, whatever comes. */
static void drain(int fd)
{
	char data[8192];

	while (recv(fd, data, sizeof(data), 0) > 0)
		;
	close(fd);
}

static void check_running(void)
{
	int fd = dial(getpid());

	CHECK(ask_hello(fd).state == HETCUDA_RUNNING);
	close(fd);
	CHECK(TICK() == 0);
}

static void says_hello(void)
{
	int fd = dial(getpid());
	struct hetcuda_hello hello = ask_hello(fd);
	char build[41] = "";

	memcpy(build, hello.build, 40);
	CHECK(hello.state == HETCUDA_RUNNING && hello.pid == getpid() && hello.driver == 13000);
	CHECK(hello.chunks == CHUNKS && hello.bytes == CHUNKS * 4096);
	CHECK(hello.protocol == HETCUDA_PROTOCOL && !hello.reserved);
	CHECK(!strcmp(hello.version, "test"), "%.32s", hello.version);
	CHECK(strlen(build) == 40 && strspn(build, "0123456789abcdef") == 40, "%s", build);
	close(fd);
}

/* What is made is sent with the reply; number 0 asks whether anything has to be. */
static void make(int fd, uint64_t id)
{
	struct hetcuda_reply r = ask(fd, HETCUDA_MAKE, 0, 0);

	CHECK(!r.status && r.count == 0);
	setenv("HETCUDA_TEST_FAULT", "moved", 1);
	r = ask(fd, HETCUDA_MAKE, 0, 0);
	CHECK(!r.status && r.count == 1);
	setenv("HETCUDA_TEST_FAULT", "make", 1);
	r = ask(fd, HETCUDA_MAKE, (uint32_t)id, (uint32_t)(id >> 32));
	CHECK(r.status == 2 && r.count == 0 && strstr(r.text, "can't be made"));
	unsetenv("HETCUDA_TEST_FAULT");
	CHECK(ask(fd, HETCUDA_MAKE, (uint32_t)id, 1).status == 2);
	for (int i = 0; i < 2; i++) {
		struct parcel made;

		CHECK(!ask_make(fd, id, &made) && made.count == 1 && made.chunks[0].id == id && made.fds[0] >= 0);
		drop_parcel(&made);
	}
}

static void order(void)
{
	static const enum hetcuda_op running[] = { HETCUDA_PARK, HETCUDA_COMMIT, HETCUDA_UNPARK, HETCUDA_RELEASE, HETCUDA_STATUS, HETCUDA_OWN, HETCUDA_MAKE },
				     stepped[] = { HETCUDA_PARK, HETCUDA_COMMIT, HETCUDA_UNPARK, HETCUDA_OWN, HETCUDA_MAKE },
				     held[] = { HETCUDA_HOLD, HETCUDA_COMMIT, HETCUDA_UNPARK, HETCUDA_STEP, HETCUDA_STATUS, HETCUDA_MAKE },
				     parked[] = { HETCUDA_HOLD, HETCUDA_PARK, HETCUDA_COMMIT, HETCUDA_RELEASE, HETCUDA_STEP, HETCUDA_STATUS, HETCUDA_OWN };
	struct parcel parcel;
	int fd = dial(getpid());
	size_t i;

	for (i = 0; i < sizeof(running) / sizeof(running[0]); i++)
		CHECK(ask(fd, running[i], 100, 0).status == -EINVAL);
	ask_status(fd, HETCUDA_STEP, 0, 0, NULL);
	for (i = 0; i < sizeof(stepped) / sizeof(stepped[0]); i++)
		CHECK(ask(fd, stepped[i], 100, 0).status == -EINVAL);
	CHECK(ask_hello(fd).state == HETCUDA_STEPPED);
	CHECK(!ask(fd, HETCUDA_RELEASE, 0, 0).status);
	CHECK(!ask(fd, HETCUDA_HOLD, 1000, 0).status);
	for (i = 0; i < sizeof(held) / sizeof(held[0]); i++)
		CHECK(ask(fd, held[i], 100, 0).status == -EINVAL);
	/* A second PARK forgets the first. */
	CHECK(!ask_park(fd, 1000, &parcel));
	drop_parcel(&parcel);
	CHECK(!ask_park(fd, 1000, &parcel));
	CHECK(ask(fd, HETCUDA_OWN, 0, 0).status == -EINVAL);
	CHECK(!ask(fd, HETCUDA_COMMIT, 0, 0).status);
	for (i = 0; i < sizeof(parked) / sizeof(parked[0]); i++)
		CHECK(ask(fd, parked[i], 100, 0).status == -EINVAL);
	make(fd, parcel.chunks[1].id);
	CHECK(!ask_unpark(fd, &parcel, 7).status);
	CHECK(ask_hello(fd).state == HETCUDA_HELD);
	/* What is left is no error; memory that is not where it was is one. */
	struct hetcuda_reply r = ask(fd, HETCUDA_OWN, 0, 0);
	CHECK(r.status == 0 && r.count == 0);
	setenv("HETCUDA_TEST_FAULT", "own", 1);
	r = ask(fd, HETCUDA_OWN, 0, 0);
	CHECK(r.status == 0 && r.count == 6 && !strcmp(r.text, "no room"));
	setenv("HETCUDA_TEST_FAULT", "hole", 1);
	CHECK(ask(fd, HETCUDA_OWN, 0, 0).status == 1);
	/* With that it is not let on. */
	r = ask(fd, HETCUDA_RELEASE, 0, 0);
	CHECK(r.status == 1 && !strcmp(r.text, "a hole"));
	CHECK(ask_hello(fd).state == HETCUDA_HELD);
	unsetenv("HETCUDA_TEST_FAULT");
	CHECK(!ask(fd, HETCUDA_RELEASE, 0, 0).status);
	drop_parcel(&parcel);
	close(fd);
	check_running();
}

static atomic_int ticked;

static void *tick(void *unused)
{
	(void)unused;
	TICK();
	ticked++;
	return NULL;
}

/* Parked is parked, with or without a peer. */
static void park_and_unpark(void)
{
	struct hetcuda_hello hello;
	struct parcel parcel;
	pthread_t t;
	int fd = dial(getpid());

	CHECK(!ask(fd, HETCUDA_HOLD, 1000, 0).status);
	CHECK(!ask_park(fd, 1000, &parcel));
	CHECK(parcel.count == CHUNKS);
	CHECK(!ask(fd, HETCUDA_COMMIT, 0, 0).status);
	close(fd);
	ticked = 0;
	CHECK(!pthread_create(&t, NULL, tick, NULL));
	/* Longer than the patience with a peer that holds. */
	sleep_ms(600);
	CHECK(!ticked);
	fd = dial(getpid());
	hello = ask_hello(fd);
	CHECK(hello.state == HETCUDA_PARKED && hello.chunks == CHUNKS);
	sleep_ms(600);
	CHECK(!ask_unpark(fd, &parcel, HETCUDA_BATCH).status);
	drop_parcel(&parcel);
	CHECK(!ask(fd, HETCUDA_RELEASE, 0, 0).status);
	pthread_join(t, NULL);
	close(fd);
	check_descriptors();
}

static void lost_peers(void)
{
	struct parcel parcel;
	int fd;

	/* After PARK. */
	fd = dial(getpid());
	CHECK(!ask(fd, HETCUDA_HOLD, 1000, 0).status);
	CHECK(!ask_park(fd, 1000, &parcel));
	close(fd);
	drop_parcel(&parcel);
	check_running();
	/* In the middle of PARK, unread. */
	fd = dial(getpid());
	CHECK(!ask(fd, HETCUDA_HOLD, 1000, 0).status);
	send_request(fd, HETCUDA_PARK, 1000, 0);
	sleep_ms(20);
	close(fd);
	check_running();
	/* The same, but silent: what it was sent is nobody's. */
	fd = dial(getpid());
	CHECK(!ask(fd, HETCUDA_HOLD, 1000, 0).status);
	send_request(fd, HETCUDA_PARK, 1000, 0);
	TICK();
	close(fd);
	check_running();
	check_descriptors();
}

static void faults(void)
{
	struct hetcuda_reply reply;
	struct parcel parcel;
	char data[8192];
	int fd = dial(getpid()), fds[HETCUDA_BATCH], n, i;

	CHECK(!ask(fd, HETCUDA_HOLD, 1000, 0).status);
	setenv("HETCUDA_TEST_FAULT", "quiesce", 1);
	CHECK(ask_park(fd, 1000, &parcel) == -ETIMEDOUT);
	setenv("HETCUDA_TEST_FAULT", "commit", 1);
	CHECK(!ask_park(fd, 1000, &parcel));
	reply = ask(fd, HETCUDA_COMMIT, 0, 0);
	CHECK(reply.status == 1 && !strcmp(reply.text, "not now"));
	drop_parcel(&parcel);
	/* PARK again is allowed, COMMIT again not. */
	CHECK(ask(fd, HETCUDA_COMMIT, 0, 0).status == -EINVAL);
	/* The 101st export fails, when the reply has promised 150. */
	setenv("HETCUDA_TEST_FAULT", "export:100", 1);
	CHECK(ask(fd, HETCUDA_PARK, 1000, 0).count == CHUNKS);
	CHECK(receive_packet(fd, data, sizeof(data), fds, &n) > 0 && n == 64);
	for (i = 0; i < n; i++)
		close(fds[i]);
	CHECK(receive_packet(fd, data, sizeof(data), fds, &n) > 0 && n == 36);
	for (i = 0; i < n; i++)
		close(fds[i]);
	unsetenv("HETCUDA_TEST_FAULT");
	drain(fd);
	check_running();
}

static void bad_unparks(void)
{
	struct hetcuda_reply reply;
	struct hetcuda_chunk saved;
	struct parcel parcel, part;
	int fd = dial(getpid());

	CHECK(!ask(fd, HETCUDA_HOLD, 1000, 0).status);
	CHECK(!ask_park(fd, 1000, &parcel));
	reply = ask(fd, HETCUDA_COMMIT, 0, 0);
	CHECK(!reply.status && reply.count == 6); /* MiB, whole ones */
	/* Too few. */
	part = parcel;
	part.count--;
	CHECK(ask_unpark(fd, &part, 10).status == -ENOENT);
	CHECK(ask_hello(fd).state == HETCUDA_PARKED);
	/* One twice; another's; of another size; with another's data. */
	saved = parcel.chunks[3];
	parcel.chunks[3] = parcel.chunks[4];
	CHECK(ask_unpark(fd, &parcel, 64).status == -EINVAL);
	parcel.chunks[3].id = 1 << 20;
	CHECK(ask_unpark(fd, &parcel, 64).status == -EINVAL);
	parcel.chunks[3] = saved;
	parcel.chunks[3].size *= 2;
	CHECK(ask_unpark(fd, &parcel, 64).status == -EINVAL);
	parcel.chunks[3] = saved;
	parcel.chunks[3].id = parcel.chunks[4].id;
	parcel.chunks[4].id = saved.id;
	CHECK(ask_unpark(fd, &parcel, 64).status == -EIO);
	parcel.chunks[4].id = parcel.chunks[3].id;
	parcel.chunks[3] = saved;
	/* A packet without descriptors, with a half chunk, and none at all. */
	send_request(fd, HETCUDA_UNPARK, 0, CHUNKS);
	send_packet(fd, parcel.chunks, sizeof(parcel.chunks[0]), NULL, 0);
	drain(fd);
	fd = dial(getpid());
	send_request(fd, HETCUDA_UNPARK, 0, CHUNKS);
	send_packet(fd, parcel.chunks, sizeof(parcel.chunks[0]) / 2, parcel.fds, 1);
	drain(fd);
	fd = dial(getpid());
	send_request(fd, HETCUDA_UNPARK, 0, CHUNKS);
	send_packet(fd, parcel.chunks, 64 * sizeof(parcel.chunks[0]), parcel.fds, 64);
	close(fd);
	fd = dial(getpid());
	send_request(fd, HETCUDA_UNPARK, 0, UINT32_MAX);
	drain(fd);
	/* That all is to be taken as it is a peer of protocol 3 says by the request, and one of 4 by the chunks. */
	fd = dial(getpid());
	setenv("HETCUDA_TEST_FAULT", "as-is", 1);
	CHECK(ask_unpark(fd, &parcel, 64).status == -EPERM);
	send_request(fd, HETCUDA_UNPARK, 1, 1);
	send_packet(fd, parcel.chunks, sizeof(parcel.chunks[0]), parcel.fds, 1);
	CHECK(receive_reply(fd, HETCUDA_UNPARK).status == -ENOENT); /* the others are missing */
	parcel.chunks[0].flags |= HETCUDA_AS_IS;
	send_request(fd, HETCUDA_UNPARK, 0, 1);
	send_packet(fd, parcel.chunks, sizeof(parcel.chunks[0]), parcel.fds, 1);
	CHECK(receive_reply(fd, HETCUDA_UNPARK).status == -ENOENT);
	unsetenv("HETCUDA_TEST_FAULT");
	close(fd);
	/* After all that it still works. */
	fd = dial(getpid());
	CHECK(ask_hello(fd).state == HETCUDA_PARKED);
	CHECK(!ask_unpark(fd, &parcel, 1).status);
	CHECK(!ask(fd, HETCUDA_RELEASE, 0, 0).status);
	drop_parcel(&parcel);
	close(fd);
	check_running();
	check_descriptors();
}

static void bad_packets(void)
{
	struct hetcuda_request request = { HETCUDA_MAGIC, HETCUDA_HOLD, 1000, 0 };
	char large[4096] = { 0 };
	int fds[200], i, fd;

	check_running();
	memcpy(large, &request, sizeof(request));
	for (i = 0; i < 200; i++)
		fds[i] = STDERR_FILENO;
	for (i = 0; i < 9; i++) {
		fd = dial(getpid());
		/* Held: the connection has to take that with it. */
		if (i != 8)
			CHECK(!ask(fd, HETCUDA_HOLD, 1000, 0).status);
		request = (struct hetcuda_request){ HETCUDA_MAGIC, HETCUDA_RELEASE, 0, 0 };
		switch (i) {
		case 0:
			send_packet(fd, &request, sizeof(request) - 1, NULL, 0);
			break;
		case 1:
			send_packet(fd, large, sizeof(large), NULL, 0);
			break;
		case 2:
			request.magic++;
			send_packet(fd, &request, sizeof(request), NULL, 0);
			break;
		case 3:
			request.op = 0;
			send_packet(fd, &request, sizeof(request), NULL, 0);
			break;
		case 4:
			request.op = 9;
			send_packet(fd, &request, sizeof(request), NULL, 0);
			break;
		case 5:
			send_packet(fd, &request, sizeof(request), fds, 1);
			break;
		case 6:
			send_packet(fd, &request, sizeof(request), fds, 200);
			break;
		case 7:
			send_packet(fd, &request, 0, NULL, 0);
			break;
		case 8:
			request.op = UINT32_MAX;
			send_packet(fd, &request, sizeof(request), fds, 64);
			break;
		}
		drain(fd);
		check_running();
	}
	check_descriptors();
}

static uint64_t seed = 1;

static uint32_t number(uint32_t below)
{
	seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
	return (uint32_t)(seed >> 33) % below;
}

/*
 * Requests in any order with any content, some of them damaged, from many
 * connections. What it ends in is nobody's business; that it is a state is.
 */
static void any_packets(void)
{
	static const uint32_t ops[] = { 0, 1, 2, 2, 3, 3, 6, 7, 8, 99 };
	char large[4096];
	int fds[70], i, k;

	check_running();
	for (i = 0; i < 70; i++)
		fds[i] = STDERR_FILENO;
	for (i = 0; i < 300; i++) {
		int fd = dial(getpid());

		for (k = (int)number(8); k >= 0; k--) {
			struct hetcuda_request request = { HETCUDA_MAGIC, ops[number(10)], number(20), number(3) };
			size_t size = sizeof(request), j;

			for (j = 0; j < sizeof(large); j++)
				large[j] = (char)number(256);
			memcpy(large, &request, sizeof(request));
			if (number(8) == 0)
				large[number(sizeof(request))] ^= (char)(1 << number(8));
			if (number(8) == 0)
				size = number(sizeof(large));
			send_packet(fd, large, size, fds, number(6) ? 0 : (int)number(70));
		}
		close(fd);
	}
	check_running();
	check_descriptors();
}

/* One connection at a time: the second waits for the first one's end. */
static void two_connections(void)
{
	struct timeval wait = { .tv_usec = 100000 };
	int a = dial(getpid()), b;
	char data[512];

	CHECK(ask_hello(a).state == HETCUDA_RUNNING);
	b = dial(getpid());
	setsockopt(b, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
	send_request(b, HETCUDA_HELLO, 0, 0);
	CHECK(recv(b, data, sizeof(data), 0) < 0 && errno == EAGAIN);
	close(a);
	wait.tv_usec = 0;
	setsockopt(b, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
	CHECK(recv(b, data, sizeof(data), 0) > 0);
	close(b);
}

static int wait_child(pid_t pid)
{
	int status;

	CHECK(waitpid(pid, &status, 0) == pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* A user of the container who is not root is not listened to. */
static void untrusted(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	pid_t pid, parent = getpid();

	snprintf(address.sun_path, sizeof(address.sun_path), "%s/hetcuda.%d", getenv(HETCUDA_CONTROL_ENV), parent);
	CHECK(!chmod(address.sun_path, 0777));
	pid = fork();
	if (!pid) {
		char data[512];
		int fd = -1;

		if (!setgid(65534) && !setuid(65534))
			fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
		if (connect(fd, (void *)&address, sizeof(address)))
			_exit(errno == EACCES ? 77 : 1);
		send_request(fd, HETCUDA_HELLO, 0, 0);
		_exit(receive_packet(fd, data, sizeof(data), NULL, NULL) ? 2 : 0);
	}
	switch (wait_child(pid)) {
	case 0:
		break;
	case 77:
		fprintf(stderr, "not tried: the directory of the socket is closed to others\n");
		break;
	default:
		CHECK(false, "a user who is not root was answered");
	}
	check_running();
}

/* A peer in another process, while this one has hardly a descriptor left. */
static void few_descriptors(void)
{
	struct rlimit limit, low;
	pid_t pid, parent = getpid();
	int ready[2];
	char c;

	CHECK(!pipe(ready));
	pid = fork();
	if (!pid) {
		struct parcel parcel;
		int fd;

		close(ready[1]);
		if (read(ready[0], &c, 1) != 1)
			_exit(9);
		fd = dial(parent);
		CHECK(!ask(fd, HETCUDA_HOLD, 1000, 0).status);
		CHECK(!ask_park(fd, 1000, &parcel));
		CHECK(parcel.count == CHUNKS);
		CHECK(!ask(fd, HETCUDA_COMMIT, 0, 0).status);
		CHECK(!ask_unpark(fd, &parcel, 5).status);
		_exit(0);
	}
	close(ready[0]);
	CHECK(!getrlimit(RLIMIT_NOFILE, &limit));
	low = limit;
	low.rlim_cur = (rlim_t)count_descriptors() + 12;
	CHECK(!setrlimit(RLIMIT_NOFILE, &low));
	CHECK(write(ready[1], "", 1) == 1);
	CHECK(wait_child(pid) == 0);
	CHECK(!setrlimit(RLIMIT_NOFILE, &limit));
	close(ready[1]);
	check_running();
}

/* A child that is forked while memory is on its way keeps none of it. */
static void forks_in_transit(void)
{
	pid_t peer, pid, parent = getpid();
	int i, children = 0;

	peer = fork();
	if (!peer) {
		for (i = 0; i < 40; i++) {
			struct parcel parcel;
			int fd = dial(parent);

			CHECK(!ask(fd, HETCUDA_HOLD, 1000, 0).status);
			CHECK(!ask_park(fd, 1000, &parcel));
			CHECK(!ask(fd, HETCUDA_COMMIT, 0, 0).status);
			CHECK(!ask_unpark(fd, &parcel, 64).status);
			drop_parcel(&parcel);
			close(fd);
		}
		_exit(0);
	}
	for (;;) {
		int status;

		if (waitpid(peer, &status, WNOHANG) == peer) {
			CHECK(status == 0, "%x", status);
			break;
		}
		pid = fork();
		if (!pid) {
			char link[64], target[64];
			int files = 0, sockets = 0, fd;

			for (fd = 0; fd < 1024; fd++) {
				ssize_t n;

				snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
				n = readlink(link, target, sizeof(target) - 1);
				if (n < 0)
					continue;
				target[n] = 0;
				files += strstr(target, "hetcuda-test") != NULL;
				sockets += strstr(target, "socket:") != NULL && fd > 2;
			}
			/* The test's own "device memory" is files too. */
			_exit(files > CHUNKS ? 1 : sockets ? 2 : 0);
		}
		i = wait_child(pid);
		CHECK(i == 0, "%s", i == 1 ? "memory" : "a socket of the parent's");
		children++;
	}
	CHECK(children > 0);
}

int main(void)
{
	if (getuid())
		SKIP("not root: the control socket would refuse");
	setenv("HETCUDA_TEST_CHUNKS", "150", 1);
	CHECK(!cuInit(0));
	descriptors = count_descriptors();
	says_hello();
	order();
	park_and_unpark();
	lost_peers();
	faults();
	bad_unparks();
	bad_packets();
	any_packets();
	two_connections();
	untrusted();
	few_descriptors();
	forks_in_transit();
	return 0;
}
