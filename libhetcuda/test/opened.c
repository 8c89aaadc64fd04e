/*
 * SPDX-FileCopyrightText: The hetGPU authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The library is opened by a program that is not linked with it, as the CUDA
 * runtime opens the driver's. Its thread-local variables are there in threads
 * that are older than it, and in those that come after it.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>

#include "signatures.h"
#include "test.h"

enum { THREADS = 8 };

#define P(i) (UINT64_C(0x0101010101010101) * i)
#define STRING(name) #name
#define FIND(name) ((__typeof__(name) *)find(STRING(name)))

static void *library;
static sem_t opened;

static void *find(const char *name)
{
	void *p = dlsym(library, name);

	CHECK(p, "%s", name);
	return p;
}

static int back(int x)
{
	return x + 1;
}

/* The thread's first call makes its record, those after it find it. */
static void call(void)
{
	CHECK(FIND(ARGS12)(P(1), P(2), P(3), P(4), P(5), P(6), P(7), P(8), P(9), P(10), P(11), P(12)) == 12);
	CHECK(FIND(ARGS12)(P(1), P(2), P(3), P(4), P(5), P(6), P(7), P(8), P(9), P(10), P(11), P(12)) == 12);
	CHECK(FIND(DOUBLES)(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12) == 650);
	CHECK(FIND(CALLBACK)(back, 41) == 42);
}

static void *older(void *unused)
{
	while (sem_wait(&opened))
		;
	call();
	return unused;
}

static void *younger(void *unused)
{
	call();
	return unused;
}

int main(void)
{
	pthread_t threads[2 * THREADS];
	int fd, i;

	CHECK(!sem_init(&opened, 0, 0));
	for (i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&threads[i], NULL, older, NULL));
	library = dlopen("libcuda.so.1", RTLD_NOW);
	CHECK(library, "%s", dlerror());
	CHECK(FIND(cuInit)(0) == 0);
	for (i = 0; i < THREADS; i++)
		CHECK(!sem_post(&opened));
	for (; i < 2 * THREADS; i++)
		CHECK(!pthread_create(&threads[i], NULL, younger, NULL));
	for (i = 0; i < 2 * THREADS; i++)
		CHECK(!pthread_join(threads[i], NULL));
	/* It is the library that has forwarded these calls. */
	fd = dial(getpid());
	CHECK(ask(fd, HETCUDA_HOLD, 1000, 0).status == 0);
	CHECK(ask(fd, HETCUDA_RELEASE, 0, 0).status == 0);
	close(fd);
	call();
	return 0;
}
