// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// ckpt: drives the checkpoint API of CUDA on other processes, step by step.
//
//     ckpt [-t lock_timeout_ms] [-r retry_ms] [-m old=new]... STEPS PID...
//
// STEPS are letters, each done to every PID in turn: s state, t thread, l lock,
// c checkpoint, r restore, u unlock; a locks all or none, with retries until
// retry_ms are over. Each step of each process prints a line
// "STEP PID RESULT_NAME [value]". The first failure ends it with status 1.
#define _GNU_SOURCE
#include <cuda.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static unsigned lock_timeout_ms = 10000, retry_ms = 10000;
static CUcheckpointGpuPair pairs[16];
static unsigned pair_count;

static double now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1000 + (double)t.tv_nsec / 1e6;
}

static bool report(const char *step, int pid, CUresult r, const char *value)
{
	const char *name = NULL;
	cuGetErrorName(r, &name);
	printf("%s %d %s%s%s\n", step, pid, name ? name : "?", *value ? " " : "", value);
	fflush(stdout);
	return r == CUDA_SUCCESS;
}

static CUresult lock(int pid)
{
	CUcheckpointLockArgs args = {.timeoutMs = lock_timeout_ms};
	return cuCheckpointProcessLock(pid, &args);
}

static CUresult restore(int pid)
{
	CUcheckpointRestoreArgs args = {.gpuPairs = pairs, .gpuPairsCount = pair_count};
	return cuCheckpointProcessRestore(pid, pair_count ? &args : NULL);
}

static bool state(int pid)
{
	static const char *const names[] = {"running", "locked", "checkpointed", "failed", "checkpointing", "restoring"};
	CUprocessState s = CU_PROCESS_STATE_RUNNING;
	CUresult r = cuCheckpointProcessGetState(pid, &s);
	return report("state", pid, r, r == CUDA_SUCCESS ? names[s] : "");
}

static bool thread(int pid)
{
	int tid = 0;
	char value[16] = "";
	CUresult r = cuCheckpointProcessGetRestoreThreadId(pid, &tid);
	if (r == CUDA_SUCCESS)
		snprintf(value, sizeof value, "%d", tid);
	return report("thread", pid, r, value);
}

static bool step(char letter, int pid)
{
	switch (letter) {
	case 's': return state(pid);
	case 't': return thread(pid);
	case 'l': return report("lock", pid, lock(pid), "");
	case 'c': return report("checkpoint", pid, cuCheckpointProcessCheckpoint(pid, NULL), "");
	case 'r': return report("restore", pid, restore(pid), "");
	case 'u': return report("unlock", pid, cuCheckpointProcessUnlock(pid, NULL), "");
	default: exit(2);
	}
}

// try_all locks every process or, in the end, none.
static CUresult try_all(char **pids, int count)
{
	for (int i = 0; i < count; i++) {
		CUresult r = lock(atoi(pids[i]));
		if (r == CUDA_SUCCESS)
			continue;
		while (i-- > 0)
			cuCheckpointProcessUnlock(atoi(pids[i]), NULL);
		return r;
	}
	return CUDA_SUCCESS;
}

static bool lock_all(char **pids, int count)
{
	double end = now_ms() + retry_ms;
	unsigned tries = 0;
	char value[32];
	CUresult r;
	do {
		tries++;
		r = try_all(pids, count);
		if (r == CUDA_ERROR_NOT_READY)
			usleep(1000 + 1000 * (tries * 7 % 13)); // out of step with the program
	} while (r == CUDA_ERROR_NOT_READY && now_ms() < end);
	snprintf(value, sizeof value, "tries=%u", tries);
	return report("lockall", atoi(pids[0]), r, value);
}

static bool parse_uuid(const char *text, CUuuid *uuid)
{
	text += strncmp(text, "GPU-", 4) == 0 ? 4 : 0;
	for (int i = 0; i < 16; i++) {
		unsigned byte;
		text += *text == '-';
		if (sscanf(text, "%2x", &byte) != 1)
			return false;
		uuid->bytes[i] = (char)byte;
		text += 2;
	}
	return true;
}

static void add_pair(char *text)
{
	char *new = strchr(text, '=');
	if (!new || pair_count == sizeof pairs / sizeof *pairs)
		exit(2);
	*new++ = 0;
	CUcheckpointGpuPair *p = &pairs[pair_count++];
	if (!parse_uuid(text, &p->oldUuid) || !parse_uuid(new, &p->newUuid))
		exit(2);
}

int main(int argc, char **argv)
{
	for (int o; (o = getopt(argc, argv, "t:r:m:")) != -1;) {
		switch (o) {
		case 't': lock_timeout_ms = (unsigned)atoi(optarg); break;
		case 'r': retry_ms = (unsigned)atoi(optarg); break;
		case 'm': add_pair(optarg); break;
		default: return 2;
		}
	}
	if (argc - optind < 2)
		return 2;
	if (cuInit(0) != CUDA_SUCCESS && !report("init", getpid(), cuInit(0), ""))
		return 1;
	char **pids = argv + optind + 1;
	int count = argc - optind - 1;
	for (const char *s = argv[optind]; *s; s++) {
		if (*s == 'a' && !lock_all(pids, count))
			return 1;
		for (int i = 0; *s != 'a' && i < count; i++)
			if (!step(*s, atoi(pids[i])))
				return 1;
	}
	return 0;
}
