// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

#define _GNU_SOURCE
#include "peer.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>

// os_error says what it means that memory or a thread of a process can't be
// reached: it is not ours to reach, or it is gone.
static CUresult os_error(void)
{
	return errno == EPERM || errno == EACCES ? CUDA_ERROR_NOT_PERMITTED : CUDA_ERROR_OPERATING_SYSTEM;
}

static CUresult peek(const struct peer *p, size_t offset, void *to, size_t size)
{
	struct iovec local = {to, size}, remote = {(void *)(uintptr_t)(p->address + offset), size};
	ssize_t n = process_vm_readv(p->pid, &local, 1, &remote, 1, 0);
	if (n == (ssize_t)size)
		return CUDA_SUCCESS;
	return n < 0 ? os_error() : CUDA_ERROR_OPERATING_SYSTEM;
}

static CUresult poke(const struct peer *p, size_t offset, const void *from, size_t size)
{
	struct iovec local = {(void *)(uintptr_t)from, size},
		     remote = {(void *)(uintptr_t)(p->address + offset), size};
	ssize_t n = process_vm_writev(p->pid, &local, 1, &remote, 1, 0);
	if (n == (ssize_t)size)
		return CUDA_SUCCESS;
	return n < 0 ? os_error() : CUDA_ERROR_OPERATING_SYSTEM;
}

// try_thread looks whether a thread is the one that serves the block.
static CUresult try_thread(struct peer *p, const char *task, const char *tid)
{
	char path[PATH_SIZE], name[32];
	unsigned long long address;
	int end = 0;
	snprintf(path, sizeof path, "%s/%s/comm", task, tid);
	if (!read_line(path, name, sizeof name))
		return CUDA_ERROR_NOT_FOUND;
	if (sscanf(name, "cu%12llx%n", &address, &end) != 1 || end != 14 || name[end])
		return CUDA_ERROR_NOT_FOUND;
	p->tid = (pid_t)atoi(tid);
	p->address = address;
	struct block b;
	CUresult r = peer_read(p, &b);
	if (r != CUDA_SUCCESS)
		return r;
	return b.magic == BLOCK_MAGIC && b.self == address ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult peer_find(pid_t pid, struct peer *p)
{
	char task[64];
	snprintf(task, sizeof task, "/proc/%d/task", pid);
	CLEAN_DIR DIR *d = pid > 0 ? opendir(task) : NULL;
	if (!d)
		return CUDA_ERROR_OPERATING_SYSTEM;
	p->pid = pid;
	for (struct dirent *e; (e = readdir(d));) {
		if (e->d_name[0] == '.')
			continue;
		CUresult r = try_thread(p, task, e->d_name);
		if (r != CUDA_ERROR_NOT_FOUND)
			return r;
	}
	return CUDA_ERROR_NOT_INITIALIZED;
}

CUresult peer_read(const struct peer *p, struct block *b)
{
	return peek(p, 0, b, sizeof *b);
}

// turn waits until no other caller has a request under way to that process:
// two at once would overwrite each other's. The kernel ends the turn of a
// caller that dies.
static int turn(pid_t pid)
{
	char path[PATH_SIZE];
	machine_path(path, "turns");
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = pid, .l_len = 1};
	while (fd >= 0 && fcntl(fd, F_OFD_SETLKW, &range) != 0) {
		if (errno == EINTR)
			continue;
		close(fd);
		return -1;
	}
	return fd;
}

// wait_answer waits until the process has answered the last request.
static CUresult wait_answer(const struct peer *p, struct block *b)
{
	for (;;) {
		CUresult r = peer_read(p, b);
		if (r != CUDA_SUCCESS)
			return r;
		if (b->answered == b->asked)
			return CUDA_SUCCESS;
		sleep_us(200);
	}
}

static CUresult wake(const struct peer *p)
{
	siginfo_t info = {.si_code = SI_QUEUE};
	info.si_signo = WAKE_SIGNAL;
	info.si_pid = getpid();
	info.si_uid = getuid();
	return syscall(SYS_rt_tgsigqueueinfo, p->pid, p->tid, WAKE_SIGNAL, &info) == 0 ? CUDA_SUCCESS : os_error();
}

// finish_last waits for the request of a caller that died before its answer
// came, or even before it could wake the process.
static CUresult finish_last(const struct peer *p, struct block *b)
{
	CUresult r = peer_read(p, b);
	if (r == CUDA_SUCCESS && b->answered != b->asked)
		r = wake(p);
	return r == CUDA_SUCCESS ? wait_answer(p, b) : r;
}

CUresult peer_call(const struct peer *p, const struct request *request, uint32_t *state, void (*sent)(void))
{
	struct block b;
	CLEAN_FD int mine = turn(p->pid);
	if (mine < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	CUresult r = finish_last(p, &b);
	if (r != CUDA_SUCCESS)
		return r;
	uint32_t asked = b.asked + 1;
	r = poke(p, offsetof(struct block, request), request, sizeof *request);
	if (r == CUDA_SUCCESS)
		r = poke(p, offsetof(struct block, asked), &asked, sizeof asked);
	if (r == CUDA_SUCCESS)
		r = wake(p);
	if (r == CUDA_SUCCESS && sent)
		sent();
	if (r == CUDA_SUCCESS)
		r = wait_answer(p, &b);
	if (r != CUDA_SUCCESS)
		return r;
	if (state)
		*state = b.state;
	return (CUresult)b.result;
}
