// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// The memory of pools: segments (backing.h), from which pieces are cut. A piece is
// the program's, or was freed and lies in the lane of a stream (lane.h), or is
// available to any stream.
//
// Small pieces share segments of 32 MiB; a large one begins a segment of its own
// size. They don't mix if it can be helped, so that no small piece keeps a large
// segment.
#ifndef HETCUDA_SEGMENT_H
#define HETCUDA_SEGMENT_H

#include "lane.h"
#include "pool.h"

#define SEGMENT ((size_t)32 << 20)
#define LARGE ((size_t)8 << 20)
#define PIECE ((size_t)512) // sizes are multiples of it

// segment_find returns the piece of the program's that has an address, or NULL;
// segment_pool whose it is; segment_has tells whether an address is a pool's at all.
// Lock: held.
struct extent *segment_find(CUdeviceptr address);
struct pool *segment_pool(const struct extent *e);
bool segment_has(CUdeviceptr address);

// piece_reuse takes what the lane itself has freed, piece_available what is free
// for all; of segments for large pieces, or of the others. Both NULL if there is
// nothing. Lock: held.
struct extent *piece_reuse(struct pool *p, const struct lane *l, size_t size, bool large);
struct extent *piece_available(struct pool *p, size_t size, bool large);

// piece_steal takes what another lane has freed and whose mark passes; it is the
// caller's to wait for that. Lock: held.
struct extent *piece_steal(struct pool *p, const struct lane *l, size_t size, bool large,
			   bool (*passes)(const struct mark *, const struct lane *));

// piece_hand_out gives a piece to the program. Lock: held.
void piece_hand_out(struct extent *e, size_t asked);

// piece_take_back ends that: the piece lies under the mark that it has, or is
// available. Lock: held.
void piece_take_back(struct extent *e);

// segment_add makes a segment with room for a piece, and takes the piece. Lock: not
// held.
CUresult segment_add(struct pool *p, size_t size, struct extent **made);

// lanes_reap makes available what lies under marks that are reached. A pool that
// allows no opportunism gets back only what is in lanes that were waited for. Lock:
// held.
struct waited {
	const struct lane *lane;
	CUcontext context; // all of its lanes
	CUcontext gone;    // they, too; the driver doesn't know their events any more
	bool everything;   // GPU work is done: the driver does not have to be asked
};
void lanes_reap(struct waited w);

// lane_reap does that in one lane, for which nobody has waited. Lock: held.
void lane_reap(struct lane *l);

// segments_grant lets all of a pool's memory be used by those that may. Lock: held.
CUresult segments_grant(struct pool *p, const struct access *a);

// segments_release gives segments back in which nothing is, until the pool has no
// more than `keep` bytes; whether there was one. Lock: not held.
bool segments_release(struct pool *p, uint64_t keep);

// segments_idle tells whether there is one. Lock: held.
bool segments_idle(const struct pool *p, uint64_t keep);

#endif
