/*
 * SPDX-FileCopyrightText: The hetGPU authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Calls arrive as they were made: arguments, results, errno, callbacks,
 * backtraces, cuGetProcAddress.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <execinfo.h>
#endif

#include "signatures.h"
#include "test.h"

static const char *const names[] = {
#define HETCUDA_EXPORT(name) #name,
#include "exports.inc"
#undef HETCUDA_EXPORT
};

static const char *const special[] = {
#define STRING(name) #name
#define NAME(name) STRING(name),
	SPECIAL(NAME)
};

enum { NAMES = sizeof(names) / sizeof(names[0]) };

#define P(i) (UINT64_C(0x0101010101010101) * i)

static void arguments(void)
{
	struct by_value s = { .c = { [0] = 3, [63] = 4 } }, large;
	struct two_doubles d;
	struct two_words w;
	double six = 6;
	char text[256];

	CHECK(ARGS0() == 0);
	CHECK(ARGS1(P(1)) == 1);
	CHECK(ARGS2(P(1), P(2)) == 2);
	CHECK(ARGS6(P(1), P(2), P(3), P(4), P(5), P(6)) == 6);
	CHECK(ARGS7(P(1), P(2), P(3), P(4), P(5), P(6), P(7)) == 7);
	CHECK(ARGS8(P(1), P(2), P(3), P(4), P(5), P(6), P(7), P(8)) == 8);
	CHECK(ARGS11(P(1), P(2), P(3), P(4), P(5), P(6), P(7), P(8), P(9), P(10), P(11)) == 11);
	CHECK(ARGS12(P(1), P(2), P(3), P(4), P(5), P(6), P(7), P(8), P(9), P(10), P(11), P(12)) == 12);
	CHECK(DOUBLES(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12) == 650);
	CHECK(MIXED(1, 2, 3, 4, 5, &six, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16) == 136);
	CHECK(BYVALUE(s, 5) == 12);
	w = TWOWORDS(77);
	CHECK(w.a == 77 && w.b == ~UINT64_C(77));
	d = TWODOUBLES(1.5);
	CHECK(d.a == 1.5 && d.b == -1.5);
	large = LARGE(9);
	CHECK(large.c[0] == 9 && large.c[63] == 9);
	CHECK(VARIADIC(text, "%d %g %s %g %d %d %d", 1, 2.5, "x", 3.5, 4, 5, 6) > 0);
	CHECK(!strcmp(text, "1 2.5 x 3.5 4 5 6"), "%s", text);
	errno = 1234;
	CHECK(ERRNO() == 1234 && errno == 1234);
}

/* The first call of a thread goes another way, and must not be seen either. */
static void *first_call(void *unused)
{
	(void)unused;
	errno = 1234;
	CHECK(DOUBLES(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12) == 650);
	CHECK(errno == 1234);
	return NULL;
}

static void *first_call_stack(void *unused)
{
	(void)unused;
	CHECK(ARGS12(P(1), P(2), P(3), P(4), P(5), P(6), P(7), P(8), P(9), P(10), P(11), P(12)) == 12);
	return NULL;
}

static void in_thread(void *(*f)(void *))
{
	pthread_t t;

	CHECK(!pthread_create(&t, NULL, f, NULL));
	CHECK(!pthread_join(t, NULL));
}

static bool is_special(const char *name)
{
	size_t i;

	for (i = 0; i < sizeof(special) / sizeof(special[0]); i++)
		if (!strcmp(special[i], name))
			return true;
	return false;
}

/* Each name leads to the driver's function of that name. */
static void every_export(void)
{
	unsigned int i, tried = 0;

	for (i = 0; i < NAMES; i++) {
		long (*mine)(void) = ours(names[i]);
		long (*real)(void) = theirs(names[i]);

		CHECK((void *)mine != (void *)real, "%s is not ours", names[i]);
		if (is_special(names[i]))
			continue;
		CHECK(mine() == 1000 + (long)i, "%s", names[i]);
		tried++;
	}
	CHECK(tried > 600, "%u", tried);
}

static int deep(int depth)
{
	return depth ? 1 + CALLBACK(deep, depth - 1) : 0;
}

static void callbacks(void)
{
	atomic_int *inside = theirs("real_inside");

	/* More than a thread's record has frames for. */
	CHECK(deep(1000) == 1000);
	CHECK(*inside == 0);
	CHECK(deep(1000) == 1000);
}

/* musl has no backtraces, and ends a thread that is cancelled without an unwinder. */
#ifdef __GLIBC__
static int seen_caller;

static int look_back(int x)
{
	void *back[64];
	int n = backtrace(back, 64), i;
	Dl_info info;

	for (i = 0; i < n; i++)
		if (dladdr(back[i], &info) && info.dli_sname && !strcmp(info.dli_sname, "caller_of_callback"))
			seen_caller++;
	return x;
}

/* Exported, for dladdr. */
__attribute__((noinline, visibility("default"))) int caller_of_callback(void);
int caller_of_callback(void)
{
	return CALLBACK(look_back, 1) + 1;
}

