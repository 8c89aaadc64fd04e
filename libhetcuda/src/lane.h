// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Streams, as stream-ordered memory sees them. What a stream has freed lies in its
// lane: the stream itself may have it again at once, everybody else when the
// stream has got as far as the free. That is a mark: an event of ours, recorded by
// the free.
//
// A lane is found by the driver's number of its stream, which it never uses twice
// (cuStreamGetId), so a stream that was destroyed is not taken for a newer one.
#ifndef HETCUDA_LANE_H
#define HETCUDA_LANE_H

#include "arena.h"
#include "cuda.h"

// How a program calls: with a default stream of each thread's own, or not.
struct manner {
	bool own; // no stream means the thread's own
};

struct mark {
	struct mark *previous, *next; // of the lane, the oldest first
	struct lane *lane;
	CUevent event;
	struct extent *pieces; // whose last use may go on up to here
	unsigned users;        // calls that wait for the event
	uint64_t begun, ended; // when it was recorded, by the lane's own clock
};

// That a stream comes after what another had been given by a time of its clock.
struct known {
	uint64_t lane; // 0: nothing
	uint64_t clock;
};
enum { KNOWN = 8 };

struct lane {
	struct tree_node by_id;
	CUcontext context;
	CUdevice device;
	CUstream stream;
	bool own;  // a thread's default stream: no other thread can name it
	bool over; // the stream has been destroyed
	bool dead; // its context too, and with it our events
	unsigned busy;
	uint64_t clock;
	struct mark *first, *last; // recorded, and not known to be reached
	struct mark *spare;
	unsigned spares;
	struct known known[KNOWN]; // follow.h
	unsigned learnt;
	struct tree freed; // what the stream has freed, by shelf and size
};

// lanes_possible tells whether the driver has what lanes need.
bool lanes_possible(void);

// lanes_any tells whether there has been one; until then nothing has to be noted.
bool lanes_any(void);

// lane_open returns the lane of a stream, made if need be, busy; NULL and why in
// *result. Lock: not held.
struct lane *lane_open(CUstream stream, struct manner how, CUresult *result);
void lane_close(struct lane *l);

// lane_peek returns the lane of a stream if there is one. Lock: held.
struct lane *lane_peek(uint64_t id);

// lane_first and lane_next go through all lanes. Lock: held.
struct lane *lane_first(void);
struct lane *lane_next(const struct lane *l);

// lane_mark records a mark in the stream. Pieces can be put under it, and
// then it has to be entered: mark_enter; or dropped: mark_drop. NULL if the driver
// gives no event: the stream was then waited for, if *result is CUDA_SUCCESS.
// Lock: not held.
struct mark *lane_mark(struct lane *l, CUstream stream, struct manner how, CUresult *result);

// Lock: held.
void mark_enter(struct mark *m);
void mark_drop(struct mark *m);

// mark_reached asks the driver. Lock: held; what it costs is a call that does not
// wait.
bool mark_reached(const struct mark *m);

// mark_use keeps a mark's event while a call waits for it, mark_unuse ends that.
// Lock: held.
void mark_use(struct mark *m);
void mark_unuse(struct mark *m);

// mark_precedes tells whether one mark is sure to be reached before another of the
// same lane.
bool mark_precedes(const struct mark *m, const struct mark *other);

// piece_put puts an extent in use under a mark, piece_lift takes it away: a mark
// without pieces goes. Lock: held.
void piece_put(struct extent *e, struct mark *m);
void piece_lift(struct extent *e);

// shelve lays a piece that was freed into the lane of its mark, unshelve takes it
// out again, shelf_find finds the best fit of a shelf, shelf_next the next larger
// piece. Lock: held.
void shelve(struct extent *e, unsigned shelf);
void unshelve(struct extent *e);
struct extent *shelf_find(const struct lane *l, unsigned shelf, size_t size);
struct extent *shelf_next(const struct extent *e);

// lanes_quiet tells whether of the streams of a device that have lanes, but for one and
// those of a context, none has work to do, as far as can be seen without waiting.
// Lock: held.
bool lanes_quiet(CUdevice device, const struct lane *but, CUcontext nor);

// lane_over says that a stream is being destroyed, lane_stays that it was not.
// Lock: not held.
struct lane *lane_over(CUstream stream);
void lane_stays(struct lane *l);

// A thread's stream ends with its thread, and nobody says so. lanes_many tells that
// there are many, lanes_tidy ends those in which nothing lies. Lock: held for the
// latter.
bool lanes_many(void);
void lanes_tidy(void);

// lanes_end ends the lanes of a context that was destroyed, or with NULL all. Nothing
// lies in them any more. Lock: held.
void lanes_end(CUcontext context);

#endif
