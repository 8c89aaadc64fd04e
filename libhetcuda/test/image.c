// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// The reader of images (src/image.c): what it changes, and that it changes nothing of
// what is broken, and reads nothing that isn't there. Images lie at the end of readable
// memory, so that there is nothing behind them.
//
//     image [ROUNDS [SEED]]
#include "../src/image.h"

#include <sys/mman.h>

#include "cubin.h"
#include "random.h"
#include "test.h"

enum { ROOM = 1 << 20, PAGE = 4096 };

static const uint32_t eleven[] = {11, 12, 13, 14}, twenty[] = {21, 22, 23, 24};
static const char *const kernels[] = {"add", "step", NULL};

static const struct cubin_variable managed[] = {
	{"big", 262144, NULL, true}, {"plain", 262144, NULL, false}, {"small", 16, eleven, true}, {"tiny", 16, twenty, false}, {0}};
static const struct cubin_variable ordinary[] = {
	{"big", 262144, NULL, false}, {"plain", 262144, NULL, false}, {"small", 16, eleven, false}, {"tiny", 16, twenty, false}, {0}};

static const char ptx[] = ".version 8.0\n.target sm_90 // .attribute(.managed) of a comment\n"
			  ".visible .global .attribute(.managed) .align 4 .b8 table[4] = {1, 2, 3, 4};\n"
			  "/* .attribute(.managed) */ .file 1 \"a .attribute(.managed) b.cu\"\n"
			  ".global .attribute( .managed ) .u32 one, two[3], three;\n"
			  ".global .attribute(.unified(7, 8)) .u32 other;\n"
			  ".global .u32 plain;\n.visible .entry add(.param .u64 p) { ret; }\n";
static const char cleared[] = ".version 8.0\n.target sm_90 // .attribute(.managed) of a comment\n"
			      ".visible .global                      .align 4 .b8 table[4] = {1, 2, 3, 4};\n"
			      "/* .attribute(.managed) */ .file 1 \"a .attribute(.managed) b.cu\"\n"
			      ".global                        .u32 one, two[3], three;\n"
			      ".global .attribute(.unified(7, 8)) .u32 other;\n"
			      ".global .u32 plain;\n.visible .entry add(.param .u64 p) { ret; }\n";
_Static_assert(sizeof ptx == sizeof cleared, "spaces for what is taken");

static unsigned char *last; // where readable memory ends

static void *at_end(const void *data, size_t size)
{
	return memcpy(last - size, data, size);
}

static bool named(const struct image *image, const char *name)
{
	for (size_t i = 0; i < image->count; i++)
		if (strcmp(image->names[i], name) == 0)
			return true;
	return false;
}

static void cubins(void)
{
	static unsigned char m[ROOM], d[ROOM];
	struct image image;
	size_t size = cubin_make(m, managed, kernels);
	CHECK(size == cubin_make(d, ordinary, kernels));
	CHECK(image_unmark(at_end(m, size), 0, &image));
	CHECK(image.count == 2 && named(&image, "big") && named(&image, "small"));
	CHECK(memcmp(image.code, d, size) == 0);
	CHECK(memcmp(last - size, m, size) == 0, "the program's own is not to be changed");
	image_free(&image);
	CHECK(!image_unmark(at_end(d, size), 0, &image));
	// Cut anywhere, it is as if the rest couldn't be read; nor is less than it says enough.
	for (size_t n = 0; n < size; n++) {
		CHECK(!image_unmark(at_end(m, n), 0, &image), "%zu of %zu bytes", n, size);
		CHECK(n == 0 || !image_unmark(m, n, &image), "%zu of %zu bytes", n, size);
	}
}

static void texts(void)
{
	struct image image;
	CHECK(image_unmark(at_end(ptx, sizeof ptx), 0, &image));
	CHECK(image.count == 4 && named(&image, "table") && named(&image, "one") && named(&image, "two") && named(&image, "three"));
	CHECK(strcmp(image.code, cleared) == 0, "%s", (char *)image.code);
	image_free(&image);
	CHECK(!image_unmark(at_end(cleared, sizeof cleared), 0, &image));
	// Without its end it can't be read.
	CHECK(!image_unmark(at_end(ptx, sizeof ptx - 1), 0, &image));
	// What is not understood is left alone, all of it.
	static const char *const strange[] = {
		".version 8.0\n.global .attribute(.managed) .u32 a;\n.global .attribute(.managed, .unified(1, 2)) .u32 b;\n",
		".version 8.0\n.global .attribute(.managed) .u32 a;\n.global .attribute(.managed) ;\n",
		".version 8.0\n.global .attribute(.managed) .u32 a",
		".version 8.0\n.global .attribute(.managed",
		".version 8.0\n.global .attribute(.managed) .u32 a; \"\n",
		".version 8.0\n.global .attribute(.managed) .u32 a; \x01\n",
		"",
	};
	for (size_t i = 0; i < sizeof strange / sizeof *strange; i++)
		CHECK(!image_unmark(at_end(strange[i], strlen(strange[i]) + 1), 0, &image), "%s", strange[i]);
	CHECK(!image_unmark(NULL, 0, &image));
	CHECK(!image_unmark(last, 0, &image));
}

