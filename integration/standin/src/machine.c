// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

#define _GNU_SOURCE
#include "machine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
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

// files_used adds up the files of a GPU in a directory for which count says so.
static uint64_t files_used(const char *directory, const char *uuid, bool (*count)(const char *, const struct stat *))
{
	uint64_t sum = 0;
	CLEAN_DIR DIR *d = opendir(directory);
	if (!d)
		return 0;
	for (struct dirent *e; (e = readdir(d));) {
		struct stat s;
		if (!strncmp(e->d_name, uuid, strlen(uuid)) && fstatat(dirfd(d), e->d_name, &s, 0) == 0 &&
		    count(e->d_name, &s))
			sum += (uint64_t)s.st_size;
	}
	return sum;
}

static bool every(const char *name, const struct stat *s)
{
	(void)name;
	(void)s;
	return true;
}

// unlinked: not a link to a file below memory/.
static bool unlinked(const char *name, const struct stat *s)
{
	(void)name;
	return s->st_nlink == 1;
}

// held removes memory that nobody holds.
static bool held(const char *name, const struct stat *s)
{
	(void)s;
	char path[PATH_SIZE];
	if (memory_held(name))
		return true;
	machine_path(path, "memory/%s", name);
	unlink(path);
	return false;
}

uint64_t owner_used(const char *name, const char *uuid)
{
	char path[PATH_SIZE];
	machine_path(path, "owners/%s", name);
	return files_used(path, uuid, every);
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
	for (struct dirent *e; d && (e = readdir(d));) {
		if (e->d_name[0] == '.')
			continue;
		machine_path(path, "owners/%s", e->d_name);
		if (owner_alive(e->d_name))
			sum += files_used(path, g->uuid, unlinked);
		else
			owner_remove(e->d_name);
	}
	machine_path(path, "memory");
	return sum + files_used(path, g->uuid, held);
}

static bool share(int fd)
{
	while (fd >= 0 && flock(fd, LOCK_SH) != 0)
		if (errno != EINTR)
			return false;
	return fd >= 0;
}

// keep keeps an open file, and with it the lock on it, for as long as it is
// mapped: programs may close descriptors that they do not know.
static void *keep(int fd)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	if (!share(fd))
		return NULL;
	void *p = mmap(NULL, page, PROT_NONE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return NULL;
	madvise(p, page, MADV_DONTFORK);
	return p;
}

void *memory_create(const char *owner, const char *uuid, uint64_t size, char *name)
{
	char path[PATH_SIZE], mine[PATH_SIZE];
	uint64_t nonce;
	if (getrandom(&nonce, sizeof nonce, 0) != sizeof nonce)
		return NULL;
	snprintf(name, MEMORY_SIZE, "%s.%016llx", uuid, (unsigned long long)nonce);
	machine_path(path, "memory");
	mkdir(path, 0777);
	machine_path(path, "memory/%s", name);
	machine_path(mine, "owners/%s/%s", owner, name);
	CLEAN_FD int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (fd < 0)
		return NULL;
	void *p = ftruncate(fd, (off_t)size) == 0 ? keep(fd) : NULL;
	if (p && link(path, mine) == 0)
		return p;
	if (p)
		munmap(p, (size_t)sysconf(_SC_PAGESIZE));
	unlink(path);
	return NULL;
}

int memory_export(const char *name)
{
	char path[PATH_SIZE];
	machine_path(path, "memory/%s", name);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	if (share(fd))
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

void *memory_hold(const char *name)
{
	CLEAN_FD int fd = memory_export(name);
	return keep(fd);
}

bool memory_held(const char *name)
{
	char path[PATH_SIZE];
	machine_path(path, "memory/%s", name);
	CLEAN_FD int fd = open(path, O_RDWR | O_CLOEXEC);
	return fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0;
}

void memory_release(void *hold, const char *owner, const char *name)
{
	char path[PATH_SIZE];
	if (hold)
		munmap(hold, (size_t)sysconf(_SC_PAGESIZE));
	if (owner) {
		machine_path(path, "owners/%s/%s", owner, name);
		unlink(path);
	}
	machine_path(path, "memory/%s", name);
	if (!memory_held(name))
		unlink(path);
}

bool memory_name(int fd, char *name, uint64_t *size)
{
	char link[64], path[PATH_SIZE];
	struct stat file, known;
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	ssize_t n = readlink(link, path, sizeof path - 1);
	if (n <= 0 || fstat(fd, &file) != 0)
		return false;
	path[n] = 0;
	const char *base = strrchr(path, '/');
	if (!base || strlen(++base) >= MEMORY_SIZE)
		return false;
	memcpy(name, base, strlen(base) + 1);
	machine_path(path, "memory/%s", name);
	*size = (uint64_t)file.st_size;
	return stat(path, &known) == 0 && known.st_dev == file.st_dev && known.st_ino == file.st_ino;
}
