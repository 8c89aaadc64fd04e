// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

#include "copy.h"

#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "spawn.h"

// A helper is woken in 5 to 50 us, in which a thread copies about half a
// megabyte; one that has just had something to do looks for more meanwhile.
#define WORTH ((size_t)512 << 10)
#define PIECE ((size_t)128 << 10)
enum { HELPERS = 3, LOOKS = 4000 };

// The job. Pieces are taken by advancing `next`, whose upper half is the number
// of the job: who has read the fields of one job can't take a piece of another.
static char *_Atomic target;
static const char *_Atomic source;
static _Atomic size_t length;
static _Atomic uint64_t next;
static _Atomic size_t left; // pieces that are not done

static _Atomic uint32_t number; // of the job; a futex
static _Atomic uint32_t asleep; // helpers
static int helpers = -1;

static void relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#endif
}

// take does one piece of the job, if there is one.
static bool take(void)
{
	uint64_t n = atomic_load(&next);
	for (;;) {
		// The length last written and first read: with it the rest is
		// that of the same job.
		size_t size = atomic_load(&length), at = (size_t)(uint32_t)n * PIECE;
		if (at >= size)
			return false;
		char *to = atomic_load(&target);
		const char *from = atomic_load(&source);
		if (!atomic_compare_exchange_weak(&next, &n, n + 1))
			continue;
		memcpy(to + at, from + at, size - at < PIECE ? size - at : PIECE);
		atomic_fetch_sub(&left, 1);
		return true;
	}
}

static void *help(void *unused)
{
	(void)unused;
	for (;;) {
		uint32_t seen = atomic_load(&number);
		while (take()) {
		}
		for (int i = 0; i < LOOKS && atomic_load(&number) == seen; i++)
			relax();
		atomic_fetch_add(&asleep, 1);
		while (atomic_load(&number) == seen)
			syscall(SYS_futex, &number, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
		atomic_fetch_sub(&asleep, 1);
	}
	return NULL;
}

// As many as leave the program something.
static void start(void)
{
	cpu_set_t cpus;
	int n = sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? CPU_COUNT(&cpus) / 2 : 0;
	n = n < HELPERS ? n : HELPERS;
	for (helpers = 0; helpers < n; helpers++) {
		if (hetcuda_spawn(help, NULL))
			break;
	}
}

void copy(void *to, const void *from, size_t size)
{
	if (size >= WORTH && helpers < 0)
		start();
	if (size < WORTH || helpers <= 0) {
		memcpy(to, from, size);
		return;
	}
	uint32_t job = atomic_load(&number) + 1;
	atomic_store(&left, (size + PIECE - 1) / PIECE);
	// Nobody can take a piece while this changes: of the job before nothing
	// is left, and of this one there is nothing yet.
	atomic_store(&length, 0);
	atomic_store(&next, (uint64_t)job << 32);
	atomic_store(&target, to);
	atomic_store(&source, from);
	atomic_store(&length, size);
	atomic_store(&number, job);
	if (atomic_load(&asleep) > 0)
		syscall(SYS_futex, &number, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
	while (take()) {
	}
	while (atomic_load(&left) > 0)
		sched_yield();
}

void copy_forked(void)
{
	helpers = -1;
}
