// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
//
// Can a process that the driver's checkpoint API moved to another GPU (GPU pairs) have
// device memory there that another process holds, too? Needs two GPUs of one model.
//   another VISIBLE-OF-SUBJECT VISIBLE-OF-HELPER      ("-" for all)
// Prints a line for every fact. Three processes: this one calls the checkpoint API; the
// subject is checkpointed and restored on the other GPU; the helper exports and imports.
#define _GNU_SOURCE
#include <cuda.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SIZE ((size_t)256 << 20)
#define VA 0x210000000000ull

static const char *who;
static double t0;
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return (double)t.tv_sec + (double)t.tv_nsec * 1e-9; }
__attribute__((format(printf, 1, 2))) static void fact(const char *f, ...)
{
	va_list a; char s[400];
	va_start(a, f); vsnprintf(s, sizeof s, f, a); va_end(a);
	printf("%6.2f %-8s %s\n", now() - t0, who, s); fflush(stdout);
}
static const char *name(CUresult r) { const char *s = NULL; cuGetErrorName(r, &s); return s ? s : "?"; }
static CUresult said(CUresult r, const char *what) { fact("%s -> %s", what, name(r)); return r; }
#define T(call) said(call, #call)

// ---- talk: a line, and a descriptor with it
static void tell(int s, const char *line, int fd)
{
	char c[CMSG_SPACE(sizeof(int))]; memset(c, 0, sizeof c);
	struct iovec v = {(void *)(uintptr_t)line, strlen(line) + 1};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
	if (fd >= 0) {
		m.msg_control = c; m.msg_controllen = sizeof c;
		struct cmsghdr *h = CMSG_FIRSTHDR(&m);
		h->cmsg_level = SOL_SOCKET; h->cmsg_type = SCM_RIGHTS; h->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(h), &fd, sizeof fd);
	}
	if (sendmsg(s, &m, MSG_NOSIGNAL) < 0) fact("tell: %s", strerror(errno));
}
static int hear(int s, char *line, size_t n, int *fd, int ms)
{
	struct pollfd p = {s, POLLIN, 0};
	char c[CMSG_SPACE(sizeof(int))];
	struct iovec v = {line, n};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = c, .msg_controllen = sizeof c};
	if (fd) *fd = -1;
	if (poll(&p, 1, ms) != 1) return 0;
	if (recvmsg(s, &m, 0) <= 0) return -1;
	for (struct cmsghdr *h = CMSG_FIRSTHDR(&m); h; h = CMSG_NXTHDR(&m, h))
		if (h->cmsg_type == SCM_RIGHTS && fd) memcpy(fd, CMSG_DATA(h), sizeof *fd);
	return 1;
}

// ---- what both children have
static CUcontext ctx[4];
static int devices;
static void uuid_of(int d, char out[40]) { CUuuid u; memset(&u, 0, sizeof u); cuDeviceGetUuid(&u, d); for (int i = 0; i < 16; i++) sprintf(out + 2 * i, "%02x", (unsigned char)u.bytes[i]); }
static void look(void)
{
	for (int d = 0; d < devices; d++) {
		char u[40]; size_t a = 0, b = 0; unsigned f = 0; int active = 0, cur = -1; CUcontext was = NULL;
		uuid_of(d, u); cuDevicePrimaryCtxGetState(d, &f, &active); cuCtxGetCurrent(&was);
		if (was) cuCtxGetDevice(&cur);
		if (ctx[d]) { cuCtxSetCurrent(ctx[d]); cuMemGetInfo(&a, &b); cuCtxSetCurrent(was); }
		fact("ordinal %d is %s, primary context active %d, free %zu MiB, current device %d", d, u, active, a >> 20, cur);
	}
}
static void open_devices(int with)
{
	T(cuInit(0)); cuDeviceGetCount(&devices); fact("sees %d devices", devices);
	if (devices > 4) devices = 4;
	for (int d = 0; d < devices; d++) if (with < 0 || with == d) { T(cuDevicePrimaryCtxRetain(&ctx[d], d)); }
	T(cuCtxSetCurrent(ctx[with < 0 ? 0 : with])); look();
}
static CUmemAllocationProp prop_on(int id) { CUmemAllocationProp p; memset(&p, 0, sizeof p); p.type = CU_MEM_ALLOCATION_TYPE_PINNED; p.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR; p.location.type = CU_MEM_LOCATION_TYPE_DEVICE; p.location.id = id; return p; }
static CUresult access_for(CUdeviceptr va, int id) { CUmemAccessDesc a; memset(&a, 0, sizeof a); a.location.type = CU_MEM_LOCATION_TYPE_DEVICE; a.location.id = id; a.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE; return cuMemSetAccess(va, SIZE, &a, 1); }
static void read_back(CUdeviceptr va) { unsigned w[4] = {0}; CUresult r = cuMemcpyDtoH(w, va + SIZE - sizeof w, sizeof w); fact("read at %llx -> %s, %08x", (unsigned long long)va, name(r), w[0]); }

