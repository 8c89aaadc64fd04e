// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// The caller's side of the control block (block.h).
#ifndef STANDIN_PEER_H
#define STANDIN_PEER_H

#include <sys/types.h>

#include "block.h"

struct peer {
	pid_t pid;
	pid_t tid;
	uint64_t address;
};

// peer_find finds the control block of a process. A process without one is
// NOT_INITIALIZED, no process is OPERATING_SYSTEM: as driver 580 answers.
CUresult peer_find(pid_t pid, struct peer *p);

// peer_read copies the block.
CUresult peer_read(const struct peer *p, struct block *b);

// peer_call has the process do what is asked and waits for it, for ever if
// need be. sent, if any, is called once the request is on its way.
CUresult peer_call(const struct peer *p, const struct request *r, uint32_t *state, void (*sent)(void));

#endif
