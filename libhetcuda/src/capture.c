// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

#include "capture.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "books.h"
#include "lane.h"
#include "overrides.h"
#include "real.h"

struct capture {
	struct capture *next;
	CUstream stream;
	CUcontext context;
	CUstreamCaptureMode mode;
	pthread_t thread; // that began it
};

static struct capture *captures;
static _Atomic unsigned running;

bool capture_running(void)
{
	return atomic_load_explicit(&running, memory_order_acquire) > 0;
}

bool capture_spared(void)
{
	if (!capture_running() || !REAL(cuThreadExchangeStreamCaptureMode))
		return false;
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	if (REAL(cuThreadExchangeStreamCaptureMode)(&mode) != CUDA_SUCCESS)
		return false;
	CUstreamCaptureMode was = mode;
	REAL(cuThreadExchangeStreamCaptureMode)(&mode);
	if (was == CU_STREAM_CAPTURE_MODE_RELAXED)
		return true;
	// A global capture keeps every thread of global mode from it, one of
	// the thread's own that is not relaxed keeps the thread.
	BOOKS();
	for (const struct capture *c = captures; c; c = c->next) {
		if (c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && was == CU_STREAM_CAPTURE_MODE_GLOBAL)
			return false;
		if (c->mode != CU_STREAM_CAPTURE_MODE_RELAXED && pthread_equal(c->thread, pthread_self()))
			return false;
	}
	return true;
}

struct aside capture_step_aside(void)
{
	struct aside a = {.mode = CU_STREAM_CAPTURE_MODE_RELAXED};
	a.stepped = capture_running() && REAL(cuThreadExchangeStreamCaptureMode) &&
		    REAL(cuThreadExchangeStreamCaptureMode)(&a.mode) == CUDA_SUCCESS;
	return a;
}

void capture_step_back(struct aside a)
{
	if (a.stepped)
		REAL(cuThreadExchangeStreamCaptureMode)(&a.mode);
}

static CUresult begun(CUstream stream, CUstreamCaptureMode mode, CUresult r)
{
	struct capture *c = r == CUDA_SUCCESS ? calloc(1, sizeof *c) : NULL;
	if (!c)
		return r;
	c->stream = stream;
	c->mode = mode;
	c->thread = pthread_self();
	REAL(cuCtxGetCurrent)(&c->context);
	BOOKS();
	c->next = captures;
	captures = c;
	atomic_fetch_add(&running, 1);
	return r;
}

// forget drops one capture of a stream, or with none all of a context.
static void forget(CUstream stream, CUcontext context)
{
	BOOKS();
	for (struct capture **link = &captures; *link;) {
		struct capture *c = *link;
		if (context ? c->context != context : c->stream != stream) {
			link = &c->next;
			continue;
		}
		*link = c->next;
		free(c);
		atomic_fetch_sub(&running, 1);
		if (!context)
			return;
	}
}

void capture_forget(CUcontext context)
{
	forget(NULL, context);
}

// A capture that went wrong (errors 900 to 907) is over when it was ended. From
// the wrong thread (908) it can't be ended, nor what isn't there.
static CUresult ended(CUstream stream, CUresult r)
{
	if (r == CUDA_SUCCESS || (r >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && r < CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD))
		forget(stream, NULL);
	return r;
}

CUresult hetcuda_cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
	return begun(stream, mode, REAL(cuStreamBeginCapture_v2)(stream, mode));
}

CUresult hetcuda_cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode)
{
	return begun(stream, mode, REAL(cuStreamBeginCapture_v2_ptsz)(stream, mode));
}

CUresult hetcuda_cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *dependencies,
					     const CUgraphEdgeData *data, size_t count, CUstreamCaptureMode mode)
{
	return begun(stream, mode, REAL(cuStreamBeginCaptureToGraph)(stream, graph, dependencies, data, count, mode));
}

CUresult hetcuda_cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph, const CUgraphNode *dependencies,
						  const CUgraphEdgeData *data, size_t count, CUstreamCaptureMode mode)
{
	return begun(stream, mode, REAL(cuStreamBeginCaptureToGraph_ptsz)(stream, graph, dependencies, data, count, mode));
}

CUresult hetcuda_cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
	return ended(stream, REAL(cuStreamEndCapture)(stream, graph));
}

CUresult hetcuda_cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph)
{
	return ended(stream, REAL(cuStreamEndCapture_ptsz)(stream, graph));
}

static CUresult destroyed(CUstream stream, CUresult (*real)(CUstream))
{
	struct lane *l = lane_over(stream);
	CUresult r = real(stream);
	if (r == CUDA_SUCCESS && stream && capture_running())
		forget(stream, NULL);
	if (l && r == CUDA_SUCCESS)
		lane_close(l);
	else if (l)
		lane_stays(l);
	return r;
}

CUresult hetcuda_cuStreamDestroy(CUstream stream)
{
	return destroyed(stream, (__typeof__(&cuStreamDestroy_v2))hetcuda_real[HETCUDA_INDEX_cuStreamDestroy]);
}

CUresult hetcuda_cuStreamDestroy_v2(CUstream stream)
{
	return destroyed(stream, REAL(cuStreamDestroy));
}
