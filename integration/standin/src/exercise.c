// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// exercise: what the stand-in must do, call by call. "exercise CASE" does one case and
// ends with status 0, or prints what is not as it should be and ends with 1.
//
// Where nothing else is said it needs a machine with two GPUs of 64 MiB.
#define _GNU_SOURCE
#include <cuda.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "toy_ptx.h"

static const size_t granule = 2 << 20;

static void is(bool ok, const char *what, int line)
{
	if (ok)
		return;
	printf("line %d: %s\n", line, what);
	fflush(stdout);
	_exit(1);
}
#define IS(condition) is(condition, #condition, __LINE__)

static void gives(CUresult got, CUresult want, const char *what, int line)
{
	if (got == want)
		return;
	printf("line %d: %s gives %d and not %d\n", line, what, (int)got, (int)want);
	fflush(stdout);
	_exit(1);
}
#define GIVES(want, call) gives(call, want, #call, __LINE__)
#define CK(call) GIVES(CUDA_SUCCESS, call)

static double now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1000 + (double)t.tv_nsec / 1e6;
}

static CUcontext use(CUdevice device)
{
	CUcontext context;
	CK(cuInit(0));
	CK(cuDevicePrimaryCtxRetain(&context, device));
	CK(cuCtxSetCurrent(context));
	return context;
}

static CUmemAllocationProp prop_on(int device)
{
	return (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = {CU_MEM_LOCATION_TYPE_DEVICE, device},
	};
}

static CUmemGenericAllocationHandle create(size_t size)
{
	CUmemAllocationProp prop = prop_on(0);
	CUmemGenericAllocationHandle h;
	CK(cuMemCreate(&h, size, &prop, 0));
	return h;
}

static CUresult allow(CUdeviceptr address, size_t size, CUmemAccess_flags flags)
{
	CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}, .flags = flags};
	return cuMemSetAccess(address, size, &access, 1);
}

static CUdeviceptr reserve(size_t size)
{
	CUdeviceptr address;
	CK(cuMemAddressReserve(&address, size, 0, 0, 0));
	return address;
}

static size_t available(void)
{
	size_t bytes, total;
	CK(cuMemGetInfo(&bytes, &total));
	return bytes;
}

static CUfunction kernel(const char *name)
{
	static CUmodule module;
	CUfunction f;
	if (!module)
		CK(cuModuleLoadData(&module, toy_ptx));
	CK(cuModuleGetFunction(&f, module, name));
	return f;
}

static CUresult launch(CUfunction f, CUstream s, void **params)
{
	return cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, params, NULL);
}

static void addresses(void)
{
	CUdeviceptr a, b, c;
	size_t size = 0;
	CUmemAllocationProp prop = prop_on(0);
	const CUdeviceptr hint = 0x480000000000;
	use(0);
	CK(cuMemGetAllocationGranularity(&size, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
	IS(size == granule);
	GIVES(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&a, granule + 4096, 0, 0, 0));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&a, 0, 0, 0, 0));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&a, granule, 3, 0, 0));
	CK(cuMemAddressReserve(&a, (size_t)1 << 40, 0, hint, 0));
	IS(a == hint);
	CK(cuMemAddressReserve(&b, granule, 0, hint + granule, 0)); // taken: elsewhere
	IS(b % granule == 0 && (b < hint || b >= hint + ((CUdeviceptr)1 << 40)));
	CK(cuMemAddressReserve(&c, granule, 64 << 20, 0, 0));
	IS(c % (64 << 20) == 0);
	// They are addresses of the process, too.
	IS(mmap((void *)(uintptr_t)(hint + granule), 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) ==
	   MAP_FAILED);
	GIVES(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(a, granule));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(a + granule, granule));
	CK(cuMemAddressFree(a, (size_t)1 << 40));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(a, (size_t)1 << 40));
	CK(cuMemAddressReserve(&a, granule, 0, hint, 0));
	IS(a == hint);
	// cuMemAlloc keeps out of them.
	CK(cuMemAlloc(&b, 100));
	CK(cuMemAddressReserve(&c, granule, 0, b / granule * granule + granule, 0));
	CK(cuMemAlloc(&a, 100));
	IS(a + 100 <= c || a >= c + granule);
}

