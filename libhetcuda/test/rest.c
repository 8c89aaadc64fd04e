/*
 * SPDX-FileCopyrightText: The hetGPU authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Every function of the list, so that the test driver is complete. Each returns
 * a number of its own; weak, for real.c to define those that do something.
 */
enum {
#define HETCUDA_EXPORT(name) INDEX_##name,
#include "exports.inc"
#undef HETCUDA_EXPORT
};

#define HETCUDA_EXPORT(name) \
	__attribute__((weak, visibility("default"))) long name(void); \
	long name(void) \
	{ \
		return 1000 + INDEX_##name; \
	}
#include "exports.inc"
#undef HETCUDA_EXPORT
