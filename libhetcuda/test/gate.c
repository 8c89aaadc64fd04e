/*
 * SPDX-FileCopyrightText: The hetGPU authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * While a program is held no thread of it is inside of the driver.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "signatures.h"
#include "test.h"

enum { THREADS = 6, ROUNDS = 1000 };

static atomic_bool stop;
static atomic_int *inside;
static atomic_ulong *calls;
static atomic_bool *go;

static void *hammer(void *unused)
{
	double six = 6;
	int i;

	(void)unused;
	for (i = 0; !stop; i++) {
		/* Other tests want the processor too. */
		if (i % 500 == 0)
			sleep_ms(1);
		TICK();
		/* The way through the gate keeps arguments. */
		CHECK(MIXED(1, 2, 3, 4, 5, &six, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16) == 136);
		CHECK(DOUBLES(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12) == 650);
		errno = 99;
		CHECK(ERRNO() == 99);
	}
	return NULL;
}

static void *come_and_go(void *unused)
{
	(void)unused;
	TICK();
	return NULL;
}

/* New threads all the time. */
static void *breed(void *unused)
{
	pthread_t t;

	(void)unused;
	while (!stop) {
		CHECK(!pthread_create(&t, NULL, come_and_go, NULL));
		CHECK(!pthread_join(t, NULL));
	}
	return NULL;
}

static void on_signal(int signal)
{
	(void)signal;
}

static void hold_and_release(void)
{
	pthread_t threads[THREADS];
	double longest = 0, at;
	unsigned long before;
	int fd, i;

	for (i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&threads[i], NULL, i == 0 ? breed : hammer, NULL));
	fd = dial(getpid());
	for (i = 0; i < ROUNDS; i++) {
		struct hetcuda_reply reply;

		at = now();
		reply = ask(fd, HETCUDA_HOLD, 10000, 0);
		CHECK(reply.status == 0, "%d %s", reply.status, reply.text);
		longest = now() - at > longest ? now() - at : longest;
		before = *calls;
		CHECK(*inside == 0, "%d", *inside);
		/* A signal wakes who waits at the gate: it stays there. */
		pthread_kill(threads[1 + i % (THREADS - 1)], SIGUSR1);
		if (i % 10 == 0)
			sleep_ms(1);
		CHECK(*inside == 0, "%d", *inside);
		CHECK(*calls == before, "%lu", *calls - before);
		reply = ask(fd, HETCUDA_RELEASE, 0, 0);
		CHECK(reply.status == 0);
		while (i % 10 == 0 && *calls == before)
			sched_yield();
	}
	stop = true;
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	close(fd);
	printf("%d holds, the longest took %.1f ms, %lu calls\n", ROUNDS, longest * 1e3, *calls);
}

static void *blocked(void *unused)
{
	(void)unused;
	BLOCK();
	return NULL;
}

/* A thread that does not come out: the hold fails and nothing is held. */
static void time_out(void)
{
	struct hetcuda_reply reply;
	pthread_t t;
	int fd;

	CHECK(!pthread_create(&t, NULL, blocked, NULL));
	while (!*inside)
		sleep_ms(1);
	fd = dial(getpid());
	reply = ask(fd, HETCUDA_HOLD, 50, 0);
	CHECK(reply.status == -EAGAIN, "%d", reply.status);
	CHECK(strstr(reply.text, "1 thread still inside") && strstr(reply.text, "cuLaunchGrid"), "%s", reply.text);
	TICK();
	CHECK(ask_hello(fd).state == HETCUDA_RUNNING);
	/* Not waiting is a time-out too. */
	CHECK(ask(fd, HETCUDA_HOLD, 0, 0).status == -EAGAIN);
	TICK();
	/* And it comes out while somebody waits for it. */
	send_request(fd, HETCUDA_HOLD, 10000, 0);
	sleep_ms(20);
	*go = true;
	CHECK(receive_packet(fd, &reply, sizeof(reply), NULL, NULL) == sizeof(reply) && reply.status == 0);
	pthread_join(t, NULL);
	*go = false;
	CHECK(ask(fd, HETCUDA_RELEASE, 0, 0).status == 0);
	close(fd);
}

static atomic_int callback_state;

static int callback(int x)
{
	callback_state = 1;
	while (callback_state == 1)
		sleep_ms(1);
	/* While the gate is closed: or the outer call would never end. */
	TICK();
	return x;
}

static void *call_back(void *unused)
{
	(void)unused;
	CHECK(CALLBACK(callback, 5) == 5);
	return NULL;
}

static void from_callback(void)
{
	struct hetcuda_reply reply;
	pthread_t t;
	int fd = dial(getpid());

	CHECK(!pthread_create(&t, NULL, call_back, NULL));
	while (!callback_state)
		sleep_ms(1);
	send_request(fd, HETCUDA_HOLD, 10000, 0);
	sleep_ms(20);
	callback_state = 2;
	CHECK(receive_packet(fd, &reply, sizeof(reply), NULL, NULL) == sizeof(reply) && reply.status == 0);
	pthread_join(t, NULL);
	CHECK(ask(fd, HETCUDA_RELEASE, 0, 0).status == 0);
	close(fd);
}

static atomic_int passed;

static void *waits(void *unused)
{
	(void)unused;
	TICK();
	passed++;
	return NULL;
}

/* The connection ends, or its peer falls silent: the program goes on. */
static void lost_peer(bool silent)
{
	pthread_t t;
	int fd = dial(getpid());

	passed = 0;
	CHECK(ask(fd, HETCUDA_HOLD, 1000, 0).status == 0);
	CHECK(!pthread_create(&t, NULL, waits, NULL));
	sleep_ms(50);
	CHECK(!passed);
	if (!silent)
		close(fd);
	pthread_join(t, NULL);
	CHECK(passed);
	if (silent)
		close(fd);
}

/* The peer goes while HOLD still waits. */
static void lost_in_hold(void)
{
	pthread_t t;
	double at;
	int fd;

	CHECK(!pthread_create(&t, NULL, blocked, NULL));
	while (!*inside)
		sleep_ms(1);
	fd = dial(getpid());
	send_request(fd, HETCUDA_HOLD, 100000, 0);
	sleep_ms(20);
	close(fd);
	at = now();
	TICK();
	CHECK(now() - at < 5, "%f", now() - at);
	*go = true;
	pthread_join(t, NULL);
	*go = false;
}

int main(void)
{
	struct sigaction action = { .sa_handler = on_signal };

	inside = theirs("real_inside");
	calls = theirs("real_calls");
	go = theirs("real_go");
	sigaction(SIGUSR1, &action, NULL);
	CHECK(!cuInit(0));
	hold_and_release();
	time_out();
	from_callback();
	lost_peer(false);
	lost_peer(true);
	lost_in_hold();
	return 0;
}
