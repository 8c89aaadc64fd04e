// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Custom storage in the process whose memory is copied: what it has on a GPU
// is shown as one file, and that file is all that is brought back.
#include <fcntl.h>
#include <string.h>

#include "process.h"

enum { GRANULE = 2 << 20, CHUNK = 1 << 20, GARBAGE = 0xa5 };

// A view that is made or taken: where it is, how far.
struct walk {
	int fd; // -1: only the size is asked for
	bool take;
	uint64_t at;
};

static bool piece(const struct alloc *a, struct walk *w, size_t offset, size_t size, void *buffer)
{
	if (w->take)
		return read_all(w->fd, buffer, size, w->at + offset) && alloc_write(a, offset, buffer, size);
	return alloc_read(a, offset, buffer, size) && write_all(w->fd, buffer, size, w->at + offset);
}

static bool one(const struct alloc *a, void *context)
{
	struct walk *w = context;
	CLEAN_FREE void *buffer = malloc(CHUNK);
	for (size_t n, offset = 0; w->fd >= 0 && offset < a->size; offset += n) {
		n = a->size - offset < CHUNK ? a->size - offset : CHUNK;
		if (!buffer || !piece(a, w, offset, n, buffer))
			return false;
	}
	w->at += (a->size + GRANULE - 1) / GRANULE * GRANULE;
	return true;
}

// each visits what the process has on a GPU, always in the same order.
static bool each(int gpu, struct walk *w)
{
	for (int i = 0; i < MAX_ALLOCS; i++) {
		const struct alloc *a = &process.allocs[i];
		if (a->kind == DEVICE && a->gpu == gpu && !one(a, w))
			return false;
	}
	return memory_each(gpu, one, w);
}

static void view_path(char path[PATH_SIZE], int gpu)
{
	machine_path(path, "owners/%s/view.%s", process.owner, process.devices[gpu].gpu.uuid);
}

// garbage is what memory holds that nobody has written.
static bool garbage(int fd, uint64_t size)
{
	CLEAN_FREE char *buffer = malloc(CHUNK);
	if (buffer)
		memset(buffer, GARBAGE, CHUNK);
	for (uint64_t n, at = 0; buffer && at < size; at += n) {
		n = size - at < CHUNK ? size - at : CHUNK;
		if (!write_all(fd, buffer, (size_t)n, at))
			return false;
	}
	return buffer;
}

static bool has_context(const struct request *r, const unsigned char id[16])
{
	for (uint32_t i = 0; i < r->context_count && i < MAX_GPUS; i++)
		if (!memcmp(r->contexts[i], id, 16))
			return true;
	return false;
}

static CUresult view_show(const struct request *r, int gpu, bool filled)
{
	char path[PATH_SIZE];
	struct walk size = {.fd = -1}, copy = {0};
	each(gpu, &size);
	if (size.at == 0)
		return CUDA_SUCCESS;
	if (!has_context(r, process.devices[gpu].gpu.id))
		return CUDA_ERROR_INVALID_CONTEXT;
	view_path(path, gpu);
	CLEAN_FD int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	copy.fd = fd;
	if (fd < 0 || !garbage(fd, size.at) || (filled && !each(gpu, &copy)))
		return CUDA_ERROR_OPERATING_SYSTEM;
	struct view *v = &block.views[block.view_count++];
	v->size = size.at;
	snprintf(v->uuid, sizeof v->uuid, "%s", process.devices[gpu].gpu.uuid);
	return CUDA_SUCCESS;
}

CUresult views_show(const struct request *r, bool filled)
{
	CUresult result = CUDA_SUCCESS;
	block.view_count = 0;
	for (int i = 0; i < process.count && result == CUDA_SUCCESS; i++)
		result = view_show(r, i, filled);
	if (result == CUDA_SUCCESS)
		block.operation++;
	else
		views_end();
	return result;
}

bool views_take(void)
{
	for (int i = 0; i < process.count; i++) {
		char path[PATH_SIZE];
		view_path(path, i);
		struct walk size = {.fd = -1};
		each(i, &size);
		CLEAN_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
		struct walk w = {.fd = fd, .take = true};
		if (size.at > 0 && (fd < 0 || !each(i, &w)))
			return false;
	}
	return true;
}

void views_end(void)
{
	for (int i = 0; i < process.count; i++) {
		char path[PATH_SIZE];
		view_path(path, i);
		unlink(path);
	}
	block.view_count = 0;
}
