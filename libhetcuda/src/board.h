// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Boards: pages that processes share, on which the state of events between them
// stands. A process makes boards for the events that it creates; others map them.
//
// A record of an event takes the next number of its slot, and the stream that it is
// in writes the number into one of the slot's words when it gets there. So an event
// is complete when the word of its last number has come to it. Streams get there
// in any order, hence a word for each of the last BOARD_WORDS records.
#ifndef HETCUDA_BOARD_H
#define HETCUDA_BOARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda.h"

enum { BOARD_WORDS = 56, BOARD_SLOTS = 128 };

// Between processes that may run different builds of this library only if they are
// of different containers: the layout may change.
struct slot {
	_Atomic uint64_t id;       // of the event; 0: there is none
	_Atomic uint64_t first;    // what recorded was when it was created
	_Atomic uint64_t recorded; // the last number taken
	_Atomic uint64_t users;    // other processes that have it open
	uint64_t unused[4];
	_Atomic uint64_t words[BOARD_WORDS];
};

struct board {
	struct board *next;
	uint64_t owner; // the token of the process that made it
	uint64_t number; // there
	int fd;          // of ours; -1 for another's
	struct slot *slots;
};

// All of these are called with one lock held, that of events.c.

// board_take returns a slot of ours that is free, with a new event in it, or NULL.
struct slot *board_take(struct board **board);

// board_find returns a board that is mapped here.
struct board *board_find(uint64_t owner, uint64_t number);

// board_map maps another process's; NULL if it isn't one. The descriptor stays the
// caller's.
struct board *board_map(uint64_t owner, uint64_t number, int fd);

// board_descriptor returns a descriptor of one of ours for another process, or -1.
int board_descriptor(const struct board *b);

// board_word says where the device finds a word. The board is registered with the
// driver if it isn't; a context is current.
CUresult board_word(const struct board *b, const _Atomic uint64_t *word, CUdeviceptr *address);

bool board_any(void);

// board_unregister_all takes all of them from the driver: the devices are idle, and
// the next use registers them again. A context is current.
void board_unregister_all(void);

// board_forked forgets them in a child, which has none of the mappings.
void board_forked(void);

// slot_word is the word of a number.
static inline _Atomic uint64_t *slot_word(struct slot *s, uint64_t number)
{
	return &s->words[number % BOARD_WORDS];
}

static inline bool slot_reached(struct slot *s, uint64_t number)
{
	return (int64_t)(atomic_load(slot_word(s, number)) - number) >= 0;
}

#endif
