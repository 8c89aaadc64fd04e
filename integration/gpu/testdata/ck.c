// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// ck calls the driver's checkpoint API by hand: the yardstick for the shim. It
// reads "STEP PID" on standard input and answers each with "RESULT SECONDS".
// STEP is state, lock, checkpoint, restore or unlock. It stays, so that the
// start of a program and of the driver is no part of a step's time.
#define _GNU_SOURCE
#include <cuda.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static CUresult step(const char *what, int pid)
{
	CUprocessState state;
	CUcheckpointLockArgs lock;
	memset(&lock, 0, sizeof lock);
	lock.timeoutMs = 10000;
	if (strcmp(what, "state") == 0)
		return cuCheckpointProcessGetState(pid, &state);
	if (strcmp(what, "lock") == 0)
		return cuCheckpointProcessLock(pid, &lock);
	if (strcmp(what, "checkpoint") == 0)
		return cuCheckpointProcessCheckpoint(pid, NULL);
	if (strcmp(what, "restore") == 0)
		return cuCheckpointProcessRestore(pid, NULL);
	if (strcmp(what, "unlock") == 0)
		return cuCheckpointProcessUnlock(pid, NULL);
	return CUDA_ERROR_INVALID_VALUE;
}

static void answer(CUresult r, double start)
{
	const char *name = NULL;
	double took = now() - start;
	cuGetErrorName(r, &name);
	printf("%s %.6f\n", name ? name : "?", took);
	fflush(stdout);
}

int main(void)
{
	char what[16];
	int pid;
	double start = now();
	CUresult r = cuInit(0);
	answer(r, start);
	while (r == CUDA_SUCCESS && scanf("%15s %d", what, &pid) == 2) {
		start = now();
		answer(step(what, pid), start);
	}
	return r == CUDA_SUCCESS ? 0 : 1;
}