static void mappings(void)
{
	unsigned long long flags;
	size_t before;
	char out[64], in[64] = "what is at the seam of two mappings";
	use(0);
	before = available();
	CUmemGenericAllocationHandle one = create(granule), two = create(2 * granule), again;
	IS(available() == before - 3 * granule);
	CUdeviceptr a = reserve(4 * granule), seam = a + granule - 32;
	GIVES(CUDA_ERROR_INVALID_VALUE, cuMemMap(a, granule, 4096, one, 0));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuMemMap(a, granule, 0, two, 0));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuMemMap(a + 4096, granule, 0, one, 0));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuMemMap(a + 4 * granule, granule, 0, one, 0));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuMemMap(a, granule, 0, one + 77, 0));
	GIVES(CUDA_ERROR_INVALID_VALUE, allow(a, granule, CU_MEM_ACCESS_FLAGS_PROT_READ)); // nothing there
	CK(cuMemMap(a, granule, 0, one, 0));
	CK(cuMemMap(a + granule, 2 * granule, 0, two, 0));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuMemMap(a, granule, 0, one, 0));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(a, 4 * granule));

	// Access.
	GIVES(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(a, in, sizeof in));
	GIVES(CUDA_ERROR_INVALID_VALUE, allow(a, 2 * granule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)); // half of two
	GIVES(CUDA_ERROR_INVALID_VALUE, allow(a, 4 * granule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)); // a gap
	CK(allow(a, 3 * granule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	CK(cuMemGetAccess(&flags, &(CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, 0}, a + granule + 5));
	IS(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	CK(cuMemGetAccess(&flags, &(CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, 1}, a));
	IS(flags == CU_MEM_ACCESS_FLAGS_PROT_NONE);
	CK(cuMemcpyHtoD(seam, in, sizeof in));
	CK(cuMemcpyDtoH(out, seam, sizeof out));
	IS(memcmp(in, out, sizeof in) == 0);
	GIVES(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(a + 3 * granule - 32, in, sizeof in)); // beyond the end
	CK(allow(a, granule, CU_MEM_ACCESS_FLAGS_PROT_READ));
	CK(cuMemcpyDtoH(out, seam, sizeof out));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(seam, in, sizeof in));
	CK(allow(a, granule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));

	// The same memory at two addresses.
	CUdeviceptr alias = reserve(granule);
	CK(cuMemMap(alias, granule, 0, one, 0));
	CK(allow(alias, granule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	CK(cuMemcpyHtoD(alias + 5, "seen", 4));
	CK(cuMemcpyDtoH(out, a + 5, 4));
	IS(memcmp(out, "seen", 4) == 0);
	CK(cuMemUnmap(alias, granule));

	// A kernel reaches over both.
	uint64_t words = 16;
	uint32_t d = 1;
	CK(launch(kernel("add"), NULL, (void *[]){&seam, &words, &d}));
	CK(cuMemcpyDtoH(out, seam, sizeof out));
	IS(out[0] == in[0] + 1 && out[60] == in[60] + 1);

	// A handle that is released lives on in its mappings.
	CK(cuMemRelease(one));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuMemRelease(one));
	IS(available() == before - 3 * granule);
	CK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(a + 100)));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(a + 3 * granule)));
	CUmemAllocationProp prop;
	CK(cuMemGetAllocationPropertiesFromHandle(&prop, again));
	IS(prop.location.type == CU_MEM_LOCATION_TYPE_DEVICE && prop.location.id == 0 &&
	   prop.requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	CK(cuMemRelease(again));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(a, 2 * granule));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(a + granule, granule));
	CK(cuMemUnmap(a, 3 * granule));
	IS(available() == before - 2 * granule); // two has a handle yet
	GIVES(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(out, a, 1));
	CK(cuMemRelease(two));
	IS(available() == before);
	CK(cuMemAddressFree(a, 4 * granule));
}

static void faulting(void)
{
	CUdeviceptr a;
	uint64_t words = 16;
	uint32_t d = 1;
	use(0);
	CUmemGenericAllocationHandle h = create(granule);
	a = reserve(granule);
	CK(cuMemMap(a, granule, 0, h, 0));
	// A kernel that touches what it has no access to ends the program's CUDA.
	GIVES(CUDA_ERROR_ILLEGAL_ADDRESS, launch(kernel("add"), NULL, (void *[]){&a, &words, &d}));
	GIVES(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}

static void limits(void)
{
	CUmemGenericAllocationHandle h;
	CUmemAllocationProp prop = prop_on(0);
	use(0);
	size_t all = available();
	GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&h, all + granule, &prop, 0));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&h, granule + 1, &prop, 0));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&h, granule, &prop, 1));
	CK(cuMemCreate(&h, all, &prop, 0));
	GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&h, granule, &prop, 0));
	prop = prop_on(2);
	GIVES(CUDA_ERROR_INVALID_DEVICE, cuMemCreate(&h, granule, &prop, 0));
	prop = prop_on(1);
	CK(cuMemCreate(&h, granule, &prop, 0)); // the other GPU
	prop.type = CU_MEM_ALLOCATION_TYPE_INVALID;
	GIVES(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&h, granule, &prop, 0));
}

static void send_fd(int socket, int fd)
{
	char byte = 1;
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec data = {&byte, 1};
	struct msghdr m = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof fd);
	memcpy(CMSG_DATA(c), &fd, sizeof fd);
	IS(sendmsg(socket, &m, 0) == 1);
}

static int receive_fd(int socket)
{
	int fd;
	char byte;
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec data = {&byte, 1};
	struct msghdr m = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
	IS(recvmsg(socket, &m, MSG_CMSG_CLOEXEC) == 1);
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
	return fd;
}

