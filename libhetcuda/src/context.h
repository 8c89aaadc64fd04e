// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Contexts that own memory. What cuMemAlloc returns belongs to the context that
// was current and ends with it; which other devices may use it is decided
// between pairs of contexts.
#ifndef HETCUDA_CONTEXT_H
#define HETCUDA_CONTEXT_H

#include "chunk.h"

struct block;

struct context {
	struct context *next;
	CUcontext handle;
	CUdevice device;
	bool primary;
	bool gone;     // destroyed: nothing finds it any more
	bool stale;    // who may use its memory has changed
	unsigned busy; // calls that use it outside of the lock
	struct block *blocks;
	struct tree available; // free pieces of its slabs
	size_t empty_slabs;
};

// context_current returns the record of the current context, made if need be,
// busy; *result tells why not. The lock is not held.
struct context *context_current(CUresult *result);

// context_done says that a call no longer uses a context. What a context that
// has gone left behind is freed by the last call that does. Lock: not held.
void context_done(struct context *c);

// context_access is who may use the context's memory. Lock: held.
struct access context_access(const struct context *c);

// context_wait waits until all work of a context, and of those that may use its
// memory, is done. Lock: not held.
CUresult context_wait(const struct context *c);

// context_idle waits until all work of one context is done. One that is gone
// has none.
CUresult context_idle(CUcontext handle);

// context_first is the first of all contexts. Lock: held.
struct context *context_first(void);

// context_others is how many contexts the program has made itself, besides the
// devices' primary ones.
unsigned context_others(void);

// context_switch makes a context current and says in *before what was;
// context_switch_back undoes that.
CUresult context_switch(CUcontext to, CUcontext *before);
void context_switch_back(CUcontext to, CUcontext before);

#endif
