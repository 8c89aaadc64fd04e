// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// What is in the images that modules are loaded from.
#ifndef STANDIN_IMAGE_H
#define STANDIN_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_VARIABLES = 16 };

struct image_variable {
	char name[64];
	size_t size;
	const void *initial; // NULL: zeros
	bool managed;
};

struct image {
	char *text, *elf; // one of them
	const void *symbols;
	size_t symbol_count;
	const char *names;
	struct image_variable variables[MAX_VARIABLES];
	int count;
};

// image_read reads an image into a struct of zeros. False if it isn't understood.
bool image_read(struct image *image, const void *code);
bool image_has(const struct image *image, const char *kernel);
void image_end(struct image *image);

#endif
