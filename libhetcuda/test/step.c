/*
 * SPDX-FileCopyrightText: The hetGPU authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A program that is let on step by step: as many calls that give work pass as
 * are allowed, in their order, and all others.
 */
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "signatures.h"
#include "test.h"

enum { THREADS = 4, STEPS = 300 };

static atomic_bool stop;
static atomic_int *inside;
static atomic_ulong *calls;
static atomic_bool *go;
static atomic_ulong mine[THREADS], others;

/* TICK is cuLaunch, which gives work; ERRNO does not. */
static void *work(void *number)
{
	atomic_ulong *done = number;

	while (!stop) {
		TICK();
		++*done;
	}
	return NULL;
}

static void *ask_things(void *unused)
{
	(void)unused;
	while (!stop) {
		ERRNO();
		others++;
		sched_yield();
	}
	return NULL;
}

static struct hetcuda_status step(int fd, uint32_t count)
{
	return ask_status(fd, HETCUDA_STEP, 0, count, NULL);
}

static struct hetcuda_status status(int fd, uint32_t timeout_ms)
{
	return ask_status(fd, HETCUDA_STATUS, timeout_ms, 0, NULL);
}

static struct hetcuda_status rest(int fd)
{
	struct hetcuda_status s = status(fd, 20000);

	CHECK(s.device == HETCUDA_IDLE && s.left == 0, "device %u, %u left, %u inside, %u wait", s.device, s.left, s.inside, s.waiting);
	return s;
}

/* Exactly what is allowed passes, and each thread has its turn. */
static void exactly(void)
{
	pthread_t threads[THREADS + 1];
	unsigned long before, started[THREADS], passed = 0;
	int fd = dial(getpid()), i;

	stop = false;
	for (i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&threads[i], NULL, work, &mine[i]));
	CHECK(!pthread_create(&threads[THREADS], NULL, ask_things, NULL));
	while (!mine[0] || !mine[1] || !mine[2] || !mine[3])
		sched_yield();
	step(fd, 0);
	rest(fd);
	while (status(fd, 0).waiting < THREADS)
		sched_yield();
	before = *calls;
	for (i = 0; i < THREADS; i++)
		started[i] = mine[i];
	for (i = 0; i < STEPS; i++) {
		uint32_t count = i % 7 == 6 ? 20 : (uint32_t)i % 3;
		struct hetcuda_status s;

		step(fd, count);
		s = rest(fd);
		passed += count;
		CHECK(s.passed == passed && *calls - before == passed, "%lu and %lu, not %lu", (unsigned long)s.passed, *calls - before, passed);
	}
	/* In the order in which they come, so that nobody is left behind. */
	while (status(fd, 0).waiting < THREADS)
		sched_yield();
	for (i = 0; i < THREADS; i++) {
		unsigned long turns = mine[i] - started[i];

		CHECK(turns >= passed / THREADS / 2, "thread %d: %lu of %lu", i, turns, passed);
	}
	before = others;
	while (others < before + 10)
		sched_yield();
	CHECK(!ask(fd, HETCUDA_RELEASE, 0, 0).status);
	for (i = 0, passed = *calls; i < 100 || *calls < passed + 1000; i++)
		sched_yield();
	stop = true;
	for (i = 0; i <= THREADS; i++)
		pthread_join(threads[i], NULL);
	close(fd);
}

static void *once(void *done)
{
	TICK();
	*(atomic_bool *)done = true;
	return NULL;
}

/* What is not used up can be taken back, and is not there the next time. */
static void taken_back(void)
{
	struct hetcuda_status s;
	atomic_bool done = false;
	int fd = dial(getpid()), round;
	pthread_t t;

	for (round = 0; round < 2; round++) {
		done = false;
		s = step(fd, 5);
		CHECK(s.left == 5 && s.device == HETCUDA_BUSY && s.passed == 0);
		TICK();
		s = status(fd, 0);
		CHECK(s.left == 4 && s.device == HETCUDA_BUSY && s.passed == 1);
		step(fd, 0);
		rest(fd);
		CHECK(!pthread_create(&t, NULL, once, &done));
		while (status(fd, 0).waiting == 0)
			sched_yield();
		rest(fd);
		CHECK(!done);
		if (round)
			CHECK(!ask(fd, HETCUDA_RELEASE, 0, 0).status);
		else
			step(fd, 1);
		pthread_join(t, NULL);
		if (!round)
			CHECK(!ask(fd, HETCUDA_RELEASE, 0, 0).status);
	}
	close(fd);
}

