// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

#include "submit.h"

#include <errno.h>

#include "hostcopy.h"
#include "load.h"
#include "pages.h"
#include "thread.h"
#include "watch.h"
#include "work.h"

extern const char hetcuda_submits[];

// Read by submit_x86_64.S: what stood in the table.
void *hetcuda_submit_next[HETCUDA_EXPORTS];

static bool submits[HETCUDA_EXPORTS];
static void *before[HETCUDA_EXPORTS]; // what we have replaced

void submit_watch(void)
{
	static bool done;
	if (done)
		return;
	done = true;
	for (unsigned i = 0; i < HETCUDA_EXPORTS; i++) {
		void *now = hetcuda_table[i], *next = hostcopy_instead(i, now);
		submits[i] = hetcuda_work_reads(hetcuda_name(i));
		if (!submits[i] && next == now)
			continue;
		before[i] = now;
		hetcuda_submit_next[i] = next;
		if (submits[i])
			next = (void *)(hetcuda_submits + ((size_t)i << 4));
		// Whoever reads the new entry finds what it needs.
		__atomic_store_n(&hetcuda_table[i], next, __ATOMIC_RELEASE);
	}
}

void submit_forked(void)
{
	for (unsigned i = 0; i < HETCUDA_EXPORTS; i++)
		if (before[i])
			hetcuda_table[i] = before[i];
}

// The call that a thread is in, of those that are marked.
static struct hetcuda_frame *frame(void)
{
	struct hetcuda_thread *self = hetcuda_self;
	return self && hetcuda_depth(self) > 0 ? atomic_load_explicit(&self->top, memory_order_relaxed) - 1 : NULL;
}

enum { WAITS = 1 };

static bool look(struct hetcuda_thread *thread, void *found)
{
	size_t depth = hetcuda_depth(thread);
	// At the gate it has not looked yet; when it goes on, it will.
	if (atomic_load(&thread->waiting))
		return true;
	for (size_t i = 0; i < depth; i++) {
		struct hetcuda_frame *f = &thread->frames[i];
		unsigned function = __atomic_load_n(&f->function, __ATOMIC_RELAXED);
		if (function >= HETCUDA_EXPORTS || !submits[function])
			continue;
		if (__atomic_load_n(&f->unused[0], __ATOMIC_ACQUIRE) == WAITS)
			continue;
		*(bool *)found = true;
		return false;
	}
	return true;
}

// The same as at the gate (gate.c): a thread writes its mark, then reads
// hetcuda_pages_mine; here that was written, and now the marks are read. The
// barrier between the two is put into the other threads from here.
bool submit_under_way(void)
{
	bool found = false;
	hetcuda_threads_barrier();
	hetcuda_threads(look, &found);
	return found;
}

void hetcuda_before_work(void)
{
	int saved = errno;
	struct hetcuda_frame *f = frame();
	if (f)
		__atomic_store_n(&f->unused[0], WAITS, __ATOMIC_RELEASE);
	{
		PAGES();
		// The call can't tell the program of an error here; the one
		// that it makes next meets the same.
		pages_flush_all();
		watch_check();
		atomic_store(&hetcuda_pages_busy, 1);
		if (f)
			__atomic_store_n(&f->unused[0], 0, __ATOMIC_RELEASE);
	}
	errno = saved;
}
