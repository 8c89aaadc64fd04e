// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// What there is besides memory that we can park, for people and for whoever
// decides how a process is checkpointed. Written and read without a lock.
#ifndef HETCUDA_COUNTERS_H
#define HETCUDA_COUNTERS_H

#include <stdatomic.h>
#include <stdint.h>

struct counters {
	_Atomic int64_t managed;  // managed memory that is the driver's own
	_Atomic int64_t imported; // live handles of other processes' memory that we can't park
	_Atomic int64_t exported; // live handles that the program gave out, in ways that we can't follow
	_Atomic uint64_t driver;  // allocations that the driver served in our place
	_Atomic uint64_t host;    // pinned host allocations made
	_Atomic int64_t ipc;      // open handles of the driver's own IPC
	_Atomic int64_t events;   // open events of other processes
	_Atomic uint64_t fixed;   // chunks made that can't be parked
	_Atomic uint64_t async;   // stream-ordered allocations made
	_Atomic uint64_t unreleased; // handles that the driver did not let go of
};

extern struct counters counters;

#define COUNT(what) atomic_fetch_add_explicit(&counters.what, 1, memory_order_relaxed)
#define UNCOUNT(what) atomic_fetch_sub_explicit(&counters.what, 1, memory_order_relaxed)
#define COUNTED(what) atomic_load_explicit(&counters.what, memory_order_relaxed)

#endif
