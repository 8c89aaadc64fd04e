// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// The thread that serves the control block, and nothing else.
#define _GNU_SOURCE
#include <errno.h>
#include <semaphore.h>

#include "process.h"

struct block block;

static void serve(void)
{
	// A copy: the caller may die and another write the next request.
	struct request r = block.request;
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	switch ((enum op)r.op) {
	case OP_STATE: result = CUDA_SUCCESS; break;
	case OP_LOCK: result = serve_lock(r.timeout_ms); break;
	case OP_CHECKPOINT: result = serve_checkpoint(&r); break;
	case OP_RESTORE: result = serve_restore(&r); break;
	case OP_UNLOCK: result = serve_unlock(); break;
	case OP_FAIL: result = serve_fail(); break;
	case OP_COMPLETE: result = serve_complete(&r); break;
	}
	pthread_mutex_lock(&process.mu);
	process_publish();
	block.state = process.state;
	pthread_mutex_unlock(&process.mu);
	block.result = result;
	atomic_store(&block.answered, atomic_load(&block.asked));
}

static void *run(void *ready)
{
	char name[16];
	sigset_t wake;
	sigemptyset(&wake);
	sigaddset(&wake, WAKE_SIGNAL);
	snprintf(name, sizeof name, "cu%012llx", (unsigned long long)(uintptr_t)&block);
	pthread_setname_np(pthread_self(), name);
	sem_post(ready);
	for (;;) {
		sigwaitinfo(&wake, NULL); // EINTR after CRIU: look all the same
		while (atomic_load(&block.asked) != atomic_load(&block.answered))
			serve();
	}
	return NULL;
}

CUresult server_start(void)
{
	sigset_t all, before;
	pthread_t thread;
	pthread_attr_t attributes;
	sem_t ready; // the thread can be found by its name
	block.magic = BLOCK_MAGIC;
	block.self = (uintptr_t)&block;
	process_publish();
	// The thread starts with every signal blocked: the program's are not its
	// business, and its own must wait for sigwaitinfo.
	sem_init(&ready, 0, 0);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	int failed = pthread_create(&thread, &attributes, run, &ready);
	pthread_attr_destroy(&attributes);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	while (!failed && sem_wait(&ready) != 0 && errno == EINTR)
		;
	sem_destroy(&ready);
	return failed ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}
