// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Legacy IPC between processes, over the stand-in: the memory is really shared.
//
//     ipc [TEST...]
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda.h"
#include "test.h"

#define MIB ((size_t)1 << 20)
#define GIVES(code, call) \
	do { \
		CUresult r_ = (call); \
		CHECK(r_ == (code), "%s: error %d", #call, (int)r_); \
	} while (0)
#define CU(call) GIVES(CUDA_SUCCESS, call)

enum { RANKS = 3, HANDLES = 8, LAZY = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS };

// What the processes of a test share.
static struct shared {
	_Atomic int step;
	CUipcMemHandle handle[HANDLES];
	CUipcEventHandle event[3];
	_Atomic uint32_t seen;
	pid_t pid[RANKS];
	_Atomic uint32_t written;
	_Atomic int opened;
} *shared;

static CUcontext context;

static void start_on(int device)
{
	CU(cuInit(0));
	CU(cuDevicePrimaryCtxRetain(&context, device));
	CU(cuCtxSetCurrent(context));
}

static void start(void)
{
	start_on(0);
}

// The processes take turns: step k is begun when all before are done.
static void wait_step(int step)
{
	for (int i = 0; shared->step < step; i++) {
		CHECK(i < 20000, "step %d never came", step);
		sleep_ms(1);
	}
}

static void done_step(int step)
{
	CHECK(shared->step == step - 1, "step is %d", shared->step);
	shared->step = step;
}

static uint32_t word(CUdeviceptr p)
{
	uint32_t w;
	CU(cuMemcpyDtoH(&w, p, sizeof w));
	return w;
}

static void put(CUdeviceptr p, uint32_t w)
{
	CU(cuMemcpyHtoD(p, &w, sizeof w));
}

static void wait_child(pid_t pid)
{
	int status;
	CHECK(waitpid(pid, &status, 0) == pid && status == 0, "process %d ended with %#x", (int)pid, status);
}

// begin starts ranks, each in a process of its own that has CUDA to itself.
static void begin(int count, void (*const rank[])(void))
{
	memset(shared, 0, sizeof *shared);
	for (int i = 0; i < count; i++) {
		pid_t pid = fork();
		CHECK(pid >= 0);
		if (pid == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			shared->pid[i] = getpid();
			rank[i]();
			exit(0);
		}
	}
}

static void reap(int count)
{
	for (int i = 0; i < count; i++) {
		int status;
		pid_t pid = wait(&status);
		CHECK(pid > 0 && status == 0, "process %d ended with %#x", (int)pid, status);
	}
}

static void run(int count, void (*const rank[])(void))
{
	begin(count, rank);
	reap(count);
}

#define RUN(...) run(sizeof((void (*[])(void)){__VA_ARGS__}) / sizeof(void *), (void (*[])(void)){__VA_ARGS__})

// Small, beside it in the same slab, of one chunk, of several.
static const size_t sizes[] = {100, 700, 3 * MIB + 5, ((size_t)1 << 30) + 3 * MIB};
enum { SIZES = sizeof sizes / sizeof *sizes };

static void share_export(void)
{
	CUdeviceptr p[SIZES];
	unsigned int capable = 0;
	start();
	for (int i = 0; i < SIZES; i++) {
		CU(cuMemAlloc(&p[i], sizes[i]));
		CU(cuMemsetD8(p[i], 0, sizes[i]));
		put(p[i], 1000 + i);
		put(p[i] + sizes[i] / 4 * 4 - 4, 2000 + i);
		CU(cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, p[i]));
		CHECK(capable == 1);
		// Any address of an allocation names it.
		CU(cuIpcGetMemHandle(&shared->handle[i], p[i] + (i % 2 ? 64 : 0)));
	}
	CUdeviceptr own;
	GIVES(CUDA_ERROR_INVALID_CONTEXT, cuIpcOpenMemHandle(&own, shared->handle[0], LAZY));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(NULL, p[0]));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&(CUipcMemHandle){{0}}, p[SIZES - 1] + sizes[SIZES - 1]));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(p[0]));
	int before = count_descriptors();
	done_step(1);
	wait_step(2);
	for (int i = 0; i < SIZES; i++) {
		CHECK(word(p[i]) == 3000u + i, "what the other wrote is %u", word(p[i]));
		CU(cuMemFree(p[i]));
	}
	CHECK(count_descriptors() == before, "%d descriptors, %d before", count_descriptors(), before);
	done_step(3);
}

