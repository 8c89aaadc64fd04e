// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Letting go of all memory and taking it back, over a driver of software: the
// data and the addresses stay, whatever fails in between.
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "block.h"
#include "chunk.h"
#include "memory.h"
#include "memory_fake.h"
#include "overrides.h"
#include "real.h"

#define GIB ((size_t)1 << 30)
#define MIB ((size_t)1 << 20)

enum { MAX = 64 };

// What the peer holds.
static struct hetcuda_chunk chunks_held[MAX];
static int fds[MAX];
static uint32_t held;
static char text[HETCUDA_TEXT];
static uint32_t missing;

static int take_descriptors(void)
{
	text[0] = 0;
	int r = hetcuda_memory_quiesce(1000, &held, text);
	if (r)
		return r;
	CHECK(held <= MAX);
	for (uint32_t i = 0; i < held; i++) {
		r = hetcuda_memory_export(i, &chunks_held[i], &fds[i], text);
		if (r) {
			hetcuda_memory_abandon();
			held = i;
			return r;
		}
		CHECK(fcntl(fds[i], F_GETFD) & FD_CLOEXEC);
	}
	return 0;
}

static void drop_descriptors(void)
{
	for (uint32_t i = 0; i < held; i++)
		close(fds[i]);
	held = 0;
}

// give_back gives them in another order than they came.
static int give_back_with(uint32_t flags)
{
	for (uint32_t i = held; i-- > 0;) {
		chunks_held[i].flags = flags;
		int r = hetcuda_memory_take(&chunks_held[i], fds[i], text);
		if (r)
			return r;
	}
	return hetcuda_memory_take_finish(&missing, text);
}

static int give_back(void)
{
	return give_back_with(0);
}

struct program {
	CUdeviceptr small[50], large, huge;
};

static void program_start(struct program *p)
{
	for (int i = 0; i < 50; i++) {
		OK(hetcuda_cuMemAlloc_v2(&p->small[i], 100000));
		memset((void *)p->small[i], i, 100000);
	}
	OK(hetcuda_cuMemAlloc_v2(&p->large, 5 * MIB));
	memset((void *)p->large, 77, 5 * MIB);
	OK(hetcuda_cuMemAlloc_v2(&p->huge, 3 * GIB - MIB));
	for (size_t o = 0; o < 3 * GIB - MIB; o += 64 * MIB)
		*(uint64_t *)(p->huge + o) = o ^ 0x5555;
}

static void program_check(const struct program *p)
{
	for (int i = 0; i < 50; i++)
		for (size_t o = 0; o < 100000; o += 999)
			CHECK(*(unsigned char *)(p->small[i] + o) == i);
	CHECK(*(char *)p->large == 77 && *(char *)(p->large + 5 * MIB - 1) == 77);
	for (size_t o = 0; o < 3 * GIB - MIB; o += 64 * MIB)
		CHECK(*(uint64_t *)(p->huge + o) == (o ^ 0x5555));
}

static void program_end(const struct program *p)
{
	for (int i = 0; i < 50; i++)
		OK(hetcuda_cuMemFree_v2(p->small[i]));
	OK(hetcuda_cuMemFree_v2(p->large));
	OK(hetcuda_cuMemFree_v2(p->huge));
	block_trim();
	CHECK(chunk_count == 0 && fake.handles == 0 && fake.maps == 0);
}

static void round_trip(void)
{
	struct program p;
	uint32_t count;
	uint64_t bytes;
	fake_start(1, 16 * GIB);
	fake_context(0);
	program_start(&p);
	for (int i = 0; i < 3; i++) {
		OK(take_descriptors());
		program_check(&p);
		CHECK(chunks_held[0].device[3] == 0x40 && chunks_held[0].address == p.small[0]);
		OK(hetcuda_memory_commit(text));
		CHECK(fake.handles == 0 && fake.maps == 0 && fake.used[0] == 0 && fake.reservations == 1);
		hetcuda_memory_count(&count, &bytes);
		CHECK(count == held && bytes == 3 * 2 * MIB + 6 * MIB + 3 * GIB);
		OK(give_back());
		drop_descriptors();
		program_check(&p);
		CHECK(fake_access(p.huge + 2 * GIB, 0));
	}
	// What comes after is as ever.
	CUdeviceptr a;
	OK(hetcuda_cuMemAlloc_v2(&a, 100));
	OK(hetcuda_cuMemFree_v2(a));
	program_end(&p);
	// A process with nothing has nothing to park.
	OK(take_descriptors());
	CHECK(held == 0);
	OK(hetcuda_memory_commit(text));
	OK(give_back());
}

