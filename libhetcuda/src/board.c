// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

#include "board.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "channel.h"
#include "chunk.h"
#include "real.h"

static_assert(sizeof(struct slot) == 512, "a slot of another size");

#define SIZE (BOARD_SLOTS * sizeof(struct slot))

// Newer than the headers of some systems that build this (Linux 6.3).
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8U
#endif

// Nobody makes it smaller under those who have it mapped.
enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

static struct board *all;
static uint64_t made;

static struct board *add(uint64_t owner, uint64_t number, int fd)
{
	struct board *b = calloc(1, sizeof *b);
	void *p = b ? mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
	if (p == MAP_FAILED) {
		free(b);
		return NULL;
	}
	// A child has no use for it, and the driver has its pages.
	madvise(p, SIZE, MADV_DONTFORK);
	*b = (struct board){.next = all, .owner = owner, .number = number, .fd = -1, .slots = p};
	all = b;
	return b;
}

static struct board *create(void)
{
	int fd = memfd_create("hetcuda-events", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct board *b = NULL;
	if (fd < 0 && errno == EACCES) // vm.memfd_noexec is 2
		fd = memfd_create("hetcuda-events", MFD_CLOEXEC | MFD_NOEXEC_SEAL);
	if (fd < 0)
		return NULL;
	if (ftruncate(fd, (off_t)SIZE) == 0 && fcntl(fd, F_ADD_SEALS, SEALS) == 0)
		b = add(channel_token(), made + 1, fd);
	if (!b) {
		close(fd);
		return NULL;
	}
	b->fd = fd;
	made++;
	return b;
}

// take returns a slot that nobody uses. Its numbers go on: the devices may still
// write those of the event before.
static struct slot *take(const struct board *b)
{
	for (int i = 0; i < BOARD_SLOTS; i++) {
		struct slot *s = &b->slots[i];
		if (atomic_load(&s->id) != 0 || atomic_load(&s->users) != 0)
			continue;
		atomic_store(&s->first, atomic_load(&s->recorded));
		atomic_store(&s->id, new_id());
		return s;
	}
	return NULL;
}

struct slot *board_take(struct board **board)
{
	for (struct board *b = all; b; b = b->next) {
		struct slot *s = b->fd >= 0 ? take(b) : NULL;
		if (!s)
			continue;
		*board = b;
		return s;
	}
	*board = create();
	return *board ? take(*board) : NULL;
}

struct board *board_find(uint64_t owner, uint64_t number)
{
	struct board *b = all;
	while (b && (b->owner != owner || b->number != number))
		b = b->next;
	return b;
}

static bool is_board(int fd)
{
	int seals = fcntl(fd, F_GET_SEALS);
	return seals >= 0 && (seals & SEALS) == SEALS && lseek(fd, 0, SEEK_END) == (off_t)SIZE;
}

struct board *board_map(uint64_t owner, uint64_t number, int fd)
{
	return is_board(fd) ? add(owner, number, fd) : NULL;
}

int board_descriptor(const struct board *b)
{
	// The program may have closed all that it did not know, and opened others.
	return b->fd >= 0 && is_board(b->fd) ? fcntl(b->fd, F_DUPFD_CLOEXEC, 0) : -1;
}

CUresult board_word(const struct board *b, const _Atomic uint64_t *word, CUdeviceptr *address)
{
	CUdeviceptr base;
	CUresult r = REAL(cuMemHostGetDevicePointer)(&base, b->slots, 0);
	if (r != CUDA_SUCCESS) {
		r = REAL(cuMemHostRegister)(b->slots, SIZE, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
		if (r == CUDA_SUCCESS)
			r = REAL(cuMemHostGetDevicePointer)(&base, b->slots, 0);
	}
	if (r == CUDA_SUCCESS)
		*address = base + ((uintptr_t)word - (uintptr_t)b->slots);
	return r;
}

bool board_any(void)
{
	return all;
}

void board_unregister_all(void)
{
	for (struct board *b = all; b; b = b->next)
		REAL(cuMemHostUnregister)(b->slots);
}

void board_forked(void)
{
	for (const struct board *b = all; b; b = b->next)
		if (b->fd >= 0 && is_board(b->fd))
			close(b->fd);
	all = NULL;
	made = 0;
}