static void share_import(void)
{
	CUdeviceptr p[SIZES], base, again;
	size_t size;
	start();
	wait_step(1);
	int before = count_descriptors();
	for (int i = 0; i < SIZES; i++) {
		CU(cuIpcOpenMemHandle(&p[i], shared->handle[i], LAZY));
		CHECK(word(p[i]) == 1000u + i && word(p[i] + sizes[i] / 4 * 4 - 4) == 2000u + i);
		put(p[i], 3000 + i);
		CU(cuMemGetAddressRange(&base, &size, p[i] + 64));
		CHECK(base == p[i] && size == sizes[i], "%#llx of %zu bytes", (unsigned long long)base, size);
		unsigned int n = 9;
		CUcontext c;
		CU(cuPointerGetAttribute(&n, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, p[i]));
		CHECK(n == 0);
		CU(cuPointerGetAttribute(&n, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p[i]));
		CHECK(n == 0);
		CU(cuPointerGetAttribute(&c, CU_POINTER_ATTRIBUTE_CONTEXT, p[i]));
		CHECK(c == context);
		GIVES(CUDA_ERROR_INVALID_VALUE, cuMemFree(p[i]));
		GIVES(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(p[i], NULL));
		GIVES(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&(CUipcMemHandle){{0}}, p[i]));
		GIVES(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(p[i] + 4));
	}
	// Whole blocks are shared: the two small ones lie as they do over there.
	CHECK(count_descriptors() == before, "%d descriptors, %d before", count_descriptors(), before);
	GIVES(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle(NULL, shared->handle[0], LAZY));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle(&again, shared->handle[0], 0));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle(&again, shared->handle[0], 2));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle(&again, (CUipcMemHandle){{1, 2, 3}}, LAZY));
	done_step(2);
	wait_step(3);
	// The other one has freed it; it is here, and can't be opened any more but
	// where it is open.
	for (int i = 0; i < SIZES; i++) {
		CHECK(word(p[i]) == 3000u + i);
		CU(cuIpcOpenMemHandle(&again, shared->handle[i], LAZY));
		CHECK(again == p[i]);
		CU(cuIpcCloseMemHandle(p[i]));
		CHECK(word(p[i]) == 3000u + i);
		CU(cuIpcCloseMemHandle(p[i]));
		GIVES(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(p[i]));
		GIVES(CUDA_ERROR_INVALID_HANDLE, cuIpcOpenMemHandle(&again, shared->handle[i], LAZY));
	}
	CHECK(count_descriptors() == before);
}

// Memory whose export fails is nobody else's: it is parked as the process's own.
static void fails_export(void)
{
	CUdeviceptr p;
	start();
	CU(cuMemAlloc(&p, 2 * MIB));
	put(p, 7);
	CU(cuIpcGetMemHandle(&shared->handle[0], p));
	set_faults("export error=999\n");
	for (int i = 0; i < 2; i++) {
		done_step(1 + 2 * i);
		wait_step(2 + 2 * i);
		struct parcel parcel;
		int control = dial(getpid());
		CHECK(ask(control, HETCUDA_HOLD, 5000, 0).status == 0);
		set_faults("");
		CHECK(ask_park(control, 5000, &parcel) == 0 && parcel.count == 1);
		CHECK(parcel.chunks[0].flags == (i == 0 ? 0 : HETCUDA_EXPORTED), "%u", parcel.chunks[0].flags);
		drop_parcel(&parcel);
		CHECK(ask(control, HETCUDA_RELEASE, 0, 0).status == 0);
		close(control);
	}
	done_step(5);
	CU(cuMemFree(p));
}

static void fails_import(void)
{
	CUdeviceptr p;
	start();
	wait_step(1);
	GIVES(999, cuIpcOpenMemHandle(&p, shared->handle[0], LAZY));
	done_step(2);
	wait_step(3);
	CU(cuIpcOpenMemHandle(&p, shared->handle[0], LAZY));
	CHECK(word(p) == 7);
	done_step(4);
	wait_step(5);
	CU(cuIpcCloseMemHandle(p));
}

static void test_fails(void)
{
	RUN(fails_export, fails_import);
}

static void test_share(void)
{
	RUN(share_export, share_import);
}