static void wrong(void)
{
	struct program p;
	fake_start(1, 16 * GIB);
	fake_context(0);
	program_start(&p);
	OK(take_descriptors());
	hetcuda_memory_abandon();
	drop_descriptors();
	program_check(&p);
	OK(take_descriptors());
	OK(hetcuda_memory_commit(text));
	struct hetcuda_chunk c = chunks_held[1];
	c.id += 1000;
	CHECK(hetcuda_memory_take(&c, fds[1], text) == -EINVAL && strstr(text, "not one that is parked"));
	c = chunks_held[1];
	c.size *= 2;
	CHECK(hetcuda_memory_take(&c, fds[1], text) == -EINVAL);
	OK(hetcuda_memory_take(&chunks_held[1], fds[1], text));
	CHECK(hetcuda_memory_take(&chunks_held[1], fds[1], text) == -EINVAL);
	CHECK(hetcuda_memory_take_finish(&missing, text) == -ENOENT && strstr(text, "are missing"));
	hetcuda_memory_take_undo(false);
	CHECK(fake.handles == 0 && fake.maps == 0);
	OK(hetcuda_memory_take(&chunks_held[0], fds[0], text));
	hetcuda_memory_take_undo(false);
	CHECK(fake.handles == 0 && fake.maps == 0);
	OK(give_back());
	drop_descriptors();
	program_check(&p);
	program_end(&p);
}

// Every call of the driver fails once, on the way out and on the way back.
static void failures(void)
{
	struct program p;
	fake_start(1, 16 * GIB);
	fake_context(0);
	program_start(&p);
	fake.fail = "";
	fake.with = CUDA_ERROR_UNKNOWN;
	size_t handles = fake.handles, maps = fake.maps, lost = 0;
	for (unsigned n = 1;; n++) {
		fake.nth = n;
		int r = take_descriptors();
		if (r == 0)
			r = hetcuda_memory_commit(text);
		bool all = fake.nth > 0;
		fake.nth = 0;
		CHECK(r == 0 || text[0]);
		if (r == 0) {
			// A release that failed leaves a handle to the driver, and
			// nothing is mapped.
			CHECK(fake.maps == 0 && fake.handles - lost <= 1);
			handles += fake.handles - lost;
			lost = fake.handles;
			OK(give_back());
		}
		drop_descriptors();
		program_check(&p);
		CHECK(fake.handles == handles && fake.maps == maps);
		if (all)
			break;
	}
	OK(take_descriptors());
	OK(hetcuda_memory_commit(text));
	lost = fake.handles;
	for (unsigned n = 1;; n++) {
		fake.nth = n;
		int r = give_back();
		bool all = fake.nth > 0;
		fake.nth = 0;
		if (r != 0) {
			CHECK(!all && text[0]);
			hetcuda_memory_take_undo(false);
			CHECK(fake.handles == lost && fake.maps == 0);
			continue;
		}
		// What could not be made the process's own is so before the next park.
		drop_descriptors();
		program_check(&p);
		if (all)
			break;
		OK(take_descriptors());
		OK(hetcuda_memory_commit(text));
		// Again, a release that failed leaves a handle.
		CHECK(fake.maps == 0 && fake.handles - lost <= 1);
		lost = fake.handles;
	}
	program_check(&p);
}

