// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

#include "watch.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "log.h"
#include "parts.h"
#include "serve.h"
#include "spawn.h"

// Newer than the headers of some systems that build this.
#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0x00)
#endif
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#define CONTINUE_MODE_WP ((__u64)1 << 1)

static enum { NOTHING, UFFD, SIGNAL } way;
static bool tracks;          // UFFD: writes to what is CLEAN are reported
static bool users_only;      // UFFD: system calls that touch what is DEVICE's fail
static int uffd = -1;        // what the reader reads
static int stop = -1;        // eventfd: the reader is to let go of uffd
static bool reading;
static pthread_mutex_t reader = PTHREAD_MUTEX_INITIALIZER; // for the three above
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static _Atomic uint32_t suspended; // a futex: threads of the program wait for 0
static struct sigaction before;    // what SIGSEGV did before it came to us
static bool handling;

static void *pointer(CUdeviceptr address)
{
	return (void *)(uintptr_t)address;
}

// SIGSEGV.

// Which signals are being passed on, by thread. Nothing here is thread-local: where the
// library was opened late a thread's first use of that may allocate, and the thread may
// have been stopped inside of malloc. Threads that meet at one place take it from one
// another, and find out one round later.
struct passed {
	_Atomic pid_t thread;
	_Atomic uintptr_t info, frame;
};

// chain does what would have happened without us.
static void chain(int signal, siginfo_t *info, void *context)
{
	// A handler that was installed over ours and calls what it found calls
	// us, who were installed over it again and call what we found: the same
	// signal, further down the stack. (A mark alone doesn't tell: a handler
	// may leave by a jump, and then the mark stays.)
	static struct passed all[64];
	pid_t self = (pid_t)syscall(SYS_gettid);
	struct passed *last = &all[(size_t)self % (sizeof all / sizeof *all)];
	uintptr_t frame = (uintptr_t)__builtin_frame_address(0);
	bool again = last->thread == self && last->info == (uintptr_t)info && frame < last->frame;
	if (again || (!(before.sa_flags & SA_SIGINFO) && (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN))) {
		// It comes again at once, and then ends the process with the
		// right status and the right place in its core.
		struct sigaction nothing = {.sa_handler = SIG_DFL};
		sigaction(signal, &nothing, NULL);
		return;
	}
	last->thread = self;
	last->info = (uintptr_t)info;
	last->frame = frame;
	if (before.sa_flags & SA_SIGINFO)
		before.sa_sigaction(signal, info, context);
	else
		before.sa_handler(signal);
	pid_t mine = self;
	atomic_compare_exchange_strong(&last->thread, &mine, 0);
}

static bool ours(CUdeviceptr address)
{
	if (!range_any())
		return false;
	PAGES();
	struct range *r = range_find(address);
	return r && r->split && pages_there(r, address);
}

static bool is_write(const void *context)
{
#if defined(__x86_64__)
	return ((const ucontext_t *)context)->uc_mcontext.gregs[REG_ERR] & 2;
#else
	(void)context;
	return true; // DIRTY at once: a needless copy, nothing worse
#endif
}

// The thread was stopped at an access to the program's memory, so it is in none
// of our functions and holds none of our locks.
static void handle(int signal, siginfo_t *info, void *context)
{
	int saved = errno;
	CUdeviceptr address = (uintptr_t)info->si_addr;
	if (info->si_code != SEGV_ACCERR || !ours(address)) {
		chain(signal, info, context);
	} else if (atomic_load(&suspended)) {
		syscall(SYS_futex, &suspended, FUTEX_WAIT_PRIVATE, 1, NULL, NULL, 0);
	} else if (way == SIGNAL) {
		struct request q = {.what = TOUCH, .address = address, .write = is_write(context)};
		serve_push_wait(&q, serve_host((pid_t)syscall(SYS_gettid)));
	}
	// Otherwise it was suspended a moment ago, and is no longer.
	errno = saved;
}

