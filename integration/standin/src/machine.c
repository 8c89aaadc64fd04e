// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

#include "machine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>

void machine_path(char path[PATH_SIZE], const char *format, ...)
{
	const char *dir = getenv("HETGPU_STANDIN");
	int n = snprintf(path, PATH_SIZE, "%s/", dir && *dir ? dir : "/run/hetgpu-standin");
	if (n < 0 || n >= PATH_SIZE)
		n = 0; // too long: a path that does not exist
	va_list args;
	va_start(args, format);
	vsnprintf(path + n, PATH_SIZE - (size_t)n, format, args);
	va_end(args);
}

static bool parse_uuid(struct gpu *g)
{
	const char *p = g->uuid;
	if (strncmp(p, "GPU-", 4) != 0)
		return false;
	p += 4;
	for (int i = 0; i < 16; i++) {
		unsigned byte;
		p += *p == '-';
		if (sscanf(p, "%2x", &byte) != 1)
			return false;
		g->id[i] = (unsigned char)byte;
		p += 2;
	}
	return *p == 0;
}

// parse_gpu reads "gpu UUID minor=0 memory=N used=N mig=0 pci=... name=...";
// the name goes to the end of the line.
static bool parse_gpu(char *line, struct gpu *g)
{
	*g = (struct gpu){.name = "Stand-in GPU", .memory = 1 << 30};
	char *name = strstr(line, " name=");
	if (name) {
		snprintf(g->name, sizeof g->name, "%s", name + 6);
		*name = 0;
	}
	char *save = NULL;
	strtok_r(line, " ", &save);
	const char *uuid = strtok_r(NULL, " ", &save);
	if (!uuid || strlen(uuid) >= sizeof g->uuid)
		return false;
	memcpy(g->uuid, uuid, strlen(uuid) + 1);
	for (char *word; (word = strtok_r(NULL, " ", &save));) {
		char *value = strchr(word, '=');
		if (!value)
			return false;
		*value++ = 0;
		if (!strcmp(word, "minor"))
			g->minor = (unsigned)strtoul(value, NULL, 10);
		else if (!strcmp(word, "memory"))
			g->memory = strtoull(value, NULL, 10);
		else if (!strcmp(word, "used"))
			g->used = strtoull(value, NULL, 10);
		else if (!strcmp(word, "mig"))
			g->mig = *value == '1';
		else if (!strcmp(word, "pci"))
			snprintf(g->pci, sizeof g->pci, "%s", value);
		else
			return false;
	}
	if (!g->pci[0])
		snprintf(g->pci, sizeof g->pci, "00000000:%02X:00.0", g->minor + 1);
	return parse_uuid(g);
}

bool machine_load(struct machine *m)
{
	char path[PATH_SIZE], line[512];
	*m = (struct machine){.cuda = 13000};
	machine_path(path, "machine");
	CLEAN_FILE FILE *f = fopen(path, "re");
	if (!f)
		return false;
	while (fgets(line, sizeof line, f)) {
		line[strcspn(line, "\n")] = 0;
		if (!strncmp(line, "driver ", 7)) {
			snprintf(m->driver, sizeof m->driver, "%s", line + 7);
			m->major = atoi(m->driver);
		} else if (!strncmp(line, "cuda ", 5)) {
			m->cuda = atoi(line + 5);
		} else if (!strncmp(line, "gpu ", 4)) {
			if (m->count == MAX_GPUS || !parse_gpu(line, &m->gpus[m->count]))
				return false;
			m->count++;
		} else if (line[0] && line[0] != '#') {
			return false; // a typing error must not pass for a machine
		}
	}
	return m->major > 0;
}

int machine_lock(void)
{
	char path[PATH_SIZE];
	machine_path(path, "lock");
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	while (fd >= 0 && flock(fd, LOCK_EX) != 0) {
		if (errno == EINTR)
			continue;
		close(fd);
		return -1;
	}
	return fd;
}

int owner_create(char name[OWNER_SIZE])
{
	char path[PATH_SIZE];
	uint64_t nonce;
	if (getrandom(&nonce, sizeof nonce, 0) != sizeof nonce)
		return -1;
	snprintf(name, OWNER_SIZE, "%llu-%016llx", (unsigned long long)start_time("/proc/self"),
		 (unsigned long long)nonce);
	machine_path(path, "owners");
	mkdir(path, 0777);
	machine_path(path, "owners/%s", name);
	if (mkdir(path, 0777) != 0)
		return -1;
	machine_path(path, "owners/%s/lock", name);
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
		return fd;
	if (fd >= 0)
		close(fd);
	owner_remove(name);
	return -1;
}

void owner_remove(const char *name)
{
	char path[PATH_SIZE];
	machine_path(path, "owners/%s", name);
	CLEAN_DIR DIR *d = opendir(path);
	if (!d)
		return;
	for (struct dirent *e; (e = readdir(d));)
		if (e->d_name[0] != '.')
			unlinkat(dirfd(d), e->d_name, 0);
	rmdir(path);
}

bool owner_exists(const char *name)
{
	char path[PATH_SIZE];
	machine_path(path, "owners/%s/lock", name);
	return access(path, F_OK) == 0;
}

bool owner_is_me(const char *name)
{
	return strtoull(name, NULL, 10) == start_time("/proc/self") && owner_exists(name);
}

uint64_t owner_used(const char *name, const char *uuid)
{
	char path[PATH_SIZE];
	uint64_t sum = 0;
	machine_path(path, "owners/%s", name);
	CLEAN_DIR DIR *d = opendir(path);
	if (!d)
		return 0;
	for (struct dirent *e; (e = readdir(d));) {
		struct stat s;
		if (!strncmp(e->d_name, uuid, strlen(uuid)) && fstatat(dirfd(d), e->d_name, &s, 0) == 0)
			sum += (uint64_t)s.st_size;
	}
	return sum;
}

static bool owner_alive(const char *name)
{
	char path[PATH_SIZE];
	machine_path(path, "owners/%s/lock", name);
	CLEAN_FD int fd = open(path, O_RDWR | O_CLOEXEC);
	return fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0;
}

uint64_t gpu_used(const struct gpu *g)
{
	char path[PATH_SIZE];
	uint64_t sum = g->used;
	machine_path(path, "owners");
	CLEAN_DIR DIR *d = opendir(path);
	if (!d)
		return sum;
	for (struct dirent *e; (e = readdir(d));) {
		if (e->d_name[0] == '.')
			continue;
		if (owner_alive(e->d_name))
			sum += owner_used(e->d_name, g->uuid);
		else
			owner_remove(e->d_name);
	}
	return sum;
}
