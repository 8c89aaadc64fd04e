// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#ifdef __GLIBC__
#include <gnu/libc-version.h>
#endif

#include "faults.h"

#ifdef __GLIBC__
// What is built for glibc can't be loaded by musl, as NVIDIA's driver can't: musl has
// no such function. An address in data is needed at once, however the library is bound.
__attribute__((used)) static const char *(*const only_glibc)(void) = gnu_get_libc_version;
#endif

struct process process = {
	.mu = PTHREAD_MUTEX_INITIALIZER,
	.changed = PTHREAD_COND_INITIALIZER,
	.control = -1,
	.owner_fd = -1,
	.next = 0x300000000000,
};

// check returns what a call fails with, whatever it asks for. Mutex: held.
static CUresult check(void)
{
	if (process.state == CU_PROCESS_STATE_FAILED)
		return CUDA_ERROR_UNKNOWN;
	if (process.lost == CUDA_SUCCESS && !owner_is_me(process.owner))
		process.lost = CUDA_ERROR_CONTEXT_IS_DESTROYED;
	return process.lost;
}

static bool waiting(void)
{
	return process.locking || (process.state != CU_PROCESS_STATE_RUNNING && process.state != CU_PROCESS_STATE_FAILED);
}

static CUresult enter_when(bool idle)
{
	pthread_mutex_lock(&process.mu);
	if (process.pid == 0 || process.pid != getpid()) {
		pthread_mutex_unlock(&process.mu);
		return CUDA_ERROR_NOT_INITIALIZED;
	}
	for (;;) {
		while (waiting())
			pthread_cond_wait(&process.changed, &process.mu);
		CUresult r = check();
		if (r == CUDA_SUCCESS && !work_advance() && idle) {
			pthread_mutex_unlock(&process.mu);
			sleep_us(500);
			pthread_mutex_lock(&process.mu);
			continue;
		}
		if (r != CUDA_SUCCESS)
			pthread_mutex_unlock(&process.mu);
		return r;
	}
}

CUresult enter(void)
{
	return enter_when(false);
}

CUresult enter_idle(void)
{
	return enter_when(true);
}

void leave(const CUresult *entered)
{
	if (*entered == CUDA_SUCCESS)
		pthread_mutex_unlock(&process.mu);
}

// node opens a file of the driver. Tests that run outside of a container keep
// the nodes elsewhere than in /dev.
static int node(const char *name, int minor)
{
	char path[PATH_SIZE], number[16] = "";
	const char *dir = getenv("HETGPU_STANDIN_DEV");
	if (minor >= 0)
		snprintf(number, sizeof number, "%d", minor);
	snprintf(path, sizeof path, "%s/%s%s", dir && *dir ? dir : "/dev", name, number);
	return open(path, O_RDWR | O_CLOEXEC);
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

CUresult process_open(const struct gpu gpus[], int count)
{
	CLEAN_FD int lock = machine_lock();
	process.control = node("nvidiactl", -1);
	bool ok = lock >= 0 && process.control >= 0;
	for (int i = 0; i < count; i++) {
		process.devices[i].gpu = gpus[i];
		process.devices[i].fd = node("nvidia", (int)gpus[i].minor);
		ok = ok && process.devices[i].fd >= 0;
	}
	process.count = count;
	if (ok)
		process.owner_fd = owner_create(process.owner);
	if (ok && process.owner_fd >= 0)
		return CUDA_SUCCESS;
	for (int i = 0; i < count; i++)
		close_fd(&process.devices[i].fd);
	close_fd(&process.control);
	return CUDA_ERROR_OPERATING_SYSTEM;
}

void process_close(void)
{
	CLEAN_FD int lock = machine_lock();
	memory_close();
	if (process.owner[0])
		owner_remove(process.owner);
	process.owner[0] = 0;
	close_fd(&process.owner_fd);
	for (int i = 0; i < process.count; i++)
		close_fd(&process.devices[i].fd);
	close_fd(&process.control);
}

void process_publish(void)
{
	bool open = process.owner_fd >= 0;
	memset(block.contexts, 0, sizeof block.contexts);
	memcpy(block.owner, process.owner, sizeof block.owner);
	for (int i = 0; open && i < MAX_CONTEXTS; i++) {
		const struct CUctx_st *c = &process.contexts[i];
		if (c->references > 0)
			memcpy(block.contexts[c->gpu], process.devices[c->gpu].gpu.uuid, UUID_SIZE);
	}
}

int process_visible(const struct machine *m, struct gpu gpus[MAX_GPUS])
{
	int count = 0;
	CLEAN_FD int control = node("nvidiactl", -1);
	for (int i = 0; control >= 0 && i < m->count; i++) {
		CLEAN_FD int fd = node("nvidia", (int)m->gpus[i].minor);
		if (fd >= 0)
			gpus[count++] = m->gpus[i];
	}
	return count;
}

static CUresult initialize(void)
{
	struct machine m;
	struct gpu gpus[MAX_GPUS];
	if (process.pid != 0)
		return process.pid == getpid() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
	int count = machine_load(&m) ? process_visible(&m, gpus) : 0;
	if (count == 0)
		return CUDA_ERROR_NO_DEVICE;
	CUresult r = process_open(gpus, count);
	if (r != CUDA_SUCCESS)
		return r;
	for (int i = 0; i < count; i++)
		memcpy(process.devices[i].began, process.devices[i].gpu.uuid, sizeof process.devices[i].began);
	r = server_start();
	if (r != CUDA_SUCCESS)
		process_close();
	else
		process.pid = getpid();
	return r;
}

CUresult cuInit(unsigned int flags)
{
	if (flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	struct fault f = fault_find("init", getpid());
	CUresult r = fault_apply(&f, FAULT_BEFORE);
	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&process.mu);
	r = initialize();
	pthread_mutex_unlock(&process.mu);
	return r;
}

// A process that ends in order leaves nothing behind; what one that is killed
// leaves is removed by the next that looks.
__attribute__((destructor)) static void finish(void)
{
	if (process.pid != getpid() || !process.owner[0])
		return;
	CLEAN_FD int lock = machine_lock();
	memory_close();
	owner_remove(process.owner);
}
