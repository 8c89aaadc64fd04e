/*
 * SPDX-FileCopyrightText: The hetGPU authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Without a driver every call returns an error, and nothing else happens.
 */
#include <string.h>
#include <unistd.h>

#include "signatures.h"
#include "test.h"

int main(void)
{
	void *p = (void *)1;

	CHECK(cuInit(0) == 100, "CUDA_ERROR_NO_DEVICE");
	CHECK(NOTHING() == 3, "CUDA_ERROR_NOT_INITIALIZED");
	CHECK(cuGetProcAddress_v2("cuInit", &p, 12000, 0, NULL) == 3);
	CHECK(ARGS12(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12) == 3);
	CHECK(count_descriptors() < 10);
	return 0;
}
