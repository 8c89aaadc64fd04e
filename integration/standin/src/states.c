// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// The states of a process: running, locked, checkpointed, failed.
#include <string.h>

#include "process.h"

static void set_state(CUprocessState state)
{
	process.state = state;
	pthread_cond_broadcast(&process.changed);
}

// finish_work finishes launched work, until the time is over. While it lasts,
// new work waits: a peer that depends on it waits too, and so does its lock.
static CUresult finish_work(uint32_t timeout_ms)
{
	uint64_t start = now_ms();
	while (!work_advance()) {
		if (timeout_ms && now_ms() - start >= timeout_ms)
			return CUDA_ERROR_NOT_READY;
		pthread_mutex_unlock(&process.mu);
		sleep_us(500);
		pthread_mutex_lock(&process.mu);
	}
	return CUDA_SUCCESS;
}

CUresult serve_lock(uint32_t timeout_ms)
{
	pthread_mutex_lock(&process.mu);
	CUresult r = CUDA_ERROR_ILLEGAL_STATE;
	if (process.state == CU_PROCESS_STATE_RUNNING) {
		process.locking = true;
		r = finish_work(timeout_ms);
		process.locking = false;
		set_state(r == CUDA_SUCCESS ? CU_PROCESS_STATE_LOCKED : CU_PROCESS_STATE_RUNNING);
	}
	pthread_mutex_unlock(&process.mu);
	return r;
}

// forget_saved drops what a checkpoint has copied so far.
static void forget_saved(void)
{
	for (int i = 0; i < MAX_ALLOCS; i++) {
		free(process.allocs[i].saved);
		process.allocs[i].saved = NULL;
	}
	for (int i = 0; i < MAX_MEMORIES; i++) {
		free(process.memories[i].saved);
		process.memories[i].saved = NULL;
	}
}