static CUdeviceptr map(CUmemGenericAllocationHandle h, size_t size)
{
	CUdeviceptr a = reserve(size);
	CK(cuMemMap(a, size, 0, h, 0));
	CK(allow(a, size, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	return a;
}

static int export(CUmemGenericAllocationHandle h)
{
	int fd = -1;
	CK(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	return fd;
}

static CUmemGenericAllocationHandle import(int fd)
{
	CUmemGenericAllocationHandle h;
	CK(cuMemImportFromShareableHandle(&h, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	return h;
}

// exporter makes memory, sends it twice (each export is one of its own) and waits.
static void exporter(int socket)
{
	use(0);
	CUmemGenericAllocationHandle h = create(2 * granule);
	CUdeviceptr a = map(h, 2 * granule);
	CK(cuMemcpyHtoD(a + granule, "from a process that is dead", 28));
	for (int i = 0; i < 2; i++) {
		int fd = export(h);
		send_fd(socket, fd);
		close(fd);
	}
	for (;;)
		pause();
}

static pid_t start_exporter(int *socket)
{
	int ends[2];
	IS(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(ends[0]);
		exporter(ends[1]);
	}
	close(ends[1]);
	*socket = ends[0];
	return pid;
}

static void wait_for(pid_t pid)
{
	IS(waitpid(pid, NULL, 0) == pid);
}

// parked: a descriptor alone keeps memory when the process that made it is dead.
static void parked(void)
{
	int socket;
	char text[28];
	pid_t pid = start_exporter(&socket);
	int one = receive_fd(socket), two = receive_fd(socket);
	use(0);
	size_t all = 64 << 20;
	IS(available() == all - 2 * granule);
	kill(pid, SIGKILL);
	wait_for(pid);
	IS(available() == all - 2 * granule);
	GIVES(CUDA_ERROR_INVALID_VALUE,
	      cuMemImportFromShareableHandle(&(CUmemGenericAllocationHandle){0}, (void *)(intptr_t)socket,
					     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	CUmemGenericAllocationHandle h = import(one), g = import(two);
	IS(h != g);
	close(one);
	CUdeviceptr a = map(h, 2 * granule), b = map(g, 2 * granule);
	CK(cuMemcpyDtoH(text, a + granule, sizeof text));
	IS(strcmp(text, "from a process that is dead") == 0);
	CK(cuMemcpyHtoD(b, "shared", 7));
	CK(cuMemcpyDtoH(text, a, 7));
	IS(strcmp(text, "shared") == 0);
	CK(cuMemRelease(h));
	CK(cuMemRelease(g));
	CK(cuMemUnmap(a, 2 * granule));
	CK(cuMemUnmap(b, 2 * granule));
	IS(available() == all - 2 * granule); // the other descriptor
	close(two);
	IS(available() == all);
}

// back: memory goes to another process and comes back, as in a restore.
static void back(void)
{
	char text[8];
	use(0);
	CUmemGenericAllocationHandle h = create(granule);
	CUdeviceptr a = map(h, granule);
	CK(cuMemcpyHtoD(a, "and back", 8));
	int fd = export(h);
	CK(cuMemUnmap(a, granule));
	CK(cuMemRelease(h));
	h = import(fd);
	close(fd);
	CK(cuMemMap(a, granule, 0, h, 0));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(text, a, 8)); // access was the old mapping's
	CK(allow(a, granule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	CK(cuMemcpyDtoH(text, a, 8));
	IS(memcmp(text, "and back", 8) == 0);
	CUmemAllocationProp prop = prop_on(0);
	prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
	CK(cuMemCreate(&h, granule, &prop, 0));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
}

// sharing runs for ever: two processes with the same memory. It prints their
// numbers, the exporter's first.
static void sharing(void)
{
	int socket;
	pid_t pid = start_exporter(&socket);
	int fd = receive_fd(socket);
	use(0);
	map(import(fd), 2 * granule);
	close(fd);
	close(receive_fd(socket));
	printf("%d %d\n", pid, getpid());
	fflush(stdout);
	for (;;)
		pause();
}

// holding runs for ever: a process whose memory nobody else has any more.
static void holding(void)
{
	use(0);
	CUmemGenericAllocationHandle h = create(granule);
	CUdeviceptr a = map(h, granule);
	CK(cuMemcpyHtoD(a, "kept", 5));
	close(export(h));
	printf("%d\n", getpid());
	fflush(stdout);
	for (char text[5];; usleep(10000)) {
		CK(cuMemcpyDtoH(text, a, 5));
		IS(strcmp(text, "kept") == 0);
	}
}

static void on_host(void *data)
{
	_Atomic int *order = data;
	*order = *order == 0;
}

static void streams(void)
{
	CUstream s, other;
	CUevent begin, middle, end, silent;
	float ms;
	uint64_t ns = 400000000, words = 256;
	uint32_t d = 3, *up, *down;
	_Atomic int order = 0;
	CUdeviceptr a, b;
	use(0);
	CK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CK(cuStreamCreateWithPriority(&other, CU_STREAM_DEFAULT, -1));
	CK(cuEventCreate(&begin, CU_EVENT_DEFAULT));
	CK(cuEventCreate(&middle, CU_EVENT_DEFAULT));
	CK(cuEventCreate(&end, CU_EVENT_DEFAULT));
	CK(cuEventCreate(&silent, CU_EVENT_DISABLE_TIMING));
	CK(cuMemHostAlloc((void **)&up, 1024, CU_MEMHOSTALLOC_PORTABLE));
	CK(cuMemAllocHost((void **)&down, 1024));
	CK(cuMemAlloc(&a, 1024));
	CK(cuMemAlloc(&b, 1024));
	CK(cuEventQuery(begin)); // never recorded
	GIVES(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&ms, begin, end));
	for (uint32_t i = 0; i < 256; i++)
		up[i] = i;
	memset(down, 0xff, 1024);

	CK(cuEventRecord(begin, s));
	CK(launch(kernel("spin"), s, (void *[]){&ns}));
	CK(cuEventRecord(middle, s));
	CK(cuMemcpyHtoDAsync(a, up, 1024, s));
	CK(launch(kernel("add"), s, (void *[]){&a, &words, &d}));
	CK(cuMemcpyDtoDAsync(b, a, 1024, s));
	CK(cuMemsetD32Async(b, 9, 1, s));
	CK(cuMemsetD8Async(b + 4, 1, 4, s));
	CK(cuMemcpyDtoHAsync(down, b, 1024, s));
	CK(cuLaunchHostFunc(s, on_host, (void *)&order));
	CK(cuEventRecord(end, s));
	CK(cuEventRecord(silent, s));
	CK(cuStreamWaitEvent(other, end, 0));
	IS(down[255] == 0xffffffff); // nothing of it has run
	GIVES(CUDA_ERROR_NOT_READY, cuStreamQuery(s));
	GIVES(CUDA_ERROR_NOT_READY, cuStreamQuery(other));
	GIVES(CUDA_ERROR_NOT_READY, cuEventQuery(end));
	GIVES(CUDA_ERROR_NOT_READY, cuEventElapsedTime(&ms, begin, end));
	CK(cuEventSynchronize(end));
	CK(cuStreamSynchronize(s));
	CK(cuStreamQuery(s));
	CK(cuStreamSynchronize(other));
	IS(down[0] == 9 && down[1] == 0x01010101 && down[2] == 5 && down[255] == 258 && order == 1);
	CK(cuEventElapsedTime(&ms, begin, middle));
	IS(ms >= 395 && ms < 20000);
	GIVES(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&ms, begin, silent));

	// A host function comes without any further call.
	CK(launch(kernel("spin"), s, (void *[]){&ns}));
	CK(cuLaunchHostFunc(s, on_host, (void *)&order));
	for (int i = 0; i < 1500 && order == 1; i++)
		usleep(10000);
	IS(order == 0);

	CK(cuStreamDestroy(s));
	GIVES(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(s));
	GIVES(CUDA_ERROR_INVALID_HANDLE, cuMemcpyHtoDAsync(a, up, 1024, s));
	CK(cuEventDestroy(end));
	GIVES(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(end));
	CK(cuStreamSynchronize(CU_STREAM_LEGACY));
	CK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
	CK(cuMemFreeHost(up));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(up));
}

// Streams wait for one another only where they have to.
static void apart(void)
{
	CUstream s, other, ordinary;
	CUevent done;
	CUdeviceptr word, seen;
	uint32_t one = 1, *pinned;
	uint64_t words = 1;
	use(0);
	CK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	CK(cuStreamCreate(&ordinary, CU_STREAM_DEFAULT));
	CK(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
	CK(cuMemHostAlloc((void **)&pinned, 4, CU_MEMHOSTALLOC_PORTABLE));
	CK(cuMemAlloc(&word, 4));
	CK(cuMemAlloc(&seen, 4));
	CK(cuMemsetD32(word, 0, 1));
	CK(cuMemsetD32(seen, 0, 1));

	// What waits in one stream keeps the others from nothing.
	CK(launch(kernel("await"), s, (void *[]){&word, &one}));
	CK(cuEventRecord(done, s));
	CK(launch(kernel("add"), other, (void *[]){&seen, &words, &one}));
	CK(cuStreamSynchronize(other));
	CK(cuStreamQuery(NULL));
	CK(cuMemcpyDtoH(pinned, seen, 4));
	IS(*pinned == 1);
	GIVES(CUDA_ERROR_NOT_READY, cuStreamQuery(s));
	GIVES(CUDA_ERROR_NOT_READY, cuEventQuery(done));
	// Only that which is to wait for it does.
	CK(cuStreamWaitEvent(other, done, 0));
	CK(launch(kernel("add"), other, (void *[]){&seen, &words, &one}));
	GIVES(CUDA_ERROR_NOT_READY, cuStreamQuery(other));
	CK(cuMemsetD32(word, 1, 1));
	CK(cuStreamSynchronize(other));
	CK(cuStreamQuery(s));
	CK(cuMemcpyDtoH(pinned, seen, 4));
	IS(*pinned == 2);

	// The default stream waits for those that are not alone, and they for it.
	one = 2;
	CK(launch(kernel("await"), ordinary, (void *[]){&word, &one}));
	GIVES(CUDA_ERROR_NOT_READY, cuStreamQuery(NULL));
	CK(launch(kernel("add"), NULL, (void *[]){&seen, &words, &one}));
	CK(launch(kernel("add"), ordinary, (void *[]){&seen, &words, &one}));
	CK(cuMemsetD32Async(word, 2, 1, other));
	CK(cuStreamSynchronize(NULL));
	CK(cuStreamSynchronize(ordinary));
	CK(cuMemcpyDtoH(pinned, seen, 4));
	IS(*pinned == 6);
}

// Two ranks in one process: what each brings to a round comes to both.
static void reduce(void)
{
	CUstream streams[2];
	CUdeviceptr boxes[2], list, mine[2], sum[2];
	uint32_t n = 2;
	use(0);
	CK(cuMemAlloc(&list, sizeof boxes));
	for (int i = 0; i < 2; i++) {
		CK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
		CK(cuMemAlloc(&boxes[i], 24));
		CK(cuMemAlloc(&mine[i], 8));
		CK(cuMemAlloc(&sum[i], 8));
		CK(cuMemsetD8(boxes[i], 0, 24));
		CK(cuMemsetD8(sum[i], 0, 8));
		CK(cuMemcpyHtoD(mine[i], (uint64_t[]){i ? 1000 : 1}, 8));
	}
	CK(cuMemcpyHtoD(list, boxes, sizeof boxes));
	for (uint32_t round = 1; round <= 3; round++) {
		uint32_t first = round % 2, second = !first;
		CK(launch(kernel("reduce"), streams[first], (void *[]){&list, &n, &first, &round, &mine[first], &sum[first]}));
		GIVES(CUDA_ERROR_NOT_READY, cuStreamQuery(streams[first]));
		CK(launch(kernel("reduce"), streams[second], (void *[]){&list, &n, &second, &round, &mine[second], &sum[second]}));
		for (int i = 0; i < 2; i++) {
			uint64_t got;
			CK(cuStreamSynchronize(streams[i]));
			CK(cuMemcpyDtoH(&got, sum[i], 8));
			IS(got == 1001 * round);
		}
	}
}

static void copies(void)
{
	CUdeviceptr a, b, registered;
	char *host = aligned_alloc(4096, 8192), in[256], out[256];
	CK(cuInit(0));
	GIVES(CUDA_ERROR_INVALID_CONTEXT, cuMemcpyDtoH(out, 0x1000, 1));
	use(0);
	CK(cuMemAlloc(&a, 10 << 20));
	CK(cuMemAlloc(&b, 10 << 20));
	for (int i = 0; i < 256; i++)
		in[i] = (char)i;
	CK(cuMemcpyHtoD(a + (10 << 20) - 256, in, 256));
	CK(cuMemcpyDtoD(b, a, 10 << 20));
	CK(cuMemcpy((uintptr_t)out, b + (10 << 20) - 256, 256));
	IS(memcmp(in, out, 256) == 0);
	memset(host, 7, 8192);
	CK(cuMemcpyAsync(a, (uintptr_t)host, 8192, NULL)); // pageable: it may be changed at once
	memset(host, 8, 8192);
	CK(cuMemcpyDtoH(out, a + 8191, 1));
	IS(out[0] == 7);
	CK(cuMemsetD8(a, 3, 1000));
	CK(cuMemsetD32(a + 1000, 0x04040404, 2));
	CK(cuMemcpyDtoH(out, a + 996, 16));
	IS(memcmp(out, "\3\3\3\3\4\4\4\4\4\4\4\4\7\7\7\7", 16) == 0);
	GIVES(CUDA_ERROR_INVALID_VALUE, cuMemsetD32(a + 2, 0, 1));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(out, b + (10 << 20), 1));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(out, b + (10 << 20) - 1, 2));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD((uintptr_t)host, in, 1)); // not the device's
	CK(cuMemcpyDtoH(out, a, 0));

	CK(cuMemHostRegister(host, 8192, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
	GIVES(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister(host + 4096, 4096, 0));
	CK(cuMemHostGetDevicePointer(&registered, host + 100, 0));
	IS(registered == (uintptr_t)host + 100);
	CK(cuMemcpyHtoD(registered, "now it is", 10));
	IS(strcmp(host + 100, "now it is") == 0);
	uint64_t words = 4;
	uint32_t d = 1;
	CK(launch(kernel("add"), NULL, (void *[]){&registered, &words, &d}));
	CK(cuCtxSynchronize());
	IS(host[100] == 'n' + 1);
	CK(cuMemHostUnregister(host));
	GIVES(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(host));
	free(host);
}

// twofold: device memory and the process's own pages at one address.
static void twofold(void)
{
	char text[16] = "ring";
	use(0);
	CUdeviceptr a = map(create(granule), granule);
	char *p = mmap((void *)(uintptr_t)a, granule, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	IS((uintptr_t)p == a);
	memset(p, 1, granule);
	CK(cuMemsetD8(a, 2, granule));
	IS(p[0] == 1);
	CK(cuMemcpyDtoH(p, a, granule)); // both ends are the device's
	IS(p[0] == 1);
	p[0] = 5;
	CK(cuMemcpyHtoD(a, p, granule));
	CK(cuMemcpyDtoH(text, a, 1));
	IS(text[0] == 2);
	CK(cuMemUnmap(a, granule));
	IS(p[0] == 5);
}

// late: with the fault "copy delay=...", a copy is not done when the call is.
static void late(void)
{
	CUstream s;
	CUdeviceptr a;
	char *host, seen;
	use(0);
	CK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CK(cuMemHostAlloc((void **)&host, 4096, 0));
	CK(cuMemAlloc(&a, 4096));
	host[0] = 1;
	double start = now_ms();
	CK(cuMemcpyHtoDAsync(a, host, 4096, s));
	IS(now_ms() - start < 250);
	GIVES(CUDA_ERROR_NOT_READY, cuStreamQuery(s));
	host[0] = 2; // too early: the copy is still to come
	CK(cuStreamSynchronize(s));
	IS(now_ms() - start >= 250);
	start = now_ms();
	CK(cuMemcpyDtoH(&seen, a, 1));
	IS(seen == 2 && now_ms() - start >= 250);
}

// refused: every call that a fault can be asked for fails with 999.
static void refused(void)
{
	CUdeviceptr a;
	CUmemAllocationProp prop = prop_on(0);
	CUmemGenericAllocationHandle h;
	int fd;
	char byte = 0;
	use(0);
	GIVES(CUDA_ERROR_UNKNOWN, cuMemCreate(&h, granule, &prop, 0));
	h = create(granule);
	a = reserve(granule);
	GIVES(CUDA_ERROR_UNKNOWN, cuMemMap(a, granule, 0, h, 0));
	CK(cuMemMap(a, granule, 0, h, 0));
	CK(allow(a, granule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	GIVES(CUDA_ERROR_UNKNOWN, cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	fd = export(h);
	GIVES(CUDA_ERROR_UNKNOWN,
	      cuMemImportFromShareableHandle(&h, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	import(fd);
	GIVES(CUDA_ERROR_UNKNOWN, cuMemcpyHtoDAsync(a, &byte, 1, NULL));
	CK(cuMemcpyHtoD(a, &byte, 1));
}

static void pointers(void)
{
	CUdeviceptr a, base;
	size_t size, pitch;
	unsigned type = 0;
	int ordinal = 9, capable = 9;
	unsigned long long types = 9;
	char *pinned, local;
	CUcontext context = use(1), c = NULL;
	CK(cuMemAlloc(&a, 1000));
	CK(cuMemGetAddressRange(&base, &size, a + 999));
	IS(base == a && size == 1000);
	CK(cuMemGetAddressRange(NULL, NULL, a));
	GIVES(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange(&base, &size, a + 1000));
	CK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, a + 1));
	CK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, a));
	CK(cuPointerGetAttribute(&c, CU_POINTER_ATTRIBUTE_CONTEXT, a));
	CK(cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, a));
	IS(type == CU_MEMORYTYPE_DEVICE);
	IS(ordinal == 1);
	IS(c == context);
	IS(capable == 1);
	GIVES(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute(&c, CU_POINTER_ATTRIBUTE_HOST_POINTER, a));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (uintptr_t)&local));
	CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_POINTER};
	CK(cuPointerGetAttributes(2, asked, (void *[]){&type, &base}, (uintptr_t)&local));
	IS(type == 0 && base == 0);
	CK(cuMemHostAlloc((void **)&pinned, 100, 0));
	CK(cuPointerGetAttributes(2, asked, (void *[]){&type, &base}, (uintptr_t)pinned));
	IS(type == CU_MEMORYTYPE_HOST && base == (uintptr_t)pinned);
	a = map(create(granule), granule);
	CK(cuPointerGetAttribute(&types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, a));
	CK(cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, a));
	IS(types == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR && capable == 0);
	GIVES(CUDA_ERROR_INVALID_VALUE, cuMemFree(a));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&(CUipcMemHandle){{0}}, a));
	CK(cuMemAllocPitch(&a, &pitch, 100, 10, 4));
	CK(cuMemGetAddressRange(&base, &size, a));
	IS(pitch >= 100 && size >= 10 * pitch);
}

