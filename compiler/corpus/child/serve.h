// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0
//
// The side of package child that answers. Standard input has requests, standard
// output one answer for each, all numbers in the host's order:
//
//     u32 kind, u32 0, u64 length, payload      kind of an answer: 0 done, 1 failed (text)
//
// What a driver prints on standard output goes to a file in memory.
#ifndef HETGPU_CORPUS_SERVE_H
#define HETGPU_CORPUS_SERVE_H

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SERVE_MAX_REQUEST = 1 << 28 };

struct serve_head {
	uint32_t kind, zero;
	uint64_t length;
};

static int serve_answers; // standard output's descriptor

static void serve_all(const void *data, size_t n)
{
	for (const uint8_t *p = data; n > 0;) {
		ssize_t done = write(serve_answers, p, n);
		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			_exit(3);
		p += done;
		n -= (size_t)done;
	}
}

static void answer(uint32_t kind, const void *data, size_t n)
{
	struct serve_head h = {kind, 0, n};
	serve_all(&h, sizeof h);
	serve_all(data, n);
}

__attribute__((format(printf, 1, 2))) static void failed(const char *format, ...)
{
	char text[1024];
	va_list args;
	va_start(args, format);
	int n = vsnprintf(text, sizeof text, format, args);
	va_end(args);
	answer(1, text, n < (int)sizeof text ? (size_t)n : sizeof text - 1);
}

// printed takes what was printed since the last time, behind room for n bytes.
static char *printed(size_t n, size_t *length)
{
	fflush(stdout);
	off_t end = lseek(STDOUT_FILENO, 0, SEEK_END);
	*length = n + (size_t)end;
	char *text = calloc(1, *length + 1);
	if (end < 0 || !text || pread(STDOUT_FILENO, text + n, (size_t)end, 0) != end || ftruncate(STDOUT_FILENO, 0) != 0)
		_exit(4);
	lseek(STDOUT_FILENO, 0, SEEK_SET);
	return text;
}

// serve answers requests with one of n functions, from kind 1 on, until there are
// no more. A payload has a zero byte behind it, so that a name at its end is a string.
static int serve(void (*const handlers[])(const uint8_t *, size_t), uint32_t n)
{
	serve_answers = dup(STDOUT_FILENO);
	int out = memfd_create("printed", MFD_CLOEXEC);
	// Several threads of a driver print. The position in such a file is not theirs
	// together, so that one would overwrite what another wrote at the same time.
	if (serve_answers < 0 || out < 0 || fcntl(out, F_SETFL, O_APPEND) < 0 || dup2(out, STDOUT_FILENO) < 0)
		return 2;
	struct serve_head h;
	while (fread(&h, sizeof h, 1, stdin) == 1) {
		if (h.length > SERVE_MAX_REQUEST)
			return 2;
		uint8_t *data = calloc(1, h.length + 1);
		if (!data || fread(data, 1, h.length, stdin) != h.length)
			return 2;
		if (h.kind > 0 && h.kind <= n)
			handlers[h.kind - 1](data, h.length);
		else
			failed("no request %u", h.kind);
		free(data);
	}
	return 0;
}

#endif