// map a handle at an address, with access for each ordinal in turn, fill or read, unmap
static int mapped(CUdeviceptr va, CUmemGenericAllocationHandle h, const char *what, unsigned fill, int keep)
{
	CUmemAllocationProp got; memset(&got, 0, sizeof got);
	CUresult r = cuMemGetAllocationPropertiesFromHandle(&got, h);
	fact("%s: properties -> %s, location id %d, type %d", what, name(r), got.location.id, (int)got.location.type);
	r = cuMemMap(va, SIZE, 0, h, 0); fact("%s: cuMemMap at %llx -> %s", what, (unsigned long long)va, name(r));
	if (r) return 0;
	int ok = 0;
	for (int d = 0; d < devices && !ok; d++) { r = access_for(va, d); fact("%s: cuMemSetAccess for ordinal %d -> %s", what, d, name(r)); ok = r == CUDA_SUCCESS; }
	if (ok && fill) { r = cuMemsetD32(va, fill, SIZE / 4); fact("%s: fill with %08x -> %s, synchronize -> %s", what, fill, name(r), name(cuCtxSynchronize())); }
	if (ok) { int o = -1; cuPointerGetAttribute(&o, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, va); fact("%s: pointer says ordinal %d", what, o); read_back(va); }
	if (!keep) { fact("%s: unmap -> %s", what, name(cuMemUnmap(va, SIZE))); }
	return ok;
}
static CUdeviceptr reserve(void) { CUdeviceptr va = 0; T(cuMemAddressReserve(&va, SIZE, 0, VA, 0)); return va; }

