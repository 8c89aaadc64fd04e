// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// cuMemAlloc and its kin, over memory of our own (block.c).
#include "memory_free.h"

#include "block.h"
#include "books.h"
#include "capture.h"
#include "counters.h"
#include "managed.h"
#include "managed_driver.h"
#include "overrides.h"
#include "pools.h"
#include "real.h"
#include "window.h"

// Frees that can't be carried out while a stream is being captured.
static struct extent *deferred;

CUresult hetcuda_cuMemAlloc_v2(CUdeviceptr *address, size_t size)
{
	CUresult r;
	memory_flush();
	struct context *c = address && size > 0 ? context_current(&r) : NULL;
	if (!c)
		return REAL(cuMemAlloc)(address, size); // it knows which error it is
	r = block_take(c, size, address);
	context_done(c);
	if (r == CUDA_SUCCESS)
		return r;
	// The driver may have what we could not get: room in memory that it
	// holds already, a device that can't do what we need. It then carries
	// this allocation through a checkpoint itself.
	CUresult driver = REAL(cuMemAlloc)(address, size);
	if (driver == CUDA_SUCCESS)
		COUNT(driver);
	return driver;
}

// The pitch of every device since compute capability 2.0. What it serves,
// aligned rows for textures and coalesced access, needs no more.
enum { PITCH = 512 };

CUresult hetcuda_cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height, unsigned int element)
{
	if (!address || !pitch || width == 0 || height == 0 || (element != 4 && element != 8 && element != 16) ||
	    width > SIZE_MAX - PITCH)
		return REAL(cuMemAllocPitch)(address, pitch, width, height, element);
	size_t row = (width + PITCH - 1) / PITCH * PITCH, size;
	if (__builtin_mul_overflow(row, height, &size))
		return REAL(cuMemAllocPitch)(address, pitch, width, height, element);
	CUresult r = hetcuda_cuMemAlloc_v2(address, size);
	if (r == CUDA_SUCCESS)
		*pitch = row;
	return r;
}

// leave marks an allocation as being freed, so that a second free of it finds
// nothing. Its context is busy then. NULL if there is none, or with *open if it is
// another process's that is still open.
static struct extent *leave(CUdeviceptr address, bool imported, bool *open)
{
	BOOKS();
	struct extent *e = block_find(address);
	*open = false;
	if (!e || e->address != address || e->leaving || block_imported(e) != imported)
		return NULL;
	*open = imported && !block_close(e);
	if (*open)
		return NULL;
	e->leaving = true;
	block_context(e)->busy++;
	return e;
}

static void stay(struct extent *e)
{
	BOOKS();
	e->leaving = false;
	if (block_imported(e))
		block_reopen(e);
}

void memory_flush(void)
{
	if (__atomic_load_n(&deferred, __ATOMIC_RELAXED) == NULL || capture_running())
		return;
	struct extent *list;
	{
		BOOKS();
		list = deferred;
		deferred = NULL;
	}
	while (list) {
		struct extent *e = list;
		struct context *c = block_context(e);
		list = e->next;
		// One that fails stays where it is until its context ends.
		if (context_wait(c) == CUDA_SUCCESS)
			block_give(e);
		context_done(c);
	}
}

static CUresult give(CUdeviceptr address, bool imported, CUresult (*wait)(CUstream), CUstream stream)
{
	bool open;
	struct extent *e = leave(address, imported, &open);
	if (!e)
		return open ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	struct context *c = block_context(e);
	if (!wait && capture_spared()) {
		// The driver frees here without spoiling the capture; waiting
		// for the context would spoil it. The memory goes when there is
		// no capture any more.
		BOOKS();
		e->next = deferred;
		deferred = e;
		return CUDA_SUCCESS;
	}
	CUresult r = wait ? wait(stream) : context_wait(c);
	if (r == CUDA_SUCCESS)
		r = block_give(e);
	else
		stay(e);
	context_done(c);
	return r;
}

CUresult memory_free(CUdeviceptr address, CUresult (*wait)(CUstream), CUstream stream)
{
	return give(address, false, wait, stream);
}

CUresult memory_close(CUdeviceptr address)
{
	memory_flush();
	return give(address, true, NULL, NULL);
}

CUresult hetcuda_cuMemFree_v2(CUdeviceptr address)
{
	CUresult result;
	memory_flush();
	if (managed_free(address, NULL, NULL, &result))
		return result;
	if (window_has(address))
		return pools_have(address) ? pools_free(address) : memory_free(address, NULL, NULL);
	CUresult r = REAL(cuMemFree)(address);
	if (r == CUDA_SUCCESS && COUNTED(managed) > 0)
		managed_driver_freed(address);
	return r;
}
