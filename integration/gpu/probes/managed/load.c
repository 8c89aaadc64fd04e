// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
//
// load CUBIN [pages]: loads a cubin or fatbin by the driver API, and prints what its variables are.
// With "pages" it puts pages of the CPU at their addresses and checkpoints the process
// (a process forked before CUDA is there calls the checkpoint API).
#define _GNU_SOURCE
#include <cuda.h>
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
static const char *name(CUresult r) { const char *s = NULL; cuGetErrorName(r, &s); return s ? s : "?"; }
static CUresult said(CUresult r, const char *what) { printf("FACT %s -> %s\n", what, name(r)); fflush(stdout); return r; }
#define T(call) said(call, #call)
#define PAGE 4096ull
static void maps_of(CUdeviceptr p)
{
	FILE *f = fopen("/proc/self/maps", "r"); char line[512]; int found = 0; unsigned long long a, b;
	while (f && fgets(line, sizeof line, f))
		if (sscanf(line, "%llx-%llx", &a, &b) == 2 && a <= p && p < b) { printf("FACT maps: %s", line); found = 1; }
	if (f) fclose(f);
	if (!found) printf("FACT maps: nothing at %llx\n", p);
}
static CUdeviceptr at[4]; static size_t size[4];
static const char *const names[4] = {"big", "small", "plain", "tiny"};
static void look(const char *when)
{
	for (int i = 0; i < 4; i++) {
		int v = -1; CUresult r = cuMemcpyDtoH(&v, at[i], 4);
		printf("FACT %s: %s[0] of the device -> %s, %d\n", when, names[i], name(r), v);
	}
	fflush(stdout);
}
static int controller(int in, int out)
{
	int pid; prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (read(in, &pid, sizeof pid) == sizeof pid) {
		CUresult r[5] = {0}; CUcheckpointLockArgs la; memset(&la, 0, sizeof la); la.timeoutMs = 5000;
		r[0] = cuInit(0); r[1] = cuCheckpointProcessLock(pid, &la);
		if (!r[1]) {
			r[2] = cuCheckpointProcessCheckpoint(pid, NULL);
			if (!r[2]) r[3] = cuCheckpointProcessRestore(pid, NULL);
			r[4] = cuCheckpointProcessUnlock(pid, NULL);
		}
		if (write(out, r, sizeof r) != sizeof r) return 1;
	}
	return 0;
}
static void checkpoint(int out, int in)
{
	int pid = getpid(); CUresult r[5];
	if (write(out, &pid, sizeof pid) != sizeof pid || read(in, r, sizeof r) != sizeof r) { printf("FACT no checkpoint\n"); return; }
	printf("FACT checkpoint API: init %s, lock %s, checkpoint %s, restore %s, unlock %s\n", name(r[0]), name(r[1]), name(r[2]), name(r[3]), name(r[4])); fflush(stdout);
}
int main(int argc, char **argv)
{
	static char image[1 << 20]; int a[2], b[2]; CUcontext c; CUmodule m; CUfunction f;
	if (argc < 2 || pipe(a) || pipe(b)) return 2;
	FILE *file = fopen(argv[1], "rb"); if (!file) return 2;
	size_t n = fread(image, 1, sizeof image, file); fclose(file);
	alarm(30);
	if (fork() == 0) { close(a[1]); close(b[0]); _exit(controller(a[0], b[1])); }
	close(a[0]); close(b[1]);
	printf("FACT %s has %zu bytes\n", argv[1], n);
	T(cuInit(0)); T(cuDevicePrimaryCtxRetain(&c, 0)); T(cuCtxSetCurrent(c));
	checkpoint(a[1], b[0]);
	if (T(cuModuleLoadData(&m, image))) return 1;
	for (int i = 0; i < 4; i++) {
		unsigned managed = 9, type = 9; int ordinal = -1; CUdeviceptr start = 0; size_t range = 0;
		CUresult r = cuModuleGetGlobal(&at[i], &size[i], m, names[i]);
		printf("FACT cuModuleGetGlobal %s -> %s, %llx, %zu bytes, %llx in its page, %llx in its 64 KiB\n", names[i], name(r), at[i], size[i], at[i] % PAGE, at[i] % 65536);
		r = cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, at[i]); printf("FACT %s is managed -> %s, %u\n", names[i], name(r), managed & 0xff);
		r = cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at[i]); printf("FACT %s memory type -> %s, %u\n", names[i], name(r), type);
		r = cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at[i]); printf("FACT %s ordinal -> %s, %d\n", names[i], name(r), ordinal);
		r = cuMemGetAddressRange(&start, &range, at[i]); printf("FACT %s range -> %s, %llx, %zu\n", names[i], name(r), start, range);
		maps_of(at[i]);
	}
	T(cuModuleGetFunction(&f, m, "bump"));
	look("as loaded"); T(cuLaunchKernel(f, 1, 1, 1, 256, 1, 1, 0, NULL, NULL, NULL)); T(cuCtxSynchronize()); look("after a kernel");
	checkpoint(a[1], b[0]);
	T(cuLaunchKernel(f, 1, 1, 1, 256, 1, 1, 0, NULL, NULL, NULL)); T(cuCtxSynchronize()); look("after checkpoint, restore and a kernel");
	if (argc > 2) {
		CUdeviceptr from = at[0] & ~(PAGE - 1), to = (at[0] + size[0] + PAGE - 1) & ~(PAGE - 1);
		void *p = mmap((void *)(uintptr_t)from, to - from, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
		printf("FACT mmap at big without replacing: %s\n", p == MAP_FAILED ? strerror(errno) : (CUdeviceptr)(uintptr_t)p == from ? "there" : "elsewhere");
		if (p == MAP_FAILED) {
			p = mmap((void *)(uintptr_t)from, to - from, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
			printf("FACT mmap over it: %s\n", p == MAP_FAILED ? strerror(errno) : "there");
		}
		fflush(stdout);
		if (p == MAP_FAILED) return 1;
		maps_of(at[0]);
		volatile int *big = (volatile int *)(uintptr_t)at[0];
		for (size_t i = 0; i < size[0] / 4; i++) big[i] = 7000 + (int)i;
		printf("FACT the CPU wrote 7000, and reads %d\n", big[0]); look("after the CPU wrote");
		T(cuLaunchKernel(f, 1, 1, 1, 256, 1, 1, 0, NULL, NULL, NULL)); T(cuCtxSynchronize()); look("after the next kernel");
		printf("FACT the CPU reads %d (7000 wanted)\n", big[0]);
		int *ring = NULL; T(cuMemAllocHost((void **)&ring, size[0]));
		memcpy(ring, (void *)(uintptr_t)at[0], size[0]); T(cuMemcpyHtoD(at[0], ring, size[0])); look("after the CPU's pages went over by another address");
		checkpoint(a[1], b[0]);
		printf("FACT after checkpoint and restore the CPU reads %d\n", big[0]); maps_of(at[0]); look("after checkpoint and restore");
		T(cuLaunchKernel(f, 1, 1, 1, 256, 1, 1, 0, NULL, NULL, NULL)); T(cuCtxSynchronize()); look("after a kernel"); printf("FACT the CPU reads %d\n", big[0]);
		T(cuModuleUnload(m)); maps_of(from); printf("FACT after the module is gone the CPU reads %d\n", *(volatile int *)(uintptr_t)from); fflush(stdout);
		T(cuModuleLoadData(&m, image)); CUdeviceptr again = 0; T(cuModuleGetGlobal(&again, NULL, m, "big")); printf("FACT loaded again, big is at %llx (was %llx)\n", again, at[0]);
	}
	printf("FACT end\n"); fflush(stdout); return 0;
}