// There is no room for two of anything when the memory comes back, and there is
// some later: then it is the process's own before it is parked once more. If there
// is none then either, nothing is parked.
static void crowded(void)
{
	struct program p;
	fake_start(1, 16 * GIB);
	fake_context(0);
	program_start(&p);
	size_t handles = fake.handles, maps = fake.maps;
	OK(take_descriptors());
	OK(hetcuda_memory_commit(text));
	fake.memory = fake.used[0];
	OK(give_back());
	drop_descriptors();
	program_check(&p);
	text[0] = 0;
	fake.memory = fake.used[0];
	CHECK(take_descriptors() == CUDA_ERROR_OUT_OF_MEMORY && strstr(text, "the process's own"));
	program_check(&p);
	fake.memory = 16 * GIB;
	for (int i = 0; i < 3; i++) {
		OK(take_descriptors());
		OK(hetcuda_memory_commit(text));
		CHECK(fake.handles == 0 && fake.maps == 0);
		OK(give_back());
		drop_descriptors();
		program_check(&p);
		CHECK(fake.handles == handles && fake.maps == maps);
	}
}

// Memory that was taken as it was becomes the process's own when the peer has let go of
// it, with room for one chunk more; and where a call fails, or there is no room, the
// program has what it had, and the next try does the rest.
static void owned(void)
{
	struct program p;
	uint64_t left;
	fake_start(1, 16 * GIB);
	fake_context(0);
	program_start(&p);
	size_t handles = fake.handles, maps = fake.maps;
	OK(hetcuda_memory_own(&left, text));
	CHECK(left == 0);
	for (int i = 0; i < 3; i++) {
		OK(take_descriptors());
		OK(hetcuda_memory_commit(text));
		OK(give_back_with(HETCUDA_LATER));
		drop_descriptors();
		program_check(&p);
		fake.memory = fake.used[0] + MIB;
		text[0] = 0;
		OK(hetcuda_memory_own(&left, text));
		CHECK(left == chunk_bytes && strstr(text, "the process's own"));
		fake.memory = fake.used[0] + GIB;
		OK(hetcuda_memory_own(&left, text));
		program_check(&p);
		CHECK(left == 0 && fake.handles == handles && fake.maps == maps && fake.used[0] == chunk_bytes);
		CHECK(fake_access(p.huge + 2 * GIB, 0));
	}
	fake.memory = 16 * GIB;
	fake.fail = "";
	fake.with = CUDA_ERROR_UNKNOWN;
	for (unsigned n = 1, all = 0; !all; n++) {
		OK(take_descriptors());
		OK(hetcuda_memory_commit(text));
		OK(give_back_with(HETCUDA_LATER));
		drop_descriptors();
		text[0] = 0;
		fake.nth = n;
		OK(hetcuda_memory_own(&left, text));
		all = fake.nth > 0;
		fake.nth = 0;
		program_check(&p);
		// A view that can't be unmapped is where nobody looks.
		CHECK((left == 0 || text[0]) && fake.maps >= maps && fake.maps <= maps + 1);
		maps = fake.maps;
		OK(hetcuda_memory_own(&left, text));
		CHECK(left == 0);
		program_check(&p);
	}
	program_check(&p);
}

// fill is what the peer does with memory that the process has made for chunk i.
static int fill(uint32_t i)
{
	struct hetcuda_chunk made = {0};
	int fd = -1, r = hetcuda_memory_make(chunks_held[i].id, text);
	if (r)
		return r;
	r = hetcuda_memory_export_made(0, &made, &fd, text);
	if (r)
		return r;
	CHECK(made.id == chunks_held[i].id && made.size == chunks_held[i].size && fcntl(fd, F_GETFD) & FD_CLOEXEC);
	off_t from = 0, to = 0;
	while ((size_t)from < made.size)
		CHECK(copy_file_range(fds[i], &from, fd, &to, made.size - (size_t)from, 0) > 0);
	close(fds[i]);
	fds[i] = fd;
	return 0;
}

static int fill_all(void)
{
	int r = 0;
	for (uint32_t i = 0; i < held && !r; i++)
		r = fill(i);
	return r;
}