static bool handler_install(void)
{
	struct sigaction now, action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
	if (sigaction(SIGSEGV, NULL, &now) != 0)
		return false;
	if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == handle)
		return true;
	before = now;
	handling = sigaction(SIGSEGV, &action, NULL) == 0;
	return handling;
}

// One that the program has installed since stays.
static void handler_remove(void)
{
	struct sigaction now;
	if (handling && sigaction(SIGSEGV, NULL, &now) == 0 && (now.sa_flags & SA_SIGINFO) && now.sa_sigaction == handle)
		sigaction(SIGSEGV, &before, NULL);
	handling = false;
}

// userfaultfd.

static int get(bool device, int flags)
{
	if (!device)
		return (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | flags);
	int d = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
	if (d < 0)
		return -1;
	int fd = ioctl(d, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK);
	close(d);
	return fd;
}

// with sets the features; false leaves a descriptor that is of no use.
static bool with(int fd, __u64 features)
{
	struct uffdio_api api = {.api = UFFD_API, .features = features};
	return ioctl(fd, UFFDIO_API, &api) == 0 && (api.features & features) == features;
}

static bool watch_addresses(int fd, void *address, size_t size, bool writes)
{
	struct uffdio_register r = {
		.range = {.start = (uintptr_t)address, .len = size},
		.mode = UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_MINOR | (writes ? UFFDIO_REGISTER_MODE_WP : 0),
	};
	return ioctl(fd, UFFDIO_REGISTER, &r) == 0;
}

// map_pages lets the program see pages that the alias has.
static bool map_pages(int fd, void *address, size_t size, bool write)
{
	for (size_t done = 0; done < size;) {
		struct uffdio_continue c = {
			.range = {.start = (uintptr_t)address + done, .len = size - done},
			.mode = write ? 0 : CONTINUE_MODE_WP,
		};
		if (ioctl(fd, UFFDIO_CONTINUE, &c) == 0)
			return true;
		if (c.mapped > 0)
			done += (size_t)c.mapped;
		else if (errno == EEXIST)
			done += PAGE;
		else if (errno != EAGAIN)
			return false;
	}
	return true;
}

// try_writes tells whether pages can be mapped so that writes to them are
// reported: not all kernels that have the one have the other, and none says so.
static bool try_writes(int fd)
{
	bool works = false;
	char *alias = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (alias == MAP_FAILED)
		return false;
	char *page = mremap(alias, 0, PAGE, MREMAP_MAYMOVE);
	*(volatile char *)alias = 1;
	if (page != MAP_FAILED) {
		works = watch_addresses(fd, page, PAGE, true) && map_pages(fd, page, PAGE, false);
		munmap(page, PAGE);
	}
	munmap(alias, PAGE);
	return works;
}

// open_any returns a descriptor, the best that there is: one that sees faults of
// system calls too, and one that reports writes.
static int open_any(void)
{
	static const struct {
		bool device;
		int flags;
	} sources[] = {{true, 0}, {false, 0}, {false, UFFD_USER_MODE_ONLY}};
	const __u64 least = UFFD_FEATURE_MINOR_SHMEM | UFFD_FEATURE_THREAD_ID;
	for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
		int fd = get(sources[i].device, sources[i].flags);
		if (fd < 0)
			continue;
		users_only = sources[i].flags & UFFD_USER_MODE_ONLY;
		tracks = with(fd, least | UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_HUGETLBFS_SHMEM) && try_writes(fd);
		if (tracks)
			return fd;
		close(fd);
		fd = get(sources[i].device, sources[i].flags);
		if (fd >= 0 && with(fd, least))
			return fd;
		if (fd >= 0)
			close(fd);
	}
	return -1;
}

