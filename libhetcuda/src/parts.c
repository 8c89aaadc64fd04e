// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

#include "parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "log.h"
#include "watch.h"

bool next_there(const struct range *r, size_t *at, size_t end, size_t unit, size_t *length)
{
	size_t to = 0;
	bool found = false;
	if (*at >= end)
		return false;
	if (!r->placed) {
		*length = end - *at;
		return true;
	}
	for (const struct part *p = r->parts; p; p = p->next) {
		size_t offset = p->address - r->address, first = offset / unit * unit;
		size_t last = (offset + p->size + unit - 1) / unit * unit;
		if (last <= *at)
			continue;
		// The driver copies within one variable only.
		if (first >= end || (found && (first > to || unit == 1)))
			break;
		if (!found)
			*at = first > *at ? first : *at;
		to = last > to ? last : to;
		found = true;
	}
	*length = (to < end ? to : end) - *at;
	return found;
}

struct part *part_find(const struct range *r, CUdeviceptr address)
{
	struct part *p = r->parts;
	while (p && address - p->address >= p->size)
		p = p->next;
	return p;
}

bool pages_there(const struct range *r, CUdeviceptr address)
{
	size_t page = (address - r->address) / PAGE * PAGE, at = page, n;
	return next_there(r, &at, page + PAGE, PAGE, &n);
}

// What the kernel says of a mapping.
struct mapping {
	uint64_t start, end;
	char rights[4];
	uint64_t major, minor, inode;
};

// number reads one, and goes on behind the character that follows it.
static uint64_t number(char **p, int base)
{
	uint64_t n = strtoul(*p, p, base);
	*p += **p != 0;
	return n;
}

// parse reads "start-end rights offset major:minor inode ..." (proc(5)).
static bool parse(char *p, struct mapping *m)
{
	m->start = number(&p, 16);
	m->end = number(&p, 16);
	if (strlen(p) < sizeof m->rights + 1)
		return false;
	memcpy(m->rights, p, sizeof m->rights);
	p += sizeof m->rights + 1;
	number(&p, 16);
	m->major = number(&p, 16);
	m->minor = number(&p, 16);
	m->inode = number(&p, 10);
	return true;
}

// mapping_at returns the mapping at an address, or the next one.
static bool mapping_at(FILE *maps, uint64_t address, struct mapping *m)
{
	char line[512];
	bool whole = true; // the line before: a long path is no line of its own
	rewind(maps);
	while (fgets(line, sizeof line, maps)) {
		if (whole && parse(line, m) && address < m->end)
			return true;
		whole = strchr(line, '\n');
	}
	return false;
}

// reserved tells whether addresses are kept from the CPU, and by nothing else.
static bool reserved(CUdeviceptr address, size_t size)
{
	struct mapping m = {0};
	FILE *maps = fopen("/proc/self/maps", "re");
	bool all = maps;
	for (CUdeviceptr at = address; all && at < address + size; at = m.end)
		all = mapping_at(maps, at, &m) && m.start <= at && !memcmp(m.rights, "---p", 4) && m.inode == 0;
	if (maps)
		fclose(maps);
	return all;
}

static void *pointer(CUdeviceptr address)
{
	return (void *)(uintptr_t)address;
}

