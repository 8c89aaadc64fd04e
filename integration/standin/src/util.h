// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// What every part of the stand-in needs: clean-up attributes and small reads
// of /proc. No part of it ends the process that it was loaded into.
#ifndef STANDIN_UTIL_H
#define STANDIN_UTIL_H

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static inline void cleanup_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

static inline void cleanup_file(FILE **f)
{
	if (*f)
		fclose(*f);
}

static inline void cleanup_dir(DIR **d)
{
	if (*d)
		closedir(*d);
}

static inline void cleanup_free(void *p)
{
	free(*(void **)p);
}

#define CLEAN_FD __attribute__((cleanup(cleanup_fd)))
#define CLEAN_FILE __attribute__((cleanup(cleanup_file)))
#define CLEAN_DIR __attribute__((cleanup(cleanup_dir)))
#define CLEAN_FREE __attribute__((cleanup(cleanup_free)))

// read_all and write_all move size bytes at offset, or fail.
bool read_all(int fd, void *to, size_t size, uint64_t offset);
bool write_all(int fd, const void *from, size_t size, uint64_t offset);

// read_line reads the first line of a file, without its end.
bool read_line(const char *path, char *line, size_t size);

// start_time is when the process started, in clock ticks since boot; 0 if it
// can't be told.
uint64_t start_time(const char *proc);

// now_ms is a clock for measuring, never for the time of day.
uint64_t now_ms(void);
void sleep_us(unsigned us);

#endif
