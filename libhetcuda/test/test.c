/*
 * SPDX-FileCopyrightText: The hetGPU authors
 * SPDX-License-Identifier: Apache-2.0
 */
#include "test.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

void *ours(const char *name)
{
	void *p = dlsym(RTLD_DEFAULT, name);

	CHECK(p, "%s", name);
	return p;
}

void *theirs(const char *name)
{
	static void *handle;
	void *p;

	if (!handle)
		handle = dlopen(getenv("HETCUDA_REAL"), RTLD_NOW | RTLD_NOLOAD);
	CHECK(handle, "%s", dlerror());
	p = dlsym(handle, name);
	CHECK(p, "%s", name);
	return p;
}

int count_descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	CHECK(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

int count_mappings(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	int n = 0, c;

	CHECK(f);
	while ((c = getc(f)) != EOF)
		n += c == '\n';
	fclose(f);
	return n;
}

void set_faults(const char *rules)
{
	char path[4096], new[4104];
	FILE *f;

	snprintf(path, sizeof(path), "%s/faults", getenv("HETGPU_STANDIN"));
	snprintf(new, sizeof(new), "%s.new", path);
	f = fopen(new, "w");
	CHECK(f && fputs(rules, f) >= 0 && fclose(f) == 0 && rename(new, path) == 0, "%s: %s", path, strerror(errno));
}

bool uffd_here(void)
{
	int fd = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
	if (fd < 0)
		fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	if (fd < 0)
		return false;
	close(fd);
	return true;
}

double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void sleep_ms(int ms)
{
	struct timespec t = { ms / 1000, ms % 1000 * 1000000L };

	nanosleep(&t, NULL);
}

int dial(int pid)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	/* The library listens to root, or from another PID namespace. */
	if (getuid())
		SKIP("not root: the control socket would refuse");
	CHECK(fd >= 0);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s/" HETCUDA_SOCKET_PREFIX "%d",
		 getenv(HETCUDA_CONTROL_ENV), pid);
	CHECK(!connect(fd, (void *)&address, sizeof(address)), "%s: %s", address.sun_path, strerror(errno));
	return fd;
}

void send_packet(int fd, const void *data, size_t size, const int *fds, int nfds)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(250 * sizeof(int))];
	} control;
	struct iovec io = { (void *)data, size };
	struct msghdr message = { .msg_iov = &io, .msg_iovlen = 1 };

	if (nfds) {
		memset(&control, 0, sizeof(control));
		control.align.cmsg_level = SOL_SOCKET;
		control.align.cmsg_type = SCM_RIGHTS;
		control.align.cmsg_len = CMSG_LEN((size_t)nfds * sizeof(int));
		memcpy(CMSG_DATA(&control.align), fds, (size_t)nfds * sizeof(int));
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE((size_t)nfds * sizeof(int));
	}
	/* The other side may have ended the connection: that is for the reader. */
	if (sendmsg(fd, &message, MSG_NOSIGNAL) < 0)
		CHECK(errno == EPIPE || errno == ECONNRESET, "%s", strerror(errno));
}

ssize_t receive_packet(int fd, void *data, size_t size, int *fds, int *nfds)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(HETCUDA_BATCH * sizeof(int))];
	} control;
	struct iovec io = { data, size };
	struct msghdr message = {
		.msg_iov = &io, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)
	};
	struct cmsghdr *c;
	ssize_t n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);

	if (n < 0 && errno == ECONNRESET)
		return 0;
	CHECK(n >= 0, "%s", strerror(errno));
	CHECK(!(message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)));
	c = n > 0 ? CMSG_FIRSTHDR(&message) : NULL;
	if (nfds)
		*nfds = c ? (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int)) : 0;
	if (c && fds)
		memcpy(fds, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
	return n;
}

void send_request(int fd, enum hetcuda_op op, uint32_t timeout_ms, uint32_t count)
{
	struct hetcuda_request request = { HETCUDA_MAGIC, op, timeout_ms, count };

	send_packet(fd, &request, sizeof(request), NULL, 0);
}

struct hetcuda_reply receive_reply(int fd, enum hetcuda_op op)
{
	struct hetcuda_reply reply;
	ssize_t n = receive_packet(fd, &reply, sizeof(reply), NULL, NULL);

	CHECK(n == sizeof(reply), "%zd", n);
	CHECK(reply.magic == HETCUDA_MAGIC && reply.op == op);
	CHECK(memchr(reply.text, 0, sizeof(reply.text)));
	return reply;
}

struct hetcuda_reply ask(int fd, enum hetcuda_op op, uint32_t timeout_ms, uint32_t count)
{
	send_request(fd, op, timeout_ms, count);
	return receive_reply(fd, op);
}

struct hetcuda_hello ask_hello(int fd)
{
	struct {
		struct hetcuda_reply reply;
		struct hetcuda_hello hello;
	} packet;

	send_request(fd, HETCUDA_HELLO, 0, 0);
	CHECK(receive_packet(fd, &packet, sizeof(packet), NULL, NULL) == sizeof(packet));
	CHECK(packet.reply.status == 0 && packet.reply.op == HETCUDA_HELLO);
	return packet.hello;
}