// A process that was moved to another device makes its memory itself, where it was; and what
// fails in between leaves it parked, and without anything.
static void moved(void)
{
	CUdeviceptr small, large, mapped;
	CUmemGenericAllocationHandle own;
	uint64_t left;
	fake_start(1, 16 * GIB);
	fake_context(0);
	hetcuda_memory_start();
	OK(hetcuda_cuMemAlloc_v2(&small, 100000));
	OK(hetcuda_cuMemAlloc_v2(&large, 5 * MIB));
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	OK(hetcuda_cuMemCreate(&own, 4 * MIB, &prop, 0));
	OK(REAL(cuMemAddressReserve)(&mapped, 4 * MIB, 0, 0, 0));
	OK(hetcuda_cuMemMap(mapped, 4 * MIB, 0, own, 0));
	OK(hetcuda_cuMemSetAccess(mapped, 4 * MIB, &access, 1));
	memset((void *)small, 1, 100000);
	memset((void *)large, 2, 5 * MIB);
	memset((void *)mapped, 3, 4 * MIB);
	size_t handles = fake.handles, maps = fake.maps;
	fake.with = CUDA_ERROR_UNKNOWN;
	for (unsigned n = 0, all = 0; !all; n++) {
		OK(take_descriptors());
		uint32_t count = held;
		CHECK(count >= 3);
		CHECK(hetcuda_memory_make(chunks_held[0].id, text) == -EINVAL);
		OK(hetcuda_memory_commit(text));
		CHECK(hetcuda_memory_moved() == (n > 0));
		fake.moved = true;
		CHECK(hetcuda_memory_moved());
		CHECK(give_back() == CUDA_ERROR_NOT_INITIALIZED && strstr(text, "cuMemImport"));
		hetcuda_memory_take_undo(true);
		CHECK(hetcuda_memory_make(UINT64_C(1) << 40, text) == -EINVAL);
		CHECK(hetcuda_memory_export_made(0, &(struct hetcuda_chunk){0}, &(int){0}, text) == -EINVAL);
		fake.fail = "";
		fake.nth = n;
		int r = fill_all();
		if (!r)
			r = give_back();
		all = n > 0 && !r;
		CHECK(fake.nth == 0 || all || r);
		fake.nth = 0;
		if (r) {
			hetcuda_memory_take_undo(false);
			hetcuda_memory_take_undo(true);
			CHECK(fake.handles == 0 && fake.maps == 0 && text[0]);
			OK(fill_all());
			OK(fill(0)); // twice is once more
			OK(give_back());
		}
		drop_descriptors();
		OK(hetcuda_memory_own(&left, text));
		CHECK(left == 0 && fake.handles == handles && fake.maps == maps && fake.used[0] == chunk_bytes && fake_access(mapped, 0));
		CHECK(*(char *)(small + 99999) == 1 && *(char *)(large + 5 * MIB - 1) == 2 && *(char *)(mapped + 4 * MIB - 1) == 3);
	}
	// Where it began it takes what others have made.
	OK(take_descriptors());
	OK(hetcuda_memory_commit(text));
	fake.moved = false;
	CHECK(!hetcuda_memory_moved());
	OK(give_back());
	drop_descriptors();
	CHECK(*(char *)(small + 99999) == 1 && *(char *)(mapped + 4 * MIB - 1) == 3);
}

// The driver fails for a while, from any call on, while memory is made the process's own:
// what is not where the program looks for it is told of, and is there again when the driver
// does what it is asked to.
static void holes(void)
{
	struct program p;
	uint64_t left;
	unsigned seen = 0;
	fake_start(1, 1024 * GIB); // what can't be released is lost
	fake_context(0);
	program_start(&p);
	fake.fail = "";
	fake.with = CUDA_ERROR_UNKNOWN;
	for (unsigned n = 1, all = 0; !all; n++) {
		OK(take_descriptors());
		OK(hetcuda_memory_commit(text));
		OK(give_back_with(HETCUDA_LATER));
		drop_descriptors();
		text[0] = 0;
		fake.lasting = true;
		fake.nth = n;
		int r = hetcuda_memory_own(&left, text);
		all = fake.nth > 1;
		if (r) {
			seen++;
			CHECK(left > 0 && text[0]);
			// The program is not let on, and a PARK is refused.
			text[0] = 0;
			CHECK(hetcuda_memory_whole(text) != 0 && text[0]);
			CHECK(take_descriptors() != 0);
		} else {
			program_check(&p);
		}
		fake.nth = fake.lasting = 0;
		if (r && n % 2)
			OK(hetcuda_memory_whole(text));
		OK(hetcuda_memory_own(&left, text));
		CHECK(left == 0);
		program_check(&p);
		CHECK(fake_access(p.huge + 2 * GIB, 0));
		OK(hetcuda_memory_whole(text));
	}
	CHECK(seen > 3); // with nothing mapped, and with what nobody may use
}

