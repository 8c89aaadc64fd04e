// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// What is in the images that modules are loaded from: kernels by their names, and
// variables. Managed ones are marked: in PTX (PTX ISA 5.4.8)
//
//     .visible .global .attribute(.managed) .align 4 .u32 name[16];
//
// and in a cubin by a bit in the symbol's st_other. Of a fatbin the first cubin is
// taken, or the first PTX. Images are those of tests: little is checked.
#include "image.h"

#include <ctype.h>
#include <elf.h>
#include <string.h>

#define GLOBAL ".global"
#define ATTRIBUTE ".attribute(.managed)"

enum { STO_CUDA_MANAGED = 4, PTX = 1, CUBIN = 2, LZ4 = 0x2000, ZSTD = 0x8000 };

// type_size is that of ".u32" and the like, 0 for what is no type.
static size_t type_size(const char *word)
{
	if (!strchr("busf", word[1]) || !isdigit((unsigned char)word[2]))
		return 0;
	return strtoul(word + 2, NULL, 10) / 8;
}

// declared reads one declaration, from behind ".global".
static bool declared(const char *p, struct image_variable *v)
{
	char word[sizeof v->name];
	int n;
	size_t size = 0;
	for (; sscanf(p, " %63[^][ \t\n;=]%n", word, &n) == 1; p += n) {
		if (strcmp(word, ".align") == 0) {
			sscanf(p += n, " %*u%n", &n);
		} else if (strcmp(word, ATTRIBUTE) == 0) {
			v->managed = true;
		} else if (word[0] == '.') {
			size = type_size(word);
		} else {
			memcpy(v->name, word, sizeof word);
			p += n;
			v->size = size * (*p == '[' ? strtoul(p + 1, NULL, 10) : 1);
			return v->size > 0;
		}
	}
	return false;
}

static bool read_ptx(struct image *image)
{
	const char *p = image->text;
	if (!strstr(p, ".version"))
		return false;
	while ((p = strstr(p, GLOBAL))) {
		bool word = (p == image->text || isspace((unsigned char)p[-1])) && isspace((unsigned char)p[strlen(GLOBAL)]);
		p += strlen(GLOBAL);
		if (word && (image->count == MAX_VARIABLES || !declared(p, &image->variables[image->count++])))
			return false;
	}
	return true;
}

static bool read_symbol(struct image *image, const char *elf, const Elf64_Sym *s, const Elf64_Shdr *sections, const char *names)
{
	const Elf64_Shdr *in = &sections[s->st_shndx];
	if (ELF64_ST_TYPE(s->st_info) != STT_OBJECT)
		return true;
	if (image->count == MAX_VARIABLES)
		return false;
	struct image_variable *v = &image->variables[image->count++];
	snprintf(v->name, sizeof v->name, "%s", names + s->st_name);
	v->size = s->st_size;
	v->managed = s->st_other & STO_CUDA_MANAGED;
	v->initial = in->sh_type == SHT_PROGBITS ? elf + in->sh_offset + s->st_value : NULL;
	return true;
}

static bool read_elf(struct image *image)
{
	const char *elf = image->elf;
	const Elf64_Ehdr *h = (const Elf64_Ehdr *)elf;
	const Elf64_Shdr *sections = (const Elf64_Shdr *)(elf + h->e_shoff);
	for (int i = 0; i < h->e_shnum; i++) {
		const Elf64_Sym *symbols = (const Elf64_Sym *)(elf + sections[i].sh_offset);
		if (sections[i].sh_type != SHT_SYMTAB)
			continue;
		image->symbols = symbols;
		image->symbol_count = sections[i].sh_size / sizeof *symbols;
		image->names = elf + sections[sections[i].sh_link].sh_offset;
		for (size_t k = 1; k < image->symbol_count; k++)
			if (!read_symbol(image, elf, &symbols[k], sections, image->names))
				return false;
		return true;
	}
	return false;
}

static size_t elf_size(const char *elf)
{
	const Elf64_Ehdr *h = (const Elf64_Ehdr *)elf;
	const Elf64_Shdr *sections = (const Elf64_Shdr *)(elf + h->e_shoff);
	size_t end = h->e_shoff + h->e_shnum * sizeof *sections;
	for (int i = 0; i < h->e_shnum; i++)
		if (sections[i].sh_type != SHT_NOBITS && sections[i].sh_offset + sections[i].sh_size > end)
			end = sections[i].sh_offset + sections[i].sh_size;
	return end;
}

static bool keep(struct image *image, const void *data, size_t size, bool elf)
{
	char *copy = calloc(1, size + 1);
	if (!copy)
		return false;
	memcpy(copy, data, size);
	*(elf ? &image->elf : &image->text) = copy;
	return elf ? read_elf(image) : read_ptx(image);
}

// unpack takes LZ4 that has everything literally, as tests make it.
static bool unpack(struct image *image, const unsigned char *p, size_t size)
{
	size_t length = 15;
	if (*p++ != 0xf0)
		return false;
	do
		length += *p;
	while (*p++ == 255);
	return length == size && keep(image, p, size, true);
}

struct entry {
	uint16_t kind, unknown;
	uint32_t header;
	uint64_t size;
	uint32_t compressed, unknown2;
	uint16_t minor, major;
	uint32_t architecture, name, name_size;
	uint64_t flags, zero, uncompressed;
};

static const struct entry *find(const char *fatbin, uint16_t kind)
{
	uint64_t size;
	memcpy(&size, fatbin + 8, sizeof size);
	for (uint64_t at = 16; at < 16 + size;) {
		const struct entry *e = (const struct entry *)(fatbin + at);
		if (e->kind == kind)
			return e;
		at += e->header + e->size;
	}
	return NULL;
}

static bool read_fatbin(struct image *image, const char *fatbin)
{
	const struct entry *e = find(fatbin, CUBIN), *text = find(fatbin, PTX);
	const char *payload = (const char *)e + (e ? e->header : 0);
	if (e && e->flags & LZ4)
		return unpack(image, (const unsigned char *)payload, e->uncompressed);
	if (e)
		return keep(image, payload, e->size, true);
	return text && !(text->flags & (LZ4 | ZSTD)) && keep(image, (const char *)text + text->header, text->size, false);
}

bool image_read(struct image *image, const void *code)
{
	uint32_t magic;
	memcpy(&magic, code, sizeof magic);
	if (magic == 0x466243b1) {
		memcpy(&code, (const char *)code + 8, sizeof code);
		memcpy(&magic, code, sizeof magic);
	}
	if (magic == 0xba55ed50)
		return read_fatbin(image, code);
	if (memcmp(code, ELFMAG, SELFMAG) == 0)
		return keep(image, code, elf_size(code), true);
	return keep(image, code, strlen(code), false);
}

bool image_has(const struct image *image, const char *kernel)
{
	char entry[64];
	const Elf64_Sym *symbols = image->symbols;
	snprintf(entry, sizeof entry, ".entry %s(", kernel);
	if (image->text)
		return strstr(image->text, entry);
	for (size_t i = 1; i < image->symbol_count; i++)
		if (ELF64_ST_TYPE(symbols[i].st_info) == STT_FUNC && strcmp(image->names + symbols[i].st_name, kernel) == 0)
			return true;
	return false;
}

void image_end(struct image *image)
{
	free(image->text);
	free(image->elf);
}
