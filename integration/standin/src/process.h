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

enum {
	MAX_ALLOCS = 4096,
	MAX_MEMORIES = 4096,
	MAX_RANGES = 256,
	MAX_CONTEXTS = 2 * MAX_GPUS,
	MAX_STREAMS = 256,
	MAX_EVENTS = 4096,
	MAX_POOLS = 64,
	MAX_WORK = 1024,
};

// What an address can be. Memory of the last three kinds is the process's own.
enum kind { DEVICE = 1, IMPORTED, VIEW, MAPPED, MANAGED, PINNED, REGISTERED };

struct alloc {
	enum kind kind; // 0: free slot
	int gpu;
	CUdeviceptr address;
	size_t size;
	char file[PATH_SIZE];     // DEVICE: below owners/, renewed by a restore; IMPORTED, VIEW: another process's
	void *saved;              // DEVICE: the data while the process is checkpointed
	struct memory *memory;    // MAPPED
	uint8_t access[MAX_GPUS]; // MAPPED: CUmemAccess_flags of each GPU
	CUmemoryPool pool;        // DEVICE: NULL if it is of none
	bool variable;            // DEVICE, MANAGED: of a module, and goes with it
};

// Physical memory, from cuMemCreate or from another process.
struct memory {
	unsigned handles, mappings; // both 0: free slot
	uint32_t generation;        // of the slot, so that old handles are known as such
	int gpu;
	size_t size;
	CUmemAllocationProp prop;
	bool imported;
	bool stranded; // imported, and on no GPU that the process has
	char name[MEMORY_SIZE]; // renewed by a restore
	void *hold;             // NULL while checkpointed
	void *saved;            // the data while checkpointed
};

// A range of addresses from cuMemAddressReserve.
struct range {
	CUdeviceptr address;
	size_t size; // 0: free slot
};

struct CUctx_st {
	int gpu;
	int references; // 0: free slot
	bool primary;
	unsigned peers; // GPUs that may be accessed from it
};

struct CUstream_st {
	struct CUctx_st *context; // NULL: free slot
	unsigned long long id;    // never used twice
	unsigned last;            // what process.launched was after its last work
	bool alone;               // CU_STREAM_NON_BLOCKING
};

struct CUmemPoolHandle_st {
	bool used, standard; // standard: a device's own
	CUmemPoolProps p;
	cuuint64_t values[CU_MEMPOOL_ATTR_RELEASE_THRESHOLD + 1]; // of those attributes that can be set
	cuuint64_t high;
	uint8_t access[MAX_GPUS];
};

struct CUevent_st {
	bool used;
	unsigned flags, last; // as in CUstream_st
	uint64_t time;        // in ns, once a record has run
};

struct CUfunc_st {
	const char *name;
	bool (*run)(uint64_t *params); // false: not finished yet
	const unsigned char *sizes;    // of the parameters, ends with 0
};

// Work of one stream runs in the order in which it was launched.
struct work {
	bool (*run)(uint64_t *params); // false: not finished yet
	uint64_t params[8];
	int gpu;
	uint64_t ready_ms; // not before; 0: at once
	CUstream stream;   // NULL: the default one, which waits for those that are not alone, and they for it
	bool alone, done;
};