static CUresult save(struct alloc *a)
{
	a->saved = malloc(a->size);
	if (!a->saved)
		return CUDA_ERROR_OUT_OF_MEMORY;
	return alloc_read(a, 0, a->saved, a->size) ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

// refuse_managed says what is wrong the first time only, as the driver does.
static CUresult refuse_managed(void)
{
	CUresult r = process.refused ? CUDA_ERROR_UNKNOWN : CUDA_ERROR_NOT_SUPPORTED;
	process.refused = true;
	return r;
}

// shared tells whether memory of cuMemCreate is shared with anybody: no restore
// could bring that back.
static bool shared(void)
{
	CLEAN_FD int lock = machine_lock();
	return memory_shared();
}

static CUresult save_all(const struct request *request)
{
	if (shared())
		return CUDA_ERROR_NOT_SUPPORTED;
	for (int i = 0; i < MAX_ALLOCS; i++)
		if (process.allocs[i].kind == MANAGED)
			return refuse_managed();
	if (request->storage)
		return views_show(request, true);
	for (int i = 0; i < MAX_ALLOCS; i++) {
		if (process.allocs[i].kind != DEVICE)
			continue;
		CUresult r = save(&process.allocs[i]);
		if (r != CUDA_SUCCESS)
			return r;
	}
	return memory_save();
}

// checkpointed lets go of the GPUs.
static void checkpointed(bool stored)
{
	process_close();
	process.stored = stored;
	set_state(CU_PROCESS_STATE_CHECKPOINTED);
}

CUresult serve_checkpoint(const struct request *request)
{
	pthread_mutex_lock(&process.mu);
	CUresult r = CUDA_ERROR_ILLEGAL_STATE;
	if (process.state == CU_PROCESS_STATE_LOCKED) {
		r = save_all(request);
		if (r != CUDA_SUCCESS)
			forget_saved();
		else if (request->storage)
			set_state(CU_PROCESS_STATE_CHECKPOINTING);
		else
			checkpointed(false);
	}
	pthread_mutex_unlock(&process.mu);
	return r;
}

// place returns the GPU that takes the place of the process's i-th: the one that
// the pairs name or, without pairs, the i-th that it can see now.
static const struct gpu *place(const struct request *r, int i, const struct gpu visible[], int count)
{
	if (r->pair_count == 0)
		return i < count ? &visible[i] : NULL;
	const struct CUcheckpointGpuPair_st *pair = NULL;
	for (uint32_t j = 0; j < r->pair_count && j < MAX_GPUS; j++)
		if (!memcmp(r->pairs[j].oldUuid.bytes, process.devices[i].gpu.id, 16))
			pair = &r->pairs[j];
	for (int j = 0; pair && j < count; j++)
		if (!memcmp(visible[j].id, pair->newUuid.bytes, 16))
			return &visible[j];
	return NULL;
}

// choose finds the GPUs to restore to: of the same model, no two the same. If
// there are pairs, they are those of the GPUs of the process, no more and no less.
static CUresult choose(const struct request *r, struct gpu gpus[MAX_GPUS])
{
	struct machine m;
	struct gpu visible[MAX_GPUS];
	int count = machine_load(&m) ? process_visible(&m, visible) : 0;
	if (r->pair_count && r->pair_count != (uint32_t)process.count)
		return CUDA_ERROR_INVALID_VALUE;
	for (int i = 0; i < process.count; i++) {
		const struct gpu *g = place(r, i, visible, count);
		if (!g || strcmp(g->name, process.devices[i].gpu.name) != 0 || g->mig)
			return CUDA_ERROR_INVALID_VALUE;
		for (int j = 0; j < i; j++)
			if (!memcmp(gpus[j].id, g->id, 16))
				return CUDA_ERROR_INVALID_VALUE;
		gpus[i] = *g;
	}
	return CUDA_SUCCESS;
}

static CUresult put_back(void)
{
	CLEAN_FD int lock = machine_lock();
	for (int i = 0; i < MAX_ALLOCS; i++) {
		struct alloc *a = &process.allocs[i];
		if (a->kind != DEVICE)
			continue;
		CUresult r = alloc_create(a);
		if (r != CUDA_SUCCESS)
			return r;
		if (a->saved && !alloc_write(a, 0, a->saved, a->size))
			return CUDA_ERROR_OPERATING_SYSTEM;
	}
	return memory_restore();
}

// restore_to leaves the process checkpointed, on its old GPUs, if it fails.
static CUresult restore_to(const struct gpu gpus[MAX_GPUS], const struct request *request)
{
	struct gpu old[MAX_GPUS];
	for (int i = 0; i < process.count; i++)
		old[i] = process.devices[i].gpu;
	CUresult r = process_open(gpus, process.count);
	if (r == CUDA_SUCCESS) {
		r = put_back();
		if (r == CUDA_SUCCESS && request->storage)
			r = views_show(request, false);
		if (r == CUDA_SUCCESS)
			return r;
		process_close();
	}
	for (int i = 0; i < process.count; i++)
		process.devices[i].gpu = old[i];
	return r;
}

// imports tells whether the process has memory of another open. Such a process
// checkpoints but is lost at its restore (measured on driver 580).
static bool imports(void)
{
	for (int i = 0; i < MAX_ALLOCS; i++)
		if (process.allocs[i].kind == IMPORTED)
			return true;
	return false;
}

static CUresult restore(const struct request *r)
{
	struct gpu gpus[MAX_GPUS];
	if (process.state != CU_PROCESS_STATE_CHECKPOINTED)
		return CUDA_ERROR_ILLEGAL_STATE;
	if (process.lost != CUDA_SUCCESS)
		return CUDA_ERROR_OPERATING_SYSTEM;
	if (process.stored != (r->storage != 0))
		return CUDA_ERROR_INVALID_VALUE; // nothing documents the other way
	if (imports()) {
		process.lost = CUDA_ERROR_CONTEXT_IS_DESTROYED;
		return CUDA_ERROR_INVALID_VALUE;
	}
	CUresult result = choose(r, gpus);
	if (result == CUDA_SUCCESS)
		result = restore_to(gpus, r);
	if (result != CUDA_SUCCESS)
		return result;
	forget_saved();
	process.restored = true;
	set_state(r->storage ? CU_PROCESS_STATE_RESTORING : CU_PROCESS_STATE_LOCKED);
	return CUDA_SUCCESS;
}

// complete ends what a call with custom storage has begun. Who made it has done
// with the memory what is to be done.
static CUresult complete(const struct request *r)
{
	if (r->operation != block.operation)
		return CUDA_ERROR_INVALID_VALUE;
	switch (process.state) {
	case CU_PROCESS_STATE_CHECKPOINTING:
		views_end();
		checkpointed(true);
		return CUDA_SUCCESS;
	case CU_PROCESS_STATE_RESTORING:
		if (!views_take())
			return CUDA_ERROR_OPERATING_SYSTEM;
		views_end();
		process.stored = false;
		set_state(CU_PROCESS_STATE_LOCKED);
		return CUDA_SUCCESS;
	default: return CUDA_ERROR_ILLEGAL_STATE;
	}
}

CUresult serve_complete(const struct request *r)
{
	pthread_mutex_lock(&process.mu);
	CUresult result = complete(r);
	pthread_mutex_unlock(&process.mu);
	return result;
}

CUresult serve_restore(const struct request *r)
{
	pthread_mutex_lock(&process.mu);
	CUresult result = restore(r);
	pthread_mutex_unlock(&process.mu);
	return result;
}

CUresult serve_unlock(void)
{
	pthread_mutex_lock(&process.mu);
	CUresult r = CUDA_ERROR_ILLEGAL_STATE;
	if (process.state == CU_PROCESS_STATE_LOCKED) {
		set_state(CU_PROCESS_STATE_RUNNING);
		r = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&process.mu);
	return r;
}

CUresult serve_fail(void)
{
	pthread_mutex_lock(&process.mu);
	set_state(CU_PROCESS_STATE_FAILED);
	pthread_mutex_unlock(&process.mu);
	return CUDA_SUCCESS;
}
