// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// What a program loads as a module, and the marks of managed variables in it. It
// knows nothing of the driver.
//
// An image is a cubin (ELF), PTX text, a fatbin that has several of these, or the
// wrapper around a fatbin that compilers make. In a cubin a managed variable is a
// symbol with a bit in st_other (STO_CUDA_MANAGED, 4): nothing else in the file
// differs from a __device__ variable (nvcc 13.0, measured). PTX has
// .attribute(.managed) in the declaration (PTX ISA, section 5.4.8).
//
// The calls that load an image don't say how long it is. So only its own headers
// are believed, memory is read in a way that can fail, and an image that is not
// understood to its end stays as it is.
#ifndef HETCUDA_IMAGE_H
#define HETCUDA_IMAGE_H

#include <stdbool.h>
#include <stddef.h>

// A copy of an image in which no variable is marked.
struct image {
	void *code;
	char **names; // of the variables that were
	size_t count;
	void *memory; // that code is in
	size_t size;  // of it
};

// image_unmark makes the copy; size is 0 if it isn't known, and text ends with a
// zero. False if nothing is
// marked, or the image is not understood: then there is nothing to free. What is
// compressed in a fatbin is not looked at.
bool image_unmark(const void *code, size_t size, struct image *image);
void image_free(struct image *image);

#endif
