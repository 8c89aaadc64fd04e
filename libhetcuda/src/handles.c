// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

#include "handles.h"

#include <stdlib.h>

// 0x8d5c, 16 bits that count how often the slot was used, 32 bits of the slot.
#define MARK UINT64_C(0x8d5c)

struct slot {
	struct chunk *chunk;
	uint32_t next;    // free slot, + 1
	uint16_t turn;
};

static struct slot *slots;
static uint32_t slot_count, first_free; // first_free: + 1

bool handle_ours(CUmemGenericAllocationHandle handle)
{
	return handle >> 48 == MARK;
}

static bool grow(void)
{
	uint32_t count = slot_count ? slot_count * 2 : 64;
	struct slot *larger = count > slot_count ? realloc(slots, count * sizeof *slots) : NULL;
	if (!larger)
		return false;
	slots = larger;
	for (uint32_t i = count; i-- > slot_count;) {
		slots[i] = (struct slot){.next = first_free};
		first_free = i + 1;
	}
	slot_count = count;
	return true;
}

bool handle_name(struct chunk *c)
{
	if (first_free == 0 && !grow())
		return false;
	uint32_t i = first_free - 1;
	struct slot *s = &slots[i];
	first_free = s->next;
	s->chunk = c;
	s->turn++;
	c->name = MARK << 48 | (uint64_t)s->turn << 32 | i;
	return true;
}

void handle_unname(struct chunk *c)
{
	if (!c->name)
		return;
	uint32_t i = (uint32_t)c->name;
	slots[i].chunk = NULL;
	slots[i].next = first_free;
	first_free = i + 1;
	c->name = 0;
}

struct chunk *handle_find(CUmemGenericAllocationHandle handle)
{
	uint32_t i = (uint32_t)handle;
	if (!handle_ours(handle) || i >= slot_count || !slots[i].chunk || slots[i].chunk->name != handle)
		return NULL;
	return slots[i].chunk;
}