// A fatbin that has everything.
static size_t fatbin_of(unsigned char *to, const struct cubin_variable *variables, const char *text)
{
	static unsigned char cubin[ROOM];
	memset(cubin, 0, sizeof cubin);
	size_t size = cubin_make(cubin, variables, kernels);
	fatbin_begin(to);
	fatbin_add(to, FATBIN_IS_ELF, cubin, size, false);
	fatbin_add(to, FATBIN_IS_ELF, cubin, size, false);
	fatbin_add(to, 8, "\x7f" "ELF of another kind", 16, false);
	return fatbin_add(to, FATBIN_IS_PTX, text, sizeof ptx, false);
}

static void fatbins(void)
{
	static unsigned char m[ROOM], d[ROOM], packed[ROOM], cubin[ROOM];
	struct image image;
	size_t size = fatbin_of(m, managed, ptx);
	CHECK(size == fatbin_of(d, ordinary, cleared));
	CHECK(image_unmark(at_end(m, size), 0, &image));
	CHECK(image.count == 6 && memcmp(image.code, d, size) == 0);
	image_free(&image);
	for (size_t n = 0; n < size; n++)
		CHECK(!image_unmark(at_end(m, n), 0, &image), "%zu of %zu bytes", n, size);
	for (uint32_t version = 0; version < 4; version++) {
		struct fatbin_wrapper w = {0x466243b1, version, at_end(m, size), cubin}, *copy;
		bool known = version == 1 || version == 2;
		CHECK(image_unmark(&w, 0, &image) == known, "%u", version);
		if (!known)
			continue;
		copy = image.code;
		CHECK(copy->magic == w.magic && copy->version == version && copy->others == cubin && memcmp(copy->data, d, size) == 0);
		image_free(&image);
		w.data = cubin;
		CHECK(!image_unmark(&w, 0, &image));
		w.data = NULL;
		CHECK(!image_unmark(&w, 0, &image));
	}
	// What is compressed isn't looked at, and in the way of nothing.
	size_t n = cubin_make(cubin, managed, kernels);
	fatbin_begin(packed);
	size = fatbin_add(packed, FATBIN_IS_ELF, cubin, n, true);
	CHECK(!image_unmark(at_end(packed, size), 0, &image));
	size = fatbin_add(packed, FATBIN_IS_ELF, cubin, n, false);
	CHECK(image_unmark(at_end(packed, size), 0, &image) && image.count == 2);
	image_free(&image);
}

// damage changes some bytes, most of them in what says where something is.
static void damage(unsigned char *p, size_t size)
{
	static const uint64_t telling[] = {0, 1, 4, 24, 64, 0x7fffffff, 0xffffffff, INT64_MAX, UINT64_MAX, UINT64_MAX - 63, 1u << 30};
	for (uint64_t k = 1 + draw(4); k > 0; k--) {
		size_t at = draw(2) ? draw(size) : draw(2) ? draw(size < 160 ? size : 160) : size - 1 - draw(size < 1000 ? size : 1000);
		uint64_t value = draw(3) ? telling[draw(sizeof telling / sizeof *telling)] : size - draw(100);
		if (draw(3) == 0)
			p[at] ^= (unsigned char)(1 << draw(8));
		else if (at + 8 <= size)
			memcpy(p + at / 4 * 4, &value, draw(2) && at / 4 * 4 + 8 <= size ? 8 : 4);
	}
}

// Whatever is in an image: what is read is there, what is changed is a mark.
static void fuzz(unsigned long rounds)
{
	static unsigned char images[3][ROOM];
	size_t sizes[] = {cubin_make(images[0], managed, kernels), fatbin_of(images[1], managed, ptx), sizeof ptx};
	unsigned long understood = 0;
	memset(images[0], 0, ROOM);
	cubin_make(images[0], managed, kernels);
	memcpy(images[2], ptx, sizeof ptx);
	for (unsigned long i = 0; i < rounds; i++) {
		size_t k = draw(3), size = sizes[k];
		unsigned char *p = at_end(images[k], size);
		damage(p, size);
		struct image image;
		if (!image_unmark(p, draw(2) ? 0 : size, &image))
			continue;
		understood++;
		CHECK(image.count > 0);
		size_t most = 0;
		for (size_t n = 0; n < image.count; n++)
			CHECK(strlen(image.names[n]) > 0);
		const unsigned char *copy = image.code;
		for (size_t n = 0; n < size && n < image.size; n++)
			most += copy[n] != p[n] && copy[n] != (p[n] & ~4) && copy[n] != 0;
		CHECK(k != 0 || most == 0, "%zu bytes were changed that are no marks", most);
		image_free(&image);
	}
	CHECK(rounds < 1000 || understood > 0);
	printf("%lu images, %lu understood\n", rounds, understood);
}

int main(int argc, char **argv)
{
	unsigned char *p = mmap(NULL, ROOM + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(p != MAP_FAILED && mprotect(p + ROOM, PAGE, PROT_NONE) == 0);
	last = p + ROOM;
	if (argc > 2)
		seed += strtoull(argv[2], NULL, 0);
	cubins();
	texts();
	fatbins();
	fuzz(argc > 1 ? strtoul(argv[1], NULL, 0) : 5000);
	return 0;
}
