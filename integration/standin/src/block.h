// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// The control block: how a process from outside, by PID and across PID
// namespaces, asks a process that uses the stand-in to do something.
//
// The process has a thread that waits in sigwaitinfo. Its name is "cu" and the
// address of the block in 12 hexadecimal digits, so that nothing but /proc is
// needed to find it, and CRIU, which restores the name with the thread and the
// block with the memory, keeps it right. The caller writes the request into the
// block (process_vm_writev), counts asked up, sends that one thread a signal
// and reads the block again until answered has caught up. A frozen process
// therefore answers when it is thawed and not before, as with the real driver.
#ifndef STANDIN_BLOCK_H
#define STANDIN_BLOCK_H

#include <cuda.h>
#include <signal.h>
#include <stdatomic.h>

#include "machine.h"

#define BLOCK_MAGIC 0x68657447505531ull // "hetGPU1"
#define WAKE_SIGNAL (SIGRTMAX - 3)

enum op {
	OP_STATE = 1,
	OP_LOCK,
	OP_CHECKPOINT,
	OP_RESTORE,
	OP_UNLOCK,
	OP_FAIL, // a fault: the state becomes FAILED
	OP_COMPLETE, // of a checkpoint or restore with custom storage
};

// View is the memory that a process has on one GPU, one allocation after the
// other, for who copies it to custom storage or back: a file of its owner.
struct view {
	char uuid[UUID_SIZE];
	uint64_t size;
};

struct request {
	uint32_t op;
	uint32_t timeout_ms;
	uint32_t pair_count;
	uint32_t storage;      // checkpoint, restore: whether to custom storage
	uint32_t operation;    // complete: which
	uint32_t context_count; // GPUs whose primary context the caller has
	unsigned char contexts[MAX_GPUS][16];
	CUcheckpointGpuPair pairs[MAX_GPUS];
};

struct block {
	uint64_t magic;
	uint64_t self; // where the block is; what a copy of it would get wrong
	_Atomic uint32_t asked;
	_Atomic uint32_t answered;
	struct request request;
	uint32_t result;
	uint32_t state;
	// For the stand-in of NVML. A process that is checkpointed has none.
	char owner[OWNER_SIZE];
	char contexts[MAX_GPUS][UUID_SIZE]; // GPUs on which the process has a context
	// While a checkpoint or restore with custom storage is to be completed.
	uint32_t operation;
	uint32_t view_count;
	struct view views[MAX_GPUS];
};

#endif
