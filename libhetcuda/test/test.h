/*
 * SPDX-FileCopyrightText: The hetGPU authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What the test programs share. A program ends with 0, with 1 and a line that
 * says what is wrong, or with 77 and a line that says why it was not run.
 */
#ifndef HETCUDA_TEST_H
#define HETCUDA_TEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "hetcuda_control.h"

#define CHECK(condition, ...) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: %s:", __FILE__, __LINE__, #condition); \
			fprintf(stderr, " " __VA_ARGS__); \
			fputc('\n', stderr); \
			exit(1); \
		} \
	} while (0)

#define SKIP(why) \
	do { \
		fprintf(stderr, "%s\n", why); \
		exit(77); \
	} while (0)

/* A symbol of the library under test, and of the driver behind it. */
void *ours(const char *name);
void *theirs(const char *name);

/* Open descriptors; mappings of the address space. */
int count_descriptors(void);
int count_mappings(void);

/* Whether a process may see its own page faults, those of system calls included. */
bool uffd_here(void);

/* The rules of the stand-in from now on; "" for none. */
void set_faults(const char *rules);

double now(void);
void sleep_ms(int ms);

/* The client's side of the control socket. */
int dial(int pid);
void send_request(int fd, enum hetcuda_op op, uint32_t timeout_ms, uint32_t count);
/* 0 at the end of the connection. */
ssize_t receive_packet(int fd, void *data, size_t size, int *fds, int *nfds);
void send_packet(int fd, const void *data, size_t size, const int *fds, int nfds);
struct hetcuda_reply ask(int fd, enum hetcuda_op op, uint32_t timeout_ms, uint32_t count);
struct hetcuda_hello ask_hello(int fd);
/* STEP or STATUS; reply may be NULL, and then there must be no error. */
struct hetcuda_status ask_status(int fd, enum hetcuda_op op, uint32_t timeout_ms, uint32_t count, struct hetcuda_reply *reply);

/* What one peer holds of a process. */
struct parcel {
	uint32_t count;
	struct hetcuda_chunk *chunks;
	int *fds;
};

/* PARK, SHARE or MAKE, and all chunks; -1 for the descriptor of an imported one. status is the reply's. */
int ask_park(int fd, uint32_t timeout_ms, struct parcel *parcel);
int ask_share(int fd, struct parcel *parcel);
int ask_make(int fd, uint64_t id, struct parcel *parcel);
/* UNPARK in packets of `batch`, the last chunk first, without those that are imported; and of those. */
struct hetcuda_reply receive_reply(int fd, enum hetcuda_op op);
struct hetcuda_reply ask_unpark(int fd, const struct parcel *parcel, uint32_t batch);
struct hetcuda_reply ask_unpark_imported(int fd, const struct parcel *parcel);
void drop_parcel(struct parcel *parcel);

/* This process, parked by itself as somebody outside would do it: held, parked,
 * committed; and the way back. */
struct parked {
	int control;
	struct parcel parcel;
};

void park_self(struct parked *self);
void unpark_self(struct parked *self);

#endif