// The driver fails for a while, so that nothing can be undone either: what the
// program has not the peer has, and its next try finds everything in order.
static void broken(void)
{
	struct program p;
	fake_start(1, 1024 * GIB); // what can't be released is lost
	fake_context(0);
	program_start(&p);
	fake.fail = "";
	fake.with = CUDA_ERROR_UNKNOWN;
	fake.lasting = true;
	size_t maps = fake.maps;
	unsigned parked = 0;
	for (unsigned n = 1;; n++) {
		OK(take_descriptors());
		fake.nth = n;
		int r = hetcuda_memory_commit(text);
		bool all = fake.nth > 1;
		fake.nth = 0;
		if (r == 0) {
			parked++;
			OK(give_back());
		}
		drop_descriptors();
		program_check(&p);
		CHECK(fake.maps == maps);
		if (all)
			break;
	}
	CHECK(parked > 1); // not only the last
	OK(take_descriptors());
	OK(hetcuda_memory_commit(text));
	for (unsigned n = 1;; n++) {
		fake.nth = n;
		int r = give_back();
		if (r)
			hetcuda_memory_take_undo(false);
		fake.nth = 0;
		if (r == 0)
			break;
		CHECK(text[0]);
	}
	drop_descriptors();
	program_check(&p);
	// What could not be unmapped, twice, is where nobody looks.
	CHECK(fake.maps - maps < 64);
}

// What was kept for later is told of, since it is free for others until it is back.
static void trimmed(void)
{
	CUdeviceptr a;
	fake_start(1, 16 * GIB);
	fake_context(0);
	OK(hetcuda_cuMemAlloc_v2(&a, 100));
	OK(hetcuda_cuMemFree_v2(a));
	uint64_t kept = chunk_bytes;
	CHECK(kept >= 2 * MIB);
	OK(take_descriptors());
	OK(hetcuda_memory_commit(text));
	CHECK(held == 0 && hetcuda_memory_trimmed() == kept);
	OK(give_back());
	OK(take_descriptors());
	CHECK(hetcuda_memory_trimmed() == 0);
	hetcuda_memory_abandon();
}

// GPU work that doesn't end: the time-out holds, and a later try finds the end.
static void endless(void)
{
	CUdeviceptr a;
	fake_start(1, 16 * GIB);
	fake_context(0);
	OK(hetcuda_cuMemAlloc_v2(&a, 3 * MIB));
	fake.busy = true;
	CHECK(hetcuda_memory_quiesce(50, &held, text) == -ETIMEDOUT && strstr(text, "still running"));
	CHECK(hetcuda_memory_quiesce(50, &held, text) == -ETIMEDOUT);
	fake.busy = false;
	OK(hetcuda_memory_quiesce(5000, &held, text));
	CHECK(held == 1);
	hetcuda_memory_abandon();
	OK(hetcuda_cuMemFree_v2(a));
}

// What pools keep though nothing is in it goes before the driver copies it.
static void pools(void)
{
	CUdeviceptr a;
	fake_start(1, 16 * GIB);
	fake_context(0);
	OK(hetcuda_cuMemAllocAsync(&a, 3 * MIB, NULL));
	OK(hetcuda_cuMemAllocAsync(&a, 5 * MIB, NULL));
	fake.pool_used -= 5 * MIB;
	OK(take_descriptors());
	CHECK(fake.pool == 8 * MIB);
	OK(hetcuda_memory_commit(text));
	CHECK(fake.pool == 3 * MIB);
	OK(give_back());
	hetcuda_memory_describe(text);
	CHECK(strstr(text, "bytes in pools: 3145728") && strstr(text, "stream-ordered: 2"));
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		{"round_trip", round_trip}, {"wrong", wrong}, {"failures", failures}, {"broken", broken}, {"crowded", crowded}, {"owned", owned},
		{"holes", holes}, {"moved", moved}, {"trimmed", trimmed}, {"endless", endless}, {"pools", pools}, {0},
	};
	return run_tests(tests, argc, argv);
}