static void *blocked(void *unused)
{
	(void)unused;
	BLOCK();
	return NULL;
}

/* A call that gives work and does not return: nobody knows what it gives. */
static void in_a_call(void)
{
	struct hetcuda_status s;
	struct hetcuda_reply reply;
	pthread_t t;
	int fd = dial(getpid());

	CHECK(!pthread_create(&t, NULL, blocked, NULL));
	while (!*inside)
		sleep_ms(1);
	step(fd, 0);
	s = ask_status(fd, HETCUDA_STATUS, 50, 0, &reply);
	CHECK(s.device == HETCUDA_BUSY && s.inside == 1 && strstr(reply.text, "cuLaunchGrid"), "%u, %s", s.device, reply.text);
	/* It can't be held, and is no further than it was. */
	reply = ask(fd, HETCUDA_HOLD, 20, 0);
	CHECK(reply.status == -EAGAIN && strstr(reply.text, "cuLaunchGrid"));
	CHECK(ask_hello(fd).state == HETCUDA_STEPPED && status(fd, 0).left == 0);
	*go = true;
	rest(fd);
	pthread_join(t, NULL);
	*go = false;
	CHECK(!ask(fd, HETCUDA_HOLD, 1000, 0).status);
	CHECK(ask_hello(fd).state == HETCUDA_HELD);
	CHECK(!ask(fd, HETCUDA_RELEASE, 0, 0).status);
	close(fd);
}

/* A device that is at work, broken, or that must not be asked. */
static void device(void)
{
	struct hetcuda_reply reply;
	int fd = dial(getpid());

	setenv("HETCUDA_TEST_FAULT", "busy", 1);
	step(fd, 0);
	CHECK(status(fd, 20).device == HETCUDA_BUSY);
	setenv("HETCUDA_TEST_FAULT", "capture", 1);
	CHECK(status(fd, 20).device == HETCUDA_CAPTURING);
	setenv("HETCUDA_TEST_FAULT", "broken", 1);
	ask_status(fd, HETCUDA_STATUS, 20, 0, &reply);
	CHECK(reply.status == 700 && *reply.text);
	unsetenv("HETCUDA_TEST_FAULT");
	rest(fd);
	/* That it was at rest before says nothing after a step, */
	setenv("HETCUDA_TEST_FAULT", "busy", 1);
	CHECK(status(fd, 0).device == HETCUDA_IDLE);
	step(fd, 1);
	TICK();
	CHECK(status(fd, 20).device == HETCUDA_BUSY);
	/* nor when all went on meanwhile. */
	unsetenv("HETCUDA_TEST_FAULT");
	rest(fd);
	CHECK(!ask(fd, HETCUDA_RELEASE, 0, 0).status);
	setenv("HETCUDA_TEST_FAULT", "busy", 1);
	step(fd, 0);
	CHECK(status(fd, 20).device == HETCUDA_BUSY);
	unsetenv("HETCUDA_TEST_FAULT");
	close(fd);
	/* With the connection all of it ends. */
	TICK();
}

static atomic_int callback_state;

static int callback(int x)
{
	callback_state = 1;
	while (callback_state == 1)
		sleep_ms(1);
	TICK();
	return x;
}

static void *call_back(void *unused)
{
	(void)unused;
	CHECK(CALLBACK(callback, 5) == 5);
	return NULL;
}

/* A call out of another one is a part of it. */
static void from_callback(void)
{
	pthread_t t;
	int fd = dial(getpid());

	CHECK(!pthread_create(&t, NULL, call_back, NULL));
	while (!callback_state)
		sleep_ms(1);
	CHECK(step(fd, 0).inside == 1);
	CHECK(status(fd, 10).device == HETCUDA_BUSY);
	callback_state = 2;
	CHECK(rest(fd).passed == 0);
	pthread_join(t, NULL);
	CHECK(!ask(fd, HETCUDA_RELEASE, 0, 0).status);
	close(fd);
}

int main(void)
{
	if (getuid())
		SKIP("not root: the control socket would refuse");
	inside = theirs("real_inside");
	calls = theirs("real_calls");
	go = theirs("real_go");
	CHECK(!cuInit(0));
	exactly();
	taken_back();
	in_a_call();
	device();
	from_callback();
	return 0;
}
