// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// The stand-in of NVML: what is on the machine and who uses it.
#include <nvml.h>
#include <stdatomic.h>
#include <string.h>

#include "faults.h"
#include "peer.h"

static _Atomic int users; // nvmlInit less nvmlShutdown

// A handle is the index of the GPU + 1: the machine is read anew at each call.
static nvmlReturn_t load(struct machine *m)
{
	if (users <= 0)
		return NVML_ERROR_UNINITIALIZED;
	return machine_load(m) ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

static const struct gpu *gpu_of(const struct machine *m, nvmlDevice_t device)
{
	uintptr_t n = (uintptr_t)device;
	return n >= 1 && n <= (uintptr_t)m->count ? &m->gpus[n - 1] : NULL;
}

// WITH_GPU loads the machine m and finds the GPU g, or returns.
#define WITH_GPU(device, valid)                      \
	struct machine m;                            \
	nvmlReturn_t loaded = load(&m);              \
	if (loaded != NVML_SUCCESS)                  \
		return loaded;                       \
	const struct gpu *g = gpu_of(&m, device);    \
	if (!g || !(valid))                          \
	return NVML_ERROR_INVALID_ARGUMENT

static nvmlReturn_t copy(char *to, unsigned int length, const char *from)
{
	if (!to)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (strlen(from) >= length)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	memcpy(to, from, strlen(from) + 1);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
	struct machine m;
	struct fault f = fault_find("nvml", getpid());
	nvmlReturn_t r = (nvmlReturn_t)fault_apply(&f, FAULT_BEFORE);
	(void)flags;
	if (r != NVML_SUCCESS)
		return r;
	if (!machine_load(&m))
		return NVML_ERROR_DRIVER_NOT_LOADED;
	users++;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlInit_v2(void)
{
	return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlShutdown(void)
{
	if (users <= 0)
		return NVML_ERROR_UNINITIALIZED;
	users--;
	return NVML_SUCCESS;
}

const char *nvmlErrorString(nvmlReturn_t result)
{
	switch (result) {
	case NVML_SUCCESS: return "Success";
	case NVML_ERROR_UNINITIALIZED: return "Uninitialized";
	case NVML_ERROR_INVALID_ARGUMENT: return "Invalid Argument";
	case NVML_ERROR_NOT_SUPPORTED: return "Not Supported";
	case NVML_ERROR_NOT_FOUND: return "Not Found";
	case NVML_ERROR_INSUFFICIENT_SIZE: return "Insufficient Size";
	case NVML_ERROR_DRIVER_NOT_LOADED: return "Driver Not Loaded";
	case NVML_ERROR_ARGUMENT_VERSION_MISMATCH: return "Argument version mismatch";
	case NVML_ERROR_UNKNOWN: break;
	}
	return "Unknown Error";
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
	struct machine m;
	nvmlReturn_t r = load(&m);
	return r == NVML_SUCCESS ? copy(version, length, m.driver) : r;
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
	char text[96];
	struct machine m;
	nvmlReturn_t r = load(&m);
	snprintf(text, sizeof text, "%d.%s", m.cuda / 1000, m.driver);
	return r == NVML_SUCCESS ? copy(version, length, text) : r;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
	struct machine m;
	nvmlReturn_t r = load(&m);
	if (r == NVML_SUCCESS && !version)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS)
		*version = m.cuda;
	return r;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
	return nvmlSystemGetCudaDriverVersion_v2(version);
}

nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length)
{
	char path[64], text[256];
	snprintf(path, sizeof path, "/proc/%u/comm", pid);
	if (users <= 0)
		return NVML_ERROR_UNINITIALIZED;
	return read_line(path, text, sizeof text) ? copy(name, length, text) : NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
	struct machine m;
	nvmlReturn_t r = load(&m);
	if (r == NVML_SUCCESS && !count)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS)
		*count = (unsigned)m.count;
	return r;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
	WITH_GPU((nvmlDevice_t)((uintptr_t)index + 1), device);
	*device = (nvmlDevice_t)((uintptr_t)index + 1);
	return NVML_SUCCESS;
}

