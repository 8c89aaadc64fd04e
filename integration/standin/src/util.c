// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

#include "util.h"

#include <errno.h>
#include <string.h>
#include <time.h>

bool read_all(int fd, void *to, size_t size, uint64_t offset)
{
	for (char *p = to; size > 0;) {
		ssize_t n = pread(fd, p, size, (off_t)offset);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		p += n;
		size -= (size_t)n;
		offset += (uint64_t)n;
	}
	return true;
}

bool write_all(int fd, const void *from, size_t size, uint64_t offset)
{
	for (const char *p = from; size > 0;) {
		ssize_t n = pwrite(fd, p, size, (off_t)offset);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		p += n;
		size -= (size_t)n;
		offset += (uint64_t)n;
	}
	return true;
}

bool read_line(const char *path, char *line, size_t size)
{
	CLEAN_FILE FILE *f = fopen(path, "re");
	if (!f || !fgets(line, (int)size, f))
		return false;
	line[strcspn(line, "\n")] = 0;
	return true;
}

uint64_t start_time(const char *proc)
{
	char path[64], line[1024];
	snprintf(path, sizeof path, "%s/stat", proc);
	if (!read_line(path, line, sizeof line))
		return 0;
	// The name may hold spaces and parentheses: count from its end. The start
	// time is field 22; what follows the name is field 3.
	char *p = strrchr(line, ')');
	for (int field = 2; p && field < 22; field++)
		p = strchr(p + 1, ' ');
	return p ? strtoull(p, NULL, 10) : 0;
}

uint64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

void sleep_us(unsigned us)
{
	struct timespec t = {.tv_sec = us / 1000000, .tv_nsec = (long)(us % 1000000) * 1000};
	nanosleep(&t, NULL);
}