static void contexts(void)
{
	CUcontext one = use(0), two, c;
	unsigned flags;
	int active, can;
	CUdeviceptr a;
	CK(cuDevicePrimaryCtxGetState(1, &flags, &active));
	IS(!active);
	CK(cuDevicePrimaryCtxRetain(&two, 1));
	CK(cuDevicePrimaryCtxGetState(1, &flags, &active));
	IS(active);
	CK(cuCtxPushCurrent(two));
	CK(cuCtxGetCurrent(&c));
	IS(c == two);
	CK(cuDeviceCanAccessPeer(&can, 0, 1));
	IS(can);
	CK(cuCtxEnablePeerAccess(one, 0));
	GIVES(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, cuCtxEnablePeerAccess(one, 0));
	CK(cuCtxDisablePeerAccess(one));
	GIVES(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, cuCtxDisablePeerAccess(one));
	CK(cuCtxPopCurrent(&c));
	IS(c == two);
	CK(cuCtxGetCurrent(&c));
	IS(c == one);
	size_t before = available();
	CK(cuMemAlloc(&a, granule));
	CUmemGenericAllocationHandle h = create(granule);
	CK(cuDevicePrimaryCtxReset(0));
	one = use(0);
	IS(available() == before - granule); // of no context: what cuMemCreate made
	CK(cuMemRelease(h));
	IS(available() == before);
}