// cover puts pages of the CPU over addresses of a range, in the driver's place.
static CUresult cover(struct range *r, size_t at, size_t size)
{
	if (!reserved(r->address + at, size)) {
		hetcuda_log("there is something of the CPU's at the managed variable %#llx", r->address + at);
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	if (mremap(r->alias + at, 0, size, MREMAP_MAYMOVE | MREMAP_FIXED, pointer(r->address + at)) == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	madvise(pointer(r->address + at), size, MADV_DONTFORK);
	return CUDA_SUCCESS;
}

static void put_back(CUdeviceptr address, size_t size)
{
	if (mmap(pointer(address), size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
		hetcuda_log("the pages of a managed variable at %#llx can't be taken away", address);
}

// uncover puts back what was there. With a context the driver may have let go of the
// addresses, and anybody have got them: only what is still our page.
static void uncover(struct range *r, size_t at, size_t size)
{
	struct mapping ours, m;
	FILE *maps = fopen("/proc/self/maps", "re");
	watch_remove(r->address + at, size);
	bool known = maps && mapping_at(maps, (uintptr_t)r->alias, &ours);
	for (CUdeviceptr from = r->address + at, to = from + size; known && from < to; from = m.end) {
		if (!mapping_at(maps, from, &m) || m.start >= to)
			break;
		m.start = m.start > from ? m.start : from;
		m.end = m.end < to ? m.end : to;
		if (m.rights[3] == 's' && m.inode == ours.inode && m.major == ours.major && m.minor == ours.minor)
			put_back(m.start, m.end - m.start);
	}
	if (maps)
		fclose(maps);
	madvise(r->alias + at, size, MADV_REMOVE);
}

// own_pages finds the pages of a part that no other part has any of: all but the
// first and the last, and these perhaps. The part itself is not in the list.
static bool own_pages(const struct range *r, CUdeviceptr address, size_t size, size_t *from, size_t *to)
{
	*from = (address - r->address) / PAGE * PAGE;
	*to = (address - r->address + size + PAGE - 1) / PAGE * PAGE;
	*to -= pages_there(r, r->address + *to - PAGE) ? PAGE : 0;
	*from += *from < *to && pages_there(r, r->address + *from) ? PAGE : 0;
	return *from < *to;
}

static CUresult add_part(struct range *r, CUdeviceptr address, size_t size, struct placed *whole)
{
	size_t from, to, offset = address - r->address;
	// What others have of these granules is to be closed, as this is.
	CUresult result = pages_flush(r, offset / GRANULE, (offset + size + GRANULE - 1) / GRANULE);
	if (result != CUDA_SUCCESS)
		return result;
	struct part *p = calloc(1, sizeof *p), **link = &r->parts;
	if (!p)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*p = (struct part){.address = address, .size = size, .whole = whole};
	if (own_pages(r, address, size, &from, &to)) {
		result = cover(r, from, to - from);
		if (result == CUDA_SUCCESS && !watch_add(r->address + from, to - from)) {
			uncover(r, from, to - from);
			result = CUDA_ERROR_OPERATING_SYSTEM;
		}
		if (result != CUDA_SUCCESS) {
			free(p);
			return result;
		}
	}
	while (*link && (*link)->address < address)
		link = &(*link)->next;
	p->next = *link;
	*link = p;
	return CUDA_SUCCESS;
}

static void end_range(struct range *r)
{
	if (r->parts)
		return;
	range_remove(r);
	free(r);
}

static void remove_part(struct range *r, struct part *p)
{
	size_t from, to;
	struct part **link = &r->parts;
	while (*link != p)
		link = &(*link)->next;
	*link = p->next;
	if (own_pages(r, p->address, p->size, &from, &to))
		uncover(r, from, to - from);
	free(p);
	end_range(r);
}

// make makes a range for all that is placed between two addresses, in whole units.
static struct range *make(CUcontext context, CUdevice device, CUdeviceptr from, CUdeviceptr to)
{
	struct range *r = calloc(1, sizeof *r);
	if (!r)
		return NULL;
	r->address = from / RANGE_UNIT * RANGE_UNIT;
	r->size = (to + RANGE_UNIT - 1) / RANGE_UNIT * RANGE_UNIT - r->address;
	for (const struct range *next = range_first(); next; next = range_next(next))
		if (next->address > r->address && next->address - r->address < r->size)
			r->size = next->address - r->address;
	r->context = context;
	r->device = device;
	r->split = r->placed = true;
	r->preferred = r->prefetched = CU_DEVICE_INVALID;
	if (range_add(r) == CUDA_SUCCESS)
		return r;
	free(r);
	return NULL;
}

CUresult place(CUcontext context, CUdevice device, struct placed *p)
{
	CUdeviceptr at = p->address, end = p->address + p->size;
	if (p->size == 0 || end < at || end > INTPTR_MAX - RANGE_UNIT)
		return CUDA_ERROR_INVALID_VALUE;
	while (at < end) {
		struct range *r = range_find(at);
		if (!r)
			r = make(context, device, at, end);
		CUresult result = !r ? CUDA_ERROR_OUT_OF_MEMORY : r->placed && r->context == context ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
		CUdeviceptr to = r && r->address + r->size < end ? r->address + r->size : end;
		if (result == CUDA_SUCCESS) {
			result = add_part(r, at, to - at, p);
			end_range(r);
		}
		if (result != CUDA_SUCCESS) {
			unplace(p, true);
			return result;
		}
		at = to;
	}
	return CUDA_SUCCESS;
}

void unplace(struct placed *p, bool there)
{
	for (CUdeviceptr at = p->address, end = at + p->size, to; at < end; at = to) {
		struct range *r = range_find(at);
		to = r && r->address + r->size < end ? r->address + r->size : end;
		struct part *part = r && r->placed ? part_find(r, at) : NULL;
		if (!part || part->whole != p)
			return; // it came no further
		size_t offset = part->address - r->address;
		if (there)
			pages_flush(r, offset / GRANULE, (offset + part->size + GRANULE - 1) / GRANULE);
		remove_part(r, part);
	}
}