// The exporter is killed; who has it open keeps it.
static void dies_export(void)
{
	CUdeviceptr p;
	start();
	CU(cuMemAlloc(&p, MIB * 4));
	put(p, 77);
	CU(cuIpcGetMemHandle(&shared->handle[0], p));
	done_step(1);
	wait_step(2);
}

static void dies_import(void)
{
	CUdeviceptr p, q;
	start();
	wait_step(1);
	CU(cuIpcOpenMemHandle(&p, shared->handle[0], LAZY));
	done_step(2);
	// The parent reaps it.
	for (int i = 0; kill(shared->pid[0], 0) == 0; i++) {
		CHECK(i < 20000);
		sleep_ms(1);
	}
	CU(cuIpcOpenMemHandle(&q, shared->handle[0], LAZY));
	CHECK(q == p && word(p) == 77);
	CU(cuIpcCloseMemHandle(p));
	CU(cuIpcCloseMemHandle(p));
	GIVES(CUDA_ERROR_INVALID_HANDLE, cuIpcOpenMemHandle(&q, shared->handle[0], LAZY));
}

static void test_dies(void)
{
	RUN(dies_export, dies_import);
}

// Two devices: memory of one, opened where the other is current.
static void devices_import(void)
{
	CUdeviceptr p;
	int n = 9;
	start_on(1);
	wait_step(1);
	CU(cuIpcOpenMemHandle(&p, shared->handle[0], LAZY));
	CHECK(word(p) == 77);
	CU(cuPointerGetAttribute(&n, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p));
	CHECK(n == 0);
	CU(cuIpcCloseMemHandle(p));
	CU(cuIpcOpenMemHandle(&p, shared->handle[0], LAZY));
	// It ends with its context.
	CU(cuDevicePrimaryCtxReset(1));
	start_on(1);
	GIVES(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(p));
	done_step(2);
}

static void test_devices(void)
{
	RUN(dies_export, devices_import);
}

// Many threads of two processes open and close the same few handles, while the
// processes fork.
static void *open_close(void *seed)
{
	unsigned int s = (unsigned int)(uintptr_t)seed;
	CU(cuCtxSetCurrent(context));
	for (int i = 0; i < 60; i++) {
		CUdeviceptr p[HANDLES];
		int n = 1 + rand_r(&s) % HANDLES, first = rand_r(&s) % HANDLES;
		for (int j = 0; j < n; j++) {
			int k = (first + j) % HANDLES;
			CU(cuIpcOpenMemHandle(&p[j], shared->handle[k], LAZY));
			CHECK(word(p[j]) == 500u + k, "%d: %u", k, word(p[j]));
		}
		for (int j = 0; j < n; j++)
			CU(cuIpcCloseMemHandle(p[j]));
	}
	return NULL;
}

static void threads_export(void)
{
	CUdeviceptr p[HANDLES];
	start();
	for (int i = 0; i < HANDLES; i++) {
		CU(cuMemAlloc(&p[i], i < 5 ? 1000 : 3 * MIB));
		put(p[i], 500 + i);
		CU(cuIpcGetMemHandle(&shared->handle[i], p[i]));
	}
	int before = count_descriptors();
	done_step(1);
	while (shared->step < 3) {
		pid_t child = fork();
		if (child == 0) {
			// No memory, no connection and no socket of the parent's.
			GIVES(CUDA_ERROR_NOT_INITIALIZED, cuIpcGetMemHandle(&shared->handle[0], p[0]));
			_exit(0);
		}
		wait_child(child);
	}
	CHECK(count_descriptors() == before, "%d descriptors, %d before", count_descriptors(), before);
	CHECK(word(p[0]) == 500);
}

static void threads_import(void)
{
	pthread_t t[4];
	start();
	wait_step(1);
	int before = count_descriptors();
	for (size_t i = 0; i < 4; i++)
		CHECK(!pthread_create(&t[i], NULL, open_close, (void *)(uintptr_t)(i + (size_t)getpid())));
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	CHECK(count_descriptors() == before);
	shared->step++;
}

static void test_threads(void)
{
	RUN(threads_export, threads_import, threads_import);
}

