/*
 * SPDX-FileCopyrightText: The hetGPU authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * No memory of ours: what a build without memory.c has, which forwards all of
 * it to the driver.
 */
#include <errno.h>

#include "ipc.h"
#include "memory.h"

#define WEAK __attribute__((weak))

WEAK void hetcuda_memory_start(void)
{
}

WEAK void hetcuda_memory_count(uint32_t *chunks, uint64_t *bytes)
{
	*chunks = 0;
	*bytes = 0;
}

WEAK void hetcuda_memory_describe(char *text)
{
	*text = 0;
}

WEAK int hetcuda_memory_idle(bool anew, uint32_t timeout_ms)
{
	(void)anew;
	(void)timeout_ms;
	return 0;
}

WEAK int hetcuda_memory_quiesce(uint32_t timeout_ms, uint32_t *count, char *text)
{
	(void)timeout_ms;
	(void)text;
	*count = 0;
	return 0;
}

WEAK int hetcuda_memory_export(uint32_t i, struct hetcuda_chunk *chunk, int *fd, char *text)
{
	(void)i;
	(void)chunk;
	(void)fd;
	(void)text;
	return -EINVAL;
}

WEAK int hetcuda_memory_commit(char *text)
{
	(void)text;
	return 0;
}

WEAK uint64_t hetcuda_memory_trimmed(void)
{
	return 0;
}

WEAK void hetcuda_memory_abandon(void)
{
}

WEAK bool hetcuda_memory_moved(void)
{
	return false;
}

WEAK int hetcuda_memory_make(uint64_t id, char *text)
{
	(void)id;
	(void)text;
	return -EINVAL;
}

WEAK int hetcuda_memory_export_made(uint32_t i, struct hetcuda_chunk *chunk, int *fd, char *text)
{
	(void)i;
	(void)chunk;
	(void)fd;
	(void)text;
	return -EINVAL;
}

WEAK int hetcuda_memory_take(const struct hetcuda_chunk *chunk, int fd, char *text)
{
	(void)chunk;
	(void)fd;
	(void)text;
	return -EINVAL;
}

WEAK int hetcuda_memory_take_finish(uint32_t *missing, char *text)
{
	(void)text;
	*missing = 0;
	return 0;
}

WEAK int hetcuda_memory_mark(uint64_t nonce, char *text)
{
	(void)nonce;
	(void)text;
	return 0;
}

WEAK int hetcuda_memory_share(uint32_t *count, char *text)
{
	(void)text;
	*count = 0;
	return 0;
}

WEAK int hetcuda_memory_own(uint64_t *left, char *text)
{
	(void)text;
	*left = 0;
	return 0;
}

WEAK int hetcuda_memory_whole(char *text)
{
	(void)text;
	return 0;
}

WEAK int hetcuda_memory_export_shared(uint32_t i, struct hetcuda_chunk *chunk, int *fd, char *text)
{
	(void)i;
	(void)chunk;
	(void)fd;
	(void)text;
	return -EINVAL;
}

WEAK void hetcuda_memory_take_undo(bool all)
{
	(void)all;
}

WEAK void hetcuda_memory_forked(int initialized)
{
	(void)initialized;
}

WEAK void hetcuda_ipc_lock(void)
{
}

WEAK void hetcuda_ipc_unlock(void)
{
}

WEAK void hetcuda_ipc_forked(void)
{
}
