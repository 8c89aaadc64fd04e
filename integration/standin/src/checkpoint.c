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

CUresult cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs *args)
{
	if (args && !zero(args, sizeof *args))
		return CUDA_ERROR_INVALID_VALUE;
	return call("checkpoint", pid, &(struct request){.op = OP_CHECKPOINT}, NULL);
}

CUresult cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs *args)
{
	struct machine m;
	struct request r = {.op = OP_RESTORE};
	if (args && (!zero(args->reserved, sizeof args->reserved) || args->reserved1))
		return CUDA_ERROR_INVALID_VALUE;
	if (args && args->gpuPairsCount) {
		// Driver 580 brought the pairs; before it they were reserved bytes.
		if (!args->gpuPairs || args->gpuPairsCount > MAX_GPUS || !machine_load(&m) || m.major < 580)
			return CUDA_ERROR_INVALID_VALUE;
		r.pair_count = args->gpuPairsCount;
		memcpy(r.pairs, args->gpuPairs, r.pair_count * sizeof *r.pairs);
	}
	return call("restore", pid, &r, NULL);
}

CUresult cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs *args)
{
	if (args && !zero(args, sizeof *args))
		return CUDA_ERROR_INVALID_VALUE;
	return call("unlock", pid, &(struct request){.op = OP_UNLOCK}, NULL);
}