// What a handle leads to is a socket, that anybody of the container may have
// opened, or filled with nonsense.
static void hostile_import(void)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	char junk[300];
	CUdeviceptr p;
	start();
	wait_step(1);
	snprintf(a.sun_path, sizeof a.sun_path, "%s/hetcuda-ipc.%d", getenv("HETCUDA_CONTROL"), (int)shared->pid[0]);
	memset(junk, 0x5a, sizeof junk);
	for (size_t n = 0; n < sizeof junk; n += 13) {
		int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
		CHECK(fd >= 0 && !connect(fd, (void *)&a, sizeof a), "%s", strerror(errno));
		CHECK(n == 0 || send(fd, junk, n, 0) == (ssize_t)n);
		if (n == 0)
			shutdown(fd, SHUT_WR);
		CHECK(recv(fd, junk, sizeof junk, 0) == 0); // it hangs up
		memset(junk, 0x5a, sizeof junk);
		close(fd);
	}
	// Handles that somebody has changed: no byte but the unread does any harm.
	for (size_t i = 8; i < sizeof(CUipcMemHandle); i++) {
		CUipcMemHandle h = shared->handle[0];
		h.reserved[i] ^= 0x11;
		CUresult r = cuIpcOpenMemHandle(&p, h, LAZY);
		CHECK(r == CUDA_ERROR_INVALID_HANDLE || r == CUDA_ERROR_MAP_FAILED, "byte %zu: %d", i, (int)r);
	}
	CU(cuIpcOpenMemHandle(&p, shared->handle[0], LAZY));
	CHECK(word(p) == 77);
	done_step(2);
}

static void test_hostile(void)
{
	RUN(dies_export, hostile_import);
}

// Three processes, of which two have opened the memory of the first, are parked
// and get it back, in every order; with their own descriptors or, as after a
// restore, all with the first one's.
static void park_export(void)
{
	CUdeviceptr p[2];
	start();
	CU(cuMemAlloc(&p[0], 100));
	CU(cuMemAlloc(&p[1], 5 * MIB));
	for (int i = 0; i < 2; i++)
		CU(cuIpcGetMemHandle(&shared->handle[i], p[i]));
	done_step(1);
	for (uint32_t n = 1; shared->step < 100; n++) {
		put(p[0], n);
		put(p[1] + 4 * MIB, n);
		CHECK(word(p[1] + 4 * MIB) == n);
		shared->written = n;
		sleep_ms(1);
	}
}

static void park_import(void)
{
	CUdeviceptr p[2], q;
	start();
	wait_step(1);
	for (int i = 0; i < 2; i++)
		CU(cuIpcOpenMemHandle(&p[i], shared->handle[i], LAZY));
	shared->opened++;
	while (shared->step < 100) {
		for (int i = 0; i < 2; i++) {
			uint32_t before = shared->written, w = word(p[i] + (i ? 4 * MIB : 0));
			CHECK(w >= before && w <= shared->written + 1, "%u, after %u was written", w, before);
		}
		CU(cuIpcOpenMemHandle(&q, shared->handle[1], LAZY));
		CHECK(q == p[1]);
		CU(cuIpcCloseMemHandle(q));
		sleep_ms(1);
	}
}

static const int orders[6][RANKS] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};

// adopt puts descriptors of what the maker has into another's parcel.
static void adopt(const struct parcel *from, struct parcel *to, unsigned int chunks)
{
	unsigned int imported = 0;
	for (uint32_t i = 0; i < to->count; i++) {
		if (!(to->chunks[i].flags & HETCUDA_IMPORTED))
			continue;
		for (uint32_t j = 0; j < from->count; j++) {
			if (from->chunks[j].size == to->chunks[i].size) {
				CHECK(from->chunks[j].flags == HETCUDA_EXPORTED);
				CHECK((to->fds[i] = dup(from->fds[j])) >= 0);
				imported++;
			}
		}
	}
	CHECK(imported == chunks, "%u", imported);
}

// unpark_all gives each what it has made, in an order, and then the others what the
// first has.
static void unpark_all(const int *out, const int *fd, struct parcel *parcel, unsigned int chunks)
{
	struct parcel now;
	for (int k = 0; k < RANKS; k++) {
		struct hetcuda_reply reply = ask_unpark(fd[out[k]], &parcel[out[k]], 64);
		CHECK(reply.status == 0 && reply.count == (out[k] == 0 ? 0 : chunks), "%d: %d, %u to come", out[k], reply.status, reply.count);
	}
	CHECK(ask_share(fd[0], &now) == 0 && now.count == chunks);
	for (int k = 0; k < RANKS; k++) {
		if (out[k] == 0)
			continue;
		adopt(&now, &parcel[out[k]], chunks);
		struct hetcuda_reply reply = ask_unpark_imported(fd[out[k]], &parcel[out[k]]);
		CHECK(reply.status == 0 && reply.count == 0);
	}
	drop_parcel(&now);
}

