// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// The state of CUDA in the process that loaded the stand-in.
//
// One mutex (process.mu) guards everything in struct process. It is taken by
// enter and enter_idle and released when the caller's scope ends, so that no
// call is half way through when the state changes.
#ifndef STANDIN_PROCESS_H
#define STANDIN_PROCESS_H

#include <pthread.h>

#include "block.h"

enum { MAX_ALLOCS = 256, MAX_CONTEXTS = 2 * MAX_GPUS, MAX_WORK = 64 };

enum kind { DEVICE = 1, MANAGED, IMPORTED };

struct alloc {
	enum kind kind; // 0: free slot
	int gpu;
	CUdeviceptr address;
	size_t size;
	char file[PATH_SIZE]; // DEVICE: below owners/, renewed by a restore; IMPORTED: the exporter's
	void *saved;          // DEVICE: the data while the process is checkpointed
};

struct CUctx_st {
	int gpu;
	int references; // 0: free slot
	bool primary;
};

struct CUfunc_st {
	const char *name;
	bool (*run)(void *params); // false: not finished yet
	const unsigned char *sizes; // of the parameters, ends with 0
};

struct work {
	const struct CUfunc_st *function;
	uint64_t params[8];
};

struct device {
	struct gpu gpu;
	int fd; // of /dev/nvidiaN; -1 while checkpointed
};

struct process {
	pthread_mutex_t mu;
	pthread_cond_t changed; // state or locking
	pid_t pid;              // 0: not initialized. A forked child has another one
	CUprocessState state;
	bool locking;  // no new work, what is there is being finished
	CUresult lost; // sticky: every further call returns it
	bool refused;  // a checkpoint, because of managed memory
	bool restored; // legacy IPC works no more
	int count;
	struct device devices[MAX_GPUS];
	int control; // descriptor of /dev/nvidiactl; -1 while checkpointed
	int owner_fd;
	char owner[OWNER_SIZE];
	struct CUctx_st contexts[MAX_CONTEXTS];
	struct alloc allocs[MAX_ALLOCS];
	CUdeviceptr next; // address of the next allocation
	struct work work[MAX_WORK]; // launched and not finished, a ring
	unsigned first, launched;
};

extern struct process process;
extern struct block block;

// enter waits until the process may use its GPUs and takes the mutex;
// enter_idle waits for launched work too. A result other than CUDA_SUCCESS
// means that the mutex is not held.
CUresult enter(void);
CUresult enter_idle(void);
void leave(const CUresult *entered);

#define ENTER_WITH(how)                                         \
	__attribute__((cleanup(leave))) CUresult entered = how(); \
	if (entered != CUDA_SUCCESS)                              \
		return entered
#define ENTER() ENTER_WITH(enter)
#define ENTER_IDLE() ENTER_WITH(enter_idle)

// work_advance does what is possible of the launched work and tells whether
// nothing is left. Mutex: held.
bool work_advance(void);

// process_visible lists the GPUs whose nodes the process can open.
int process_visible(const struct machine *m, struct gpu gpus[MAX_GPUS]);

// process_open opens the device files and makes the process an owner;
// process_close undoes that and frees the device memory. Mutex: held.
CUresult process_open(const struct gpu gpus[], int count);
void process_close(void);

// process_publish shows the stand-in of NVML what the process uses. Mutex: held.
void process_publish(void);

// server_start starts the thread that serves the control block.
CUresult server_start(void);

// What the thread does when it is asked to (states.c).
CUresult serve_lock(uint32_t timeout_ms);
CUresult serve_checkpoint(void);
CUresult serve_restore(const struct request *r);
CUresult serve_unlock(void);
CUresult serve_fail(void);

// alloc_create makes the file of a device allocation. Machine lock: held.
CUresult alloc_create(struct alloc *a);

// alloc_find returns the allocation that has all of a range, and where in it
// the range starts. Mutex: held.
struct alloc *alloc_find(CUdeviceptr address, size_t size, size_t *offset);

// alloc_read and alloc_write move data between the host and an allocation.
bool alloc_read(const struct alloc *a, size_t offset, void *to, size_t size);
bool alloc_write(const struct alloc *a, size_t offset, const void *from, size_t size);

// alloc_drop frees an allocation and what it holds.
void alloc_drop(struct alloc *a);

// context_gpu is the GPU of the thread's current context, or -1.
int context_gpu(void);

#endif
