/*
 * SPDX-FileCopyrightText: The hetGPU authors
 * SPDX-License-Identifier: Apache-2.0
 */
#include "spawn.h"

#include <pthread.h>
#include <signal.h>

/*
 * They call the driver, whose needs nobody knows. glibc gives a thread so much as
 * a rule, and musl 128 KiB.
 */
enum { STACK = 8 << 20 };

int hetcuda_spawn_named(void *(*run)(void *), void *data, const char *name)
{
	pthread_attr_t attributes;
	pthread_t thread;
	sigset_t all, before;
	int r = pthread_attr_init(&attributes);

	if (r)
		return r;
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attributes, STACK);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&thread, &attributes, run, data);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	if (!r && name)
		pthread_setname_np(thread, name);
	return r;
}

int hetcuda_spawn(void *(*run)(void *), void *data)
{
	return hetcuda_spawn_named(run, data, NULL);
}
