// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// How processes of a container ask one another for descriptors: a process listens
// on a socket "hetcuda-ipc.<pid>" in the control directory once it has given out a
// handle, with a thread of its own. It answers any process of the same user, and
// root; it is not held by the gate, for who asks is inside of a call and would be
// waited for.
//
// One connection is one request and its answer. The server closes first, so that
// when the call that asked returns, neither process has a descriptor that was not
// there before (CRIU could not dump it).
#ifndef HETCUDA_CHANNEL_H
#define HETCUDA_CHANNEL_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
	CHANNEL_BATCH = 64,
	CHANNEL_STEP_MS = 50,
	// How long the other side may be silent. Time in which this process is
	// frozen hardly counts.
	CHANNEL_PATIENCE_MS = 30000,
	CHANNEL_SERVER_PATIENCE_MS = 5000,
	// How long a process is waited for that is parked; it is where its
	// container is, and so are we.
	CHANNEL_PARKED_MS = 600000,
};

// Where a handle's process can be asked.
struct channel_peer {
	int32_t pid;
	uint32_t suffix; // of the socket
};

// What is asked for. The magic is the kind, and says what the rest means.
struct channel_request {
	uint64_t magic;
	uint64_t token; // of the process
	uint64_t address;
	uint64_t id;
	uint32_t descriptors; // 1: are wanted
	uint32_t unused;
};

// Descriptors that are under way, for a fork; index CHANNEL_BATCH is the
// connection's. One for the server's thread, one for the thread that asks.
struct channel {
	int fd[CHANNEL_BATCH + 1]; // -1: none
};
extern struct channel channel_serving, channel_asking;

// Held while descriptors of a channel are made, and while it is forked.
extern pthread_mutex_t channel_lock;

// One thread asks at a time. Outside of the books and of channel_lock.
extern pthread_mutex_t channel_turn;

void channel_release(pthread_mutex_t **lock);
#define CHANNEL_LOCKED(mutex)                                                                        \
	__attribute__((cleanup(channel_release), unused)) pthread_mutex_t *channel_locked = &(mutex); \
	pthread_mutex_lock(channel_locked)

// channel_token is this process's, made when it is first needed; 0 if there is
// none. Only a process that uses the driver has one, so no child of a fork has its
// parent's.
uint64_t channel_token(void);

// channel_start begins to listen, once, and says where.
bool channel_start(struct channel_peer *self);

// channel_dial connects channel_asking; in any case channel_hang_up is to follow.
bool channel_dial(const struct channel_peer *peer);
void channel_hang_up(struct channel *c);

// channel_clear closes the descriptors under way.
void channel_clear(struct channel *c);

// channel_send sends what is under way along, the first so many.
bool channel_send(struct channel *c, const void *data, size_t size, size_t count, int patience_ms);

// channel_receive puts descriptors under way, of which there were none; *count is
// how many. The number of bytes, 0 at the end, -1.
ssize_t channel_receive(struct channel *c, void *data, size_t size, size_t *count, int patience_ms);

// What answers a request, by its magic, through channel_serving: ipc.c, events.c.
bool ipc_answer(const struct channel_request *q);
void events_answer(const struct channel_request *q);

#endif