// park_all parks three processes that have so many chunks each, and begins to when
// two have opened what the first has.
static void park_all(void (*const rank[])(void), unsigned int chunks)
{
	begin(RANKS, rank);
	while (shared->opened < RANKS - 1)
		sleep_ms(1);
	for (int round = 0; round < 72; round++) {
		const int *in = orders[round % 6], *out = orders[round / 6 % 6];
		struct parcel parcel[RANKS];
		int fd[RANKS];
		for (int i = 0; i < RANKS; i++) {
			fd[i] = dial(shared->pid[i]);
			CHECK(ask(fd[i], HETCUDA_HOLD, 5000, 0).status == 0);
		}
		for (int k = 0; k < RANKS; k++) {
			int i = in[k];
			CHECK(ask(fd[i], HETCUDA_MARK, 1, 1).status == -EINVAL);
			int status = ask_park(fd[i], 5000, &parcel[i]);
			CHECK(status == 0 && parcel[i].count == chunks, "%d, %u chunks", status, parcel[i].count);
		}
		for (int k = 0; k < RANKS; k++)
			CHECK(ask(fd[in[k]], HETCUDA_MARK, (uint32_t)in[k] + 1, (uint32_t)round + 1).status == 0);
		for (int k = 0; k < RANKS && round % 2; k++)
			CHECK(ask(fd[in[k]], HETCUDA_MARK, 0, 0).status == 0);
		for (int k = 0; k < RANKS; k++)
			CHECK(ask(fd[in[k]], HETCUDA_COMMIT, 0, 0).status == 0);
		unpark_all(out, fd, parcel, chunks);
		uint32_t before = shared->written;
		for (int i = 0; i < RANKS; i++) {
			drop_parcel(&parcel[i]);
			CHECK(ask(fd[i], HETCUDA_RELEASE, 0, 0).status == 0);
			close(fd[i]);
		}
		while (shared->written < before + 3)
			sleep_ms(1);
	}
	shared->step = 100;
	reap(RANKS);
}

static void test_park(void)
{
	park_all((void (*[])(void)){park_export, park_import, park_import}, 2);
}

// The same with memory that the program has made and sent as a descriptor itself.
static int pair[2];

static CUdeviceptr map(CUmemGenericAllocationHandle handle)
{
	CUdeviceptr p;
	CUmemAccessDesc access = {
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CU(cuMemAddressReserve(&p, 4 * MIB, 0, 0, 0));
	CU(cuMemMap(p, 4 * MIB, 0, handle, 0));
	CU(cuMemSetAccess(p, 4 * MIB, &access, 1));
	CU(cuMemRelease(handle));
	return p;
}

static void vmm_export(void)
{
	CUmemGenericAllocationHandle handle;
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
	};
	start();
	CU(cuMemCreate(&handle, 4 * MIB, &prop, 0));
	for (int i = 1; i < RANKS; i++) {
		int fd = -1;
		CU(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
		send_packet(pair[0], "x", 1, &fd, 1);
		close(fd);
	}
	CUdeviceptr p = map(handle);
	put(p, 0);
	done_step(1);
	for (uint32_t n = 1; shared->step < 100; n++) {
		put(p, n);
		CHECK(word(p) == n);
		shared->written = n;
		sleep_ms(1);
	}
}

static void vmm_import(void)
{
	CUmemGenericAllocationHandle handle;
	char x;
	int fd, n = 1;
	start();
	wait_step(1);
	CHECK(receive_packet(pair[1], &x, 1, &fd, &n) == 1 && n == 1);
	CU(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	close(fd);
	CUdeviceptr p = map(handle);
	shared->opened++;
	while (shared->step < 100) {
		uint32_t before = shared->written, w = word(p);
		CHECK(w >= before && w <= shared->written + 1, "%u, after %u was written", w, before);
		sleep_ms(1);
	}
}

static void test_vmm(void)
{
	CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair));
	park_all((void (*[])(void)){vmm_export, vmm_import, vmm_import}, 1);
	close(pair[0]);
	close(pair[1]);
}

// Events between processes: who waits for one finds what was launched before its
// record.
enum { BETWEEN = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING, ROUNDS = 60, WORDS = 1000 };