struct device {
	struct gpu gpu;
	char began[UUID_SIZE]; // what it was at cuInit
	int fd; // of /dev/nvidiaN; -1 while checkpointed
	unsigned flags; // of its contexts
	CUmemoryPool pool; // that it takes; NULL: its own
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
	bool stored;   // checkpointed to custom storage
	int count;
	struct device devices[MAX_GPUS];
	int control; // descriptor of /dev/nvidiactl; -1 while checkpointed
	int owner_fd;
	char owner[OWNER_SIZE];
	struct CUctx_st contexts[MAX_CONTEXTS];
	struct alloc allocs[MAX_ALLOCS];
	int allocs_end; // no slot behind it was ever in use
	CUdeviceptr next; // address of the next allocation
	struct memory memories[MAX_MEMORIES];
	struct range ranges[MAX_RANGES];
	struct CUmemPoolHandle_st pools[MAX_POOLS];
	struct CUstream_st streams[MAX_STREAMS];
	unsigned long long stream_ids;
	struct CUevent_st events[MAX_EVENTS];
	struct work work[MAX_WORK]; // launched and not finished, a ring
	unsigned first, launched; // all before first is done
	int working_gpu; // of the work that is being done
	bool pumping;    // a thread looks after launched work
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
CUresult serve_checkpoint(const struct request *r);
CUresult serve_restore(const struct request *r);
CUresult serve_complete(const struct request *r);
CUresult serve_unlock(void);
CUresult serve_fail(void);

// alloc_create makes the file of a device allocation. Machine lock: held.
CUresult alloc_create(struct alloc *a);

// alloc_new returns a free slot, or NULL.
struct alloc *alloc_new(void);

// alloc_device fills a slot with device memory. Mutex: held.
CUresult alloc_device(struct alloc *a, int gpu, size_t size);

// alloc_at returns what an address belongs to. Mutex: held.
struct alloc *alloc_at(CUdeviceptr address);

// alloc_overlaps tells whether anything is in a range.
bool alloc_overlaps(CUdeviceptr address, size_t size);

// alloc_read and alloc_write move data between the host and an allocation.
bool alloc_read(const struct alloc *a, size_t offset, void *to, size_t size);
bool alloc_write(const struct alloc *a, size_t offset, const void *from, size_t size);

// alloc_view makes an allocation of what another process shows.
struct alloc *alloc_view(int gpu, size_t size, const char *file);

// What custom storage is copied from and to (storage.c). views_show makes the
// views, of what the process has or of garbage, and tells who asks of them;
// views_take takes them into the process's memory, views_end ends them.
CUresult views_show(const struct request *r, bool filled);
bool views_take(void);
void views_end(void);

// memory_each calls one for the memory of cuMemCreate on a GPU, until it fails.
bool memory_each(int gpu, bool (*one)(const struct alloc *a, void *context), void *context);

// alloc_drop frees an allocation and what it holds.
void alloc_drop(struct alloc *a);

// managed_create makes managed memory.
CUresult managed_create(CUdeviceptr *address, size_t size, int gpu);

// kernel_find returns a kernel that is known, or NULL.
const struct CUfunc_st *kernel_find(const char *name);

// range_check tells whether a GPU may use all of a range: one allocation, or
// mappings next to each other. range_read and range_write move its data.
CUresult range_check(CUdeviceptr address, size_t size, int gpu, bool write);
CUresult range_read(CUdeviceptr address, void *to, size_t size);
CUresult range_write(CUdeviceptr address, const void *from, size_t size);

// range_reserved tells whether an address range touches a reserved one.
bool range_reserved(CUdeviceptr address, size_t size);

// gpu_available is how much memory is left on a GPU. Machine lock: held.
uint64_t gpu_available(int gpu);

// What a checkpoint does with physical memory. memory_shared tells whether
// another process, or a descriptor, has any of it. Machine lock: held.
bool memory_shared(void);
CUresult memory_save(void);
void memory_close(void);
CUresult memory_restore(void);
void memory_unmapped(struct memory *m);

// work_add appends work, waiting for room; it starts at once if nothing is
// before it. last becomes its place in the queue. work_wait waits until what is
// at a place is done, work_done tells whether it is.
CUresult work_add(const struct work *w, CUstream stream, unsigned *last);
CUresult work_wait(unsigned last);
bool work_done(unsigned last);

// stream_gpu is the GPU that a stream is of, or -1.
int stream_gpu(CUstream stream);

// stream_wait waits for all that was launched into a stream.
CUresult stream_wait(CUstream stream);

// stream_known tells whether it is a stream; stream_drop ends those of a context.
bool stream_known(CUstream stream);
void stream_drop(const struct CUctx_st *c);

// context_gpu is the GPU of the thread's current context, or -1.
int context_gpu(void);
struct CUctx_st *context_current(void);

#endif