static nvmlReturn_t find(nvmlDevice_t *device, const char *text, bool (*is)(const struct gpu *, const char *))
{
	struct machine m;
	nvmlReturn_t r = load(&m);
	if (r != NVML_SUCCESS)
		return r;
	if (!device || !text)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (int i = 0; i < m.count; i++) {
		if (!is(&m.gpus[i], text))
			continue;
		*device = (nvmlDevice_t)((uintptr_t)i + 1);
		return NVML_SUCCESS;
	}
	return NVML_ERROR_NOT_FOUND;
}

static bool has_uuid(const struct gpu *g, const char *text)
{
	return !strcmp(g->uuid, text);
}

static bool has_pci(const struct gpu *g, const char *text)
{
	return !strcmp(g->pci, text);
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
	return find(device, uuid, has_uuid);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *pci, nvmlDevice_t *device)
{
	return find(device, pci, has_pci);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
	WITH_GPU(device, name);
	return copy(name, length, g->name);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
	WITH_GPU(device, uuid);
	return copy(uuid, length, g->uuid);
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
	WITH_GPU(device, index);
	*index = (unsigned)((uintptr_t)device - 1);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor)
{
	WITH_GPU(device, minor);
	*minor = g->minor;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
	WITH_GPU(device, pci);
	*pci = (nvmlPciInfo_t){.pciDeviceId = 0x233510de};
	sscanf(g->pci, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device);
	memcpy(pci->busId, g->pci, sizeof pci->busId);
	snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:%02X.0", pci->domain & 0xffff, pci->bus & 0xff,
		 pci->device & 0xff);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
	WITH_GPU(device, memory);
	CLEAN_FD int lock = machine_lock();
	uint64_t used = gpu_used(g);
	*memory = (nvmlMemory_t){.total = g->memory, .used = used, .free = used < g->memory ? g->memory - used : 0};
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
	nvmlMemory_t v1;
	if (!memory)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (memory->version != nvmlMemory_v2)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	nvmlReturn_t r = nvmlDeviceGetMemoryInfo(device, &v1);
	if (r == NVML_SUCCESS)
		*memory = (nvmlMemory_v2_t){.version = nvmlMemory_v2, .total = v1.total, .free = v1.free, .used = v1.used};
	return r;
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
	WITH_GPU(device, major && minor);
	*major = 9;
	*minor = 0;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
	WITH_GPU(device, current && pending);
	*current = *pending = g->mig;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count)
{
	WITH_GPU(device, count);
	*count = g->mig ? 7 : 0;
	return NVML_SUCCESS;
}

// uses tells whether a process has a context on a GPU and what it has there.
static bool uses(pid_t pid, const struct gpu *g, nvmlProcessInfo_t *info)
{
	struct peer p;
	struct block b;
	if (peer_find(pid, &p) != CUDA_SUCCESS || peer_read(&p, &b) != CUDA_SUCCESS)
		return false;
	for (int i = 0; i < MAX_GPUS; i++) {
		if (strncmp(b.contexts[i], g->uuid, UUID_SIZE) != 0)
			continue;
		b.owner[OWNER_SIZE - 1] = 0;
		if (!owner_exists(b.owner))
			return false; // on another machine with the same GPUs
		*info = (nvmlProcessInfo_t){(unsigned)pid, owner_used(b.owner, g->uuid), ~0u, ~0u};
		return true;
	}
	return false;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos)
{
	WITH_GPU(device, count);
	unsigned room = infos ? *count : 0;
	CLEAN_DIR DIR *d = opendir("/proc");
	if (!d)
		return NVML_ERROR_UNKNOWN;
	*count = 0;
	for (struct dirent *e; (e = readdir(d));) {
		nvmlProcessInfo_t info;
		pid_t pid = (pid_t)atoi(e->d_name);
		if (pid <= 0 || !uses(pid, g, &info))
			continue;
		if (*count < room)
			infos[*count] = info;
		++*count;
	}
	return *count > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

// Nobody draws on a stand-in, and it has no MPS.
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos)
{
	(void)infos;
	WITH_GPU(device, count);
	*count = 0;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
							nvmlProcessInfo_t *infos)
{
	return nvmlDeviceGetGraphicsRunningProcesses_v3(device, count, infos);
}