static void backtraces(void)
{
	CHECK(caller_of_callback() == 2);
	CHECK(seen_caller == 1, "the unwinder does not get past a stub");
}
#endif

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__)
static int cleaned;

static void clean(int *x)
{
	cleaned = *x;
}

static void *cancelled(void *unused)
{
	__attribute__((cleanup(clean))) int x = 42;

	(void)unused;
	BLOCK();
	return NULL;
}

/* pthread_cancel unwinds through the driver and the stub to our frame. */
static void cancellation(void)
{
	atomic_int *inside = theirs("real_inside");
	pthread_t t;

	CHECK(!pthread_create(&t, NULL, cancelled, NULL));
	while (!*inside)
		sleep_ms(1);
	CHECK(!pthread_cancel(t));
	CHECK(!pthread_join(t, NULL));
	CHECK(cleaned == 42);
	*inside = 0;
}
#endif

static void addresses(void)
{
	int (*f)(void), status = -1, i, distinct = 0;
	void *p, *q;
	char name[32];

	p = NULL;
	CHECK(!cuGetProcAddress_v2("cuMemAlloc", &p, 12000, 0, &status) && status == 0);
	CHECK(p == ours("cuMemAlloc_v2"));
	CHECK(!cuGetProcAddress_v2("cuMemAllocAsync", &p, 12000, 2, &status));
	CHECK(p == ours("cuMemAllocAsync_ptsz"));
	CHECK(!cuGetProcAddress_v2("cuMemAllocAsync", &p, 12000, 0, &status));
	CHECK(p == ours("cuMemAllocAsync"));
	CHECK(!cuGetProcAddress_v2("cuGetProcAddress", &p, 12000, 0, NULL));
	CHECK(p == ours("cuGetProcAddress_v2"));
	CHECK(!cuGetProcAddress("cuGetProcAddress", &p, 11030, 0));
	CHECK(p == ours("cuGetProcAddress"));
	CHECK(!cuGetProcAddress("cuInit", &p, 11030, 0));
	CHECK(p == ours("cuInit"));
	CHECK(cuGetProcAddress_v2("cuNotThere", &p, 12000, 0, &status) == 500 && status == 1 && !p);

	/* A function that has no export: through a stub of its own, one for each. */
	CHECK(!cuGetProcAddress_v2("cuHidden", &p, 12000, 0, &status));
	CHECK(!cuGetProcAddress_v2("cuHidden", &q, 12000, 0, &status) && p == q);
	f = (int (*)(void))p;
	CHECK(f() == 4711);
	CHECK(cuGetProcAddress_v2("cuNewer0", &q, 12000, 0, NULL) == 0 && p != q);
	for (i = 0; i < 600; i++) {
		uintptr_t base = (uintptr_t)ours("cuArray3DCreate"), at;

		snprintf(name, sizeof(name), "cuNewer%d", i);
		CHECK(!cuGetProcAddress_v2(name, &p, 12000, 0, NULL));
		f = (int (*)(void))p;
		CHECK(f() == 5100 + i, "%s: %d", name, f());
		at = (uintptr_t)p;
		distinct += at > base && at - base < 1 << 20;
	}
	/* The last ones went past us, but work. */
	CHECK(distinct == 511, "%d", distinct);
	/* An import library may ask for what it already has. */
	CHECK(!cuGetProcAddress_v2("cuMemAlloc", &p, 12000, 0, NULL) && p == ours("cuMemAlloc_v2"));
}

static void *short_lived(void *unused)
{
	(void)unused;
	CHECK(NOTHING() == 0);
	return NULL;
}

static pthread_key_t late_key;

static void late(void *value)
{
	CHECK(NOTHING() == 0);
	/* Again, in the next round. */
	if ((uintptr_t)value < 8)
		pthread_setspecific(late_key, (char *)value + 1);
}

static void *late_caller(void *unused)
{
	(void)unused;
	CHECK(NOTHING() == 0);
	pthread_setspecific(late_key, (void *)1);
	return NULL;
}

/* A thread that ends leaves nothing behind. */
static void threads(void)
{
	int i, before;

	for (i = 0; i < 10; i++)
		in_thread(short_lived);
	before = count_mappings();
	for (i = 0; i < 500; i++)
		in_thread(short_lived);
	CHECK(count_mappings() <= before + 3, "%d, %d", count_mappings(), before);
	/* A destructor that calls again after ours has run. */
	CHECK(!pthread_key_create(&late_key, late));
	for (i = 0; i < 20; i++)
		in_thread(late_caller);
}

int main(void)
{
	arguments();
	in_thread(first_call);
	in_thread(first_call_stack);
	every_export();
	callbacks();
#ifdef __GLIBC__
	backtraces();
#endif
	/* AddressSanitizer does not know a forced unwind, and takes what is
	 * below for the stack of the frames that are gone. */
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__)
	cancellation();
#endif
	threads();
	addresses();
	return 0;
}
