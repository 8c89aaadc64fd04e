// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
//
// LD_PRELOAD: prints which of the driver's functions a runtime asks for and, of those
// that load code or find variables, the calls with what they are given. No header of
// CUDA: all of these functions take pointers and integers.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
typedef int (*any)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
static const char *const watched[] = {"cuModuleLoadData", "cuModuleLoadDataEx", "cuModuleLoadFatBinary", "cuModuleLoad", "cuLibraryLoadData", "cuLibraryLoadFromFile", "cuLibraryGetModule", "cuLibraryGetGlobal", "cuLibraryGetManaged", "cuLibraryGetUnifiedFunction", "cuModuleGetGlobal", "cuMemAllocManaged", "cuKernelGetFunction", "cuLibraryGetKernel", "cuGetExportTable", "cuPointerGetAttribute", "cuPointerGetAttributes", "cuMemHostRegister", "cuMemAlloc", "cuCtxSetCurrent", "cuDevicePrimaryCtxRetain"};
enum { N = sizeof watched / sizeof *watched };
static any real[N];
static void hex(const void *p, int n) { for (int i = 0; i < n; i++) fprintf(stderr, "%02x", ((const unsigned char *)p)[i]); }
static void image(const void *p)
{
	const uint32_t *w = p;
	if (!p) { fprintf(stderr, " image NULL"); return; }
	fprintf(stderr, " image begins "); hex(p, 16);
	if (w[0] == 0x466243b1) { // struct { magic, version; data; unused }
		const void *data = *(const void *const *)(w + 2);
		fprintf(stderr, " WRAPPER version %u", w[1]); w = data;
	}
	if (w[0] != 0xBA55ED50) return;
	uint16_t head = *(const uint16_t *)((const char *)w + 6); uint64_t size = *(const uint64_t *)((const char *)w + 8);
	fprintf(stderr, " FATBIN version %u, header %u, %llu bytes", *(const uint16_t *)((const char *)w + 4), head, (unsigned long long)size);
	for (uint64_t at = 0; at + 64 <= size;) {
		const char *e = (const char *)w + head + at;
		uint32_t eh = *(const uint32_t *)(e + 4); uint64_t payload = *(const uint64_t *)(e + 8);
		if (eh < 64 || eh > 4096) break;
		fprintf(stderr, "; ENTRY kind %u (1 ptx, 2 elf), header %u, payload %llu, compressed %u, arch %u, flags %#llx (0x2000 lz4, 0x8000 zstd), uncompressed %llu, begins ", *(const uint16_t *)e, eh, (unsigned long long)payload, *(const uint32_t *)(e + 16), *(const uint32_t *)(e + 28), (unsigned long long)*(const uint64_t *)(e + 40), (unsigned long long)*(const uint64_t *)(e + 56));
		hex(e + eh, 8); at += eh + payload;
	}
}
static int call(int i, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f, uint64_t g, uint64_t h)
{
	fprintf(stderr, "SPY %s(%#llx, %#llx, %#llx, %#llx)", watched[i], (unsigned long long)a, (unsigned long long)b, (unsigned long long)c, (unsigned long long)d);
	if (strstr(watched[i], "LoadData") || strstr(watched[i], "FatBinary")) image((const void *)(uintptr_t)b);
	if (strcmp(watched[i], "cuGetExportTable") == 0) { fprintf(stderr, " table "); hex((const void *)(uintptr_t)b, 16); }
	if (strstr(watched[i], "GetGlobal") || strstr(watched[i], "GetManaged")) fprintf(stderr, " name %s", d ? (const char *)(uintptr_t)d : "NULL");
	if (strstr(watched[i], "GetKernel")) fprintf(stderr, " name %s", c ? (const char *)(uintptr_t)c : "NULL");
	int r = real[i](a, b, c, d, e, f, g, h);
	fprintf(stderr, " -> %d", r);
	if (r == 0 && a && (strstr(watched[i], "Global") || strstr(watched[i], "GetManaged") || strcmp(watched[i], "cuMemAllocManaged") == 0)) fprintf(stderr, ", address %#llx", (unsigned long long)*(uint64_t *)(uintptr_t)a);
	fprintf(stderr, "\n"); return r;
}
#define W(i) static int w##i(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f, uint64_t g, uint64_t h) { return call(i, a, b, c, d, e, f, g, h); }
W(0) W(1) W(2) W(3) W(4) W(5) W(6) W(7) W(8) W(9) W(10) W(11) W(12) W(13) W(14) W(15) W(16) W(17) W(18) W(19) W(20)
static const any wrappers[N] = {w0, w1, w2, w3, w4, w5, w6, w7, w8, w9, w10, w11, w12, w13, w14, w15, w16, w17, w18, w19, w20};
static void *instead(const char *name, void *f)
{
	for (int i = 0; i < N && f; i++)
		if (strcmp(name, watched[i]) == 0) { if (!real[i]) real[i] = (any)f; return (void *)wrappers[i]; }
	return f;
}
static int (*real_ask2)(const char *, void **, int, uint64_t, void *);
static int (*real_ask1)(const char *, void **, int, uint64_t);
static int ask2(const char *name, void **f, int version, uint64_t flags, void *status)
{
	int r;
	if (strcmp(name, "cuGetProcAddress") == 0) { r = real_ask2(name, f, version, flags, status); if (!r && f && *f) { if (version >= 12000) { real_ask2 = *f; *f = (void *)ask2; } } return r; }
	r = real_ask2(name, f, version, flags, status);
	if (r == 0 && f && *f) *f = instead(name, *f);
	return r;
}
static int ask1(const char *name, void **f, int version, uint64_t flags) { int r = real_ask1(name, f, version, flags); if (r == 0 && f && *f) *f = instead(name, *f); return r; }
void *dlsym(void *handle, const char *name)
{
	static void *(*next)(void *, const char *);
	if (!next) { next = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34"); if (!next) next = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5"); }
	void *f = next(handle, name);
	if (strncmp(name, "cu", 2) != 0 || !f) return f;
	fprintf(stderr, "SPY dlsym %s\n", name);
	if (strcmp(name, "cuGetProcAddress_v2") == 0) { real_ask2 = f; return (void *)ask2; }
	if (strcmp(name, "cuGetProcAddress") == 0) { real_ask1 = f; return (void *)ask1; }
	return instead(name, f);
}
