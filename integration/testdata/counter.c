// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// counter prints "N" on a line, for N = 1, 2, 3, ..., and stops with a message
// as soon as anything that it holds is not as it left it. So a test that reads
// its lines sees whether a checkpoint kept the whole of it.
//
//   -i MS     pause between lines (default 10)
//   -n COUNT  exit with 0 after COUNT lines
//   -m MIB    hold memory, of which one page in turn is checked and changed
//             at each line
//   -f FILE   keep FILE open and append each number; its size is checked
//   -l        hold a lock on that file
//   -r        give that file another name, FILE.other, and take this one away, as
//             glibc does with a semaphore of its own that somebody may open later
//   -t        hold a TCP connection to itself and send each number through it
//   -u PATH   send each number to the unix datagram socket PATH
//   -s PATH   send each number to the unix stream socket PATH
//   -c N      N child processes that count the same in memory; checked each line

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, MAX_CHILDREN = 64 };

__attribute__((noreturn, format(printf, 1, 2))) static void fail(const char *format, ...) {
	va_list args;
	int saved = errno;

	va_start(args, format);
	fprintf(stdout, "FAIL: ");
	vfprintf(stdout, format, args);
	fprintf(stdout, " (errno %d: %s)\n", saved, strerror(saved));
	va_end(args);
	fflush(stdout);
	_exit(1);
}

static void pause_ms(long ms) {
	struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

	while (nanosleep(&left, &left) < 0 && errno == EINTR) {
	}
}