static void report(const struct uffd_msg *m)
{
	if (m->event != UFFD_EVENT_PAGEFAULT)
		return;
	struct request *q = calloc(1, sizeof *q);
	if (!q) {
		watch_wake(m->arg.pagefault.address); // it comes again
		return;
	}
	q->what = TOUCH;
	q->heap = true;
	q->address = m->arg.pagefault.address;
	q->write = m->arg.pagefault.flags & (UFFD_PAGEFAULT_FLAG_WRITE | UFFD_PAGEFAULT_FLAG_WP);
	serve_push(q, serve_host((pid_t)m->arg.pagefault.feat.ptid));
}

static void *read_faults(void *unused)
{
	struct uffd_msg messages[16];
	(void)unused;
	for (;;) {
		pthread_mutex_lock(&reader);
		reading = false;
		pthread_cond_broadcast(&changed);
		while (uffd < 0)
			pthread_cond_wait(&changed, &reader);
		reading = true;
		int fd = uffd;
		pthread_mutex_unlock(&reader);
		struct pollfd p[] = {{.fd = fd, .events = POLLIN}, {.fd = stop, .events = POLLIN}};
		poll(p, 2, -1);
		ssize_t n = p[0].revents & POLLIN ? read(fd, messages, sizeof messages) : 0;
		for (ssize_t i = 0; i < n / (ssize_t)sizeof *messages; i++)
			report(&messages[i]);
	}
	return NULL;
}

static bool start_reader(void)
{
	stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (stop < 0)
		return false;
	if (hetcuda_spawn(read_faults, NULL)) {
		close(stop);
		return false;
	}
	return true;
}

static void set_uffd(int fd)
{
	pthread_mutex_lock(&reader);
	uffd = fd;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&reader);
}

static void close_uffd(void)
{
	uint64_t one = 1;
	pthread_mutex_lock(&reader);
	int fd = uffd;
	uffd = -1;
	while (reading) {
		if (write(stop, &one, sizeof one) < 0 && errno != EAGAIN)
			break;
		pthread_cond_wait(&changed, &reader);
	}
	ssize_t n = read(stop, &one, sizeof one);
	(void)n;
	pthread_mutex_unlock(&reader);
	if (fd >= 0)
		close(fd); // wakes who waits
}

bool watch_start(void)
{
	static bool tried;
	if (tried)
		return way != NOTHING;
	tried = true;
	const char *wanted = getenv(HETCUDA_FAULTS_ENV);
	bool forced = wanted && !strcmp(wanted, "uffd"); // and nothing else will do
	int fd = wanted && !strcmp(wanted, "signal") ? -1 : open_any();
	if (fd >= 0 && start_reader()) {
		way = UFFD;
		set_uffd(fd);
	} else {
		if (fd >= 0)
			close(fd);
		way = !forced && handler_install() ? SIGNAL : NOTHING;
		// From now on each submission looks whether the handler is
		// still ours.
		if (way == SIGNAL)
			atomic_fetch_add(&hetcuda_pages_mine, 1);
	}
	hetcuda_log("managed memory is watched by %s%s%s", way == UFFD ? "userfaultfd" : way == SIGNAL ? "signals" : "nobody",
		    way == UFFD && !tracks ? ", which doesn't tell reads from writes" : "",
		    way == SIGNAL || users_only ? ", which doesn't serve system calls" : "");
	return way != NOTHING;
}

size_t watch_unit(void)
{
	return way == SIGNAL ? RANGE_UNIT / GRANULE : 1;
}

bool watch_tracks_writes(void)
{
	return way == SIGNAL || tracks;
}

bool watch_add(CUdeviceptr address, size_t size)
{
	if (way == UFFD)
		return watch_addresses(uffd, pointer(address), size, tracks);
	return way == SIGNAL && mprotect(pointer(address), size, PROT_NONE) == 0;
}

void watch_remove(CUdeviceptr address, size_t size)
{
	struct uffdio_range all = {.start = address, .len = size};
	if (way == UFFD && uffd >= 0)
		ioctl(uffd, UFFDIO_UNREGISTER, &all); // wakes who waits
}