static void procs(void)
{
	CUdriverProcAddressQueryResult status;
	void *f, *g;
	CUuuid id = {{1}};
	const void *table;
	CK(cuInit(0));
	CK(cuGetProcAddress("cuMemCreate", &f, 13000, 0, &status));
	IS(f != NULL && status == CU_GET_PROC_ADDRESS_SUCCESS);
	GIVES(CUDA_ERROR_NOT_FOUND, cuGetProcAddress("cuMemCreate", &f, 10000, 0, &status));
	IS(f == NULL && status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
	GIVES(CUDA_ERROR_NOT_FOUND, cuGetProcAddress("cuNoSuchThing", &f, 13000, 0, &status));
	IS(status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	CK(cuGetProcAddress("cuGetProcAddress", &f, 11030, 0, NULL)); // the form without a status
	CK(cuGetProcAddress("cuGetProcAddress", &g, 13000, 0, NULL));
	IS(f != g);
	CK(((CUresult(*)(const char *, void **, int, cuuint64_t))(uintptr_t)f)("cuMemAlloc", &g, 11030, 0));
	IS(g != NULL);
	GIVES(CUDA_ERROR_NOT_FOUND, cuGetExportTable(&table, &id));
}

// The values are those of TestDigestVectors in internal/memfile.
static void digest(void)
{
	static const char ptx[] = ".version 8.0\n.visible .entry hetgpu_digest(";
	enum { BLOCKS = 2 };
	static const char *const want[BLOCKS] = {"7bf42869a9c49b7f7aaddf4a27810d06", "f4c782cba601fc87e1b629653045f94d"};
	uint64_t list[BLOCKS][2], results[BLOCKS][4];
	CUdeviceptr a, input, output;
	CUmodule module;
	CUfunction f;
	use(0);
	unsigned char *counting = malloc(granule);
	for (size_t i = 0; i < granule; i++)
		counting[i] = (unsigned char)(i * i >> 8 ^ i);
	CK(cuMemAlloc(&a, granule + 4096));
	CK(cuMemAlloc(&input, sizeof list));
	CK(cuMemAlloc(&output, sizeof results));
	CK(cuMemcpyHtoD(a, counting, granule));
	CK(cuMemsetD8(a + granule, 0, 4096));
	list[0][0] = a + granule;
	list[0][1] = 4096;
	list[1][0] = a;
	list[1][1] = granule;
	CK(cuMemcpyHtoD(input, list, sizeof list));
	CK(cuModuleLoadDataEx(&module, ptx, 0, NULL, NULL));
	CK(cuModuleGetFunction(&f, module, "hetgpu_digest"));
	CK(cuLaunchKernel(f, BLOCKS, 1, 1, 256, 1, 1, 0, NULL, (void *[]){&input, &output}, NULL));
	CK(cuMemcpyDtoH(results, output, sizeof results));
	for (int k = 0; k < BLOCKS; k++) {
		char text[33];
		const unsigned char *bytes = (const unsigned char *)results[k];
		for (int i = 0; i < 16; i++)
			sprintf(text + 2 * i, "%02x", bytes[i]);
		if (strcmp(text, want[k]) != 0)
			printf("%s and not %s\n", text, want[k]);
		IS(strcmp(text, want[k]) == 0);
		IS((results[k][2] == 0) == (k == 0) && results[k][3] == 0);
	}
	CK(cuModuleUnload(module));
	free(counting);
}

static cuuint64_t pool_value(CUmemoryPool pool, CUmemPool_attribute attribute)
{
	cuuint64_t value = 0;
	CK(cuMemPoolGetAttribute(pool, attribute, &value));
	return value;
}

static void pools(void)
{
	CUmemoryPool own, now, made, seen;
	CUdeviceptr a, b;
	CUcontext context = use(0), other;
	CUstream s, t;
	unsigned long long id, again;
	int on = 0;
	cuuint64_t threshold = 77, one = 1, none = 0;
	CK(cuStreamCreate(&s, 0));
	CK(cuStreamGetId(s, &id));
	CK(cuStreamGetCtx(s, &other));
	IS(other == context);
	CK(cuStreamDestroy(s));
	CK(cuStreamCreate(&t, 0)); // in the same place
	CK(cuStreamGetId(t, &again));
	IS(id != again);
	CK(cuStreamGetId(NULL, &id));
	CK(cuStreamGetId(CU_STREAM_LEGACY, &again));
	IS(id == again);
	GIVES(CUDA_ERROR_INVALID_HANDLE, cuStreamGetId((CUstream)8, &id));

	CK(cuDeviceGetDefaultMemPool(&own, 0));
	CK(cuDeviceGetMemPool(&now, 0));
	IS(own == now);
	GIVES(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetDefaultMemPool(&now, 7));
	CK(cuMemPoolGetAttribute(own, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &on));
	IS(on == 1 && pool_value(own, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) == 0);
	CK(cuMemPoolSetAttribute(own, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
	IS(pool_value(own, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) == 77);
	GIVES(CUDA_ERROR_INVALID_VALUE, cuMemPoolSetAttribute(own, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &none));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuMemPoolSetAttribute(own, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &one));
	CK(cuMemAllocAsync(&a, 5000, t));
	IS(pool_value(own, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 5000);
	CK(cuPointerGetAttribute(&seen, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, a));
	CK(cuPointerGetAttribute(&other, CU_POINTER_ATTRIBUTE_CONTEXT, a));
	IS(seen == own && other == NULL);
	CK(cuMemFreeAsync(a, t));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(a, t));
	IS(pool_value(own, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0 && pool_value(own, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 5000);
	CK(cuMemPoolSetAttribute(own, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &none));
	IS(pool_value(own, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 0);
	GIVES(CUDA_ERROR_INVALID_VALUE, cuMemPoolDestroy(own));

	CUmemPoolProps p = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_HOST, 0}};
	GIVES(CUDA_ERROR_NOT_SUPPORTED, cuMemPoolCreate(&made, &p));
	p.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, 1};
	p.maxSize = 10000;
	CK(cuMemPoolCreate(&made, &p));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuDeviceSetMemPool(0, made)); // another's
	CK(cuDeviceSetMemPool(1, made));
	CK(cuMemAllocFromPoolAsync(&a, 9000, made, t));
	GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocFromPoolAsync(&b, 2000, made, t));
	CK(cuPointerGetAttribute(&on, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, a));
	IS(on == 1);
	CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READ};
	CUmemAccess_flags flags;
	CK(cuMemPoolSetAccess(made, &access, 1));
	CK(cuMemPoolGetAccess(&flags, made, &access.location));
	IS(flags == CU_MEM_ACCESS_FLAGS_PROT_READ);
	access.location.id = 1;
	GIVES(CUDA_ERROR_INVALID_VALUE, cuMemPoolSetAccess(made, &access, 1)); // its own device
	CK(cuMemPoolDestroy(made));
	GIVES(CUDA_ERROR_INVALID_VALUE, cuMemAllocFromPoolAsync(&b, 5, made, t));
	CK(cuDeviceGetMemPool(&now, 1));
	CK(cuDeviceGetDefaultMemPool(&own, 1));
	IS(now == own);
	CK(cuMemcpyHtoD(a, "it lives", 9)); // until it is freed
	CK(cuMemFreeAsync(a, t));
}