static CUmodule module;
static CUfunction spin;

static void load_spin(void)
{
	CU(cuModuleLoadData(&module, ".version 7.0\n.entry spin(\n"));
	CU(cuModuleGetFunction(&spin, module, "spin"));
}

// work takes the device so long, and writes.
static void work(CUdeviceptr p, uint32_t value, CUstream stream)
{
	uint64_t ns = 2000000;
	CU(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, (void *[]){&ns}, NULL));
	CU(cuMemsetD32Async(p, value, WORDS, stream));
}

static void await(CUevent e, uint32_t how)
{
	switch (how % 3) {
	case 0: CU(cuStreamWaitEvent(NULL, e, 0)); break;
	case 1: CU(cuEventSynchronize(e)); break;
	case 2:
		for (CUresult r; (r = cuEventQuery(e)) != CUDA_SUCCESS; sleep_ms(1))
			CHECK(r == CUDA_ERROR_NOT_READY, "%d", (int)r);
	}
}

// turn waits until the other process has got so far. The stand-in's device works
// while somebody looks.
static void turn(_Atomic uint32_t *counter, uint32_t value)
{
	for (int i = 0; *counter < value; i++) {
		CHECK(i < 20000, "%u never came", value);
		cuStreamQuery(NULL);
		sleep_ms(1);
	}
}

static void events_export(void)
{
	CUdeviceptr p;
	CUevent e, many[200], none;
	CUstream stream;
	float ms;
	start();
	load_spin();
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cuMemAlloc(&p, WORDS * 4));
	CU(cuMemsetD32(p, 0, WORDS));
	CU(cuEventCreate(&e, BETWEEN));
	CU(cuEventQuery(e));
	CU(cuIpcGetMemHandle(&shared->handle[0], p));
	CU(cuIpcGetEventHandle(&shared->event[0], e));
	GIVES(CUDA_ERROR_INVALID_CONTEXT, cuIpcOpenEventHandle(&none, shared->event[0]));
	GIVES(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&ms, e, e));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuEventCreate(&none, CU_EVENT_INTERPROCESS));
	// More than a board has room for.
	for (int i = 0; i < 200; i++)
		CU(cuEventCreate(&many[i], BETWEEN));
	CU(cuIpcGetEventHandle(&shared->event[1], many[199]));
	CU(cuIpcGetEventHandle(&shared->event[2], many[7]));
	CU(cuEventDestroy(many[7]));
	done_step(1);
	wait_step(2);
	for (uint32_t i = 1; i <= ROUNDS; i++) {
		work(p, i, i % 2 ? stream : NULL);
		CU(cuEventRecord(e, i % 2 ? stream : NULL));
		shared->written = i;
		turn(&shared->seen, i);
		CU(cuEventQuery(e));
	}
	done_step(3);
	// Recorded by the other one.
	for (uint32_t i = 1; i <= ROUNDS; i++) {
		turn(&shared->written, ROUNDS + i);
		await(e, i);
		CHECK(word(p + WORDS * 4 - 4) == ROUNDS + i);
		shared->seen = ROUNDS + i;
	}
	// More records than there are words for, on two streams.
	for (uint32_t i = 1; i <= 200; i++) {
		work(p, 1000 + i, i % 2 ? stream : NULL);
		CU(cuEventRecordWithFlags(e, i % 2 ? stream : NULL, 0));
	}
	shared->written = 1000;
	turn(&shared->seen, 1000);
	CU(cuEventDestroy(e));
	GIVES(CUDA_ERROR_INVALID_HANDLE, cuEventDestroy(e));
	for (int i = 0; i < 200; i++)
		if (i != 7)
			CU(cuEventDestroy(many[i]));
	done_step(4);
	wait_step(5);
}