static void protect(struct range *r, size_t from, size_t to, int how)
{
	PAGES_THERE(r, at, n, from * GRANULE, to * GRANULE)
		if (mprotect(pointer(r->address + at), n, how) != 0)
			hetcuda_log("managed memory at %#llx can't be protected: %s", r->address + at, strerror(errno));
}

void watch_close(struct range *r, size_t from, size_t to)
{
	// Takes the pages from the mapping; they are shared memory and stay.
	if (way != UFFD) {
		protect(r, from, to, PROT_NONE);
		return;
	}
	PAGES_THERE(r, at, n, from * GRANULE, to * GRANULE)
		madvise(pointer(r->address + at), n, MADV_DONTNEED);
}

bool watch_open(struct range *r, size_t from, size_t to, bool write)
{
	if (way != UFFD) {
		protect(r, from, to, write ? PROT_READ | PROT_WRITE : PROT_READ);
		return true;
	}
	bool all = true;
	PAGES_THERE(r, at, n, from * GRANULE, to * GRANULE) {
		if (map_pages(uffd, pointer(r->address + at), n, write))
			continue;
		hetcuda_log("managed memory at %#llx can't be shown: %s", r->address + at, strerror(errno));
		all = false;
	}
	return all;
}

void watch_allow(struct range *r, size_t from, size_t to)
{
	if (way != UFFD) {
		protect(r, from, to, PROT_READ | PROT_WRITE);
		return;
	}
	PAGES_THERE(r, at, n, from * GRANULE, to * GRANULE) {
		struct uffdio_writeprotect w = {.range = {.start = r->address + at, .len = n}};
		while (ioctl(uffd, UFFDIO_WRITEPROTECT, &w) != 0 && errno == EAGAIN) {
		}
	}
}

void watch_wake(CUdeviceptr address)
{
	struct uffdio_range page = {.start = address & ~(CUdeviceptr)(PAGE - 1), .len = PAGE};
	if (way == UFFD && uffd >= 0)
		ioctl(uffd, UFFDIO_WAKE, &page);
}

void watch_check(void)
{
	if (way == SIGNAL)
		handler_install();
}

void watch_suspend(void)
{
	if (way == NOTHING)
		return;
	atomic_store(&suspended, 1);
	handler_install();
	for (struct range *r = range_first(); r; r = range_next(r)) {
		if (!r->split)
			continue;
		protect(r, 0, r->count, PROT_NONE);
		// CRIU needn't save what the device has.
		madvise(r->alias, r->size, MADV_REMOVE);
	}
	if (way == UFFD)
		close_uffd();
}

static bool watch_all(int fd, const struct range *r)
{
	PAGES_THERE(r, at, n, 0, r->split ? r->size : 0)
		if (!watch_addresses(fd, pointer(r->address + at), n, tracks))
			return false;
	return true;
}

// resume_uffd watches everything anew; false if that isn't possible (any more:
// the process may be on another host).
static bool resume_uffd(void)
{
	int fd = open_any();
	if (fd < 0)
		return false;
	for (struct range *r = range_first(); r; r = range_next(r)) {
		if (!watch_all(fd, r)) {
			close(fd);
			return false;
		}
	}
	for (struct range *r = range_first(); r; r = range_next(r))
		if (r->split)
			protect(r, 0, r->count, PROT_READ | PROT_WRITE);
	set_uffd(fd);
	return true;
}

void watch_resume(void)
{
	if (!atomic_load(&suspended))
		return;
	if (way == UFFD && resume_uffd()) {
		handler_remove();
	} else if (way == UFFD) {
		hetcuda_log("userfaultfd is gone: managed memory is watched by signals");
		way = SIGNAL;
		atomic_fetch_add(&hetcuda_pages_mine, 1);
	}
	atomic_store(&suspended, 0);
	syscall(SYS_futex, &suspended, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

void watch_forked(void)
{
	if (way == UFFD && uffd >= 0)
		close(uffd);
	if (stop >= 0)
		close(stop);
	uffd = stop = -1;
	handler_remove();
	way = NOTHING;
}
