// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

// Makes cubins and fatbins as nvcc 13.0 does (its sections, symbols and headers, as read
// from its files), with variables and with kernels that have no code: for the stand-in,
// which knows kernels by name.
#ifndef HETCUDA_TEST_CUBIN_H
#define HETCUDA_TEST_CUBIN_H

#include <elf.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct cubin_variable {
	const char *name;
	uint64_t size;
	const void *initial; // NULL: zeros
	bool managed;
};

enum { CUBIN_NULL, CUBIN_NAMES, CUBIN_STRINGS, CUBIN_SYMBOLS, CUBIN_INIT, CUBIN_ZERO, CUBIN_TEXT, CUBIN_SECTIONS };

// cubin_make writes a cubin to zeroed memory that has room, and returns its size.
// Both lists end with a name that is NULL.
static inline size_t cubin_make(unsigned char *to, const struct cubin_variable *variables, const char *const *kernels)
{
	static const char names[] = "\0.shstrtab\0.strtab\0.symtab\0.nv.global.init\0.nv.global\0.text";
	Elf64_Ehdr *h = (Elf64_Ehdr *)to;
	size_t at = sizeof *h, n = 1;
	Elf64_Shdr s[CUBIN_SECTIONS] = {
		[CUBIN_NAMES] = {.sh_name = 1, .sh_type = SHT_STRTAB},
		[CUBIN_STRINGS] = {.sh_name = 11, .sh_type = SHT_STRTAB},
		[CUBIN_SYMBOLS] = {.sh_name = 19, .sh_type = SHT_SYMTAB, .sh_entsize = sizeof(Elf64_Sym), .sh_link = CUBIN_STRINGS},
		[CUBIN_INIT] = {.sh_name = 27, .sh_type = SHT_PROGBITS, .sh_flags = SHF_ALLOC | SHF_WRITE},
		[CUBIN_ZERO] = {.sh_name = 43, .sh_type = SHT_NOBITS, .sh_flags = SHF_ALLOC | SHF_WRITE},
		[CUBIN_TEXT] = {.sh_name = 54, .sh_type = SHT_PROGBITS, .sh_flags = SHF_ALLOC | SHF_EXECINSTR, .sh_size = 16},
	};
	*h = (Elf64_Ehdr){
		.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT, 65, 8},
		.e_type = ET_EXEC, .e_machine = 190, .e_version = 130, .e_flags = 0x6005a04,
		.e_ehsize = sizeof *h, .e_shentsize = sizeof(Elf64_Shdr), .e_shnum = CUBIN_SECTIONS, .e_shstrndx = CUBIN_NAMES,
	};
	s[CUBIN_NAMES].sh_offset = at;
	memcpy(to + at, names, s[CUBIN_NAMES].sh_size = sizeof names);
	at += sizeof names;
	s[CUBIN_STRINGS].sh_offset = at++;
	size_t strings = s[CUBIN_STRINGS].sh_offset;
	for (const struct cubin_variable *v = variables; v && v->name; v++, at += strlen((char *)to + at) + 1)
		memcpy(to + at, v->name, strlen(v->name));
	for (const char *const *k = kernels; k && *k; k++, at += strlen((char *)to + at) + 1)
		memcpy(to + at, *k, strlen(*k));
	s[CUBIN_STRINGS].sh_size = at - strings;
	at = (at + 15) / 16 * 16;
	s[CUBIN_INIT].sh_offset = at;
	for (const struct cubin_variable *v = variables; v && v->name; v++) {
		if (!v->initial)
			continue;
		memcpy(to + at + s[CUBIN_INIT].sh_size, v->initial, v->size);
		s[CUBIN_INIT].sh_size += (v->size + 15) / 16 * 16;
	}
	at += s[CUBIN_INIT].sh_size;
	s[CUBIN_ZERO].sh_offset = s[CUBIN_TEXT].sh_offset = at;
	at += s[CUBIN_TEXT].sh_size;
	Elf64_Sym *symbol = (Elf64_Sym *)(to + at);
	size_t name = 1, init = 0, zero = 0;
	for (const struct cubin_variable *v = variables; v && v->name; v++, n++) {
		symbol[n] = (Elf64_Sym){
			.st_name = (uint32_t)name, .st_info = ELF64_ST_INFO(STB_LOCAL, STT_OBJECT), .st_other = v->managed ? 4 : 0,
			.st_shndx = v->initial ? CUBIN_INIT : CUBIN_ZERO, .st_value = v->initial ? init : zero, .st_size = v->size,
		};
		*(v->initial ? &init : &zero) += (v->size + 15) / 16 * 16;
		name += strlen(v->name) + 1;
	}
	s[CUBIN_ZERO].sh_size = zero;
	for (const char *const *k = kernels; k && *k; k++, n++) {
		symbol[n] = (Elf64_Sym){
			.st_name = (uint32_t)name, .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC), .st_other = 0x10,
			.st_shndx = CUBIN_TEXT, .st_size = 16,
		};
		name += strlen(*k) + 1;
	}
	s[CUBIN_SYMBOLS].sh_offset = at;
	s[CUBIN_SYMBOLS].sh_size = n * sizeof *symbol;
	at += s[CUBIN_SYMBOLS].sh_size;
	h->e_shoff = at;
	memcpy(to + at, s, sizeof s);
	return at + sizeof s;
}

enum { FATBIN_IS_PTX = 1, FATBIN_IS_ELF = 2 };

struct fatbin_wrapper {
	uint32_t magic, version;
	const void *data, *others;
};

// fatbin_begin writes an empty fatbin, fatbin_add adds an entry: as it is, or as LZ4
// that has everything literally. Both return the fatbin's size.
static inline size_t fatbin_begin(unsigned char *to)
{
	static const unsigned char empty[16] = {0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0};
	memcpy(to, empty, sizeof empty);
	return sizeof empty;
}

static inline size_t fatbin_add(unsigned char *fatbin, uint16_t kind, const void *data, size_t size, bool compressed)
{
	uint64_t *entries = (uint64_t *)(fatbin + 8), payload = size, flags = 0x11, whole = compressed ? size : 0;
	unsigned char *e = fatbin + 16 + *entries, *p = e + 64;
	uint16_t one = 0x101;
	uint32_t header = 64, architecture = 90, packed = 0;
	if (compressed) {
		// A token, the rest of the length, the bytes.
		size_t rest = size - 15;
		*p++ = 0xf0;
		for (; rest >= 255; rest -= 255)
			*p++ = 255;
		*p++ = (unsigned char)rest;
		packed = (uint32_t)(p - e - 64 + size);
		payload = packed;
		flags |= 0x2000;
	}
	memcpy(p, data, size);
	payload = (payload + 7) / 8 * 8;
	memcpy(e, &kind, 2);
	memcpy(e + 2, &one, 2);
	memcpy(e + 4, &header, 4);
	memcpy(e + 8, &payload, 8);
	memcpy(e + 16, &packed, 4);
	memcpy(e + 28, &architecture, 4);
	memcpy(e + 40, &flags, 8);
	memcpy(e + 56, &whole, 8);
	*entries += 64 + payload;
	return 16 + *entries;
}

#endif