static bool node_there(int minor)
{
	char path[4096];
	snprintf(path, sizeof path, "%s/nvidia%d", getenv("HETGPU_STANDIN_DEV"), minor);
	return access(path, R_OK) == 0;
}

// moved is a process that sees the first GPU, and is restored to the second, and another
// one that has come later and sees both.
static void moved(void)
{
	int sockets[2];
	char text[8];
	CUuuid began, now;
	IS(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets) == 0);
	pid_t pid = fork();
	IS(pid >= 0);
	if (pid == 0) {
		while (read(sockets[1], text, 1) != 1)
			;
		use(0);
		for (int gpu = 0; gpu < 2; gpu++) {
			CUmemAllocationProp prop = prop_on(gpu);
			CUmemGenericAllocationHandle h;
			CK(cuMemCreate(&h, granule, &prop, 0));
			send_fd(sockets[1], export(h));
		}
		int fd = receive_fd(sockets[1]);
		CUdeviceptr a = map(import(fd), granule);
		CK(cuMemcpyDtoH(text, a, 6));
		IS(memcmp(text, "moved", 6) == 0);
		CK(cuMemcpyHtoD(a, "filled", 7));
		_exit(0);
	}
	use(0);
	CK(cuDeviceGetUuid(&began, 0));
	CUmemGenericAllocationHandle first = create(granule);
	CUdeviceptr a = map(first, granule);
	printf("%d\n", getpid());
	fflush(stdout);
	do {
		usleep(10000);
		CK(cuDeviceGetUuid(&now, 0));
	} while (!memcmp(&now, &began, sizeof now) || !node_there(0));
	IS(write(sockets[0], "", 1) == 1);
	int old = receive_fd(sockets[0]), new = receive_fd(sockets[0]);
	CUmemGenericAllocationHandle h;
	GIVES(CUDA_ERROR_NOT_INITIALIZED, cuMemImportFromShareableHandle(&h, (void *)(intptr_t)new, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	CUdeviceptr b;
	CK(cuMemAddressReserve(&b, granule, 0, 0, 0));
	CK(cuMemMap(b, granule, 0, import(old), 0));
	GIVES(CUDA_ERROR_INVALID_DEVICE, allow(b, granule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	// What it had is where it is now, and what it makes.
	CK(cuMemUnmap(a, granule));
	CK(cuMemRelease(first));
	h = create(granule);
	CK(cuMemMap(a, granule, 0, h, 0));
	CK(allow(a, granule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	CK(cuMemcpyHtoD(a, "moved", 6));
	send_fd(sockets[0], export(h));
	int status;
	IS(waitpid(pid, &status, 0) == pid && status == 0);
	CK(cuMemcpyDtoH(text, a, 7));
	IS(memcmp(text, "filled", 7) == 0);
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{"addresses", addresses}, {"mappings", mappings}, {"faulting", faulting}, {"limits", limits},
	{"parked", parked},	  {"back", back},	  {"sharing", sharing},	  {"holding", holding},
	{"streams", streams},	  {"apart", apart},	  {"reduce", reduce},	  {"copies", copies},	  {"twofold", twofold},	  {"late", late},
	{"refused", refused},	  {"pointers", pointers}, {"contexts", contexts}, {"procs", procs},
	{"digest", digest},	  {"pools", pools},	  {"moved", moved},
};

int main(int argc, char **argv)
{
	for (size_t i = 0; argc == 2 && i < sizeof cases / sizeof *cases; i++) {
		if (strcmp(cases[i].name, argv[1]) != 0)
			continue;
		cases[i].run();
		return 0;
	}
	return 2;
}
