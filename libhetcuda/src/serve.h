// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// The threads that serve faults. A thread that touches what is DEVICE's may hold
// locks of the program's or be a host function of a stream's, from which the
// driver must not be called: so it waits, and a thread of ours does the work.
//
// There are two. One waits for the device to be idle first. The other serves
// host functions: their stream waits for them, so the device can't become idle;
// it counts as idle for them (CUDA programming guide, "host functions").
#ifndef HETCUDA_SERVE_H
#define HETCUDA_SERVE_H

#include "pages.h"

struct request {
	struct request *next;
	enum { TOUCH, FETCH, FLUSH } what;
	CUdeviceptr address;
	size_t size; // FETCH
	bool write;  // TOUCH, FETCH
	bool heap;   // to be freed when it is served
	_Atomic uint32_t *done; // becomes 1; a futex. May be NULL
};

bool serve_start(void);

// serve_push has a request served; `now`: by the thread that doesn't wait for
// the device. The request lives until then.
void serve_push(struct request *q, bool now);

// serve_push_wait waits too.
void serve_push_wait(struct request *q, bool now);

// Whether a thread is in a host function. serve_host_begin and _end are around it.
bool serve_host(pid_t tid);
void serve_host_begin(void);
void serve_host_end(void);

// Between these two no fault is served, those that come wait. Lock: held.
void serve_pause(void);
void serve_continue(void);

void serve_forked(void);

#endif