struct hetcuda_status ask_status(int fd, enum hetcuda_op op, uint32_t timeout_ms, uint32_t count, struct hetcuda_reply *reply)
{
	struct {
		struct hetcuda_reply reply;
		struct hetcuda_status status;
	} packet;

	send_request(fd, op, timeout_ms, count);
	CHECK(receive_packet(fd, &packet, sizeof(packet), NULL, NULL) == sizeof(packet));
	CHECK(packet.reply.op == op && memchr(packet.reply.text, 0, HETCUDA_TEXT));
	CHECK(reply || packet.reply.status == 0, "%d: %s", packet.reply.status, packet.reply.text);
	if (reply)
		*reply = packet.reply;
	return packet.status;
}

static bool imported(const struct hetcuda_chunk *c)
{
	return c->flags & HETCUDA_IMPORTED;
}

static int ask_chunks(int fd, enum hetcuda_op op, uint64_t number, struct parcel *parcel)
{
	struct hetcuda_reply reply = ask(fd, op, (uint32_t)number, (uint32_t)(number >> 32));
	uint32_t have = 0;

	memset(parcel, 0, sizeof(*parcel));
	if (reply.status)
		return reply.status;
	parcel->count = reply.count;
	parcel->chunks = calloc(reply.count + 1, sizeof(parcel->chunks[0]));
	parcel->fds = calloc(reply.count + HETCUDA_BATCH, sizeof(parcel->fds[0]));
	CHECK(parcel->chunks && parcel->fds);
	while (have < reply.count) {
		int fds[HETCUDA_BATCH], nfds = 0, used = 0;
		ssize_t n = receive_packet(fd, parcel->chunks + have, (reply.count - have) * sizeof(parcel->chunks[0]), fds, &nfds);

		CHECK(n > 0 && n % (ssize_t)sizeof(parcel->chunks[0]) == 0, "%zd", n);
		for (ssize_t i = 0; i < n / (ssize_t)sizeof(parcel->chunks[0]); i++, have++)
			parcel->fds[have] = imported(&parcel->chunks[have]) ? -1 : fds[used++];
		CHECK(used == nfds, "%d, %d", used, nfds);
	}
	return 0;
}

int ask_park(int fd, uint32_t timeout_ms, struct parcel *parcel)
{
	return ask_chunks(fd, HETCUDA_PARK, timeout_ms, parcel);
}

int ask_share(int fd, struct parcel *parcel)
{
	return ask_chunks(fd, HETCUDA_SHARE, 0, parcel);
}

int ask_make(int fd, uint64_t id, struct parcel *parcel)
{
	return ask_chunks(fd, HETCUDA_MAKE, id, parcel);
}

static struct hetcuda_reply give(int fd, const struct parcel *parcel, bool what, uint32_t batch)
{
	struct hetcuda_chunk chunks[HETCUDA_BATCH];
	int fds[HETCUDA_BATCH];
	uint32_t left = parcel->count, total = 0, i;

	for (i = 0; i < parcel->count; i++)
		total += imported(&parcel->chunks[i]) == what;
	send_request(fd, HETCUDA_UNPARK, 0, total);
	while (left) {
		uint32_t k = 0;

		while (k < batch && left) {
			left--;
			if (imported(&parcel->chunks[left]) != what)
				continue;
			chunks[k] = parcel->chunks[left];
			fds[k++] = parcel->fds[left];
		}
		if (k)
			send_packet(fd, chunks, k * sizeof(chunks[0]), fds, (int)k);
	}
	return receive_reply(fd, HETCUDA_UNPARK);
}

struct hetcuda_reply ask_unpark(int fd, const struct parcel *parcel, uint32_t batch)
{
	return give(fd, parcel, false, batch);
}

struct hetcuda_reply ask_unpark_imported(int fd, const struct parcel *parcel)
{
	return give(fd, parcel, true, HETCUDA_BATCH);
}

void drop_parcel(struct parcel *parcel)
{
	uint32_t i;

	for (i = 0; i < parcel->count; i++)
		close(parcel->fds[i]);
	free(parcel->chunks);
	free(parcel->fds);
	memset(parcel, 0, sizeof(*parcel));
}

void park_self(struct parked *self)
{
	self->control = dial(getpid());
	CHECK(self->control >= 0);
	struct hetcuda_reply r = ask(self->control, HETCUDA_HOLD, 30000, 0);
	CHECK(r.status == 0, "%s", r.text);
	int status = ask_park(self->control, 30000, &self->parcel);
	CHECK(status == 0, "%d", status);
	r = ask(self->control, HETCUDA_COMMIT, 0, 0);
	CHECK(r.status == 0, "%s", r.text);
}

void unpark_self(struct parked *self)
{
	struct hetcuda_reply r = ask_unpark(self->control, &self->parcel, 16);
	CHECK(r.status == 0, "%s", r.text);
	drop_parcel(&self->parcel);
	ask(self->control, HETCUDA_RELEASE, 0, 0);
	close(self->control);
}