static void write_all(int fd, const void *data, size_t size, const char *what) {
	const char *p = data;

	while (size > 0) {
		ssize_t n = write(fd, p, size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			fail("write to %s", what);
		p += n;
		size -= (size_t)n;
	}
}

static void read_all(int fd, void *data, size_t size, const char *what) {
	char *p = data;

	while (size > 0) {
		ssize_t n = read(fd, p, size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			fail("read from %s", what);
		p += n;
		size -= (size_t)n;
	}
}

// Each page starts with its own number times this, plus how often it was
// changed.
static const uint64_t STRIDE = 1ULL << 32;

static volatile uint64_t *fill_memory(size_t pages) {
	volatile uint64_t *memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		fail("map %zu pages", pages);
	for (size_t i = 0; i < pages; i++)
		memory[i * PAGE / 8] = i * STRIDE;
	return memory;
}

static void step_memory(volatile uint64_t *memory, size_t pages, uint64_t n) {
	size_t i = (size_t)((n - 1) % pages);
	uint64_t want = i * STRIDE + (n - 1) / pages;

	if (memory[i * PAGE / 8] != want)
		fail("page %zu has %#llx, not %#llx", i, (unsigned long long)memory[i * PAGE / 8], (unsigned long long)want);
	memory[i * PAGE / 8]++;
}

static int open_file(const char *path, int lock) {
	int fd = open(path, O_CREAT | O_RDWR | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);

	if (fd < 0)
		fail("open %s", path);
	if (lock && flock(fd, LOCK_EX | LOCK_NB) < 0)
		fail("lock %s", path);
	return fd;
}

static void rename_file(const char *path) {
	char other[4096];

	if ((size_t)snprintf(other, sizeof(other), "%s.other", path) >= sizeof(other) || link(path, other) < 0 || unlink(path) < 0)
		fail("rename %s", path);
}

static void step_file(int fd, uint64_t n) {
	struct stat st;

	write_all(fd, &n, sizeof(n), "file");
	if (fstat(fd, &st) < 0)
		fail("stat file");
	if ((uint64_t)st.st_size != n * sizeof(n))
		fail("file has %lld bytes after %llu lines", (long long)st.st_size, (unsigned long long)n);
}

static void connect_self(int ends[2]) {
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (listener < 0 || bind(listener, (struct sockaddr *)&address, size) < 0 || listen(listener, 1) < 0 ||
	    getsockname(listener, (struct sockaddr *)&address, &size) < 0)
		fail("listen");
	ends[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (ends[0] < 0 || connect(ends[0], (struct sockaddr *)&address, size) < 0)
		fail("connect");
	ends[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	if (ends[1] < 0)
		fail("accept");
	close(listener);
}

static void step_tcp(const int ends[2], uint64_t n) {
	uint64_t got;

	write_all(ends[0], &n, sizeof(n), "TCP");
	read_all(ends[1], &got, sizeof(got), "TCP");
	if (got != n)
		fail("TCP brought %llu, not %llu", (unsigned long long)got, (unsigned long long)n);
}

static int connect_unix(const char *path, int type) {
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

	if (strlen(path) >= sizeof(address.sun_path))
		fail("%s is too long", path);
	strcpy(address.sun_path, path);
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		fail("connect to %s", path);
	return fd;
}

struct child {
	int to, from;
};

static struct child start_child(void) {
	int down[2], up[2];

	if (pipe2(down, O_CLOEXEC) < 0 || pipe2(up, O_CLOEXEC) < 0)
		fail("pipe");
	pid_t pid = fork();

	if (pid < 0)
		fail("fork");
	if (pid > 0) {
		close(down[0]);
		close(up[1]);
		return (struct child){.to = down[1], .from = up[0]};
	}
	close(down[1]);
	close(up[0]);
	for (uint64_t count = 1;; count++) {
		char ask;

		if (read(down[0], &ask, 1) != 1)
			_exit(0);
		write_all(up[1], &count, sizeof(count), "parent");
	}
}

static void step_child(struct child child, uint64_t n) {
	uint64_t got;

	write_all(child.to, "?", 1, "child");
	read_all(child.from, &got, sizeof(got), "child");
	if (got != n)
		fail("child counted %llu, not %llu", (unsigned long long)got, (unsigned long long)n);
}

int main(int argc, char **argv) {
	long interval = 10;
	uint64_t count = UINT64_MAX;
	size_t pages = 0;
	const char *file = NULL, *unix_path = NULL;
	int lock = 0, renamed = 0, tcp = 0, unix_type = 0, option;
	int children = 0;

	while ((option = getopt(argc, argv, "i:n:m:f:lrtu:s:c:")) != -1) {
		switch (option) {
		case 'i': interval = atol(optarg); break;
		case 'n': count = strtoull(optarg, NULL, 10); break;
		case 'm': pages = (size_t)atol(optarg) * (1 << 20) / PAGE; break;
		case 'f': file = optarg; break;
		case 'l': lock = 1; break;
		case 'r': renamed = 1; break;
		case 't': tcp = 1; break;
		case 'u': unix_path = optarg, unix_type = SOCK_DGRAM; break;
		case 's': unix_path = optarg, unix_type = SOCK_STREAM; break;
		case 'c': children = atoi(optarg); break;
		default: return 2;
		}
	}
	if (children > MAX_CHILDREN)
		fail("more than %d children", MAX_CHILDREN);

	struct child child[MAX_CHILDREN];
	int tcp_ends[2] = {-1, -1};

	// Children first, so that they do not share the memory.
	for (int i = 0; i < children; i++)
		child[i] = start_child();
	volatile uint64_t *memory = pages ? fill_memory(pages) : NULL;
	int file_fd = file ? open_file(file, lock) : -1;
	if (file && renamed)
		rename_file(file);
	int unix_fd = unix_path ? connect_unix(unix_path, unix_type) : -1;

	if (tcp)
		connect_self(tcp_ends);

	for (uint64_t n = 1; n <= count; n++) {
		char line[32];

		if (memory)
			step_memory(memory, pages, n);
		if (file_fd >= 0)
			step_file(file_fd, n);
		if (tcp)
			step_tcp(tcp_ends, n);
		if (unix_fd >= 0)
			write_all(unix_fd, &n, sizeof(n), "unix socket");
		for (int i = 0; i < children; i++)
			step_child(child[i], n);
		write_all(STDOUT_FILENO, line, (size_t)snprintf(line, sizeof(line), "%llu\n", (unsigned long long)n), "standard output");
		pause_ms(interval);
	}
	return 0;
}