static void events_import(void)
{
	CUdeviceptr p;
	CUevent e, again, other, none;
	CUipcEventHandle bad;
	start();
	load_spin();
	wait_step(1);
	int descriptors = count_descriptors();
	CU(cuIpcOpenMemHandle(&p, shared->handle[0], LAZY));
	CU(cuIpcOpenEventHandle(&e, shared->event[0]));
	CU(cuIpcOpenEventHandle(&again, shared->event[0]));
	CU(cuIpcOpenEventHandle(&other, shared->event[1]));
	CHECK(count_descriptors() == descriptors);
	CHECK(e != again);
	GIVES(CUDA_ERROR_INVALID_HANDLE, cuIpcGetEventHandle(&bad, e));
	GIVES(CUDA_ERROR_INVALID_HANDLE, cuIpcOpenEventHandle(&none, shared->event[2]));
	for (size_t i = 16; i < 40; i += 8) { // board, slot, id
		bad = shared->event[0];
		bad.reserved[i + 1] ^= 0x55;
		GIVES(CUDA_ERROR_INVALID_HANDLE, cuIpcOpenEventHandle(&none, bad));
	}
	// Nobody has recorded it.
	CU(cuEventQuery(e));
	CU(cuEventSynchronize(e));
	CU(cuStreamWaitEvent(NULL, e, 0));
	CU(cuStreamSynchronize(NULL));
	done_step(2);
	for (uint32_t i = 1; i <= ROUNDS; i++) {
		turn(&shared->written, i);
		await(i % 2 ? e : again, i);
		CHECK(word(p) == i && word(p + WORDS * 4 - 4) == i, "%u, not %u", word(p), i);
		CU(cuEventQuery(other));
		shared->seen = i;
	}
	wait_step(3);
	for (uint32_t i = ROUNDS + 1; i <= 2 * ROUNDS; i++) {
		work(p, i, NULL);
		CU(cuEventRecord(e, NULL));
		shared->written = i;
		turn(&shared->seen, i);
	}
	turn(&shared->written, 1000);
	CU(cuStreamWaitEvent(NULL, e, 0));
	shared->seen = 999;
	CHECK(word(p) == 1200);
	CU(cuEventSynchronize(again));
	shared->seen = 1000;
	wait_step(4);
	// Its slot is nobody else's while it is open here.
	CU(cuEventQuery(e));
	GIVES(CUDA_ERROR_INVALID_HANDLE, cuIpcOpenEventHandle(&none, shared->event[0]));
	CU(cuEventDestroy(e));
	CU(cuEventDestroy(again));
	CU(cuEventDestroy(other));
	done_step(5);
}

static void test_events(void)
{
	RUN(events_export, events_import);
}

// As above, while they are parked all the time.
static void events_park_export(void)
{
	CUdeviceptr p;
	CUevent e;
	start();
	load_spin();
	CU(cuMemAlloc(&p, WORDS * 4));
	CU(cuEventCreate(&e, BETWEEN));
	CU(cuIpcGetMemHandle(&shared->handle[0], p));
	CU(cuIpcGetEventHandle(&shared->event[0], e));
	done_step(1);
	for (uint32_t n = 1; shared->step < 100; n++) {
		work(p, n, NULL);
		CU(cuEventRecord(e, NULL));
		shared->written = n;
		CU(cuStreamSynchronize(NULL));
	}
}

static void events_park_import(void)
{
	CUdeviceptr p;
	CUevent e;
	start();
	wait_step(1);
	CU(cuIpcOpenMemHandle(&p, shared->handle[0], LAZY));
	CU(cuIpcOpenEventHandle(&e, shared->event[0]));
	shared->opened++;
	for (uint32_t how = 0; shared->step < 100; how++) {
		CUevent again;
		uint32_t before = shared->written;
		await(e, how);
		uint32_t w = word(p);
		CHECK(w >= before && w <= shared->written + 1, "%u, after %u was recorded", w, before);
		CU(cuIpcOpenEventHandle(&again, shared->event[0]));
		CU(cuEventDestroy(again));
		sleep_ms(1);
	}
}

static void test_events_park(void)
{
	park_all((void (*[])(void)){events_park_export, events_park_import, events_park_import}, 1);
}

static const struct {
	const char *name;
	void (*run)(void);
} tests[] = {
	{"events", test_events},
	{"events_park", test_events_park},
	{"share", test_share},
	{"fails", test_fails},
	{"dies", test_dies},
	{"devices", test_devices},
	{"threads", test_threads},
	{"hostile", test_hostile},
	{"park", test_park},
	{"vmm", test_vmm},
};

int main(int argc, char **argv)
{
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED);
	for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
		bool wanted = argc < 2;
		for (int j = 1; j < argc; j++)
			wanted |= !strcmp(argv[j], tests[i].name);
		if (!wanted)
			continue;
		double begin = now();
		tests[i].run();
		printf("%s: %.2f s\n", tests[i].name, now() - begin);
		fflush(stdout);
	}
	return 0;
}
