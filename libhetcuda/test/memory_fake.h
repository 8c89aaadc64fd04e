// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// A driver for unit tests of the memory part, in this process: device memory is
// real memory, mapped at the device's addresses, so that a test can read and
// write it there, and dies where it touches what is not mapped. Every rule of
// the driver that the library depends on is checked, and any call can fail.
#ifndef HETCUDA_TEST_MEMORY_FAKE_H
#define HETCUDA_TEST_MEMORY_FAKE_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "cuda.h"

struct fake {
	int devices;
	size_t memory;         // of each device
	size_t used[8];        // by handles and mappings
	size_t handles, maps;  // that exist
	size_t reservations;
	size_t driver;         // allocations that cuMemAlloc itself served
	unsigned long long calls;
	size_t pool, pool_used; // of the pool that every device shares
	bool no_hint;          // reservations ignore where they are wanted
	bool moved;            // to other devices: what is imported is not known
	bool no_rdma;          // memory for RDMA can't be made, whatever is said
	_Atomic bool busy;     // synchronizing doesn't end
	_Atomic unsigned syncs;
	// The call that fails: the nth from now (1: the next) of a function, or
	// of any that can with "".
	const char *fail;
	unsigned nth;
	bool lasting; // and all such calls that follow
	CUresult with;
};

extern struct fake fake;

// fake_start fills the table of the driver's functions.
void fake_start(int devices, size_t memory);

// fake_context makes a context current that is not a primary one.
CUcontext fake_context(CUdevice device);

// fake_access tells whether a device may write what is mapped at an address.
bool fake_access(CUdeviceptr address, CUdevice device);

#define CHECK(condition)                                                                   \
	do {                                                                               \
		if (!(condition)) {                                                        \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
			exit(1);                                                           \
		}                                                                          \
	} while (0)

#define OK(call)                                                                                    \
	do {                                                                                        \
		int result_ = (int)(call);                                                          \
		if (result_ != 0) {                                                                 \
			fprintf(stderr, "%s:%d: %s: %d\n", __FILE__, __LINE__, #call, result_); \
			exit(1);                                                                    \
		}                                                                                   \
	} while (0)

// tests are run one by one, each in a child of its own.
struct test {
	const char *name;
	void (*run)(void);
};

int run_tests(const struct test *tests, int argc, char **argv);

#endif
