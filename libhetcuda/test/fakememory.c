/*
 * SPDX-FileCopyrightText: The hetGPU authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Device memory that is files, for tests of the control thread: HETCUDA_TEST_CHUNKS
 * of them, and HETCUDA_TEST_FAULT names a step that fails.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memory.h"

enum { MOST = 4096, SIZE = 4096 };

static int own[MOST]; /* -1: parked, or taken below */
static int taken[MOST];
static uint32_t total, numbered;

/* "export:70": the 70th export. The test sets it between requests. */
static int fault(const char *step, uint32_t i)
{
	const char *f = getenv("HETCUDA_TEST_FAULT");
	size_t n = strlen(step);

	return f && !strncmp(f, step, n) && (!f[n] || (f[n] == ':' && strtoul(f + n + 1, NULL, 10) == i));
}

void hetcuda_memory_start(void)
{
	const char *n = getenv("HETCUDA_TEST_CHUNKS");
	uint64_t word;

	for (total = 0; n && total < MOST && total < strtoul(n, NULL, 10); total++) {
		own[total] = memfd_create("hetcuda-test", MFD_CLOEXEC);
		taken[total] = -1;
		word = total * UINT64_C(0x9e3779b97f4a7c15);
		if (own[total] < 0 || ftruncate(own[total], SIZE) || pwrite(own[total], &word, sizeof(word), 8) != 8)
			abort();
	}
}

void hetcuda_memory_count(uint32_t *chunks, uint64_t *bytes)
{
	*chunks = total;
	*bytes = (uint64_t)total * SIZE;
}

int hetcuda_memory_idle(bool anew, uint32_t timeout_ms)
{
	(void)anew;
	if (fault("busy", 0)) {
		usleep(timeout_ms * 1000);
		return -ETIMEDOUT;
	}
	if (fault("broken", 0))
		return 700;
	return fault("capture", 0) ? -EBUSY : 0;
}

int hetcuda_memory_quiesce(uint32_t timeout_ms, uint32_t *count, char *text)
{
	(void)timeout_ms;
	if (fault("quiesce", 0)) {
		snprintf(text, HETCUDA_TEXT, "a kernel runs");
		return -ETIMEDOUT;
	}
	*count = numbered = total;
	return 0;
}

int hetcuda_memory_export(uint32_t i, struct hetcuda_chunk *chunk, int *fd, char *text)
{
	if (i >= numbered || fault("export", i)) {
		snprintf(text, HETCUDA_TEXT, "no");
		return 999;
	}
	*fd = fcntl(own[i], F_DUPFD_CLOEXEC, 0);
	if (*fd < 0) {
		snprintf(text, HETCUDA_TEXT, "%s", strerror(errno));
		return -errno;
	}
	chunk->id = i + 1;
	chunk->address = UINT64_C(0x200000000000) + (uint64_t)i * SIZE;
	chunk->size = SIZE;
	return 0;
}

int hetcuda_memory_commit(char *text)
{
	uint32_t i;

	if (fault("commit", 0)) {
		snprintf(text, HETCUDA_TEXT, "not now");
		return 1;
	}
	for (i = 0; i < total; i++) {
		close(own[i]);
		own[i] = -1;
	}
	return 0;
}

uint64_t hetcuda_memory_trimmed(void)
{
	return UINT64_C(5) << 20 | 1;
}

void hetcuda_memory_abandon(void)
{
	numbered = 0;
}

bool hetcuda_memory_moved(void)
{
	return fault("moved", 0);
}

/* What was made is a file as well, in the place of that which UNPARK brings. */
static int made[MOST];
static uint64_t last_made;

int hetcuda_memory_make(uint64_t id, char *text)
{
	if (id == 0 || id > total || own[id - 1] >= 0 || fault("make", (uint32_t)id - 1)) {
		snprintf(text, HETCUDA_TEXT, "chunk %llu can't be made", (unsigned long long)id);
		return 2;
	}
	if (made[id - 1])
		close(made[id - 1]);
	made[id - 1] = memfd_create("hetcuda-test", MFD_CLOEXEC);
	last_made = id;
	return made[id - 1] < 0 || ftruncate(made[id - 1], SIZE) ? -errno : 0;
}

int hetcuda_memory_export_made(uint32_t i, struct hetcuda_chunk *chunk, int *fd, char *text)
{
	(void)text;
	if (i > 0 || fault("export", 0))
		return -EINVAL;
	*fd = fcntl(made[last_made - 1], F_DUPFD_CLOEXEC, 0);
	chunk->id = last_made;
	chunk->size = SIZE;
	return *fd < 0 ? -errno : 0;
}

int hetcuda_memory_take(const struct hetcuda_chunk *chunk, int fd, char *text)
{
	uint64_t i = chunk->id - 1, word = 0;

	if (i >= total || taken[i] >= 0 || chunk->size != SIZE || fault("take", (uint32_t)i)) {
		snprintf(text, HETCUDA_TEXT, "chunk %llu is not one of those", (unsigned long long)chunk->id);
		return -EINVAL;
	}
	if (pread(fd, &word, sizeof(word), 8) != 8 || word != i * UINT64_C(0x9e3779b97f4a7c15)) {
		snprintf(text, HETCUDA_TEXT, "chunk %llu has other data", (unsigned long long)chunk->id);
		return -EIO;
	}
	if (fault("as-is", 0) && !(chunk->flags & HETCUDA_AS_IS)) {
		snprintf(text, HETCUDA_TEXT, "chunk %llu is not to be taken as it is", (unsigned long long)chunk->id);
		return -EPERM;
	}
	if (made[i])
		close(made[i]);
	made[i] = 0;
	taken[i] = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	return taken[i] < 0 ? -errno : 0;
}

int hetcuda_memory_take_finish(uint32_t *missing, char *text)
{
	uint32_t i;

	*missing = 0;

	for (i = 0; i < total; i++) {
		if (taken[i] < 0) {
			snprintf(text, HETCUDA_TEXT, "chunk %u is missing", i + 1);
			return -ENOENT;
		}
	}
	for (i = 0; i < total; i++) {
		own[i] = taken[i];
		taken[i] = -1;
	}
	return 0;
}

void hetcuda_memory_take_undo(bool all)
{
	uint32_t i;

	(void)all;

	for (i = 0; i < total; i++) {
		if (taken[i] >= 0)
			close(taken[i]);
		if (made[i])
			close(made[i]);
		made[i] = 0;
		taken[i] = -1;
	}
}

int hetcuda_memory_mark(uint64_t nonce, char *text)
{
	(void)nonce;
	(void)text;
	return 0;
}

int hetcuda_memory_share(uint32_t *count, char *text)
{
	(void)text;
	*count = total;
	return 0;
}

int hetcuda_memory_own(uint64_t *left, char *text)
{
	snprintf(text, HETCUDA_TEXT, "no room");
	*left = fault("own", 0) ? UINT64_C(5) << 20 | 1 : 0;
	return fault("hole", 0) ? 1 : 0;
}

int hetcuda_memory_whole(char *text)
{
	snprintf(text, HETCUDA_TEXT, "a hole");
	return fault("hole", 0) ? 1 : 0;
}

int hetcuda_memory_export_shared(uint32_t i, struct hetcuda_chunk *chunk, int *fd, char *text)
{
	numbered = total;
	return hetcuda_memory_export(i, chunk, fd, text);
}

void hetcuda_memory_forked(int initialized)
{
	if (!initialized)
		total = 0;
}
