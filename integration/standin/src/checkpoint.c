// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// The checkpoint API: what one process may do to another, by PID.
#include <string.h>

#include "faults.h"
#include "peer.h"
#include "process.h"

static _Thread_local const struct fault *current_fault;

static void sent(void)
{
	fault_apply(current_fault, FAULT_DURING);
}

static CUresult ready(void)
{
	return process.pid != 0 && process.pid == getpid() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

// perform does it, unless a fault comes before it, and reports what a fault
// after it says.
static CUresult perform(const struct fault *f, pid_t pid, const struct request *r, uint32_t *out)
{
	struct peer p;
	CUresult result = (CUresult)fault_apply(f, FAULT_BEFORE);
	if (f->fail && f->when == FAULT_BEFORE && peer_find(pid, &p) == CUDA_SUCCESS)
		peer_call(&p, &(struct request){.op = OP_FAIL}, NULL, NULL);
	if (result != CUDA_SUCCESS)
		return result;
	result = peer_find(pid, &p);
	if (result != CUDA_SUCCESS)
		return result;
	current_fault = f;
	if (!r)
		*out = (uint32_t)p.tid;
	else
		result = peer_call(&p, r, out, sent);
	CUresult after = (CUresult)fault_apply(f, FAULT_AFTER);
	return after != CUDA_SUCCESS ? after : result;
}

static CUresult call(const char *op, pid_t pid, const struct request *r, uint32_t *out)
{
	CUresult result = ready();
	if (result != CUDA_SUCCESS)
		return result;
	call_log(op, pid, -1);
	struct fault f = fault_find(op, pid);
	result = perform(&f, pid, r, out);
	call_log(op, pid, (int)result);
	return result;
}

static bool zero(const void *p, size_t size)
{
	for (const char *c = p; size-- > 0; c++)
		if (*c)
			return false;
	return true;
}

CUresult cuCheckpointProcessGetState(int pid, CUprocessState *state)
{
	uint32_t out = 0;
	if (!state)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = call("state", pid, &(struct request){.op = OP_STATE}, &out);
	if (r == CUDA_SUCCESS)
		*state = (CUprocessState)out;
	return r;
}

CUresult cuCheckpointProcessGetRestoreThreadId(int pid, int *tid)
{
	uint32_t out = 0;
	if (!tid)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = call("tid", pid, NULL, &out);
	if (r == CUDA_SUCCESS)
		*tid = (int)out;
	return r;
}

CUresult cuCheckpointProcessLock(int pid, CUcheckpointLockArgs *args)
{
	struct request r = {.op = OP_LOCK};
	if (args && (args->reserved0 || !zero(args->reserved1, sizeof args->reserved1)))
		return CUDA_ERROR_INVALID_VALUE;
	if (args)
		r.timeout_ms = args->timeoutMs;
	return call("lock", pid, &r, NULL);
}

// Custom storage.

struct CUcheckpointOperation_st {
	pid_t pid;
	uint32_t number; // the target's
	CUcheckpointCustomStorageInfo info;
	CUcheckpointCustomStoragePerDeviceData devices[MAX_GPUS];
};

// with_storage tells whether the driver has it: its arguments were reserved
// bytes before.
static bool with_storage(void)
{
	struct machine m;
	return machine_load(&m) && m.major >= 615;
}

// add_contexts tells the target where its memory can be shown.
static CUresult add_contexts(struct request *r)
{
	ENTER();
	for (int i = 0; i < MAX_CONTEXTS; i++) {
		const struct CUctx_st *c = &process.contexts[i];
		if (c->references > 0 && c->primary)
			memcpy(r->contexts[r->context_count++], process.devices[c->gpu].gpu.id, 16);
	}
	return CUDA_SUCCESS;
}

static CUstream stream_of(const char *uuid)
{
	for (int i = 0; i < MAX_CONTEXTS; i++) {
		struct CUctx_st *c = &process.contexts[i];
		if (c->references == 0 || !c->primary || strcmp(process.devices[c->gpu].gpu.uuid, uuid) != 0)
			continue;
		for (int j = 0; j < MAX_STREAMS; j++) {
			if (process.streams[j].context)
				continue;
			process.streams[j] = (struct CUstream_st){.context = c, .last = process.first, .id = ++process.stream_ids};
			return &process.streams[j];
		}
	}
	return NULL;
}

// show makes addresses for the views of the target.
static CUresult show(CUcheckpointOperationHandle op, const struct block *b)
{
	ENTER();
	for (uint32_t i = 0; i < b->view_count && i < MAX_GPUS; i++) {
		char file[PATH_SIZE];
		CUcheckpointCustomStoragePerDeviceData *d = &op->devices[i];
		d->stream = stream_of(b->views[i].uuid);
		machine_path(file, "owners/%s/view.%s", b->owner, b->views[i].uuid);
		struct alloc *a = d->stream ? alloc_view(d->stream->context->gpu, b->views[i].size, file) : NULL;
		if (!a)
			return CUDA_ERROR_OUT_OF_MEMORY;
		d->devPtr = a->address;
		d->size = a->size;
		op->info.deviceCount++;
	}
	return CUDA_SUCCESS;
}

static CUresult call_storage(const char *name, int pid, struct request *r, CUcheckpointCustomStorageInfo **out)
{
	struct peer p;
	struct block b;
	r->storage = 1;
	if (pid == getpid())
		return CUDA_ERROR_NOT_SUPPORTED;
	CUresult result = add_contexts(r);
	if (result == CUDA_SUCCESS)
		result = call(name, pid, r, NULL);
	if (result == CUDA_SUCCESS)
		result = peer_find(pid, &p);
	if (result == CUDA_SUCCESS)
		result = peer_read(&p, &b);
	if (result != CUDA_SUCCESS)
		return result;
	CUcheckpointOperationHandle op = calloc(1, sizeof *op);
	if (!op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	op->pid = pid;
	op->number = b.operation;
	op->info.handle = op;
	op->info.perDeviceData = op->devices;
	*out = &op->info;
	return show(op, &b);
}

// hide waits for all copies and takes the views' addresses back.
static CUresult hide(CUcheckpointOperationHandle op)
{
	ENTER_IDLE();
	for (unsigned i = 0; i < op->info.deviceCount; i++) {
		alloc_drop(alloc_at(op->devices[i].devPtr));
		op->devices[i].stream->context = NULL;
	}
	return CUDA_SUCCESS;
}

CUresult cuCheckpointOperationComplete(CUcheckpointOperationHandle handle)
{
	if (!handle)
		return CUDA_ERROR_INVALID_VALUE;
	struct request r = {.op = OP_COMPLETE, .operation = handle->number};
	CUresult result = hide(handle);
	if (result == CUDA_SUCCESS)
		result = call("complete", handle->pid, &r, NULL);
	free(handle); // whatever came of it
	return result;
}

CUresult cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs *args)
{
	struct request r = {.op = OP_CHECKPOINT};
	bool storage = args && args->customStorageInfo_out;
	if (args && (!zero(args->reserved, sizeof args->reserved) || (storage && !with_storage())))
		return CUDA_ERROR_INVALID_VALUE;
	return storage ? call_storage("checkpoint", pid, &r, args->customStorageInfo_out) : call("checkpoint", pid, &r, NULL);
}

CUresult cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs *args)
{
	struct machine m;
	struct request r = {.op = OP_RESTORE};
	bool storage = args && args->customStorageInfo_out;
	if (args && (!zero(args->reserved, sizeof args->reserved) || args->padding0 || (storage && !with_storage())))
		return CUDA_ERROR_INVALID_VALUE;
	if (args && args->gpuPairsCount) {
		// Driver 580 brought the pairs; before it they were reserved bytes.
		if (!args->gpuPairs || args->gpuPairsCount > MAX_GPUS || !machine_load(&m) || m.major < 580)
			return CUDA_ERROR_INVALID_VALUE;
		r.pair_count = args->gpuPairsCount;
		memcpy(r.pairs, args->gpuPairs, r.pair_count * sizeof *r.pairs);
	}
	return storage ? call_storage("restore", pid, &r, args->customStorageInfo_out) : call("restore", pid, &r, NULL);
}

CUresult cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs *args)
{
	if (args && !zero(args, sizeof *args))
		return CUDA_ERROR_INVALID_VALUE;
	return call("unlock", pid, &(struct request){.op = OP_UNLOCK}, NULL);
}