// ---- the helper: "export ORDINAL", "import"
static void helper(int s)
{
	char line[64]; int fd;
	who = "helper"; open_devices(-1);
	CUdeviceptr va = reserve();
	CUmemGenericAllocationHandle kept = 0;
	tell(s, "ready", -1);
	while (hear(s, line, sizeof line, &fd, -1) > 0) {
		if (strncmp(line, "export", 6) == 0) {
			int id = atoi(line + 6), out = -1; CUmemAllocationProp p = prop_on(id);
			cuCtxSetCurrent(ctx[id]);
			if (T(cuMemCreate(&kept, SIZE, &p, 0))) { tell(s, "failed", -1); continue; }
			mapped(va, kept, "its own", 0xabcd0000u + (unsigned)id, 0);
			T(cuMemExportToShareableHandle(&out, kept, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
			tell(s, "exported", out); if (out >= 0) close(out);
		} else if (strncmp(line, "release", 7) == 0) {
			T(cuMemRelease(kept)); tell(s, "released", -1);
		} else if (strncmp(line, "import", 6) == 0) {
			CUmemGenericAllocationHandle h = 0; int ok = 0;
			for (int d = 0; d < devices && !ok; d++) {
				cuCtxSetCurrent(ctx[d]); fact("context of ordinal %d:", d);
				if (T(cuMemImportFromShareableHandle(&h, (void *)(uintptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) == CUDA_SUCCESS) {
					ok = mapped(va, h, "the subject's", 0x77770000u, 0); T(cuMemRelease(h));
				}
			}
			close(fd); look(); tell(s, ok ? "filled" : "not filled", -1);
		} else if (strcmp(line, "look") == 0) { look(); tell(s, "looked", -1); }
		else break;
	}
	_exit(0);
}

// ---- the subject
static CUdeviceptr sva;
struct try { const char *what; int fd, how, ok; };
static void *try_import(void *arg)
{
	struct try *t = arg; CUmemGenericAllocationHandle h = 0; CUcontext c = NULL; CUresult r = CUDA_SUCCESS;
	if (t->how == 1) r = cuCtxSetCurrent(ctx[0]);
	if (t->how == 2) { r = cuDevicePrimaryCtxRetain(&c, 0); fact("retained anew: %s, %s", name(r), c == ctx[0] ? "the same" : "another"); r = cuCtxSetCurrent(c); }
	if (t->how == 3 && devices > 1) { r = cuDevicePrimaryCtxRetain(&c, 1); fact("retained ordinal 1: %s", name(r)); r = cuCtxSetCurrent(c); }
	if (t->how == 4) r = cuCtxSetCurrent(NULL);
	if (t->how == 5) { CUresult (*create)(CUcontext *, unsigned, CUdevice) = NULL; CUdriverProcAddressQueryResult q; r = cuGetProcAddress("cuCtxCreate", (void **)&create, 3020, 0, &q); if (!r && create) r = create(&c, 0, 0); fact("a new context on ordinal 0 -> %s", name(r)); }
	if (t->how == 6 && devices > 1) { CUresult (*create)(CUcontext *, unsigned, CUdevice) = NULL; CUdriverProcAddressQueryResult q; r = cuGetProcAddress("cuCtxCreate", (void **)&create, 3020, 0, &q); if (!r && create) r = create(&c, 0, 1); fact("a new context on ordinal 1 -> %s", name(r)); }
	if (r) return NULL;
	r = cuMemImportFromShareableHandle(&h, (void *)(uintptr_t)t->fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	fact("IMPORT %s -> %s", t->what, name(r));
	if (r == CUDA_SUCCESS) { t->ok = mapped(sva, h, t->what, 0, 0); cuMemRelease(h); }
	if (t->how >= 5 && c) { CUresult (*destroy)(CUcontext) = NULL; CUdriverProcAddressQueryResult q; if (!cuGetProcAddress("cuCtxDestroy", (void **)&destroy, 4000, 0, &q) && destroy) fact("destroy it -> %s", name(destroy(c))); }
	return NULL;
}
static void imports(int fd, const char *of)
{
	static const char *const how[] = {"in this thread", "in another thread, its context current", "in another thread, primary context retained anew", "in another thread, primary context of ordinal 1", "in another thread, no context", "in another thread, a new context of ordinal 0", "in another thread, a new context of ordinal 1"};
	int tries = strncmp(of, "before", 6) == 0 ? 1 : 7; // no context on the other GPU before the checkpoint
	for (int i = 0; i < tries; i++) {
		char text[160]; snprintf(text, sizeof text, "%s %s", of, how[i]);
		struct try t = {text, fd, i, 0}; pthread_t p;
		if (i == 0) try_import(&t);
		else if (pthread_create(&p, NULL, try_import, &t) == 0) pthread_join(p, NULL);
	}
}
static CUmemGenericAllocationHandle own[4];
static void subject(int s)
{
	char line[64]; int fd; unsigned value = 0;
	CUmemGenericAllocationHandle h; CUdeviceptr plain = 0;
	who = "subject"; open_devices(0);
	sva = reserve(); fact("reserved at %llx", (unsigned long long)sva);
	CUmemAllocationProp p = prop_on(0);
	T(cuMemAlloc(&plain, 4096)); T(cuMemsetD32(plain, 0x1234, 1024));
	T(cuMemCreate(&h, SIZE, &p, 0)); mapped(sva, h, "before", 0x5555, 0); T(cuMemRelease(h));
	tell(s, "ready", -1);
	while (hear(s, line, sizeof line, &fd, -1) > 0) {
		if (strcmp(line, "look") == 0) {
			look(); CUresult r = cuMemcpyDtoH(&value, plain, 4); fact("plain memory of before -> %s, %x", name(r), value); tell(s, "looked", -1);
		} else if (strncmp(line, "import", 6) == 0) {
			imports(fd, line + 7); close(fd); tell(s, "tried", -1);
		} else if (strncmp(line, "create", 6) == 0) {
			int id = atoi(line + 6), out = -1; p = prop_on(id);
			if (T(cuMemCreate(&own[id], SIZE, &p, 0))) { tell(s, "failed", -1); continue; }
			mapped(sva, own[id], "made after the restore", 0x6666, 1);
			T(cuMemExportToShareableHandle(&out, own[id], CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
			tell(s, "created", out); if (out >= 0) close(out);
		} else if (strncmp(line, "again", 5) == 0) {
			fact("after the helper wrote 77770000:"); read_back(sva); T(cuMemUnmap(sva, SIZE)); T(cuMemRelease(own[atoi(line + 5)])); tell(s, "done", -1);
		} else if (strcmp(line, "reset") == 0) {
			T(cuDevicePrimaryCtxReset(0)); T(cuDevicePrimaryCtxRetain(&ctx[0], 0)); T(cuCtxSetCurrent(ctx[0])); look(); tell(s, "reset", -1);
		} else break;
	}
	_exit(0);
}

static pid_t start(void (*run)(int), const char *visible, int *sock)
{
	int s[2]; if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, s)) exit(1);
	pid_t pid = fork();
	if (pid == 0) { prctl(PR_SET_PDEATHSIG, SIGKILL); close(s[0]); if (strcmp(visible, "-")) setenv("CUDA_VISIBLE_DEVICES", visible, 1); alarm(55); run(s[1]); _exit(0); }
	close(s[1]); *sock = s[0]; return pid;
}
static int ask(int s, const char *line, int fd, int *back, int ms)
{
	char answer[64] = ""; tell(s, line, fd); int r = hear(s, answer, sizeof answer, back, ms);
	fact("\"%s\": %s", line, r == 1 ? answer : r == 0 ? "NO ANSWER" : "ENDED"); return r == 1;
}
static int step(const char *what, CUresult r, double start) { fact("%s -> %s, %.3f s", what, name(r), now() - start); return r == CUDA_SUCCESS; }

int main(int argc, char **argv)
{
	const char *vs = argc > 1 ? argv[1] : "-", *vh = argc > 2 ? argv[2] : "-";
	int ss, hs, fd, n = 0; char line[64]; CUuuid u[4];
	t0 = now(); who = "control"; alarm(58);
	fact("subject sees CUDA_VISIBLE_DEVICES=%s, helper %s", vs, vh);
	pid_t sp = start(subject, vs, &ss), hp = start(helper, vh, &hs);
	if (hear(ss, line, sizeof line, NULL, 20000) != 1 || hear(hs, line, sizeof line, NULL, 20000) != 1) { fact("they did not start"); return 1; }
	if (!step("cuInit", cuInit(0), now())) return 1;
	cuDeviceGetCount(&n); if (n > 4) n = 4;
	for (int i = 0; i < n; i++) cuDeviceGetUuid(&u[i], i);
	if (n < 2) { fact("this machine has %d GPU", n); return 1; }
	// what works before: the subject imports from the helper
	ask(hs, "export 0", -1, &fd, 10000); if (fd >= 0) { ask(ss, "import before-0", fd, NULL, 10000); close(fd); } ask(hs, "release", -1, NULL, 10000);
	CUcheckpointLockArgs la; memset(&la, 0, sizeof la); la.timeoutMs = 5000;
	double t = now(); if (!step("lock", cuCheckpointProcessLock(sp, &la), t)) return 1;
	t = now(); if (!step("checkpoint", cuCheckpointProcessCheckpoint(sp, NULL), t)) return 1;
	CUcheckpointGpuPair pairs[4]; memset(pairs, 0, sizeof pairs);
	for (int i = 0; i < n; i++) { pairs[i].oldUuid = u[i]; pairs[i].newUuid = u[i < 2 ? 1 - i : i]; }
	CUcheckpointRestoreArgs ra; memset(&ra, 0, sizeof ra); ra.gpuPairs = pairs; ra.gpuPairsCount = (unsigned)n;
	t = now(); if (!step("restore to the other GPU", cuCheckpointProcessRestore(sp, &ra), t)) {
		ra.gpuPairsCount = 1; t = now();
		if (!step("restore to the other GPU, one pair only", cuCheckpointProcessRestore(sp, &ra), t)) return 1;
	}
	// before the unlock: does a call of the subject come back?
	tell(ss, "look", -1); int r = hear(ss, line, sizeof line, NULL, 2000); fact("calls of the subject before the unlock: %s", r == 1 ? "come back" : "wait");
	t = now(); if (!step("unlock", cuCheckpointProcessUnlock(sp, NULL), t)) return 1;
	if (r != 1) { r = hear(ss, line, sizeof line, NULL, 5000); fact("and after it: %s", r == 1 ? "come back" : "wait"); }
	for (int d = 0; d < n; d++) { // the helper's memory, on each of its devices
		snprintf(line, sizeof line, "export %d", d);
		if (!ask(hs, line, -1, &fd, 10000) || fd < 0) continue;
		snprintf(line, sizeof line, "import helper-%d", d); ask(ss, line, fd, NULL, 15000); close(fd); ask(hs, "release", -1, NULL, 10000);
	}
	for (int d = 0; d < n; d++) { // and turned round: the subject's own memory
		ask(hs, "look", -1, NULL, 5000);
		snprintf(line, sizeof line, "create %d", d);
		if (!ask(ss, line, -1, &fd, 10000) || fd < 0) continue;
		ask(hs, "import", fd, NULL, 10000); close(fd);
		snprintf(line, sizeof line, "again %d", d); ask(ss, line, -1, NULL, 10000);
	}
	// does it help to begin the context anew? (all that was in it is lost)
	if (ask(ss, "reset", -1, NULL, 10000) && ask(hs, strcmp(vh, "-") ? "export 0" : "export 1", -1, &fd, 10000) && fd >= 0) { ask(ss, "import after-reset", fd, NULL, 15000); close(fd); }
	tell(ss, "end", -1); tell(hs, "end", -1); waitpid(sp, NULL, 0); waitpid(hp, NULL, 0);
	fact("done"); return 0;
}
