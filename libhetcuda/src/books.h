// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// The one lock of the memory part. It guards every record there is: devices,
// contexts, blocks, chunks, mappings, handles.
//
// It is never held across a call of the driver that waits for the GPU
// (synchronizing, unmapping), so that a free in one thread doesn't stop the
// allocations of the others. It is held across short calls that don't: queries,
// reservations of addresses, access rights. No lock of ours is taken under it;
// the gate (gate.c) is always outside of it.
#ifndef HETCUDA_BOOKS_H
#define HETCUDA_BOOKS_H

#include <pthread.h>

extern pthread_mutex_t books;

static inline void books_release(const int *unused)
{
	(void)unused;
	pthread_mutex_unlock(&books);
}

// BOOKS holds the lock until the end of the scope.
#define BOOKS()                                                                \
	__attribute__((cleanup(books_release), unused)) const int books_held = \
		pthread_mutex_lock(&books)

#endif
