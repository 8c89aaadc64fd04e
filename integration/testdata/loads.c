// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// loads LIBRARY prints "loaded", or what the linker says of it, and goes on: as a
// program does that can use a GPU and needs none.
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	puts(dlopen(argv[1], RTLD_NOW) ? "loaded" : dlerror());
	return 0;
}
